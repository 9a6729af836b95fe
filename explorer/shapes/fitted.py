"""A schedule of one workload carried to another of its family: what it says, as far as is legal.

Knows spaces; no records and no measuring.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from explorer.workload import Workload
from ir.columns import Decision
from ir.schedule import Schedule, Value
from ir.space import Row, Space

_FEW = 32  # tiles of an axis, of which there are as many where it is longer or shorter
_TRIES = 64  # repairs, of which the one that changes least is taken


def fitted(
    workload: Workload, schedule: Schedule, pins: Mapping[str, object] | None = None
) -> Schedule | None:
    """The legal schedule of `workload` that is most like `schedule`; None where none was found.

    Values that are not offered become the nearest ones, and what is illegal then is drawn again.
    The same schedule gives the same one in every process.
    """
    space = workload.space(pins)
    row = _row(space, schedule)
    if space.legal(row[None, :]).all():
        return space.schedule(row)
    rng = np.random.default_rng(0)
    mended = space.repair(rng, np.repeat(row[None, :], _TRIES, axis=0))
    mended = mended[space.legal(mended)]
    if not len(mended):
        return None
    changes = (mended != row).sum(axis=1)
    return space.schedule(mended[int(changes.argmin())])


def rescaled(
    workload: Workload,
    schedule: Schedule,
    other: Workload,
    pins: Mapping[str, object] | None = None,
) -> Schedule | None:
    """A schedule of `other` fitted with as many tiles of each axis as it has there, instead of
    tiles as long, where the axis has few; None where that is nothing else, or nothing was found."""
    here, there, space = workload.program.axes, other.program.axes, workload.space(pins)
    values = schedule.as_dict()
    for decision in space.decisions:
        axis, value = decision.owner.rpartition(".")[2], values.get(decision.name)
        if decision.group != "tile" or not _is_number(value) or here.get(axis) == there.get(axis):
            continue
        if axis in here and axis in there:
            tiles = -(-there[axis] // max(1, int(value or 1)))
            long = [v for v in decision.domain if int(v) * tiles >= here[axis]]
            if tiles <= _FEW and long:
                values[decision.name] = min(long, key=int)
    if values == schedule.as_dict():
        return None
    return fitted(workload, Schedule.of(schedule.target, values), pins)


def _row(space: Space, schedule: Schedule) -> Row:
    """The values of a schedule in the space of another workload, legal or not."""
    given = _routed(space, schedule.as_dict())
    row = [_index(decision, given.get(decision.name)) for decision in space.decisions]
    matrix = space.shape.fix(np.array([row], dtype=np.int16))
    return np.asarray(space.shape.settle(matrix)[0], dtype=np.int16)


def _routed(space: Space, given: Mapping[str, Value]) -> dict[str, Value]:
    """The values with each route that the space does not offer replaced by the nearest it does.

    What is decided with a route is named after it: `parts-64.stages` where `parts-64` becomes
    `parts-8` is `parts-8.stages`.
    """
    found = dict(given)
    for decision in space.decisions:
        value = found.get(decision.name)
        if not decision.routes or not isinstance(value, str) or value in decision.domain:
            continue
        other = nearest_route(value, decision.domain)
        if other is None:
            continue
        within = decision.name.rpartition(".")[0]
        old, new = (".".join(filter(None, (within, one, ""))) for one in (value, other))
        found = {_renamed(name, old, new): kept for name, kept in found.items()}
        found[decision.name] = other
    return found


def nearest_route(value: str, domain: Sequence[Value]) -> str | None:
    """The value that differs in its number alone, as parts-8 and parts-64 do, and least in that."""
    stem, number = _numbered(value)
    near = [
        (abs(math.log1p(other) - math.log1p(number)), name)
        for name in domain
        if isinstance(name, str)
        for kind, other in (_numbered(name),)
        if stem and number >= 0 and kind == stem and other >= 0
    ]
    return min(near)[1] if near else None


def _numbered(value: str) -> tuple[str, int]:
    """What stands before the number at the end of a value, and the number; -1 without one."""
    stem = value.rstrip("0123456789")
    return stem, int(value[len(stem) :]) if len(stem) < len(value) else -1


def _renamed(name: str, old: str, new: str) -> str:
    return new + name[len(old) :] if name.startswith(old) else name


def _index(decision: Decision, value: Value | None) -> int:
    """The place of a value in a domain, or of what stands nearest to it there."""
    domain = decision.domain
    if value is None:
        value = decision.unsaid if decision.unsaid is not None else decision.initial
    if value in domain:
        return domain.index(value)
    if _is_number(value) and all(map(_is_number, domain)):
        size = math.log1p(abs(int(value or 0)))
        return min(range(len(domain)), key=lambda n: abs(math.log1p(abs(int(domain[n]))) - size))
    return 0 if decision.initial is None else domain.index(decision.initial)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
