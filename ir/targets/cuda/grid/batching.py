"""Where batches stand in a grid of tiles: one after the other, or beside each other on one side.

Batches that read the same operand (groups of rows with one matrix each, of which there are fewer
than groups; heads that share keys) are further rows or columns of one grid, so that the raster
brings tiles that share it together, whichever batch they are of.
"""

from __future__ import annotations

from math import prod

from ir.columns import Decision
from ir.ops.load import Load
from ir.program import Program
from ir.targets.cuda.build.products import Product, volume
from ir.targets.cuda.build.roles import Roles

NAME = "batches"
APART, BESIDE = "apart", "beside"


def batches_decision(name: str, owner: str, program: Program, roles: Roles) -> Decision | None:
    """The decision, where batches share an operand."""
    if roles.inner or max(_sharers(program, roles, side) for side in "ab") < 2:
        return None
    why = "whether batches are gone through one by one, or are further lines of one grid"
    return Decision(name, (APART, BESIDE), "order", owner, why, APART, unsaid=APART)


def along_rows(program: Program, roles: Roles) -> bool:
    """Whether batches that stand beside each other are further rows, not further columns: what they
    share lies along the columns."""
    return _sharers(program, roles, "b") >= _sharers(program, roles, "a")


def sharers(program: Program, roles: Roles) -> int:
    """How many batches read the same operand, as far as shapes tell."""
    return max(_sharers(program, roles, side) for side in "ab")


def _sharers(program: Program, roles: Roles, side: str) -> int:
    batches = volume(program, roles.batch)
    return max(1, min(batches // max(1, _distinct(program, roles, p, side)) for p in roles.outer))


def _distinct(program: Program, roles: Roles, product: Product, side: str) -> int:
    """Operands of a product that batches have, one for each they are told apart by."""
    position = product.a if side == "a" else product.b
    node = program.nodes[position]
    if not isinstance(node.op, Load):
        return volume(program, roles.batch)
    shape = program.scope.tensors[node.op.tensor].shape
    own = {a for index in node.op.index for a, _ in index.terms if a in roles.batch}
    found = prod(program.axes[axis] for axis in own)
    for index, extent in zip(node.op.index, shape, strict=True):
        if index.gather is not None:
            axes = {a for a in program.nodes[node.args[index.gather]].axes if a in roles.batch}
            found *= min(extent, prod(program.axes[axis] for axis in axes - own))
    return found
