"""Waits of a scheduled loop, derived from its dependences with the most that may still be running.

Tensor cores finish in the order in which they were begun, and a wait names how many of the last
ones may still run. Where an operation is missing in a first or last step, an empty one is begun in
its place: so the count is the same in all steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from ir.kernel.body import TENSOR
from ir.kernel.modulo import Order


@dataclass(frozen=True, slots=True)
class Wait:
    """Ahead of an operation: until at most `running` are not done. `done`: those that are done by
    then and were not known to be, each with how many steps ago it was begun."""

    running: int
    done: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a step, and what it waits for first, if anything."""

    operation: int
    wait: Wait | None


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A step in order. `left`: operations that are not known to be done when the loop ends, with
    how many steps ago they were begun, counted from a step that comes no more."""

    order: Order
    steps: tuple[Step, ...]
    left: tuple[tuple[int, int], ...]


def synchronised(order: Order) -> Scheduled:
    """The fewest waits, each as lax as may be, behind which nothing is read early or overwritten.

    >>> from ir.kernel.body import Body
    >>> from ir.kernel.modulo import order_named
    >>> body = Body.parse("a: tensor() -> x\\nb: threads(x) -> y\\nc: tensor(y, z) -> z")
    >>> [step.wait for step in synchronised(order_named(body, "straight")).steps]
    [None, Wait(running=0, done=((2, 1), (0, 0))), None]
    """
    issued = [p for p in order.places if order.body.operations[p].unit == TENSOR]
    running = tuple((place, 1) for place in issued)  # as a step begins, the oldest first
    while True:  # until a step leaves running what it began with
        steps, queue = _one_step(order, issued, running)
        left = tuple((place, age + 1) for place, age in queue)
        if left == running:
            return Scheduled(order, steps, left)
        running = left


def _one_step(
    order: Order, issued: list[int], running: tuple[tuple[int, int], ...]
) -> tuple[tuple[Step, ...], tuple[tuple[int, int], ...]]:
    steps, queue = [], running
    for place in order.places:
        needed = [
            number for number, (other, age) in enumerate(queue) if _needs(order, place, other, age)
        ]
        wait = None
        if needed:
            last = max(needed) + 1
            wait, queue = Wait(len(queue) - last, queue[:last]), queue[last:]
        steps.append(Step(place, wait))
        if place in issued:
            queue = (*queue, (place, 0))
    return tuple(steps), queue


def _needs(order: Order, place: int, other: int, age: int) -> bool:
    """Whether an operation has to see another's done that was begun `age` steps ago."""
    if place == other:
        return age > 1  # sums are added to in order, of two blocks at most
    stages = order.stages
    return any(
        age >= stages[place] + d.distance - stages[other]
        for d in order.body.dependences
        if (d.before, d.after) == (other, place)
    )
