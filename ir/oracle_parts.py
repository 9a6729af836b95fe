"""What the oracle evaluates part by part: sums whose operands take more room than a piece may.

Knows evaluations by what they offer; none of how they find values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.parts import part_of
from ir.ops.reduce import Carry, Contract, Reduce
from ir.program import Program

if TYPE_CHECKING:
    from ir.evaluation import Evaluation


def fused(program: Program, position: int) -> bool:
    """Whether a node is a product that only sums read, so that it is never formed."""
    node = program.nodes[position]
    if not (isinstance(node.op, Map) and node.op.function == "mul"):
        return False
    users = [program.nodes[user] for user in program.users(position)]
    return all(
        isinstance(u.op, (Reduce, Carry)) and u.op.kind == "sum" and u.args.count(position) == 1
        for u in users
    )


def slices_of(length: int, count: int) -> Iterator[slice]:
    """So many parts of a length, all but the last as long."""
    step = math.ceil(length / max(count, 1)) or 1
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


class Operands:
    """What a sum is made of that is computed for it alone: gathered rows, what is elementwise.

    Where that takes more room than a piece may, the sum is evaluated part by part, along an axis
    that it keeps.
    """

    def __init__(self, around: Evaluation, position: int) -> None:
        self.around, self.position = around, position
        self.made: list[int] = []  # of operands that nothing else needs whole
        self.behind: set[int] = set()  # what these are made of
        sums = isinstance(around.program.nodes[position].op, (Contract, Reduce))
        if sums and position not in around.loops:
            self._follow(position)

    def _follow(self, position: int) -> None:
        for arg in self.around.program.nodes[position].args:
            if arg in self.made or arg in self.behind:
                continue
            if arg not in self.around.known and self._is_elementwise(arg):
                self.made.append(arg)
                self._follow(arg)
            else:
                self.behind.add(arg)

    def _is_elementwise(self, position: int) -> bool:
        op = self.around.program.nodes[position].op
        plain = isinstance(op, (Load, Map, Cast, Constant, Iota))
        return plain and position not in self.around.loops

    def _size(self, position: int) -> int:
        coordinates = self.around.coordinates
        axes = self.around.program.nodes[position].axes
        return 8 * math.prod(len(coordinates[axis]) for axis in axes)

    def parts(self) -> list[Evaluation]:
        """Evaluations of parts; none where all of it has room."""
        program, around = self.around.program, self.around
        formed = [p for p in self.made if not fused(program, p)]
        largest = max(formed, key=self._size, default=None)
        if largest is None or self._size(largest) <= around.room:
            return []
        kept = [
            axis for axis in program.nodes[self.position].axes
            if axis in program.nodes[largest].axes and axis != around.axis
        ]  # fmt: skip
        axis = max(kept, key=lambda a: len(around.coordinates[a]), default=None)
        if axis is None:
            return []
        length = len(around.coordinates[axis])
        count = min(length, math.ceil(self._size(largest) / around.room))
        return [self._part(axis, part) for part in slices_of(length, count)]

    def _part(self, axis: str, part: slice) -> Evaluation:
        child = self.around.narrowed(axis, part)
        for position in self.behind:
            if axis in self.around.program.nodes[position].axes:
                child.known[position] = part_of(self.around.value(position), axis, part)
        return child
