"""Measurers that are started before the search that will use them has made up its mind.

Starting processes, a device and the oracle takes as long as building a space and reading a model in
does, so both are done at a time. Knows how a measurer is made, and nothing of searches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

from explorer.measure import Measuring


class Early:
    """At most one measurer that nobody has taken yet."""

    def __init__(self) -> None:
        self._key: Hashable = None
        self._made: list[Measuring] = []
        self._failed: list[BaseException] = []
        self._thread: threading.Thread | None = None

    def start(self, key: Hashable, make: Callable[[], Measuring]) -> None:
        """Begin to make one on a thread of its own; one that nobody took is closed."""
        self.drop()
        self._key = key
        self._thread = threading.Thread(target=self._make, args=(make,), daemon=True)
        self._thread.start()

    def _make(self, make: Callable[[], Measuring]) -> None:
        try:
            self._made.append(make())
        except BaseException as error:  # noqa: BLE001 (raised again where it is taken)
            self._failed.append(error)

    def take(self, key: Hashable, make: Callable[[], Measuring]) -> Measuring:
        """The one that was begun for `key`, waited for, else one that is made now."""
        if key != self._key or self._thread is None:
            return make()
        self._thread.join()
        made, failed = self._made, self._failed
        self._key, self._thread, self._made, self._failed = None, None, [], []
        if failed:
            raise failed[0]
        return made[0]

    def drop(self) -> None:
        """Close what nobody took."""
        if self._thread is not None:
            self._thread.join()
        for measurer in self._made:
            measurer.close()
        self._key, self._thread, self._made, self._failed = None, None, [], []
