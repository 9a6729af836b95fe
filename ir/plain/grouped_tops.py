"""Tops of long rows on targets with many threads: a group searches each row or piece of one, or all
elements of a row are put in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ir.ops.base import TensorSpec
from ir.ops.top import Top
from ir.plain.block import Block
from ir.plain.code import Call, Element, Name, PlainKernel, Scalar, Spread, Write
from ir.plain.ordering import Ordering
from ir.plain.pieces import Piece, step
from ir.plain.scalars import convert, flat, index, plus, times
from ir.plain.selecting import Keys, Selecting
from ir.plain.values import Given, Point, Values
from ir.program import Program

_SHORT = 4096  # elements of a row that a group sorts in shared memory
_FEW = 512  # that are held, up to which a group's search is always better


def may_be_ordered(program: Program, op: Top, arg: int) -> bool:
    """Whether rows are long and much of them is wanted, and their elements can be counted."""
    node = program.nodes[arg]
    elements = math.prod(program.axes[axis] for axis in node.axes)
    long = program.axes[op.axis] > _SHORT and program.axes[op.rank] > _FEW
    return long and Keys.exist(node.dtype) and elements < 2**31


class Grouped:
    """The kernels of a top of which a group searches each row, or each piece of one."""

    def __init__(self, values: Values, group: list[int], op: Top, arg: int, pieces: int) -> None:
        self.values, self.group, self.op, self.arg = values, group, op, arg
        self.program, self.pieces = values.program, pieces
        self.keys = Keys(values.dtype(arg), op.least)
        self.size, self.extent = self.program.axes[op.rank], self.program.axes[op.axis]
        self.others = [axis for axis in self.program.nodes[arg].axes if axis != op.axis]

    def kernels(self) -> tuple[PlainKernel, ...]:
        if self.pieces < 2:
            at = self.values.points(self.others)
            return (self._searched(at, self.extent, lambda b, p: self._key(b, at, p, p)),)
        piece = Piece.of(self.values, self.op.axis, self.pieces)
        shape = (*self.program.scope.shape(self.others), piece.count * self.size)
        tops = self.values.part(1, shape, "i64", "tops")
        at = self.values.points(self.others)

        def kept(block: Block, number: Scalar) -> Scalar:
            place = flat([*(at[axis] for axis in self.others), number], shape)
            return Element(tops.name, place, "i64")

        first = self._of_pieces(piece, tops)
        return (first, self._searched(at, piece.count * self.size, kept))

    def _key(self, block: Block, at: Point, place: Scalar, stands: Scalar) -> Scalar:
        value = self.values.value(block, self.arg, {**at, self.op.axis: place})
        return self.keys.of(block, block.named(value), stands)

    def _of_pieces(self, piece: Piece, tops: TensorSpec) -> PlainKernel:
        """The keys of each piece's top; of a last one that is shorter, some of no element."""
        block, at = Block(self.values.names), self.values.points(self.others)
        first = block.let(piece.first, "first")
        last = index(self.extent - 1)

        def key(inner: Block, number: Scalar) -> Scalar:
            place = inner.let(plus(first, number), "p")
            if self.extent % piece.length == 0:
                return self._key(inner, at, place, place)
            there = inner.let(Call("min", (place, last), "i64"), "p")
            found = self._key(inner, at, there, there)
            inside = Call("le", (place, last), "bool")
            return Call("where", (inside, found, self.keys.beyond(place)), "i64")

        search = Selecting(self.values, self.op.axis, piece.length, self.size, key)
        begin = search.emit(block)
        rank = block.variable(self.op.rank)
        number = plus(times(piece.variable, self.size), rank)
        where = flat([*(at[axis] for axis in self.others), number], tops.shape[1:])
        write = Write(tops.name, where, search.at(begin, rank))
        block.add(Spread(((rank, self.size),), (write,)))
        points = [(name, self.program.axes[axis]) for axis, name in at.items()]
        return step(self.values, block, [*points, piece.point], cooperative=True)

    def _searched(
        self, at: dict[str, Name], extent: int, key: Callable[[Block, Scalar], Scalar]
    ) -> PlainKernel:
        """The top of all keys, as elements and where they stand."""
        block = Block(self.values.names)
        search = Selecting(self.values, self.op.axis, extent, self.size, key)
        begin = search.emit(block)
        rank, body = block.variable(self.op.rank), block.inner()
        found = body.let(search.at(begin, rank), "key")
        here = {**at, self.op.rank: rank}
        for position in self.group:
            top = self.program.nodes[position].op
            assert isinstance(top, Top)
            made = Keys.place(found) if top.where else self.keys.value(body, found)
            self.values.given[position] = _always(body.let(made, "found"))
        for position, _ in self.program.stores():
            self.values.store(body, position, here)
        block.add(Spread(((rank, self.size),), body.body))
        points = [(name, self.program.axes[axis]) for axis, name in at.items()]
        return step(self.values, block, points, cooperative=True)


class Ranked:
    """The kernels of a top of rows whose elements are all put in order."""

    def __init__(self, values: Values, group: list[int], op: Top, arg: int) -> None:
        self.values, self.group, self.op, self.arg = values, group, op, arg
        self.program, self.keys = values.program, Keys(values.dtype(arg), op.least)
        self.others = [axis for axis in self.program.nodes[arg].axes if axis != op.axis]
        shape = self.program.scope.shape(self.others)
        self.order = Ordering(values, self.program.axes[op.axis], None, self._rank, shape)

    def _rank(self, block: Block, row: tuple[Name, ...], place: Scalar) -> Scalar:
        at = dict(zip(self.others, row, strict=True))
        value = self.values.value(block, self.arg, {**at, self.op.axis: place})
        return self.keys.rank(block, block.named(value))

    def kernels(self) -> tuple[PlainKernel, ...]:
        block, axes = Block(self.values.names), self.program.axes
        at = self.values.points([*self.others, self.op.rank])
        row = tuple(at[axis] for axis in self.others)
        number = block.let(self.order.ordered(at[self.op.rank], row), "number")
        for position in self.group:
            top = self.program.nodes[position].op
            assert isinstance(top, Top)
            made = convert(number, "i32")
            if not top.where:
                made = self.values.value(block, self.arg, {**at, self.op.axis: number})
            self.values.given[position] = _always(made)
        for position, _ in self.program.stores():
            self.values.store(block, position, at)
        points = [(name, axes[axis]) for axis, name in at.items()]
        return (*self.order.kernels(), step(self.values, block, points))


def _always(scalar: Scalar) -> Given:
    return lambda block, at: scalar
