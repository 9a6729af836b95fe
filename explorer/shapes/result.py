"""What the search of a family tells: steps on the way, the schedules it kept, the regret."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from explorer.shapes.choice import choice_for
from explorer.shapes.family import Family, Point
from explorer.shapes.members import Members
from explorer.shapes.table import Table
from explorer.winner import Winner
from ir.errors import UsageError
from ir.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Step:
    """A point that was "searched" or at which schedules were "compared", with its best seconds."""

    what: str
    point: Point
    words: str
    seconds: float
    trials: int


@dataclass(frozen=True, slots=True)
class Regret:
    """How much slower the family's schedule was at a point held out than the best of `beside`."""

    point: Point
    loss: float
    beside: int


@dataclass(frozen=True, slots=True)
class FamilyResult:
    """What the search of a family found. `searched` are its points with a search of their own.

    `regrets` are of points that were measured for them alone, beside all schedules that were
    found, fitted; not beside a search there.
    """

    family: Family
    table: Table
    searched: tuple[Point, ...]
    regrets: tuple[Regret, ...]
    trials: int
    elapsed: float
    job: str

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """Those that were kept."""
        return self.table.schedules

    @property
    def mean_regret(self) -> float | None:
        losses = [regret.loss for regret in self.regrets]
        return sum(losses) / len(losses) if losses else None

    @property
    def worst_regret(self) -> float | None:
        return max((regret.loss for regret in self.regrets), default=None)

    def pieces(self) -> Iterator[tuple[int, int, Schedule]]:
        """Of one varying argument: from, to and the schedule; raises UsageError for several."""
        if len(self.family.varying) != 1:
            raise UsageError("boundaries are told of one argument that varies")
        extents, rows = self.family.varying[0][1], self.table.rows
        low = extents.low
        for row, after in zip(rows, [*rows[1:], None], strict=True):
            if after is not None and after.schedule == row.schedule:
                continue
            high = extents.high
            if after is not None:
                high = math.floor(math.sqrt(row.point[0] * after.point[0]))
            yield low, high, row.schedule
            low = high + 1

    def winner(self, **extents: int) -> Winner:
        """The kernel for any member; raises UsageError for what is none."""
        point = tuple(extents.get(name, 0) for name in self.family.names)
        inside = all(v in e for v, (_, e) in zip(point, self.family.varying, strict=True))
        if not inside or set(extents) - set(self.family.names):
            raise UsageError(f"{extents}: not among {self.family.title}")
        choice = choice_for(self.table, point, Members(self.family.workload))
        if choice is None:
            raise UsageError(f"{self.family.words(point)}: no schedule of the family fits it")
        return Winner(self.family.workload(point), choice.schedule, choice.seconds, self.job)
