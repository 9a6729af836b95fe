"""Products whose values threads sum up: scaled partial sums, and other folds along an axis.

A product may have an axis that a later reduction takes away, with arithmetic between them: sums of
blocks are scaled and added, scores of many heads go through a function and are added. Where a tile
cannot have all of that axis, the kernel walks it: every point begins new sums on the tensor cores,
and threads fold what comes of them into the reduction's state.
"""

from __future__ import annotations

from functools import lru_cache

from ir.ops.map import Map
from ir.ops.reduce import Reduce
from ir.program import Program
from ir.stages import is_reduction, reduced_axes
from ir.targets.cuda.build.products import (
    Product,
    for_tensor_cores,
    is_elementwise,
    product_of,
    volume,
)

WHOLE = 256  # points of an axis that a tile of a product may have


def in_one_tile(program: Program, product: Product, axes: set[str]) -> bool:
    """Whether a tile of the product's rows and columns can hold all points of `axes`."""
    sides = ({*product.rows}, {*product.columns})
    return any(axes <= side for side in sides) and volume(program, tuple(axes)) <= WHOLE


@lru_cache(maxsize=4096)
def folded_axes(program: Program, position: int) -> tuple[str, ...]:
    """Axes of a product for tensor cores that every reader reduces, behind nothing but elementwise
    steps; () if there are none, no matrices without them, or if its tiles' columns hold them."""
    product = product_of(program, position)
    if product is None or not for_tensor_cores(program, product):
        return ()
    ends = _ends(program, position)
    taken = {reduced_axes(program.nodes[end]) for end in ends}
    if len(taken) != 1:
        return ()
    (axes,) = taken
    gone, own = {*axes}, {*program.nodes[position].axes}
    sides = ({*product.rows} - gone, {*product.columns} - gone)
    along = gone <= {*product.columns} and volume(program, tuple(gone)) <= WHOLE
    if not gone or not gone <= own or not all(sides) or along:
        return ()
    if any({*program.nodes[end].axes} != own - gone for end in ends):
        return ()
    return tuple(axis for axis in program.nodes[position].axes if axis in gone)


def _ends(program: Program, position: int) -> tuple[int, ...]:
    """The reductions, none of them a product for tensor cores, to which all readers lead; () if one
    leads elsewhere, or if nothing happens on the way: that is a sum in parts."""
    found, seen, pending, maps = list[int](), set[int](), [position], False
    while pending:
        here = pending.pop()
        users = program.users(here)
        if not users:
            return ()
        for user in users:
            if user in seen:
                continue
            seen.add(user)
            node = program.nodes[user]
            if is_elementwise(program, user):
                maps |= isinstance(node.op, Map)
                pending.append(user)
                continue
            product = product_of(program, user) if is_reduction(node) else None
            if not isinstance(node.op, Reduce) or (product and for_tensor_cores(program, product)):
                return ()
            found.append(user)
    return tuple(sorted(found)) if maps else ()
