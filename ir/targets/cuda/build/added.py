"""Products that are added up and nothing else: their sums are one, in the registers of one.

Where they are corrected on their way (by the largest score up to there, say), all are in the same
way: what is corrected is the sum of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

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
    added, last = {*products}, None
    for position in range(min(products), len(program.nodes)):
        node = program.nodes[position]
        if isinstance(node.op, Map) and node.op.function == "add" and {*node.args} <= added:
            added.add(position)
            last = position
    inside = added - {last}
    alone = all(len(program.users(one)) == 1 and {*program.users(one)} <= added for one in inside)
    twice = any(len({*program.nodes[one].args}) == 1 for one in added - {*products})
    return last if last is not None and alone and not twice else None


def _kind(program: Program, position: int) -> tuple[object, ...]:
    """What products that have registers together have in common."""
    node = program.nodes[position]
    corrected = (node.op, node.args[1:]) if isinstance(node.op, Carry) else ()
    return frozenset(node.axes), node.dtype, corrected
