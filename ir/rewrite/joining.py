"""Joining of axes: two that always go together, the second one fastest, are one.

An axis of pairs and one inside them (`64 * half + pair`), or two neighbouring dimensions of every
tensor that has either, lie in memory as one axis does; what takes one summed axis takes them then.
So do a tap of a convolution and the channel, the dimension behind it: x[2 p + s - 3, c] is
x[6 p + (3 s + c) - 9], outside of the one where it is outside of the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import permutations

from ir.builder import Graph
from ir.ops.base import Op, TensorSpec
from ir.ops.fold import Fold
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.reduce import Contract, Reduce
from ir.ops.store import Store
from ir.program import LARGEST_EXTENT, Node, Program
from ir.tiles import Tile

SHORT = 16  # points that one instruction sums

Dims = tuple[Index, ...]
KNOWN = (Map, Cast, Constant)


def joined_axes(program: Program) -> Program:
    """The program with every such pair joined; tensors keep their bytes, not their dimensions."""
    while True:
        found = next(_joined(program), None)
        if found is None:
            return program
        program = found


@lru_cache(maxsize=256)
def short_joined(program: Program, most: int = SHORT) -> Program:
    """The program with pairs joined whose second axis is shorter than `most` points, but for those
    that products are summed along: three coordinates or colours fill no vector, all of a tensor's
    do."""
    while True:
        short = [a for a, n in program.extents if 1 < n < most and not _is_multiplied(program, a)]
        found = next(_joined(program, short), None) if short else None
        if found is None:
            return program
        program = found


def _is_multiplied(program: Program, axis: str) -> bool:
    return any(isinstance(n.op, Contract) and axis in n.op.over for n in program.nodes)


def _joined(program: Program, inside: Collection[str] | None = None) -> Iterator[Program]:
    """The program with one pair joined, for each that can be; of which the second is `inside`."""
    axes = [axis for axis, extent in program.extents if extent > 1]
    for outer, inner in permutations(axes, 2):
        pair = Pair(program, outer, inner)
        if (inside is None or inner in inside) and pair.joins():
            yield pair.program_joined()


class Pair:
    """Two axes of a program, and the program in which they are one."""

    def __init__(self, program: Program, outer: str, inner: str) -> None:
        self.program, self.outer, self.inner = program, outer, inner
        self.length = program.axes[inner]

    def joins(self) -> bool:
        fits = self.program.axes[self.outer] * self.length <= LARGEST_EXTENT
        return fits and all(map(self._goes_together, self.program.nodes)) and self._alike()

    def _alike(self) -> bool:
        """Whether all that reads or writes a tensor loses the same dimension of it."""
        lost: dict[str, set[int | None]] = {}
        for node in self.program.nodes:
            if isinstance(node.op, (Load, Store)):
                lost.setdefault(node.op.tensor, set()).add(self._lost(node.op))
        return all(len(places) == 1 for places in lost.values())

    def _lost(self, op: Load | Store) -> int | None:
        """The dimension that an access loses to the one before it, if any."""
        index = _index(op)
        places = self._places(op.tensor, index)
        shorter = places is not None and len(places) < len(index)
        return index.index(_along(self.inner)) if shorter else None

    def _goes_together(self, node: Node) -> bool:
        """Whether a node has both axes in their order, or neither."""
        op = node.op
        if (self.outer in node.axes) != (self.inner in node.axes):
            return False
        if isinstance(op, (Load, Store)):
            return self._places(op.tensor, _index(op)) is not None
        if isinstance(op, (Contract, Reduce)):
            return (self.outer in op.over) == (self.inner in op.over)
        if isinstance(op, Fold):  # goes along its own axis point by point
            return op.axis not in (self.outer, self.inner)
        return isinstance(op, KNOWN) or (isinstance(op, Iota) and self.outer not in node.axes)

    def _places(self, tensor: str, index: Dims) -> Dims | None:
        """The index with the joined axis, one dimension fewer where each had its own; None where
        the axes are not neighbours there."""
        spec = self.program.scope.tensors[tensor]
        found: list[Index] = []
        place = 0
        while place < len(index):
            here = index[place]
            terms = dict(here.terms)
            if self.outer in terms and self.inner in terms:
                step = terms.pop(self.inner)
                if terms.pop(self.outer) != step * self.length:
                    return None
                found.append(replace(here, terms=(*terms.items(), (self.outer, step))))
            elif self.outer in terms:
                behind = index[place + 1] if place + 1 < len(index) else Index()
                whole = spec.shape[place + 1] == self.length if place + 1 < len(index) else False
                if behind != _along(self.inner) or not whole or not self._moves_alone(here):
                    return None
                terms.pop(self.outer)
                others = ((axis, step * self.length) for axis, step in terms.items())
                found.append(Index((*others, (self.outer, 1)), here.constant * self.length))
                place += 1
            elif self.inner in terms:
                return None
            else:
                found.append(here)
            place += 1
        return tuple(found)

    def _moves_alone(self, here: Index) -> bool:
        """Whether the outer axis goes along a dimension point by point: by itself, or, where the
        inner one is short, beside others (the taps of a convolution over a few channels)."""
        beside = self.length < SHORT and here.gather is None and dict(here.terms)[self.outer] == 1
        return here == _along(self.outer) or beside

    def program_joined(self) -> Program:
        program = self.program
        extents = {a: n for a, n in program.extents if a != self.inner}
        extents[self.outer] *= self.length
        tensors = tuple(map(self._spec, program.tensors))
        graph = Graph.like(program.name, extents, tensors, ())
        made: list[Tile] = []
        for node in program.nodes:
            made.append(self._made(graph, node, [made[arg] for arg in node.args]))
        return graph.program()

    def _made(self, graph: Graph, node: Node, args: list[Tile]) -> Tile:
        return graph.add(self._op(node), *args)

    def _spec(self, spec: TensorSpec) -> TensorSpec:
        """A tensor with two of its dimensions as one where it is read or written by both axes."""
        for node in self.program.nodes:
            op = node.op
            if not isinstance(op, (Load, Store)) or op.tensor != spec.name:
                continue
            at = self._lost(op)
            if at is not None:
                size = spec.shape[at - 1] * spec.shape[at]
                return replace(spec, shape=(*spec.shape[: at - 1], size, *spec.shape[at + 1 :]))
        return spec

    def _op(self, node: Node) -> Op:
        op = node.op
        if isinstance(op, Load):
            places = self._places(op.tensor, op.index)
            assert places is not None
            return replace(op, index=places)
        if isinstance(op, Store):
            return replace(op, axes=tuple(a for a in op.axes if a != self.inner))
        if isinstance(op, (Contract, Reduce)):
            return replace(op, over=tuple(a for a in op.over if a != self.inner))
        assert isinstance(op, (*KNOWN, Iota, Fold))
        return op


def _along(axis: str) -> Index:
    return Index(((axis, 1),))


def _index(op: Load | Store) -> Dims:
    """Where each dimension of a tensor is read or written."""
    return op.index if isinstance(op, Load) else tuple(_along(axis) for axis in op.axes)
