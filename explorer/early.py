"""Measurers that are started before the search that will use them has made up its mind.

Starting processes, a device and the oracle takes as long as building a space and reading a model in
does, so both are done at a time. Knows how a measurer is made, and nothing of searches.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from explorer.measuring import Measuring


class Early:
    """At most one measurer that nobody has taken yet."""

    def __init__(self) -> None:
        self._key: Hashable = None
        self._made: Future[Measuring] | None = None

    def start(self, key: Hashable, make: Callable[[], Measuring]) -> None:
        """Begin to make one on a thread of its own; one that nobody took is closed."""
        self.drop()
        thread = ThreadPoolExecutor(1, thread_name_prefix="early")
        self._key, self._made = key, thread.submit(make)
        thread.shutdown(wait=False)

    def take(self, key: Hashable, make: Callable[[], Measuring]) -> Measuring:
        """The one that was begun for `key`, waited for, else one that is made now."""
        if self._made is None or key != self._key:
            return make()
        made, self._made = self._made, None
        return made.result()

    def drop(self) -> None:
        """Close what nobody took."""
        made, self._made = self._made, None
        if made is not None:
            wait((made,))
            if made.exception() is None:
                made.result().close()
