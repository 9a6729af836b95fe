"""Which schedule of a family a member has that was never measured: the nearest, or the model's.

Schedules of near points are fitted. Each is expected to take what it took at its own point, times
the ratio of what the cost model tells of both. Knows no records and no measuring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from explorer.shapes.family import Point, distance
from explorer.shapes.fitted import fitted
from explorer.shapes.table import Settled, Table
from explorer.training import prior_for
from explorer.workload import Workload
from ir.schedule import Schedule

_NEAR = 4  # rows whose schedules are looked at
_CLEAR = 0.95  # of the nearest one's expected time: another must be below it

Member = Callable[[Point], Workload]


@dataclass(frozen=True, slots=True)
class Choice:
    """A fitted schedule, the row that it is of, and the seconds that it is expected to take."""

    schedule: Schedule
    row: Settled
    seconds: float


def choice_for(table: Table, point: Point, member: Member) -> Choice | None:
    """The schedule for a member; None where none fits.

    The nearest row's, unless the model expects that of another near one to be clearly faster.
    """
    workload = member(point)
    choices = [
        Choice(schedule, row, _expected(workload, schedule, member, row))
        for row, schedule in islice(_near(table, point, workload), _NEAR)
    ]
    if not choices:
        return None
    best = min(choices, key=lambda choice: choice.seconds)
    return best if best.seconds < _CLEAR * choices[0].seconds else choices[0]


def _near(table: Table, point: Point, workload: Workload) -> Iterator[tuple[Settled, Schedule]]:
    """The nearest rows whose schedules are legal here, fitted: the first of each schedule."""
    seen: set[Schedule] = set()
    for row in sorted(table.rows, key=lambda row: distance(row.point, point)):
        if row.schedule in seen:
            continue
        seen.add(row.schedule)
        schedule = fitted(workload, row.schedule)
        if schedule is not None:
            yield row, schedule


def _expected(workload: Workload, schedule: Schedule, member: Member, row: Settled) -> float:
    """Seconds by the model's ratio, or without a model by that of arithmetic operations."""
    there = member(row.point)
    own = fitted(there, row.schedule)
    here = _told(workload, schedule)
    known = None if own is None else _told(there, own)
    if here is None or not known:
        return row.seconds * workload.program.flops / max(1, row.flops)
    return row.seconds * here / known


def _told(workload: Workload, schedule: Schedule) -> float | None:
    """Seconds as the package's own model predicts them, if there is one that does."""
    space = workload.space()
    model = prior_for(space, None)
    seconds = None if model is None else model.seconds(space, space.encode(schedule)[None, :])
    return None if seconds is None else float(seconds[0])
