"""Random search: legal schedules drawn independently, none twice. The yardstick of the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from explorer.strategies.base import OutcomeLike
from explorer.strategies.history import History, SeedQueue, draw_fresh
from ir.schedule import Schedule
from ir.space import Space


class Random:
    """Seeds given by the caller come first; the space's own seeds are left to cleverer ones."""

    def __init__(
        self,
        space: Space,
        rng: np.random.Generator,
        *,
        trials: int | None = None,
        seeds: Sequence[Schedule] = (),
    ) -> None:
        self._rng = rng
        self._history = History(space)
        self._queue = SeedQueue(self._history, rng, seeds, own=False)

    def ask(self, n: int) -> list[Schedule]:
        batch = self._history.asked(self._queue.take(n))
        rest = n - len(batch)
        if rest:
            batch += self._history.asked(draw_fresh(self._history, self._rng, rest))
        return batch

    def tell(self, schedules: Sequence[Schedule], outcomes: Sequence[OutcomeLike]) -> None:
        self._history.told(schedules, outcomes)
