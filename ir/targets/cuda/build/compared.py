"""Values that are compared with an extreme of their own: both have to be of one computation.

`y = max y` holds somewhere only where both sides have the same bits. A kernel that reads the
maximum from memory and computes y again, in other tiles or another order, may find it nowhere; so
what is compared goes through memory where the extreme does.
"""

from __future__ import annotations

from collections.abc import Collection

from ir.ops.load import Load
from ir.ops.map import Cast, Map
from ir.program import Program


def with_compared(
    program: Program, nodes: Collection[int], rest: Collection[int] | None = None
) -> set[int]:
    """The nodes that go through memory, and what is compared with what those among them make of it,
    by any node or by the `rest` of them."""
    found = {*nodes}
    for position in range(len(program.nodes)) if rest is None else rest:
        node = program.nodes[position]
        if node.op == Map("eq") and not _is_exact(program, node.args):
            for value, other in (node.args, node.args[::-1]):
                if value not in found and _goes_through(program, value, other, nodes):
                    found.add(value)
    return found


def _is_exact(program: Program, args: Collection[int]) -> bool:
    """Whether one of two values is read as it is, which is the same everywhere."""
    for arg in args:
        node = program.nodes[arg]
        while isinstance(node.op, Cast):
            node = program.nodes[node.args[0]]
        if isinstance(node.op, Load) and not node.args:
            return True
    return False


def _goes_through(program: Program, value: int, other: int, nodes: Collection[int]) -> bool:
    """Whether a value is made of another one by way of some of the nodes."""
    behind = {*program.behind([other], lambda _: False)}
    if value not in behind:
        return False
    through = (node for node in nodes if node in behind and node != value)
    return any(value in program.behind([node], lambda _: False) for node in through)
