"""Exhaustive search: every legal schedule once, in the order of the space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from explorer.strategies.base import OutcomeLike
from explorer.strategies.history import History, SeedQueue
from ir.schedule import Schedule
from ir.space import Matrix, Space


class Exhaustive:
    """Seeds come first, so that an interrupted walk has something to show."""

    def __init__(
        self,
        space: Space,
        rng: np.random.Generator,
        *,
        trials: int | None = None,
        seeds: Sequence[Schedule] = (),
    ) -> None:
        self._history = History(replace(space, meaning=None))  # every schedule, copies too
        self._queue = SeedQueue(self._history, rng, seeds)
        self._chunks = space.exhaustive()
        self._waiting: Matrix = np.empty((0, len(space.decisions)), dtype=np.int16)

    def ask(self, n: int) -> list[Schedule]:
        batch = self._history.asked(self._queue.take(n))
        while len(batch) < n and self._refill():
            fresh = self._history.fresh(self._waiting)
            rest = n - len(batch)
            batch += self._history.asked(fresh[:rest])
            self._waiting = fresh[rest:]
        return batch

    def tell(self, schedules: Sequence[Schedule], outcomes: Sequence[OutcomeLike]) -> None:
        self._history.told(schedules, outcomes)

    def _refill(self) -> bool:
        """Whether rows are waiting, after fetching the next chunk that has any."""
        while not len(self._waiting):
            chunk = next(self._chunks, None)
            if chunk is None:
                return False
            self._waiting = chunk
        return True
