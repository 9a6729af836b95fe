"""The order of the loop in which an inner product's tile becomes an operand of an outer one.

Its body: both products on tensor cores, what threads do between them, and what they do to the outer
sums. Which of its legal orders is taken is a decision.
"""

from __future__ import annotations

from ir.columns import Decision
from ir.kernel.body import Body
from ir.kernel.modulo import STRAIGHT, Order, order_named, orders
from ir.kernel.synchronise import synchronised
from ir.kernel.verify import verify
from ir.ops.load import Load
from ir.targets.cuda.roles import Roles

NAME = "order"
BODY = Body.parse(
    "inner: tensor() -> scores takes inner\n"
    "between: threads(scores, states) -> states, weights, factors\n"
    "fold: threads(weights, factors, sums) -> sums, words\n"
    "outer: tensor(words, sums) -> sums takes outer\n"
    "local factors, weights"
)


def is_compiled(order: Order) -> bool:
    """Whether ptxas (13.0) lets products run on behind a wait.

    It makes them wait for each other where sums of an earlier step are read while some still run.
    Raises OrderError for waits that do not keep the meaning of the loop.
    """
    scheduled = synchronised(order)
    verify(scheduled)
    waits = [step.wait for step in scheduled.steps if step.wait is not None]
    return all(not age for wait in waits if wait.running for _, age in wait.done)


ORDERS = {str(order): order for order in orders(BODY) if is_compiled(order)}


def is_chained(roles: Roles) -> bool:
    """Whether all outer products have an operand that inner ones make."""
    nodes = roles.program.nodes
    computed = all(not isinstance(nodes[product.a].op, Load) for product in roles.outer)
    return bool(roles.inner) and computed


def order_decision(name: str, owner: str) -> Decision:
    """The decision, of chained products."""
    why = "which block's work shares a step of the loop: " + "; ".join(
        f"{name}: {order.words()}" for name, order in ORDERS.items()
    )
    return Decision(name, tuple(ORDERS), "pipeline", owner, why, STRAIGHT, unsaid=STRAIGHT)


def order_of(name: str) -> Order:
    return order_named(BODY, name)
