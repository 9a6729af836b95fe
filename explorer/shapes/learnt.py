"""What a model says of schedules at members where they were not measured.

It learns from all times of a family as they are measured, and tells in seconds how long a schedule
takes. Of three ranges of products on an H200, each extent left out in turn, its error had a
standard deviation of 0.08 to 0.11 whatever the distance, that of the backend's estimates 0.10 to
0.22, more the farther away. Knows no records and no measuring.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.features import trait_names, traits
from costmodel.model import MIN_ROWS, CostModel
from explorer.shapes.family import Point
from explorer.shapes.members import Members
from ir.errors import UsageError
from ir.schedule import Schedule
from ir.space import Matrix, Row, Space

DOUBT = 0.1  # the standard deviation of the logarithm of a time that it tells
_REFIT = 0.08  # share by which the measured times have to grow until the model is fitted again

Times = Mapping[Point, Mapping[Schedule, float]]  # seconds of schedules of each member


class Learnt:
    """The model of a family's times; its spaces are those under `pins`."""

    def __init__(self, members: Members, pins: Mapping[str, object], seed: int) -> None:
        self._members, self._pins = members, pins
        self._model = CostModel(seed)
        self._known = 0  # times

    @property
    def ready(self) -> bool:
        return self._model.ready

    def space(self, point: Point) -> Space:
        """Of a member."""
        return self._members(point).space(self._pins)

    def learn(self, times: Times) -> None:
        """Fit the model where there is enough, and enough of it is new."""
        told = sum(map(len, times.values()))
        if told < MIN_ROWS or told - self._known < _REFIT * told:
            return
        features, seconds, ideals, members = [], [], [], []
        for number, (point, found) in enumerate(times.items()):
            space = self.space(point)
            rows = {one: row for one in found if (row := row_in(space, one)) is not None}
            if rows:
                self._model.names = trait_names(space)
                features.append(traits(space, np.array(list(rows.values()), dtype=np.int16)))
                seconds += [found[schedule] for schedule in rows]
                ideals += [self._members.least(point)] * len(rows)
                members += [number] * len(rows)
        if features:
            self._model.fit(
                np.concatenate(features), np.array(seconds), np.ones(len(seconds), dtype=np.bool_),
                np.array(members), ideals=np.array(ideals),
            )  # fmt: skip
        self._known = told

    def seconds(self, point: Point, rows: Matrix) -> NDArray[np.float64]:
        """What the model, once it is `ready`, expects of rows of a member's space."""
        told = self._model.predict_seconds(
            traits(self.space(point), rows), np.full(len(rows), self._members.least(point))
        )
        assert told is not None  # it was fitted with the least seconds
        return told

    def told(self, point: Point, schedules: Sequence[Schedule]) -> dict[Schedule, float]:
        """The same of schedules; nothing of those of other spaces, nor before it is `ready`."""
        if not self.ready:
            return {}
        space = self.space(point)
        rows = {one: row for one in schedules if (row := row_in(space, one)) is not None}
        if not rows:
            return {}
        seconds = self.seconds(point, np.array(list(rows.values()), dtype=np.int16))
        return dict(zip(rows, seconds.tolist(), strict=True))


def row_in(space: Space, schedule: Schedule) -> Row | None:
    """None for one that other pins, or another version, had."""
    try:
        return space.encode(schedule)
    except UsageError:
        return None
