"""What models say of schedules at members where they were not measured.

Two learn from all times of a family as they are measured: one by how many times as long as the
program takes at least a schedule takes, the other by how many times as long as the backend
estimates. What they tell in seconds is their geometric mean, the doubt how far they are apart. Of
four ranges on an H200 (2,005 times), each extent left out in turn, the logarithm's error had a
standard deviation of 0.11 to 0.15, that of either alone 0.12 to 0.17; the fastest by the mean was
5 % slower than the fastest, by the first alone 9 %. Knows no records and no measuring.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.features import trait_names, traits
from costmodel.model import MIN_ROWS, CostModel
from explorer.shapes.family import Point
from explorer.shapes.members import Members
from ir.errors import UsageError
from ir.schedule import Schedule
from ir.space import Matrix, Row, Space

_DOUBT = 0.1  # the standard deviation of the logarithm of a time that both tell alike
_REFIT = 0.08  # share by which the measured times have to grow until the model is fitted again

Times = Mapping[Point, Mapping[Schedule, float]]  # seconds of schedules of each member
Seconds = NDArray[np.float64]  # of each row


@dataclass(frozen=True, slots=True)
class Told:
    """Seconds, and the standard deviation of their logarithm."""

    seconds: float
    doubt: float


class Learnt:
    """The models of a family's times; its spaces are those under `pins`."""

    def __init__(self, members: Members, pins: Mapping[str, object], seed: int) -> None:
        self._members, self._pins = members, pins
        self._models = CostModel(seed), CostModel(seed)  # beside the least, and beside estimates
        self._known = 0  # times

    @property
    def ready(self) -> bool:
        return self._models[0].ready

    def space(self, point: Point) -> Space:
        """Of a member."""
        return self._members(point).space(self._pins)

    def learn(self, times: Times) -> None:
        """Fit the models where there is enough, and enough of it is new."""
        told = sum(map(len, times.values()))
        if told < MIN_ROWS or told - self._known < _REFIT * told:
            return
        features, seconds, members = [], list[float](), list[int]()
        floors: tuple[list[Seconds], list[Seconds]] = [], []
        for number, (point, found) in enumerate(times.items()):
            space = self.space(point)
            rows = {one: row for one in found if (row := row_in(space, one)) is not None}
            if rows:
                matrix = np.array(list(rows.values()), dtype=np.int16)
                features.append(traits(space, matrix))
                seconds += [found[schedule] for schedule in rows]
                members += [number] * len(rows)
                for known, told_here in zip(floors, self._floors(point, matrix), strict=True):
                    known.append(told_here)
                for model in self._models:
                    model.names = trait_names(space)
        for model, ideals in zip(self._models, floors, strict=True) if features else ():
            model.fit(
                np.concatenate(features), np.array(seconds), np.ones(len(seconds), dtype=np.bool_),
                np.array(members), ideals=np.concatenate(ideals),
            )  # fmt: skip
        self._known = told

    def seconds(self, point: Point, rows: Matrix) -> Seconds:
        """What the models, once they are `ready`, expect of rows of a member's space."""
        told: Seconds = np.exp(np.mean(self._logs(point, rows), axis=0))
        return told

    def told(self, point: Point, schedules: Sequence[Schedule]) -> dict[Schedule, Told]:
        """The same of schedules; nothing of those of other spaces, nor before they are `ready`."""
        if not self.ready:
            return {}
        space = self.space(point)
        rows = {one: row for one in schedules if (row := row_in(space, one)) is not None}
        if not rows:
            return {}
        logs = self._logs(point, np.array(list(rows.values()), dtype=np.int16))
        return {
            schedule: Told(math.exp((one + other) / 2), math.hypot(_DOUBT, (one - other) / 2))
            for schedule, one, other in zip(rows, *logs.tolist(), strict=True)
        }

    def _logs(self, point: Point, rows: Matrix) -> NDArray[np.float64]:
        """Logarithms of seconds, of each model and row."""
        features, logs = traits(self.space(point), rows), []
        for model, floors in zip(self._models, self._floors(point, rows), strict=True):
            told = model.predict_seconds(features, floors)
            assert told is not None  # it was fitted with floors
            logs.append(np.log(told))
        return np.array(logs)

    def _floors(self, point: Point, rows: Matrix) -> tuple[Seconds, Seconds]:
        """What each model measures rows by: the least seconds, and those that are estimated."""
        least = np.full(len(rows), self._members.least(point))
        estimated = self._members.estimated(point, self.space(point), rows)
        return least, least if estimated is None else estimated


def row_in(space: Space, schedule: Schedule) -> Row | None:
    """None for one that other pins, or another version, had."""
    try:
        return space.encode(schedule)
    except UsageError:
        return None
