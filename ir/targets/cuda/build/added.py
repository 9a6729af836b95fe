"""Products that are added up and nothing else: their sums are one, in the registers of one.

Where they are corrected on their way (by the largest score up to there, say), all are in the same
way: what is corrected is the sum of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ir.handed import addends_of
from ir.ops.map import Map
from ir.ops.reduce import Carry
from ir.program import Program


@lru_cache(maxsize=4096)
def whole_of(program: Program, products: Sequence[int]) -> int | None:
    """The value that all of several products are added up to, where nothing else is made of any of
    them; None where they are one, or something is."""
    kinds = {_kind(program, one) for one in products}
    if len(products) < 2 or len(kinds) > 1:
        return None
    here, wanted = products[0], tuple(sorted(products))
    while len(users := program.users(here)) == 1 and _is_sum(program, users[0]):
        (here,) = users
        if addends_of(program, here) == wanted:
            return here
    return None


def _is_sum(program: Program, position: int) -> bool:
    op = program.nodes[position].op
    return isinstance(op, Map) and op.function == "add"


def _kind(program: Program, position: int) -> tuple[object, ...]:
    """What products that have registers together have in common."""
    node = program.nodes[position]
    corrected = (node.op, node.args[1:]) if isinstance(node.op, Carry) else ()
    return frozenset(node.axes), node.dtype, corrected
