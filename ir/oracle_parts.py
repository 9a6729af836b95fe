"""What the oracle evaluates part by part: sums whose operands take more room than a piece may.

Knows evaluations by what they offer; none of how they find values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ir.loops import Carried, entangled
from ir.ops.fold import Fold
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.parts import part_of
from ir.ops.recur import Recur
from ir.ops.reduce import Carry, Contract, Reduce
from ir.ops.scatter import Scatter
from ir.ops.store import Store
from ir.ops.top import Top
from ir.program import Program

if TYPE_CHECKING:
    from ir.evaluation import Evaluation

_COMBINING = (Contract, Reduce, Fold, Top)


@lru_cache(maxsize=256)
def _folds(program: Program) -> dict[int, tuple[int, ...]]:
    """The states of each fold, by each of them."""
    found: dict[tuple[Fold, tuple[int, ...]], list[int]] = {}
    for position, node in enumerate(program.nodes):
        if isinstance(node.op, Fold):
            found.setdefault((replace(node.op, part=0), node.args), []).append(position)
    return {position: tuple(states) for states in found.values() for position in states}


def states_of(program: Program, position: int) -> tuple[int, ...]:
    """A node that is a state of a fold and the others of the same fold; else the node alone."""
    return _folds(program).get(position, (position,))


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


def formed(program: Program, loop: Carried, reads: Sequence[int]) -> tuple[int, ...]:
    """What of a loop is formed where others read `reads`: in the place of products that only sums
    read, those operands that the loop computes."""
    found = [
        arg
        for position in reads
        for arg in (program.nodes[position].args if fused(program, position) else (position,))
        if arg in loop.inside
    ]
    return tuple(dict.fromkeys(found))


def read_by_one(program: Program, position: int) -> bool:
    """Whether a value is an operand of one node that combines (of all states of a fold), point by
    point, and of none else."""
    found, seen, pending = set[int](), {position}, [position]
    while pending:
        for user in program.users(pending.pop()):
            if isinstance(program.nodes[user].op, (Map, Cast)):
                pending += [user] if user not in seen else []
                seen.add(user)
            else:
                found.add(states_of(program, user)[0])
    return len(found) == 1 and isinstance(program.nodes[found.pop()].op, _COMBINING)


def of_output(program: Program, store: int) -> Program:
    """What one output is made of, as a program."""
    steps: dict[int, list[int]] = {}
    for position, node in enumerate(program.nodes):
        if isinstance(node.op, Recur):
            steps.setdefault(node.args[0], []).append(position)
    needed, pending = set[int](), [store]
    while pending:
        position = pending.pop()
        if position not in needed:
            needed.add(position)
            pending += [*program.nodes[position].args, *steps.get(position, ())]
    places = {position: number for number, position in enumerate(sorted(needed))}
    nodes = tuple(
        replace(node, args=tuple(places[arg] for arg in node.args))
        for position, node in enumerate(program.nodes)
        if position in needed
    )
    own = {node.op.tensor for node in nodes if isinstance(node.op, Load | Store)}
    tensors = tuple(spec for spec in program.tensors if spec.name in own)
    return replace(program, nodes=nodes, tensors=tensors)


def slices_of(length: int, count: int) -> Iterator[slice]:
    """So many parts of a length, all but the last as long."""
    step = math.ceil(length / max(count, 1)) or 1
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


class Operands:
    """What a sum, a fold or a choice is made of that is computed for it alone: gathered rows, what
    is elementwise, sums that nothing else needs.

    Where that takes more room than a piece may, it is evaluated part by part, along an axis that it
    keeps and does not combine along, or else along one that it reduces.
    """

    def __init__(self, around: Evaluation, position: int) -> None:
        self.around, self.position = around, position
        self.results = states_of(around.program, position)
        self.made: list[int] = []  # of operands that nothing else needs whole
        self.behind: set[int] = set()  # what these are made of
        self.loops: dict[int, Carried] = {}  # of these those whose steps are taken for it alone
        node = around.program.nodes[position]
        if isinstance(node.op, (*_COMBINING, Scatter)) and self._is_here(position):
            self._follow(position)
            while inner := next(filter(self._is_its_own, sorted(self.behind)), None):
                self.behind.discard(inner)
                self._take(inner)

    def _is_here(self, position: int) -> bool:
        """Whether a node is computed where this evaluation is: in the same loop, or in none."""
        return self.around.loops.get(position) is self.around.within

    def _take(self, position: int) -> None:
        loop = None if self._is_here(position) else self.around.loops[position]
        nodes = (position,) if loop is None else tuple(sorted(loop.nodes))
        self.made += nodes
        self.behind.difference_update(nodes)
        if loop is not None:
            self.loops |= dict.fromkeys(nodes, loop)
        for node in nodes:
            self._follow(node)

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
        read = isinstance(op, (Load, Constant, Iota))  # is as soon read again as found elsewhere
        if self.around.within is not None and position not in self.around.loops:
            return read
        return (read or isinstance(op, (Map, Cast))) and self._is_here(position)

    def _is_its_own(self, position: int) -> bool:
        """Whether a sum, or a loop, is an operand of this one alone."""
        around, here = self.around, self._is_here(position)
        loop = around.loops.get(position)
        if position in around.known or (around.within is not None and not here):
            return False
        program, nodes = around.program, {position} if here or loop is None else {*loop.nodes}
        if any(around.cut & entangled(program, program.nodes[node]) for node in nodes):
            return False  # it needs all of an axis that is in parts here
        sums = isinstance(program.nodes[position].op, (Contract, Reduce))
        users = {user for node in nodes for user in program.users(node)} - nodes
        return (sums or not here) and users.issubset({*self.results, *self.made})

    def _size(self, position: int) -> int:
        lengths = {axis: len(points) for axis, points in self.around.coordinates.items()}
        loop = self.loops.get(position)
        if loop is not None:  # of which few steps are there at a time
            lengths[loop.axis] = 1
        return 8 * math.prod(lengths[axis] for axis in self.around.program.nodes[position].axes)

    def parts(self) -> list[Evaluation]:
        """Evaluations of parts of the result; none where all of it has room."""
        node = self.around.program.nodes[self.position]
        inside = {*entangled(self.around.program, node), self.around.axis}
        return self._along([axis for axis in node.axes if axis not in inside])

    def turns(self) -> list[Evaluation]:
        """Evaluations of parts of what is reduced, whose results are to be combined; none where all
        of it has room, or where it is made of what needs the axis whole."""
        program, around = self.around.program, self.around
        node = program.nodes[self.position]
        if isinstance(node.op, Reduce):
            over: Sequence[str] = node.op.over
        elif isinstance(node.op, Scatter):
            over = node.op.sent_along([program.nodes[arg].type for arg in node.args])
        else:
            return []
        return self._along([axis for axis in over if axis != around.axis])

    def _along(self, axes: Sequence[str]) -> list[Evaluation]:
        """Parts of the longest of some axes that the largest operand has, and along which nothing
        that it is made of needs all points: what is evaluated inside of a part has its share."""
        program, around = self.around.program, self.around
        formed = [p for p in self.made if not fused(program, p)]
        largest = max(formed, key=self._size, default=None)
        if largest is None or self._size(largest) <= around.room:
            return []
        whole = {axis for made in self.made for axis in entangled(program, program.nodes[made])}
        own = [axis for axis in axes if axis in program.nodes[largest].axes and axis not in whole]
        axis = max(own, key=lambda a: len(around.coordinates[a]), default=None)
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
