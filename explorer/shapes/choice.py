"""Which schedule a member of a family has: measured there, or expected from measured neighbours.

A schedule's time between extents at which it was measured is interpolated, in what is left of its
times once the backend's own estimate of the work (tiles that are padded, waves that are not full)
is taken out. What has to be fitted anew is another schedule, and is doubted. Knows no records and
no measuring.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from costmodel.features import IDEAL
from explorer.shapes.family import Point, distance
from explorer.shapes.fitted import fitted
from explorer.shapes.table import Settled, Table
from explorer.strategies.opening import ESTIMATE
from explorer.workload import Workload
from ir.columns import Matrix
from ir.schedule import Schedule

_NEAR = 8  # nearest points whose schedules are looked at, and as many more as none fits of
_AWAY = 0.15  # relative doubt of a time for every factor of e from where it was measured
_REFITTED = 0.5  # and of that of what was another schedule there, from the same place on

Member = Callable[[Point], Workload]


@dataclass(frozen=True, slots=True)
class Choice:
    """A legal schedule, the nearest measured one that tells its time, and the seconds expected.

    `doubted` are the seconds that it is chosen by: more, the less is known of it.
    """

    schedule: Schedule
    row: Settled
    seconds: float
    doubted: float


def choice_for(table: Table, point: Point, member: Member) -> Choice | None:
    """The schedule for a member: a measured point's own; None where none fits."""
    own = next((row for row in table.rows if row.point == point), None)
    if own is not None and fitted(member(point), own.schedule) == own.schedule:
        return Choice(own.schedule, own, own.seconds, own.seconds)
    return next(iter(choices_for(table, point, member)), None)


def choices_for(
    table: Table, point: Point, member: Member, pins: Mapping[str, object] | None = None
) -> list[Choice]:
    """Schedules measured at the nearest points, as they fit here, the best expected first."""
    workload = member(point)
    anchors: dict[Schedule, list[Settled]] = {}
    for number, times in enumerate(_by_distance(table, point)):
        if number >= _NEAR and anchors:
            break
        for schedule in times:
            own = fitted(workload, schedule, pins)
            if own is not None:
                anchors.setdefault(own, []).extend(times[schedule])
    found = [_expected(workload, point, own, them, member) for own, them in anchors.items()]
    return sorted(found, key=lambda choice: choice.doubted)


def _by_distance(table: Table, point: Point) -> Iterator[dict[Schedule, list[Settled]]]:
    """For each measured point, the nearest first, all times of those of its schedules that were
    measured at none before it."""
    times: dict[Schedule, list[Settled]] = {}
    for one in table.measured:
        times.setdefault(one.schedule, []).append(one)
    given: set[Schedule] = set()
    points = dict.fromkeys(one.point for one in table.measured)
    for near in sorted(points, key=lambda other: distance(other, point)):
        mine = [one.schedule for one in table.measured if one.point == near]
        yield {schedule: times[schedule] for schedule in mine if schedule not in given}
        given.update(mine)


def _expected(
    workload: Workload, point: Point, schedule: Schedule, times: Sequence[Settled], member: Member
) -> Choice:
    """The schedule's seconds by its own measured times; where there are none by those of schedules
    that became it here."""
    same = [one for one in times if one.schedule == schedule]
    ordered = sorted(same or times, key=lambda one: distance(one.point, point))
    first = ordered[0]
    second = next((one for one in ordered if _across(first.point, point, one.point)), None)
    logs = [math.log(_scaled(workload, schedule, one, member))
            for one in (first, second) if one is not None]  # fmt: skip
    away = [distance(one.point, point) for one in (first, second) if one is not None]
    told, doubt = logs[0], away[0]
    if second is not None and sum(away) > 0:
        share = away[0] / sum(away)
        told, doubt = (1.0 - share) * logs[0] + share * logs[1], away[0] * (1.0 - share)
    seconds = math.exp(told)
    factor = 1.0 + _AWAY * doubt + (0.0 if same else _REFITTED * (1.0 + doubt))
    return Choice(schedule, first, seconds, seconds * factor)


def _across(one: Point, point: Point, other: Point) -> bool:
    """Whether a point lies between two others, seen from it."""
    pairs = zip(one, point, other, strict=True)
    return sum(math.log(a / x) * math.log(b / x) for a, x, b in pairs) < 0.0


def _scaled(workload: Workload, schedule: Schedule, one: Settled, member: Member) -> float:
    """Seconds of a schedule if its work takes as long as that of a measured time.

    Of what was another schedule there, it gains nothing beside the program's own work: estimates
    of two schedules differ by more than two extents of one.
    """
    there = member(one.point)
    own = fitted(there, one.schedule)
    known, told = None if own is None else work_of(there, own), work_of(workload, schedule)
    program = workload.program.flops / max(1, one.flops)
    if known is None or told is None:
        return one.seconds * program
    ratio = told / known
    if own != schedule:
        ratio = max(ratio, least_of(workload) / least_of(there))
    return one.seconds * ratio


def work_of(workload: Workload, schedule: Schedule) -> float | None:
    """Seconds that the backend estimates, padded tiles and idle processors included; they are good
    for ratios alone. None without an estimate."""
    return _told(workload, workload.space().encode(schedule)[None, :], (IDEAL, ESTIMATE))


def least_of(workload: Workload) -> float:
    """What the program takes at least, in seconds by the backend's features, else in FLOPs."""
    told = _told(workload, workload.space().blank, (IDEAL,))
    return float(max(1, workload.program.flops)) if told is None else told


def _told(workload: Workload, row: Matrix, names: tuple[str, ...]) -> float | None:
    """The product of features that are in powers of two; None where the backend has them not."""
    space = workload.space()
    if space.features is None:
        return None
    known, table = space.features(space.columns(row))
    if not set(names) <= set(known):
        return None
    told = sum(float(table[0, known.index(name)]) for name in names)
    return math.exp2(told) if math.isfinite(told) else None
