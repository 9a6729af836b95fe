"""Modulo schedules of loop bodies: which iteration's operations share a step, in which order.

An operation of stage s is done for iteration t - s in step t. The legal assignments of stages are
few, since a body has few operations; each fixes one order of a step, in which what tensor cores do
is issued as early as what it needs allows (Rau, "Iterative modulo scheduling", 1994; here without a
table of resources: tensor cores and threads run beside each other, and each in order).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ir.kernel.body import TENSOR, Body

STRAIGHT = "straight"
Sequence = tuple[tuple[int, int], ...]  # operations of a step and their stages


@dataclass(frozen=True, slots=True)
class Order:
    """Stages of a body's operations, and the order of a step.

    >>> body = Body.parse("a: tensor() -> x\\nb: threads(x) -> y\\nc: tensor(y, z) -> z")
    >>> [str(order) for order in orders(body)]
    ['straight', 'c:1']
    """

    body: Body
    stages: tuple[int, ...]
    places: tuple[int, ...]  # operations of a step, the first one first

    @property
    def depth(self) -> int:
        """The highest stage: iterations that are begun before the first step is whole."""
        return max(self.stages, default=0)

    def __str__(self) -> str:
        lags = [
            f"{one.name}:{stage}"
            for one, stage in zip(self.body.operations, self.stages, strict=True) if stage
        ]  # fmt: skip
        return ",".join(lags) or STRAIGHT

    def words(self) -> str:
        """What the order does, for people."""
        if not self.depth:
            return "every block is finished before the next begins"
        names: dict[int, list[str]] = {}
        for one, stage in zip(self.body.operations, self.stages, strict=True):
            names.setdefault(stage, []).append(one.name)
        told = {stage: " and ".join(named) for stage, named in sorted(names.items())}
        early = told.pop(0)
        if self.depth == 1:
            return f"{told[1]} of a block in the step of {early} of the next"
        late = ", ".join(f"{named} {stage} blocks" for stage, named in told.items())
        return f"{late} behind {early}"


def orders(body: Body, depth: int = 1) -> tuple[Order, ...]:
    """All legal orders with stages up to `depth`, one by one later; the first one is straight.

    Of those that differ only in where a step begins, the first one.
    """
    found: dict[Sequence, Order] = {}
    every = product(range(depth + 1), repeat=len(body.operations))
    for stages in sorted(every, key=lambda one: (sum(one), one)):
        if min(stages, default=0) == 0 and _keeps_local(body, stages):
            places = _places(body, stages)
            if places is not None:
                found.setdefault(_cycle(stages, places), Order(body, stages, places))
    return tuple(found.values())


def order_named(body: Body, name: str, depth: int = 1) -> Order:
    """The order that prints like that."""
    return next(order for order in orders(body, depth) if str(order) == name)


def _cycle(stages: tuple[int, ...], places: tuple[int, ...]) -> Sequence:
    """A step as the first of all that begin elsewhere in the same sequence of operations."""
    step = [(place, stages[place]) for place in places]
    turns = []
    for first in range(len(step)):
        turn = [*step[first:], *((place, stage - 1) for place, stage in step[:first])]
        least = min(stage for _, stage in turn)
        turns.append(tuple((place, stage - least) for place, stage in turn))
    return min(turns, default=())


def _keeps_local(body: Body, stages: tuple[int, ...]) -> bool:
    for value in body.local:
        users = {
            stage
            for one, stage in zip(body.operations, stages, strict=True)
            if value in (*one.reads, *one.writes)
        }
        if len(users) > 1:
            return False
    return True


def _places(body: Body, stages: tuple[int, ...]) -> tuple[int, ...] | None:
    """The order of a step, or None where a value would be needed before its step."""
    earlier: dict[int, set[int]] = {place: set() for place in range(len(stages))}
    for d in body.dependences:
        slack = stages[d.after] + d.distance - stages[d.before]
        if slack < 0:
            return None
        if slack == 0 and d.before != d.after:
            earlier[d.after].add(d.before)
    return tuple(_listed(body, earlier)) if _is_acyclic(earlier) else None


def _is_acyclic(earlier: dict[int, set[int]]) -> bool:
    left = {place: set(needs) for place, needs in earlier.items()}
    while left:
        ready = [place for place, needs in left.items() if not needs & left.keys()]
        if not ready:
            return False
        for place in ready:
            del left[place]
    return True


def _listed(body: Body, earlier: dict[int, set[int]]) -> Iterator[int]:
    """Ready operations of tensor cores first, then in the order of the body."""
    left = dict(earlier)
    while left:
        ready = [place for place, needs in left.items() if not needs & left.keys()]
        first = min(ready, key=lambda p: (body.operations[p].unit != TENSOR, p))
        del left[first]
        yield first
