"""Sums that begin with another product: X W + f(U B), with a short sum in U B.

Both products have the same rows and columns, and the accumulators of one. What the short product
comes to, and what is made of it element by element, is there before the long one's walk begins,
which adds to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from ir.ops.load import Load
from ir.ops.map import Constant, Iota, Map
from ir.ops.reduce import Carry
from ir.program import Program
from ir.stages import is_reduction
from ir.targets.cuda.build.products import (
    HELD,
    Product,
    for_tensor_cores,
    is_elementwise,
    product_of,
    volume,
)


@dataclass(frozen=True, slots=True)
class Begin:
    """The short product, what the sum begins with, and the value that both come to (nodes)."""

    product: Product
    start: int
    whole: int


@lru_cache(maxsize=4096)
def begin_of(program: Program, position: int) -> Begin | None:
    """What a product's sum may begin with; None where it begins with nothing."""
    product = product_of(program, position)
    if product is None or not for_tensor_cores(program, product):
        return None
    if isinstance(program.nodes[position].op, Carry):
        return None  # is corrected on its way
    users = program.users(position)
    node = program.nodes[users[0]] if len(users) == 1 else None
    if node is None or not isinstance(node.op, Map) or node.op.function != "add":
        return None
    (whole,), args = users, [arg for arg in node.args if arg != position]
    if len(args) != 1 or node.dtype != program.nodes[position].dtype:
        return None
    found = _short(program, args[0])
    if found is None or not _alike(program, product, found):
        return None
    return Begin(found, args[0], whole) if _leads_to(program, found.position, whole) else None


def _short(program: Program, start: int) -> Product | None:
    """The only reduction that a value is made of, if it is a product for tensor cores."""
    found, seen, pending = set[int](), set[int](), [start]
    while pending:
        here = pending.pop()
        if here in seen:
            continue
        seen.add(here)
        node = program.nodes[here]
        if is_reduction(node):
            found.add(here)
        elif is_elementwise(program, here):
            pending.extend(node.args)
        elif not isinstance(node.op, (Load, Constant, Iota)):
            return None
    products = [product_of(program, position) for position in found]
    (one,) = products if len(products) == 1 else (None,)
    return one if one is not None and for_tensor_cores(program, one) else None


def _alike(program: Program, long: Product, short: Product) -> bool:
    """Whether a product's operands fit beside another's, over the same rows and columns."""
    nodes = program.nodes
    types = {nodes[x].dtype for product in (long, short) for x in (product.a, product.b)}
    same = {*nodes[long.position].axes} == {*nodes[short.position].axes}
    length, longer = volume(program, short.over), volume(program, long.over)
    fits = len(short.over) == 1 and length <= HELD  # of two alike, the later one goes on
    ordered = (length, short.position) < (longer, long.position)
    apart = not {*long.over} & {*short.over}
    return same and fits and ordered and apart and len(types) == 1


def _leads_to(program: Program, position: int, whole: int) -> bool:
    """Whether all that reads a value, element by element, ends at `whole`."""
    pending: list[int] = [position]
    while pending:
        users: Iterable[int] = program.users(pending.pop())
        for user in users:
            if user == whole:
                continue
            if not is_elementwise(program, user):
                return False
            pending.append(user)
    return True
