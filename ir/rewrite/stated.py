"""Running values as states: what each step scales and adds to, instead of a scan that is kept.

A scan that is kept has all of its prefixes in memory before anything reads one. Where it is read at
the point before, at its own point and at its end alone, a loop does the same with one of them at a
time, and what is made of them can be made in its steps. The sums are the same, one after the other.
So are those, and the extremes, of what is made of the running values along the same axis: each is a
state more, and what it is reduced of is never in memory.
"""

from __future__ import annotations

from contextlib import suppress

from ir.builder import Graph
from ir.dtypes import compute_dtype
from ir.errors import ProgramError
from ir.merges import NAMED
from ir.ops.fold import Fold
from ir.ops.load import Index
from ir.ops.read import Read
from ir.ops.recur import Before, Recur
from ir.ops.reduce import Reduce
from ir.ops.scatter import nothing_sent
from ir.program import Node, Program
from ir.rewrite.graft import copy_node, graft
from ir.scalar import COMBINES
from ir.tiles import Tile, apply

_ENDS = {kind: COMBINES[kind].function for kind in ("sum", "prod", "max", "min")}
_KINDS = {NAMED[kind]: kind for kind in _ENDS}
_MERGES = {NAMED["affine"]: 1, **dict.fromkeys(_KINDS, 0)}  # and the part that runs


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
        elif index == Index(((axis, 1),), -1) and read.fill == _first(node):
            place = "before"
        elif index == Index((), program.axes[axis] - 1):
            place = "end"
        else:
            return None
    return place or None


def _first(node: Node) -> float | int | bool:
    """What a scan is before its first point."""
    assert isinstance(node.op, Fold)
    return nothing_sent(_KINDS.get(node.op.merge, "sum"), compute_dtype(node.dtype))


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
        self.axes = {_axis(program, position) for position in found}
        self.inside = set(found)  # what is made of states, step by step

    def run(self) -> Program:
        for position, node in enumerate(self.program.nodes):
            first = node.args[0] if node.args else -1
            args = [self.made[arg] for arg in node.args]
            if position in self.found:
                self._state(position, args)
            elif isinstance(node.op, Read) and first in self.found:
                place = _place(self.program, first, position)
                self.made[position] = (self.before if place == "before" else self.end)[first]
                self.inside |= {position} if place == "before" else set()
            elif isinstance(node.op, Reduce) and self._ends(node.op, first):
                self.made[position] = self._total(node.op, args[0])
            else:
                self.made[position] = copy_node(self.graph, self.program, position, args)
                self.inside |= set() if self.inside.isdisjoint(node.args) else {position}
        return self.graph.program()

    def _ends(self, op: Reduce, of: int) -> bool:
        """Whether a reduction is along the steps, of what they make."""
        return of in self.inside and op.kind in _ENDS and len(self.axes.intersection(op.over)) == 1

    def _total(self, op: Reduce, value: Tile) -> Tile:
        """A reduction along the steps as a state."""
        (axis,), graph = self.axes.intersection(op.over), self.graph
        others = tuple(name for name in op.over if name != axis)
        step = graph.add(Reduce(op.kind, others), value) if others else value
        over = tuple(name for name in step.axes if name != axis)
        first = graph.constant(nothing_sent(op.kind, compute_dtype(step.dtype)), step.dtype)
        before = graph.add(Before(axis, over, next(self.labels)), first)
        return graph.add(Recur(axis), before, apply(_ENDS[op.kind], before, step))

    def _state(self, position: int, args: list[Tile]) -> None:
        node, graph = self.program.nodes[position], self.graph
        assert isinstance(node.op, Fold)
        axis = node.op.axis
        over = tuple(name for name in node.axes if name != axis)
        first = graph.constant(_first(node), node.dtype)
        before = graph.add(Before(axis, over, next(self.labels)), first)
        kind = _KINDS.get(node.op.merge)
        after = apply(_ENDS[kind], before, args[0]) if kind else before * args[0] + args[1]
        self.before[position], self.made[position] = before, after
        self.end[position] = graph.add(Recur(axis), before, after)
