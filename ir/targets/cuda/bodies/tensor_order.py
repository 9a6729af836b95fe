"""The order of a kernel's main loop: which work of two blocks shares a step is a decision.

The body of the loop is derived from the program (`tensor_bodies`), its legal orders from the body.
"""

from __future__ import annotations

from functools import lru_cache

from ir.columns import Decision
from ir.kernel.body import CORRECT, THREADS, Body
from ir.kernel.modulo import STRAIGHT, Order, orders
from ir.kernel.strip import strip_orders, strip_words
from ir.kernel.synchronise import synchronised
from ir.kernel.turns import FREE, WORDS
from ir.kernel.verify import verify
from ir.ops.reduce import Carry
from ir.targets.cuda.bodies.tensor_bodies import (
    INNER,
    body_of,
    early_loads,
    is_chained,
    main_pass,
)
from ir.targets.cuda.build.roles import Roles

NAME = "order"
PAIRS = "pairs"
TURNS = "turns"
RESCALE, ALWAYS, MOVED = "rescale", "always", "moved"
LOADS, NEEDED, AHEAD = "loads", "needed", "ahead"
FOLDED = {
    STRAIGHT: "every product is folded before the next begins",
    PAIRS: "the second of two products runs while the first is folded",
}


def is_compiled(order: Order) -> bool:
    """Whether ptxas (13.0) lets products run on behind a wait.

    It makes them wait for each other where sums of an earlier step are read while some still run.
    Raises OrderError for waits that do not keep the meaning of the loop.
    """
    scheduled = synchronised(order)
    verify(scheduled)
    waits = [step.wait for step in scheduled.steps if step.wait is not None]
    return all(not age for wait in waits if wait.running for _, age in wait.done)


@lru_cache(maxsize=512)
def orders_of(body: Body) -> tuple[Order, ...]:
    """Orders of a loop of chained products that are worth a choice."""
    return tuple(order for order in orders(body) if is_compiled(order))


def order_of(roles: Roles, name: str) -> Order:
    """The order of a loop of chained products that is called so."""
    return next(order for order in orders_of(body_of(roles)) if str(order) == name)


def goes_through(roles: Roles, name: str) -> bool:
    """Whether an order of products with operands in registers lets blocks overlap."""
    return name != STRAIGHT and name in strip_orders(body_of(roles, True))


def order_choices(roles: Roles) -> dict[str, str]:
    """Names of the orders of the main loop, and what each does; none where there is no choice."""
    if is_chained(roles):
        return {str(order): order.words() for order in orders_of(body_of(roles))}
    if roles.at_once:
        return dict(FOLDED)
    sums = [product.position for product in roles.outer]
    one = main_pass(roles)
    if roles.computed and not one.stores and sorted(one.reductions) == sorted(sums):
        body = body_of(roles, True)
        return {name: strip_words(body, name) for name in strip_orders(body)}
    return {}


def order_decision(name: str, owner: str, choices: dict[str, str]) -> Decision:
    """The decision, of what `order_choices` finds."""
    why = "which block's work shares a step of the loop: " + "; ".join(
        f"{name}: {words}" for name, words in choices.items()
    )
    return Decision(name, tuple(choices), "pipeline", owner, why, STRAIGHT, unsaid=STRAIGHT)


def corrects(roles: Roles) -> bool:
    """Whether sums of chained products are scaled on their way."""
    return is_chained(roles) and any(
        part.kind == CORRECT and isinstance(roles.program.nodes[part.node].op, Carry)
        for one in body_of(roles).operations for part in one.parts
    )  # fmt: skip


def rescale_decision(name: str, owner: str) -> Decision:
    """Whether threads whose rows' extremes did not move leave their sums as they are."""
    why = "when the sums of a chain are scaled: in every block, or where an extreme moved"
    return Decision(name, (ALWAYS, MOVED), "pipeline", owner, why, ALWAYS, unsaid=ALWAYS)


def reads_early(roles: Roles, order: Order) -> bool:
    """Whether threads may read what they need for a block at its head: no other block's work of
    theirs is between that and its use."""
    stages = {
        stage for stage, operation in zip(order.stages, order.body.operations, strict=True)
        if operation.unit == THREADS or operation.name == INNER
    }  # fmt: skip
    return bool(early_loads(roles)) and len(stages) == 1


def loads_decision(name: str, owner: str) -> Decision:
    """When threads read from memory what they fold a block of a chain with."""
    why = (
        "when threads read what they make of a block: where it is needed, or ahead of its products"
    )
    return Decision(name, (NEEDED, AHEAD), "pipeline", owner, why, NEEDED, unsaid=NEEDED)


def turns_decision(name: str, owner: str) -> Decision:
    """Whether warp groups that share a tile take turns at the tensor cores."""
    why = "how warp groups meet at the tensor cores: "
    why += "; ".join(f"{one}: {words}" for one, words in WORDS.items())
    return Decision(name, tuple(WORDS), "pipeline", owner, why, FREE, unsaid=FREE)
