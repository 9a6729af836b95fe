"""Notes with outcomes what other programs had of the processors while they were measured.

Knows outcomes and counters of the operating system; no kernels and no search.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from explorer import busy
from explorer.busy import ForeignLoad
from explorer.outcome import CROWDED, LOAD, PROCESSORS, Note, Outcome


class Watch:
    """Watches the processors for kernels of `threads`; `pids` are the processes of our own."""

    def __init__(
        self, pids: Callable[[], Iterable[int]], threads: int, load: ForeignLoad | None = None
    ) -> None:
        self._pids = pids
        self._threads = threads
        self._load = load or ForeignLoad()
        self._began = 0.0

    def begin(self) -> None:
        """Start anew."""
        self._began = time.monotonic()
        self._load.begin(self._pids())

    def wait(self) -> None:
        """What was measured took too short to tell: look on for as long as it takes to."""
        if self._load.known:
            time.sleep(max(0.0, self._began + 1.1 * busy.SHORTEST - time.monotonic()))

    def noted(self, outcome: Outcome) -> Outcome:
        """The outcome with the foreign load since the beginning, where that can be told."""
        if time.monotonic() - self._began < busy.SHORTEST:
            return outcome  # no need to look: a dozen files, read beside a strategy that computes
        share = self._load.share(self._pids())
        if share is None:
            return outcome
        notes: tuple[Note, ...] = ((LOAD, share), (PROCESSORS, self._load.processors))
        if self._load.crowds(share, self._threads):
            notes = (*notes, (CROWDED, True))
        return replace(outcome, notes=(*outcome.notes, *notes))
