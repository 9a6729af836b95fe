"""What may be better at one member than any schedule of another: neighbours of those that fit.

Rows that are dealt four at a time suit twelve rows, not seven, and no member near by was asked for
seven. A model of all that the family's members took ranks the schedules that differ from good
ones in one decision. Knows no records and no measuring.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.features import trait_names, traits
from costmodel.model import MIN_ROWS, CostModel
from explorer.shapes.choice import Member, least_of
from explorer.shapes.family import Point
from explorer.workload import Workload
from ir.errors import UsageError
from ir.schedule import Schedule
from ir.space import Matrix, Row, Space

_PARENTS = 4  # of the schedules given, those whose neighbours are ranked
_REFIT = 0.08  # share by which the measured times have to grow until the model is fitted again

Times = Mapping[Point, Mapping[Schedule, float]]  # seconds of schedules of each member


class Variants:
    """Learns from times of members as they are measured, and tells what to try at one of them."""

    def __init__(self, member: Member, pins: Mapping[str, object], seed: int) -> None:
        self._member, self._pins = member, pins
        self._model = CostModel(seed)
        self._learnt = 0  # times

    def near(
        self, point: Point, times: Times, schedules: Sequence[Schedule], count: int
    ) -> list[Schedule]:
        """Up to `count` legal schedules one decision away from the first of `schedules`, which are
        of this member, the most promising first: only those expected to beat all of `schedules`.
        """
        self._learn(times)
        if not self._model.ready:
            return []
        workload = self._member(point)
        space = workload.space(self._pins)
        rows = [row for one in schedules if (row := _row(space, one)) is not None]
        if not rows:
            return []
        known = np.array(rows, dtype=np.int16)
        near = [space.neighbours(row) for row in known[:_PARENTS]]
        pool = np.unique(np.concatenate(near), axis=0)
        pool = pool[~(pool[:, None, :] == known).all(axis=2).any(axis=1)]
        if not len(pool):
            return []
        told, bar = self._seconds(workload, pool), self._seconds(workload, known).min()
        order = np.argsort(told, kind="stable")[:count]
        return [space.schedule(pool[number]) for number in order if told[number] < bar]

    def _learn(self, times: Times) -> None:
        """Fit the model where there is enough, and enough of it is new."""
        told = sum(map(len, times.values()))
        if told < MIN_ROWS or told - self._learnt < _REFIT * told:
            return
        features, seconds, ideals, members = [], [], [], []
        for number, (point, found) in enumerate(times.items()):
            workload = self._member(point)
            space = workload.space(self._pins)
            rows = {one: row for one in found if (row := _row(space, one)) is not None}
            if rows:
                self._model.names = trait_names(space)
                features.append(traits(space, np.array(list(rows.values()), dtype=np.int16)))
                seconds += [found[schedule] for schedule in rows]
                ideals += [least_of(workload)] * len(rows)
                members += [number] * len(rows)
        if features:
            self._model.fit(
                np.concatenate(features), np.array(seconds), np.ones(len(seconds), dtype=np.bool_),
                np.array(members), ideals=np.array(ideals),
            )  # fmt: skip
        self._learnt = told

    def _seconds(self, workload: Workload, rows: Matrix) -> NDArray[np.float64]:
        """What the model expects of rows of a member's space."""
        features = traits(workload.space(self._pins), rows)
        told = self._model.predict_seconds(features, np.full(len(rows), least_of(workload)))
        assert told is not None  # it was fitted with the least seconds
        return told


def _row(space: Space, schedule: Schedule) -> Row | None:
    """None for one that other pins, or another version, had."""
    try:
        return space.encode(schedule)
    except UsageError:
        return None
