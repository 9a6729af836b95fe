"""Elements sent to sums of their coordinates are found from where they land.

Where `%1 = scatter(%0, kind=sum, axes=[t], index=[256 f + w])` adds what overlaps, there is the sum
over the frames that reach t of `%0` at `f = t / 256 - q`, `w = t % 256 + 256 q`: each point of the
result is written once, by who reads what comes there, and nothing is sorted or combined in memory.
An inverse transform's overlapping frames, a transposed convolution, an image of its patches, and
the gradient of a shifted read are such scatters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ir.axes import Axis, IndexExpression
from ir.builder import Graph, cast, where
from ir.dtypes import is_float
from ir.ops.load import Index
from ir.ops.read import is_itself
from ir.ops.reduce import Reduce
from ir.ops.scatter import Scatter
from ir.program import Program
from ir.rewrite import rereading
from ir.rewrite.digits import digits, plain
from ir.rewrite.graft import copy_node, graft
from ir.tiles import Operand, Tile, quotient, remainder

NAME = "landed"
WHY = "what is sent to a sum of coordinates is read from where it lands"
ROUNDING = "the same terms in another order"
_MOST = 2**31  # of a whole number that is computed
_KINDS = {"sum": 0.0, "max": -math.inf, "min": math.inf}  # and what there is where nothing lands


@dataclass(frozen=True, slots=True)
class _Landing:
    """Of one axis that is written: `solved` is the axis whose coordinate a place tells, of which
    `step` points of the axis lie between neighbours. Of `beside`, which has places next to each
    other, one of `step` is met ("": every point is tried)."""

    axis: str
    index: Index
    solved: str
    step: int
    beside: str

    def others(self) -> tuple[str, ...]:
        """Axes along which all points are tried."""
        return tuple(a for a, _ in self.index.terms if a not in (self.solved, self.beside))


def rewritten(program: Program) -> tuple[int, Program] | None:
    """The program with the first such scatter as a sum, and its node; None without."""
    sends = any(isinstance(node.op, Scatter) for node in program.nodes)
    if not sends or not all(program.axes.values()):
        return None
    program = plain(program)
    for position, node in enumerate(program.nodes):
        if isinstance(node.op, Scatter):
            landings = _landings(program, position, node.op)
            if landings is not None:
                found = _read(program, position, node.op, landings)
                if found is None:
                    return None
                _, found = rereading.rewritten(found) or (position, found)
                return position, digits(found)
    return None


def _landings(program: Program, position: int, op: Scatter) -> list[_Landing] | None:
    """How each written axis tells where its elements come from; None if one does not."""
    node = program.nodes[position]
    tile = program.nodes[node.args[0]]
    if len(node.args) > 1 or op.kind not in _KINDS:
        return None
    if op.kind != "sum" and not is_float(tile.dtype):
        return None
    moved = [pair for pair in zip(op.axes, op.index, strict=True) if not is_itself(*pair)]
    named = [axis for _, index in moved for axis, _ in index.terms]
    if len(set(named)) < len(named) or not op.owned.isdisjoint(named) or not moved:
        return None
    if not {*named, *op.owned} <= {*tile.axes}:
        return None
    found = [_solved(program, axis, index) for axis, index in moved if index.terms]
    free = {*tile.axes} - {one.solved for one in found}
    if len(found) < len(moved) or not free.isdisjoint(axis for axis, _ in moved):
        return None
    most = max(sum(map(abs, one.index.bounds(program.scope))) + program.axes[one.axis]
               for one in found)  # fmt: skip
    return found if most < _MOST else None


def _solved(program: Program, axis: str, index: Index) -> _Landing:
    """By the axis that leaves the fewest points to try."""
    extents = program.axes
    found: list[tuple[int, _Landing]] = []
    for solved, factor in index.terms:
        rest = {a: c for a, c in index.terms if a != solved}
        size, step = math.prod(extents[a] for a in rest), abs(factor)
        for beside in (*(a for a, c in rest.items() if abs(c) == 1 and step > 1), ""):
            fewer = -(-extents[beside] // step) * size // extents[beside] if beside else size
            found.append((fewer, _Landing(axis, index, solved, step, beside)))
    return min(found, key=lambda one: one[0])[1]


def _read(program: Program, position: int, op: Scatter, landings: list[_Landing]) -> Program | None:
    """The program without the scatter; None where the names of new axes are taken."""
    steps = {_step(one): -(-program.axes[one.beside] // one.step)
             for one in landings if one.beside}  # fmt: skip
    if not steps.keys().isdisjoint(program.axes):
        return None
    graph = graft(program, extents={**program.axes, **steps})
    made: list[Tile] = []
    for number, node in enumerate(program.nodes):
        args = [made[arg] for arg in node.args]
        if number != position:
            made.append(copy_node(graph, program, number, args))
            continue
        places: dict[str, Operand] = {}
        masks: list[Tile] = []
        for one in landings:
            places |= _places(graph, one, masks)
        (tile,), fill = args, _KINDS[op.kind]
        named = {Axis(axis, program.axes[axis]): place for axis, place in places.items()}
        value = tile.at(named, fill=fill if is_float(tile.dtype) else 0)
        for mask in masks:
            value = where(mask, value, fill)
        over = [a for a in tile.axes if a not in op.owned and a not in places] + [*steps]
        if over:
            value = graph.add(Reduce(op.kind, tuple(over)), value)
        made.append(value if value.dtype == node.dtype else cast(value, node.dtype))
    return graph.program()


def _places(graph: Graph, one: _Landing, masks: list[Tile]) -> dict[str, Operand]:
    """Where the elements of a point come from, along the axes that its place tells; `masks` become
    more where not every place is one."""
    terms = dict(one.index.terms)
    sign = 1 if terms[one.solved] > 0 else -1
    there = _along(one.axis) - one.index.constant
    for axis in one.others():
        there = there - terms[axis] * _along(axis)
    there = sign * there
    if one.step == 1:
        return {one.solved: there}
    if not one.beside:
        place = graph.coordinate(there)
        masks.append(remainder(place, one.step) == 0)
        return {one.solved: quotient(place, one.step)}
    toward = sign * terms[one.beside]
    place, turn = graph.coordinate(toward * there), _along(_step(one))
    first, rest = quotient(place, one.step), remainder(place, one.step)
    return {
        one.solved: toward * (first - graph.coordinate(turn)),
        one.beside: rest + graph.coordinate(one.step * turn),
    }


def _along(axis: str) -> IndexExpression:
    return IndexExpression(((axis, 1),))


def _step(one: _Landing) -> str:
    """The axis of the points of `beside` that come to a place."""
    return f"{one.beside}_step"
