"""Replay: recorded schedules once more, in their given order, and nothing else.

Brings what another machine or an earlier version found to this one, before or instead of a search.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from explorer.strategies.base import OutcomeLike
from explorer.strategies.history import History, SeedQueue
from ir.errors import UsageError
from ir.schedule import Schedule
from ir.space import Space


class Replay:
    """The seeds are the recording. Raises UsageError if there are none."""

    def __init__(
        self,
        space: Space,
        rng: np.random.Generator,
        *,
        trials: int | None = None,
        seeds: Sequence[Schedule] = (),
    ) -> None:
        if not seeds:
            raise UsageError(
                "replay measures recorded schedules again, and none were given: "
                "name records with --start-from"
            )
        self._history = History(space)
        self._queue = SeedQueue(self._history, rng, seeds, own=False, most=None)

    def ask(self, n: int) -> list[Schedule]:
        return self._history.asked(self._queue.take(n))

    def tell(self, schedules: Sequence[Schedule], outcomes: Sequence[OutcomeLike]) -> None:
        self._history.told(schedules, outcomes)
