"""Running values as states: what each step scales and adds to, instead of a scan that is kept.

A scan that is kept has all of its prefixes in memory before anything reads one. Where it is read at
the point before, at its own point and at its end alone, a loop does the same with one of them at a
time, and what is made of them can be made in its steps. The sums are the same, one after the other.
"""

from __future__ import annotations

from contextlib import suppress

from ir.builder import Graph
from ir.errors import ProgramError
from ir.merges import NAMED
from ir.ops.fold import Fold
from ir.ops.load import Index
from ir.ops.read import Read
from ir.ops.recur import Before, Recur
from ir.program import Program
from ir.rewrite.graft import copy_node, graft
from ir.tiles import Tile

_MERGES = {NAMED["affine"]: 1, NAMED["sum"]: 0}  # and the part that is summed


def stated(program: Program) -> Program:
    """The program with its scans as states, those along one axis where a step along it would hold a
    loop along another; itself if it has none that can be."""
    found = [p for p, node in enumerate(program.nodes) if _is_running(program, p)]
    axes = dict.fromkeys(_axis(program, position) for position in found)
    for some in (axes, *([axis] for axis in axes if len(axes) > 1)):
        chosen = {position for position in found if _axis(program, position) in some}
        with suppress(ProgramError):
            return _States(program, chosen).run() if chosen else program
    return program


def _axis(program: Program, position: int) -> str:
    op = program.nodes[position].op
    assert isinstance(op, Fold)
    return op.axis


def _is_running(program: Program, position: int) -> bool:
    """Whether a value is a scan whose readers need one step alone."""
    node = program.nodes[position]
    op = node.op
    if not isinstance(op, Fold) or not op.keep or op.backward:
        return False
    if _MERGES.get(op.merge) != op.part or {*program.nodes[node.args[op.part]].axes} < {op.axis}:
        return False
    return all(
        not isinstance(program.nodes[user].op, Read)
        or program.nodes[user].args[0] != position
        or _place(program, position, user) is not None
        for user in program.users(position)
    )


def _place(program: Program, position: int, user: int) -> str | None:
    """Where a read of a scan is: in the state `before` a step, or in the one at the `end`."""
    node, read = program.nodes[position], program.nodes[user].op
    assert isinstance(node.op, Fold)
    assert isinstance(read, Read)
    place = ""
    for axis, index in zip(node.axes, read.index, strict=True):
        if axis != node.op.axis:
            if index != Index(((axis, 1),)):
                return None
        elif index == Index(((axis, 1),), -1) and read.fill == 0:
            place = "before"
        elif index == Index((), program.axes[axis] - 1):
            place = "end"
        else:
            return None
    return place or None


class _States:
    def __init__(self, program: Program, found: set[int]) -> None:
        self.program, self.found = program, found
        self.graph: Graph = graft(program)
        labels = {node.op.label for node in program.nodes if isinstance(node.op, Before)}
        names = (f"r{number}" for number in range(len(program.nodes) + len(labels)))
        self.labels = (name for name in names if name not in labels)
        self.made: dict[int, Tile] = {}
        self.before: dict[int, Tile] = {}
        self.end: dict[int, Tile] = {}

    def run(self) -> Program:
        for position, node in enumerate(self.program.nodes):
            first = node.args[0] if node.args else -1
            args = [self.made[arg] for arg in node.args]
            if position in self.found:
                self._state(position, args)
            elif isinstance(node.op, Read) and first in self.found:
                place = _place(self.program, first, position)
                self.made[position] = (self.before if place == "before" else self.end)[first]
            else:
                self.made[position] = copy_node(self.graph, self.program, position, args)
        return self.graph.program()

    def _state(self, position: int, args: list[Tile]) -> None:
        node, graph = self.program.nodes[position], self.graph
        assert isinstance(node.op, Fold)
        axis = node.op.axis
        over = tuple(name for name in node.axes if name != axis)
        zero = graph.constant(0.0 if node.dtype[0] == "f" else 0, node.dtype)
        before = graph.add(Before(axis, over, next(self.labels)), zero)
        after = before + args[0] if node.op.part == 0 else before * args[0] + args[1]
        self.before[position], self.made[position] = before, after
        self.end[position] = graph.add(Recur(axis), before, after)
