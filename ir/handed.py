"""States that sums of products hand on: state[c] = factor[c] state[c - 1] + product[c].

Where all that a fold along an axis adds at each of its points is a product, whoever computes that
may keep the state where its sums are: the state is scaled, the product of the next point is added
to it, and it is stored on the way. Then no product goes through memory. Knows no target.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ir.merges import NAMED
from ir.ops.fold import Fold
from ir.ops.reduce import Contract
from ir.program import Program

_ADDED = {NAMED["sum"]: 0, NAMED["affine"]: 1}  # which argument a merge adds


@dataclass(frozen=True, slots=True)
class Handed:
    """A state along `axis`: the fold, the product that each point adds to it and, if there is one,
    the factor by which it is scaled before."""

    state: int
    product: int
    factor: int | None
    axis: str


@lru_cache(maxsize=4096)
def handed(program: Program, state: int) -> Handed | None:
    """What a fold hands on; None where that is no sum of products, or where anything else needs a
    point's product by itself."""
    node = program.nodes[state]
    op = node.op
    if not isinstance(op, Fold) or not op.keep or op.backward:
        return None
    if _ADDED.get(op.merge) != op.part:
        return None
    product = node.args[op.part]
    added = program.nodes[product]
    if not isinstance(added.op, Contract) or {*program.users(product)} != {state}:
        return None
    if op.axis not in added.axes or {*added.axes} != {*node.axes} or added.dtype != node.dtype:
        return None
    return Handed(state, product, node.args[0] if op.part else None, op.axis)


@lru_cache(maxsize=1024)
def all_handed(program: Program) -> tuple[Handed, ...]:
    """The states of a program that are handed on."""
    found = (handed(program, position) for position in range(len(program.nodes)))
    return tuple(one for one in found if one is not None)
