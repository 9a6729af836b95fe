"""A row that others read at every second point, or by halves, is summed along those points.

Where `s = reduce(max, f(load(x, [i, j])), over j)` and outputs are made of `x` at `2 b` and
`2 b + 1` (the two elements of a byte, the pairs of a rotation; or `b` and `b + n / 2`, its halves),
the sum and its readers go along different axes, so that s, or f of the row, is whole in memory
between two kernels. The same sum goes along b as well, of what the points of each b are together:

    reduce(max, f(x[i, j]), over j)  =  reduce(max, max(f(x[i, 2 b]), f(x[i, 2 b + 1])), over b)

Done where nothing else goes along j. Rows that are quantised by their own extremes and leave in
halves of bytes, and normalised rows whose pairs are turned, are read once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ir.axes import IndexExpression
from ir.dtypes import dtype_of
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.reduce import Reduce
from ir.program import Node, Program
from ir.rewrite.graft import copy_node, graft
from ir.scalar import COMBINES
from ir.tiles import Tile

NAME = "strided"
WHY = "what is summed along an axis is summed along the points of it that others read"
ROUNDING = "the same terms in another order"
_MOST = 8  # points of the axis to one of the other
_WIDE = ("f32", "f64", "i32", "i64")  # in which partial sums are as exact as the whole


@dataclass(frozen=True, slots=True)
class _Parts:
    """Of an axis: the one that is read at its points, and where they are."""

    axis: str
    other: str
    places: tuple[IndexExpression, ...]


def rewritten(program: Program) -> tuple[int, Program] | None:
    """The program with the sums along one axis so made, and the first one's node; None without."""
    for axis in program.axes:
        sums = _sums_alone(program, axis)
        for parts in _parts(program, axis) if sums else ():
            return sums[0], _Made(program, parts).program()
    return None


def twice_read(program: Program) -> int:
    """Bytes of tensors of which a kernel reads along an axis, and another one those points."""
    found = set[str]()
    for axis in program.axes:
        if _sums_alone(program, axis) and any(True for _ in _parts(program, axis)):
            found |= {op.tensor for op in _loads(program) if axis in _axes_of(op)}
    specs = (program.scope.tensors[name] for name in found)
    return sum(dtype_of(spec.dtype).bytes * math.prod(spec.shape) for spec in specs)


def _sums_alone(program: Program, axis: str) -> list[int]:
    """The nodes that reduce along an axis, if those are all that leave nothing along it and what
    they reduce is made point by point."""
    found: list[int] = []
    for position, node in enumerate(program.nodes):
        if isinstance(node.op, Reduce) and axis in node.op.over:
            if program.nodes[node.args[0]].dtype != node.dtype or node.dtype not in _WIDE:
                return []
            found.append(position)
        elif axis in node.axes:
            if not _is_light(node, axis):
                return []
        elif any(axis in program.nodes[arg].axes for arg in node.args):
            return []
    return found


def _is_light(node: Node, axis: str) -> bool:
    """Whether a node along an axis is made at each of its points alone."""
    if isinstance(node.op, Load):
        return all(index.constant == 0 or axis not in dict(index.terms) for index in node.op.index)
    return isinstance(node.op, Map | Cast | Constant | Iota)


def _loads(program: Program) -> Iterator[Load]:
    return (node.op for node in program.nodes if isinstance(node.op, Load))


def _axes_of(op: Load) -> set[str]:
    return {axis for index in op.index for axis, _ in index.terms}


def _parts(program: Program, axis: str) -> Iterator[_Parts]:
    """How other axes are read at the points of an axis, of a tensor that both read."""
    extent = program.axes[axis]
    read = {
        (op.tensor, dimension)
        for op in _loads(program)
        for dimension, index in enumerate(op.index)
        if index.terms == ((axis, 1),) and index.gather is None
    }
    for op in _loads(program):
        for dimension, index in enumerate(op.index):
            if (op.tensor, dimension) not in read or len(index.terms) != 1 or index.gather:
                continue
            ((other, step),) = index.terms
            length = program.axes[other]
            count = extent // length if length else 0
            if other == axis or not 1 < count <= _MOST or count * length != extent:
                continue
            if any({axis, other} <= {*node.axes} for node in program.nodes):
                continue
            along = IndexExpression(((other, step),))
            if step == count:
                yield _Parts(axis, other, tuple(along + n for n in range(count)))
            elif step == 1 and index.constant % length == 0:
                yield _Parts(axis, other, tuple(along + n * length for n in range(count)))


class _Made:
    """The program anew, without the axis."""

    def __init__(self, program: Program, parts: _Parts) -> None:
        self.before, self.parts = program, parts
        extents = {axis: extent for axis, extent in program.axes.items() if axis != parts.axis}
        self.graph = graft(program, extents=extents)
        self.known: dict[int, Tile] = {}
        self.moved: dict[tuple[int, int], Tile] = {}

    def program(self) -> Program:
        for position, node in enumerate(self.before.nodes):
            if self.parts.axis in node.axes:
                continue
            if isinstance(node.op, Reduce) and self.parts.axis in node.op.over:
                self.known[position] = self._sum(node, node.op)
            else:
                args = [self.known[arg] for arg in node.args]
                self.known[position] = copy_node(self.graph, self.before, position, args)
        return self.graph.program()

    def _sum(self, node: Node, op: Reduce) -> Tile:
        total: Tile | None = None
        for number in range(len(self.parts.places)):
            part = self._at(node.args[0], number)
            combine = Map(COMBINES[op.kind].function)
            total = part if total is None else self.graph.add(combine, total, part)
        assert total is not None
        over = [a for a in op.over if a != self.parts.axis]
        if self.parts.other in total.axes:
            over.append(self.parts.other)
        return self.graph.add(replace(op, over=tuple(over)), total) if over else total

    def _at(self, position: int, number: int) -> Tile:
        """A tile where the axis stands at one of its points."""
        node = self.before.nodes[position]
        if self.parts.axis not in node.axes:
            return self.known[position]
        if (position, number) not in self.moved:
            args = [self._at(arg, number) for arg in node.args]
            place = self.parts.places[number]
            if isinstance(node.op, Iota):
                found = self.graph.coordinate(place)
            elif isinstance(node.op, Load):
                index = tuple(self._index(one, place) for one in node.op.index)
                found = self.graph.add(replace(node.op, index=index), *args)
            else:
                found = self.graph.add(node.op, *args)
            self.moved[position, number] = found
        return self.moved[position, number]

    def _index(self, index: Index, place: IndexExpression) -> Index:
        """An index in which the place stands for the axis."""
        terms = dict(index.terms)
        found = place * terms.pop(self.parts.axis, 0)
        found = IndexExpression(tuple(terms.items()), index.constant) + found
        return Index(found.terms, found.constant, index.gather)
