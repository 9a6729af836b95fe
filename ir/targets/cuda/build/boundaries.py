"""Where the value of a reduction ends: how far what is made of it point by point goes along."""

from __future__ import annotations

from ir.dtypes import dtype_of
from ir.program import Program
from ir.targets.cuda.build.products import (
    depends_on_reduction,
    for_tensor_cores,
    is_elementwise,
    product_of,
)


def boundary_of(program: Program, position: int) -> int:
    """The last value, elementwise and over the same axes, that all readers read it through.

    What meets it on the way is of no reduction but products over the same axes, as its own is.
    """
    axes = set(program.nodes[position].axes)
    while True:
        meet = _meet(program, position)
        if meet is None or set(program.nodes[meet].axes) != axes:
            return position
        if not alike(program, depends_on_reduction(program, meet)):
            return position
        position = meet


def last_of(program: Program, product: int) -> int:
    """The same of a product where all reductions go through memory: what meets it on the way may be
    of any that are no products for tensor cores. No value takes more bytes than one before it."""
    axes, position, found = set(program.nodes[product].axes), product, product

    def size(node: int) -> int:
        return dtype_of(program.nodes[node].dtype).bits

    while True:
        meet = _meet(program, position)
        if meet is None or set(program.nodes[meet].axes) != axes:
            return found
        reductions = depends_on_reduction(program, meet)
        if not alike(program, reductions) and any(
            (other := product_of(program, one)) is not None and for_tensor_cores(program, other)
            for one in {*reductions} - {product}
        ):
            return found
        position = meet
        found = meet if size(meet) <= size(found) else found


def _meet(program: Program, position: int) -> int | None:
    """The first elementwise value through which every reader of a value reads it."""
    pending = {*program.users(position)}
    while pending:
        first = min(pending)
        if not is_elementwise(program, first):
            return None
        if len(pending) == 1:
            return first
        pending.discard(first)
        pending.update(program.users(first))
    return None


def alike(program: Program, reductions: tuple[int, ...]) -> bool:
    """Whether a kernel sums all of them in the same blocks: one, or products over the same axes."""
    if len(reductions) == 1:
        return True
    products = [product_of(program, reduction) for reduction in reductions]
    sides = set()
    for product in products:
        if product is None or not for_tensor_cores(program, product):
            return False
        rows, columns = frozenset(product.rows), frozenset(product.columns)
        sides.add((frozenset(product.over), frozenset((rows, columns)), frozenset(product.batch)))
    return len(sides) == 1
