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
from ir.ops.map import Map
from ir.ops.reduce import Contract
from ir.program import Program
from ir.stages import is_reduction

_ADDED = {NAMED["sum"]: 0, NAMED["affine"]: 1}  # which argument a merge adds


@dataclass(frozen=True, slots=True)
class Handed:
    """A state along `axis`: the fold, the products that each point adds to it and, if there is one,
    the factor by which it is scaled before."""

    state: int
    products: tuple[int, ...]
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
    whole = node.args[op.part]
    added = program.nodes[whole]
    products = addends_of(program, whole)
    if not products or {*program.users(whole)} != {state}:
        return None
    if not all(isinstance(program.nodes[one].op, Contract) for one in products):
        return None
    if op.axis not in added.axes or {*added.axes} != {*node.axes} or added.dtype != node.dtype:
        return None
    return Handed(state, products, node.args[0] if op.part else None, op.axis)


def addends_of(program: Program, whole: int) -> tuple[int, ...]:
    """The sums, of products say, that a value is: itself, or those that are added up to it, of
    which nothing else is made and none is there twice; none if it is made of anything else."""
    found, left = list[int](), [whole]
    while left:
        node = program.nodes[here := left.pop()]
        if here != whole and len(program.users(here)) > 1:
            return ()
        if is_reduction(node):
            found.append(here)
        elif isinstance(node.op, Map) and node.op.function == "add":
            left += node.args
        else:
            return ()
    return tuple(sorted(found)) if len({*found}) == len(found) else ()


@lru_cache(maxsize=1024)
def all_handed(program: Program) -> tuple[Handed, ...]:
    """The states of a program that are handed on."""
    found = (handed(program, position) for position in range(len(program.nodes)))
    return tuple(one for one in found if one is not None)
