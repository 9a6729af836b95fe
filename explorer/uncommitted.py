"""Trials between being measured and being told: they are stored first, several in one commit."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from explorer.flow import Ended
from records import Record

if TYPE_CHECKING:
    from records import Store

TOGETHER = 0.5  # seconds from one commit to the next, of trials that are shorter


class Uncommitted:
    """What ended and was not told yet, in its order, and what of it has to be stored."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._records: list[Record] = []
        self._untold: deque[tuple[Ended, float | None]] = deque()
        self._last = -math.inf  # commit

    @property
    def due(self) -> bool:
        """Whether the last commit is so long ago that there may be another one."""
        return time.monotonic() >= self._last + TOGETHER

    def add(self, ended: Ended, record: Record | None, best: float | None) -> None:
        """A trial that ended, its record unless the store has it, and the best time since then."""
        self._untold.append((ended, best))
        if record is not None:
            self._records.append(record)

    def commit(self) -> None:
        """Store what was measured since the last commit, all of it in one."""
        records, self._records = self._records, []
        if records:
            self._store.add_all(records)
            self._last = time.monotonic()

    def committed(self) -> Iterator[tuple[Ended, float | None]]:
        """Commit, then give what is told now, each with the best time as it was then."""
        self.commit()
        while self._untold:
            yield self._untold.popleft()
