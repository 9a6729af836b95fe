"""Turns at the tensor cores: of threads that share a loop, one group issues while others compute.

Groups that begin alike also compute alike, and tensor cores idle meanwhile. Where they take turns,
each begins its products when the one before has begun (or ended) its own, and is half a step
behind it from then on. Every group takes and passes as many turns as the loop has steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from ir.errors import UsageError
from ir.kernel.body import TENSOR
from ir.kernel.synchronise import Scheduled

FREE, ISSUED, DONE = "free", "issued", "done"
WORDS = {
    FREE: "groups issue their products when they come to them",
    ISSUED: "a group issues its products once the one before it has issued its own",
    DONE: "a group issues its products once the first of the one before it have ended",
}


@dataclass(frozen=True, slots=True)
class Turn:
    """Places in a step: the turn is taken ahead of issuing `take` (what that reads is there by
    then), and passed behind the operation at `give`, or, with `ended`, behind the wait there."""

    take: int
    give: int
    ended: bool = False


def turn_of(scheduled: Scheduled, when: str) -> Turn | None:
    """Where the turn of a loop is taken and passed; None if nobody takes turns.

    Products that follow one another in a step are issued in one turn. Raises UsageError where
    nothing waits for products whose end is to pass the turn.

    >>> from ir.kernel.body import Body
    >>> from ir.kernel.modulo import order_named
    >>> from ir.kernel.synchronise import synchronised
    >>> body = Body.parse("a: tensor() -> x\\nb: threads(x) -> y\\nc: tensor(y, z) -> z")
    >>> turn_of(synchronised(order_named(body, "c:1")), "issued")
    Turn(take=0, give=1, ended=False)
    >>> turn_of(synchronised(order_named(body, "straight")), "done")
    Turn(take=0, give=1, ended=True)
    """
    if when == FREE:
        return None
    units = [scheduled.order.body.operations[step.operation].unit for step in scheduled.steps]
    take = units.index(TENSOR)
    last = next((n for n in range(take, len(units)) if units[n] != TENSOR), len(units)) - 1
    if when == ISSUED:
        return Turn(take, last)
    waits = (n for n in range(last + 1, len(units)) if scheduled.steps[n].wait is not None)
    give = next(waits, None)
    if give is None:
        raise UsageError("turns: no wait in the step behind the products that would pass one")
    return Turn(take, give, ended=True)
