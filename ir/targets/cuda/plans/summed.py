"""The order in which a block of a product sums."""

from __future__ import annotations

from ir.targets.cuda.build.products import Product, summed_order
from ir.targets.cuda.plans.tensor_plan import Plan


def summed_in_block(plan: Plan, product: Product) -> tuple[tuple[str, int], ...]:
    """The axes that a block of a product sums, with their points, outermost first, where a factor
    lacks some: others count all of their own, one line after the other."""
    tiled = {axis for axis in product.over if plan.tiles[axis] > 1}
    nodes = plan.program.nodes
    if all(tiled <= {*nodes[x].axes} for x in (product.a, product.b)):
        return ()
    order = summed_order(plan.program, product)
    return tuple((axis, plan.tiles[axis]) for axis in order if axis in tiled)
