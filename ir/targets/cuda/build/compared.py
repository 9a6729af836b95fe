"""Values that are compared with an extreme of their own: both have to be of one computation.

`y = max y` holds somewhere only where both sides have the same bits. A kernel that reads the
maximum from memory and computes y again, in other tiles or another order, may find it nowhere; so
what is compared is in memory for a kernel that reads the extreme from there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from ir.ops.load import Load
from ir.ops.map import Cast, Map
from ir.program import Program

T = TypeVar("T")


class _Again(Exception):
    """Internal: values that a kernel would compute again."""

    def __init__(self, values: set[int]) -> None:
        super().__init__(values)
        self.values = values


def computed_once(nodes: Collection[int], cut: Callable[[set[int]], T]) -> T:
    """What `cut` makes of the nodes that go through memory, and of as many more as kernels would
    compute again for what they compare."""
    found = {*nodes}
    while True:
        try:
            return cut(found)
        except _Again as again:
            found |= again.values


def refuse_again(program: Program, used: Collection[int], known: Collection[int]) -> None:
    """For a kernel of `used` nodes, of which those that are `known` are in memory: raises what
    `computed_once` catches where it compares what it computes with what is read and made of it."""
    again = {
        value
        for position in used
        if position not in known and program.nodes[position].op == Map("eq")
        for value, other in _pairs(program, position)
        if value not in known and _is_read_of(program, value, other, known)
    }
    if again:
        raise _Again(again)


def _pairs(program: Program, position: int) -> Iterator[tuple[int, int]]:
    """Both orders of what is compared, unless one is read as it is, which is the same anywhere."""
    args = program.nodes[position].args
    for arg in args:
        node = program.nodes[arg]
        while isinstance(node.op, Cast):
            node = program.nodes[node.args[0]]
        if isinstance(node.op, Load) and not node.args:
            return
    yield args[0], args[1]
    yield args[1], args[0]


def _is_read_of(program: Program, value: int, other: int, known: Collection[int]) -> bool:
    """Whether a value is made of what is known, and that of another value."""
    reads = (p for p in program.behind([other], lambda p: p in known) if p in known)
    return any(value in program.behind([read], lambda _: False) for read in reads)
