"""Steps that change nothing in front of a recurrence, so that there is a number of them that chunks
divide.

A state that begins with a number, and that a step leaves as it is where all that varies along time
is 0 (no key, no value, an exponent of 0), is the same behind any number of such steps:

    S[t] for t in 0 .. 4093, X[t]   =   S'[t + 3], t + 3 in 0 .. 4096, of X'[t'] = X[t' - 3], or 0

Steps in front need no mask, as those at the end would, and the last state stays the last. Outputs
of steps are read behind the first ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ir.axes import Axis
from ir.builder import Graph
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.read import Read
from ir.ops.recur import Before, Recur
from ir.ops.reduce import Contract, Reduce
from ir.ops.scatter import Scatter
from ir.ops.store import Store
from ir.program import Node, Program
from ir.rewrite.cutting import fresh
from ir.rewrite.graft import copy_node
from ir.scalar import scalar_function
from ir.tiles import Tile

_WHOLE = ("add", "sub", "mul", "neg", "abs", "max", "min", "where", "lt", "le", "eq")
"""Functions of numbers that are numbers, whatever these are."""
_EVALUATED = (
    *_WHOLE, "div", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "log1p", "expm1",
    "sin", "cos",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fronted:
    """A program with `ahead` more steps along `time`, and where its nodes are in it."""

    original: Program
    program: Program
    time: str
    ahead: int
    places: tuple[int, ...]

    def behind(self, form: Program) -> Program | None:
        """A form of it, whose outputs are those of the original; None where they lie elsewhere."""
        wanted = {op.tensor: op for _, op in self.original.stores() if self.time in op.axes}
        specs = {spec.name: spec for spec in self.original.tensors}
        tensors = tuple(specs[spec.name] if spec.name in wanted else spec for spec in form.tensors)
        name = fresh(self.time, set(form.axes))
        extents = {**form.axes, name: self.original.axes[self.time]}
        graph = Graph.like(form.name, extents, tensors, form.pins)
        made: list[Tile] = []
        for position, node in enumerate(form.nodes):
            args = [made[arg] for arg in node.args]
            if isinstance(node.op, Store) and node.op.tensor in wanted:
                tile = self._stored(graph, form, node.op, wanted[node.op.tensor], args[0], name)
                if tile is None:
                    return None
                made.append(tile)
            else:
                made.append(copy_node(graph, form, position, args))
        return graph.program()

    def _stored(
        self, graph: Graph, form: Program, op: Store, own: Store, tile: Tile, name: str
    ) -> Tile | None:
        where = own.axes.index(self.time)
        rest = len(own.axes) - where - 1
        chunk, inner = op.axes[where : len(op.axes) - rest]
        length = form.axes[inner]
        if form.axes[chunk] * length != self.program.axes[self.time]:
            return None
        place = graph.add(Iota(name)) + self.ahead
        at = {Axis(chunk, form.axes[chunk]): place // length, Axis(inner, length): place % length}
        read = tile.at({axis: index for axis, index in at.items() if axis.name in tile.axes})
        axes = tuple(name if axis == self.time else axis for axis in own.axes)
        return graph.add(Store(op.tensor, axes), read)


def fronted(program: Program, time: str, multiple: int) -> Fronted | None:
    """The program with as many steps as a multiple, if those in front may change nothing."""
    ahead = -program.axes[time] % multiple
    if not ahead or not all(_moves(program, node, time) for node in program.nodes):
        return None
    if not _rests(program, time):
        return None
    extents = {**program.axes, time: program.axes[time] + ahead}
    longer = {op.tensor: op.axes.index(time) for _, op in program.stores() if time in op.axes}
    tensors = tuple(
        replace(spec, shape=_with(spec.shape, longer[spec.name], extents[time]))
        if spec.name in longer
        else spec
        for spec in program.tensors
    )
    graph = Graph.like(program.name, extents, tensors, program.pins)
    made: list[Tile] = []
    for position, node in enumerate(program.nodes):
        args, op = [made[arg] for arg in node.args], node.op
        if isinstance(op, Load) and any(axis == time for i in op.index for axis, _ in i.terms):
            made.append(graph.add(_later(op, time, ahead), *args))
        elif op == Iota(time):
            made.append(graph.add(op) - ahead)
        else:
            made.append(copy_node(graph, program, position, args))
    found = graph.program()
    return Fronted(program, found, time, ahead, tuple(tile.position for tile in made))


def _with(shape: Sequence[int], place: int, extent: int) -> tuple[int, ...]:
    return (*shape[:place], extent, *shape[place + 1 :])


def _later(op: Load, time: str, ahead: int) -> Load:
    """A load at the steps behind the first ones; 0 in front of the tensor."""
    index = tuple(
        replace(
            one, constant=one.constant - ahead * sum(c for axis, c in one.terms if axis == time)
        )
        for one in op.index
    )
    return replace(op, index=index, fill=0.0 if op.fill is None else op.fill)


def _moves(program: Program, node: Node, time: str) -> bool:
    """Whether a node is the same of steps that are counted from elsewhere. An index of a step that
    is looked up is read as it is: 0 in front, which is inside, as 0 less 1 is not."""
    op = node.op
    if isinstance(op, Load):
        varying = (program.nodes[arg] for arg in node.args if time in program.nodes[arg].axes)
        return all(isinstance(one.op, Load) and one.op.fill is None for one in varying)
    if isinstance(op, Map | Cast | Constant | Iota | Store | Before | Recur):
        return not (isinstance(op, Before | Recur) and op.axis != time)
    if isinstance(op, Reduce | Contract):
        return time not in op.over
    return not isinstance(op, Read | Scatter) and time not in node.axes


def _rests(program: Program, time: str) -> bool:
    """Whether a step of zeros leaves every state as it begins."""
    values: list[float | None] = []
    for node in program.nodes:
        values.append(_value(program, node, [values[arg] for arg in node.args], time))
    return all(
        values[node.args[1]] is not None and values[node.args[1]] == values[node.args[0]]
        for node in program.nodes
        if isinstance(node.op, Recur)
    )


def _value(program: Program, node: Node, args: Sequence[float | None], time: str) -> float | None:
    """What every element is in a step in front of the first; None for numbers that are not known,
    NaN for what may be none."""
    op = node.op
    if any(arg is not None and math.isnan(arg) for arg in args):
        return math.nan
    if isinstance(op, Load):
        along = any(_in_front(index, time) for index in op.index)
        return (op.fill or 0.0) if along else None
    if isinstance(op, Constant):
        return float(op.value)
    if isinstance(op, Before):
        return args[0]
    if isinstance(op, Cast):
        return args[0] if args[0] in (0.0, 1.0) else None
    if isinstance(op, Contract):
        return 0.0 if 0.0 in args else None
    if isinstance(op, Reduce):
        return args[0] if args[0] == 0.0 or op.kind in ("max", "min") else None
    return _mapped(op, args) if isinstance(op, Map) else None


def _in_front(index: Index, time: str) -> bool:
    """Whether an index leaves its dimension at every step in front, whatever else it is made of."""
    return index.gather is None and index.terms == ((time, 1),) and index.constant == 0


def _mapped(op: Map, args: Sequence[float | None]) -> float | None:
    if op.function == "where" and args[1] == args[2]:
        return args[1]
    if op.function == "mul" and 0.0 in args:
        return 0.0
    known = [arg for arg in args if arg is not None]
    if len(known) < len(args):  # where a function has poles, there may be none
        return None if not known or op.function in _WHOLE else math.nan
    if op.function not in _EVALUATED:
        return math.nan
    with np.errstate(all="ignore"):
        found = float(scalar_function(op.function).meaning(*map(np.float64, known)))
    return found if math.isfinite(found) else math.nan
