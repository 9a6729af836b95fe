"""Which schedule a member of a family has: measured there, or expected from measured neighbours.

A schedule's time between extents at which it was measured is interpolated, in what is left of its
times once the backend's own estimate of the work (tiles that are padded, waves that are not full)
is taken out; a model of the family's times has its say, too, the more the farther away they were
measured. A schedule is carried to another extent with its tiles as they are, and with as many of
them as it has; what has to be fitted anew is another schedule, and is doubted. Knows no records and
no measuring.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from explorer.shapes.family import Point, distance
from explorer.shapes.learnt import Learnt, Told
from explorer.shapes.members import Members
from explorer.shapes.table import Settled, Table
from ir.schedule import Schedule

_NEAR = 8  # nearest points whose schedules are looked at, and as many more as none fits of
_AWAY = 0.15  # relative doubt of a time for every factor of e from where it was measured
_SPREAD = 0.1  # standard deviation of the logarithm of an estimated time, besides
_REFITTED = 0.5  # and of that of what was another schedule there, from the same place on
_RESCALED = 0.1  # the same where it had as many tiles, longer or shorter ones


@dataclass(frozen=True, slots=True)
class Choice:
    """A legal schedule, the nearest measured one that tells its time, and the seconds expected.

    `doubted` are the seconds that it is chosen by: more, the less is known of it.
    """

    schedule: Schedule
    row: Settled
    seconds: float
    doubted: float


def choice_for(table: Table, point: Point, members: Members) -> Choice | None:
    """The schedule for a member: a measured point's own; None where none fits."""
    own = next((row for row in table.rows if row.point == point), None)
    if own is not None and members.fitted(point, own.schedule, pinned=False) == own.schedule:
        return Choice(own.schedule, own, own.seconds, own.seconds)
    return next(iter(choices_for(table, point, members)), None)


def choices_for(
    table: Table, point: Point, members: Members, learnt: Learnt | None = None
) -> list[Choice]:
    """Schedules measured at the nearest points, as they fit here, the best expected first."""
    anchors: dict[Schedule, list[Settled]] = {}
    stretched: dict[Schedule, list[Settled]] = {}
    stretches = learnt is not None or not table.expected  # which are what a model chose of these
    for number, (near, times) in enumerate(_by_distance(table, point)):
        if number >= _NEAR and anchors:
            break
        for schedule in times:
            own = members.fitted(point, schedule)
            if own is not None:
                anchors.setdefault(own, []).extend(times[schedule])
            other = members.rescaled(point, schedule, near) if stretches else None
            if other is not None:
                here = [one for one in times[schedule] if one.point == near]
                stretched.setdefault(other, []).extend(here)
    fresh = {one: them for one, them in stretched.items() if one not in anchors}
    members.estimate(point, [*anchors, *fresh])
    found = [_expected(members, point, own, them, _REFITTED) for own, them in anchors.items()]
    found += [
        _expected(members, point, own, them, _strange(members, point, own, them))
        for own, them in fresh.items()
    ]
    if learnt is None:
        found = _none_faster(table, point, found)
    model = {} if learnt is None else learnt.told(point, [*anchors, *fresh])
    found = [_believed(choice, point, model.get(choice.schedule)) for choice in found]
    return sorted(found, key=lambda choice: choice.doubted)


def _none_faster(table: Table, point: Point, found: Sequence[Choice]) -> list[Choice]:
    """The choices, none of which is told from farther away to be faster than the fastest of the
    nearest measured point: what is good elsewhere was tried there."""
    near = table.nearest(point)
    away = distance(near.point, point)
    mine = [one for one in found if one.row.point == near.point and one.row.doubt == 0.0]
    floor = min((one.seconds for one in mine), default=0.0)
    return [
        replace(one, seconds=floor, doubted=floor * one.doubted / one.seconds)
        if distance(one.row.point, point) > away and one.seconds < floor else one
        for one in found
    ]  # fmt: skip


def _strange(members: Members, point: Point, schedule: Schedule, times: Sequence[Settled]) -> float:
    """The doubt of a schedule with as many tiles as those that were measured: little if all else is
    as it was there (fewer stages, where longer tiles leave no room for more, are another thing)."""
    alike = any(members.differ_in_tiles(point, schedule, one.schedule) for one in times)
    return _RESCALED if alike else _REFITTED


def _believed(choice: Choice, point: Point, told: Told | None) -> Choice:
    """A choice with what models told, each weighed by how far it is off as a rule."""
    if told is None or choice.row.point == point:
        return choice
    estimated = _SPREAD + choice.doubted / choice.seconds - 1.0
    weights = 1.0 / estimated**2, 1.0 / told.doubt**2
    logs = math.log(choice.seconds), math.log(told.seconds)
    mean = sum(w * log for w, log in zip(weights, logs, strict=True)) / sum(weights)
    seconds = math.exp(mean)
    return replace(choice, seconds=seconds, doubted=seconds * (1.0 + sum(weights) ** -0.5))


def _by_distance(
    table: Table, point: Point
) -> Iterator[tuple[Point, dict[Schedule, list[Settled]]]]:
    """Each measured point, the nearest first, with all times of those of its schedules that were
    measured at none before it."""
    times: dict[Schedule, list[Settled]] = {}
    told = table.told(point)
    for one in told:
        times.setdefault(one.schedule, []).append(one)
    given: set[Schedule] = set()
    points = dict.fromkeys(one.point for one in told)
    for near in sorted(points, key=lambda other: distance(other, point)):
        mine = [one.schedule for one in told if one.point == near]
        yield near, {schedule: times[schedule] for schedule in mine if schedule not in given}
        given.update(mine)


def _expected(
    members: Members, point: Point, schedule: Schedule, times: Sequence[Settled], strange: float
) -> Choice:
    """The schedule's seconds by its own measured times; where there are none by those of schedules
    that became it here, with that much doubt more."""
    same = [one for one in times if one.schedule == schedule]
    ordered = sorted(same or times, key=lambda one: distance(one.point, point))
    first = ordered[0]
    second = next((one for one in ordered if _across(first.point, point, one.point)), None)
    logs = [math.log(_scaled(members, point, schedule, one))
            for one in (first, second) if one is not None]  # fmt: skip
    away = [distance(one.point, point) for one in (first, second) if one is not None]
    told, doubt = logs[0], away[0]
    if second is not None and sum(away) > 0:
        share = away[0] / sum(away)
        told, doubt = (1.0 - share) * logs[0] + share * logs[1], away[0] * (1.0 - share)
    seconds = math.exp(told)
    factor = 1.0 + first.doubt + _AWAY * doubt + (0.0 if same else strange * (1.0 + doubt))
    return Choice(schedule, first, seconds, seconds * factor)


def _across(one: Point, point: Point, other: Point) -> bool:
    """Whether a point lies between two others, seen from it."""
    pairs = zip(one, point, other, strict=True)
    return sum(math.log(a / x) * math.log(b / x) for a, x, b in pairs) < 0.0


def _scaled(members: Members, point: Point, schedule: Schedule, one: Settled) -> float:
    """Seconds of a schedule if its work takes as long as that of a measured time.

    Of what was another schedule there, it gains nothing beside the program's own work: estimates
    of two schedules differ by more than two extents of one.
    """
    there = members.fitted(one.point, one.schedule, pinned=False)
    known = None if there is None else members.work(one.point, there)
    told = members.work(point, schedule)
    if known is None or told is None:
        return one.seconds * members(point).program.flops / max(1, one.flops)
    ratio = told / known
    if there != schedule:
        ratio = max(ratio, members.least(point) / members.least(one.point))
    return one.seconds * ratio
