"""The members of a family with what is told of them again and again, computed once.

Which schedule of a member another one's becomes, and how long the backend estimates that a schedule
takes: both are asked of the same few schedules whenever one is chosen. Knows no times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from costmodel.features import IDEAL
from explorer.shapes.family import Point
from explorer.shapes.fitted import fitted, rescaled
from explorer.strategies.opening import ESTIMATE
from explorer.workload import Workload
from ir.columns import Matrix
from ir.schedule import Schedule
from ir.space import Space

Member = Callable[[Point], Workload]


class Members:
    """The workloads that `member` gives, under `pins` where schedules are carried to them."""

    def __init__(self, member: Member, pins: Mapping[str, object] | None = None) -> None:
        self._member, self._pins = member, dict(pins or {})
        self._fitted: dict[tuple[Point, Schedule, bool], Schedule | None] = {}
        self._rescaled: dict[tuple[Point, Schedule, Point], Schedule | None] = {}
        self._works: dict[tuple[Point, Schedule], float | None] = {}
        self._least: dict[Point, float] = {}

    def __call__(self, point: Point) -> Workload:
        return self._member(point)

    def fitted(self, point: Point, schedule: Schedule, *, pinned: bool = True) -> Schedule | None:
        """See `fitted`; as if nothing were pinned, if not `pinned`."""
        key = (point, schedule, pinned and bool(self._pins))
        if key not in self._fitted:
            pins = self._pins if key[2] else None
            self._fitted[key] = fitted(self._member(point), schedule, pins)
        return self._fitted[key]

    def rescaled(self, point: Point, schedule: Schedule, other: Point) -> Schedule | None:
        """See `rescaled`, of the schedule of another point."""
        key = (point, schedule, other)
        if key not in self._rescaled:
            there = self._member(other)
            self._rescaled[key] = rescaled(self._member(point), schedule, there, self._pins)
        return self._rescaled[key]

    def differ_in_tiles(self, point: Point, schedule: Schedule, other: Schedule) -> bool:
        """Whether a schedule of a member and another one differ in sizes of tiles alone."""
        space = self._member(point).space()
        sizes = {decision.name for decision in space.decisions if decision.group == "tile"}
        left, right = (
            {name: value for name, value in one.as_dict().items() if name not in sizes}
            for one in (schedule, other)
        )
        return left == right

    def estimate(self, point: Point, schedules: Iterable[Schedule]) -> None:
        """Have `work` of all of these: together they take little longer than one."""
        new = [one for one in dict.fromkeys(schedules) if (point, one) not in self._works]
        if new:
            space = self._member(point).space()
            rows = np.array([space.encode(one) for one in new], dtype=np.int16)
            told = self.estimated(point, space, rows)
            values = [None] * len(new) if told is None else told.tolist()
            self._works.update(zip(((point, one) for one in new), values, strict=True))

    def estimated(self, point: Point, space: Space, rows: Matrix) -> NDArray[np.float64] | None:
        """Seconds that the backend estimates of rows of a space of a member; None without."""
        return _told(space, rows, (IDEAL, ESTIMATE))

    def work(self, point: Point, schedule: Schedule) -> float | None:
        """Seconds that the backend estimates, padded tiles and idle processors included; they are
        good for ratios alone. None without an estimate."""
        self.estimate(point, [schedule])
        return self._works[point, schedule]

    def least(self, point: Point) -> float:
        """What the program takes at least, in seconds by the backend's features, else in FLOPs."""
        if point not in self._least:
            workload = self._member(point)
            space = workload.space()
            told = _told(space, space.blank, (IDEAL,))
            flops = float(max(1, workload.program.flops))
            self._least[point] = flops if told is None else float(told[0])
        return self._least[point]


def _told(space: Space, rows: Matrix, names: tuple[str, ...]) -> NDArray[np.float64] | None:
    """The products of features that are in powers of two; None where the backend has them not, or
    one of the rows has none."""
    if space.features is None:
        return None
    known, table = space.features(space.columns(rows))
    if not set(names) <= set(known):
        return None
    told = sum(table[:, known.index(name)].astype(np.float64) for name in names)
    return np.exp2(told) if np.isfinite(told).all() else None
