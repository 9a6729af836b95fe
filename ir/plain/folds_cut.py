"""Folds along an axis in pieces, and folds of many neighbours at a time.

In pieces: each is folded by itself, then their results in order; where each prefix is kept, each
piece is folded again behind what comes before it: two passes over what is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ir.ops.base import TensorSpec
from ir.ops.fold import Fold
from ir.plain.block import Block
from ir.plain.code import (
    THREAD,
    Accumulate,
    Array,
    Call,
    Element,
    Loop,
    Name,
    PlainKernel,
    Scalar,
    Spread,
    Statement,
    Write,
)
from ir.plain.pieces import Piece, Ways, step
from ir.plain.scalars import call, flat, index, merged, plus, times
from ir.plain.values import Given, Point, Values
from ir.program import Program

_TOGETHER = 512  # neighbours whose states are held at a time


def other_axes(program: Program, op: Fold, args: Sequence[int]) -> list[str]:
    """The axes of what is folded, but for that of the fold."""
    axes = dict.fromkeys(axis for arg in args for axis in program.nodes[arg].axes)
    return [axis for axis in axes if axis != op.axis]


class _Cut:
    """What both ways share."""

    def __init__(self, values: Values, group: list[int], op: Fold, args: Sequence[int]) -> None:
        self.values, self.group, self.op, self.args = values, group, op, args
        self.program, self.how = values.program, op.how
        self.dtypes = [values.dtype(arg) for arg in args]

    def give(self, states: Sequence[Scalar]) -> None:
        """What the fold's nodes are from here on."""
        for position in self.group:
            op = self.program.nodes[position].op
            assert isinstance(op, Fold)
            self.values.given[position] = _always(states[op.part])

    def names(self, stem: str) -> tuple[Name, ...]:
        return tuple(Name(self.values.names.fresh(stem), dtype) for dtype in self.dtypes)

    def turned(self, place: Scalar) -> Scalar:
        """The coordinate of the fold's n-th element."""
        if not self.op.backward:
            return place
        return Call("sub", (index(self.program.axes[self.op.axis] - 1), place), "i64")


class PiecedFold(_Cut):
    """The kernels of a fold in pieces."""

    def __init__(
        self, values: Values, group: list[int], op: Fold, args: Sequence[int], pieces: int
    ) -> None:
        super().__init__(values, group, op, args)
        self.piece = Piece.of(values, op.axis, pieces)
        self.others = other_axes(self.program, op, args)
        self.shape = self.program.scope.shape(self.others)
        self.totals = self._parts()
        self.before = self._parts() if op.keep else ()

    def _parts(self) -> tuple[TensorSpec, ...]:
        """For each state what pieces leave."""
        return tuple(self.values.part(self.piece.count, self.shape, d) for d in self.dtypes)

    def kernels(self) -> tuple[PlainKernel, ...]:
        first = (self._folded(), self._totalled())
        return (*first, self._kept()) if self.op.keep else first

    def _points(self) -> tuple[dict[str, Name], list[tuple[Name, int]]]:
        at = self.values.points(self.others)
        return at, [(name, self.program.axes[axis]) for axis, name in at.items()]

    def _pieces(self, points: list[tuple[Name, int]]) -> list[tuple[Name, int]]:
        """Points of each piece: neighbours are what lies side by side in memory."""
        nodes = [self.program.nodes[arg] for arg in self.args]
        last = {node.axes[-1] for node in nodes if self.op.axis in node.axes}
        if points and self.op.axis not in last:
            return [self.piece.point, *points]
        return [*points, self.piece.point]

    def _where(self, piece: Scalar, at: Point) -> Scalar:
        """The place of a piece's part."""
        own = flat([at[axis] for axis in self.others], self.shape)
        return plus(times(piece, math.prod(self.shape)), own)

    def _elements(self, parts: Sequence[TensorSpec], where: Scalar) -> tuple[Element, ...]:
        return tuple(Element(one.name, where, one.dtype) for one in parts)

    def _writes(
        self, parts: Sequence[TensorSpec], where: Scalar, states: Sequence[Scalar]
    ) -> list[Statement]:
        pairs = zip(parts, states, strict=True)
        return [Write(one.name, where, state) for one, state in pairs]

    def _accumulated(self, block: Block, length: int, at: Point, kept: bool) -> tuple[Name, ...]:
        """The fold of a piece; `kept`: what is stored at each point is, behind what was before."""
        variable, states = block.variable(self.op.axis), self.names("state")
        body, keep = block.inner(), block.inner()
        place = self.turned(plus(self.piece.first, variable))
        there = body.named(place, "p")
        here = {**at, self.op.axis: there}
        made = tuple(self.values.value(body, arg, here) for arg in self.args)
        if kept:
            self._keep(keep, {**at, self.op.axis: keep.named(place, "p")}, states, block)
        block.add(Accumulate(variable, length, False, body.body, made, states, self.how, keep.body))
        return states

    def _keep(self, keep: Block, here: Point, states: Sequence[Name], block: Block) -> None:
        before = [block.find(("before", number)) for number in range(len(states))]
        known = [name for name in before if name is not None]
        behind = Call("lt", (index(0), self.piece.variable), "bool")
        all_of = merged(self.how, known, states)
        found = [
            keep.let(call("where", behind, new, state), "kept")
            for new, state in zip(all_of, states, strict=True)
        ]
        self.give(found)
        for position in self.values.behind(self.group):
            self.values.store(keep, position, here)

    def _folded(self) -> PlainKernel:
        """Each piece by itself."""
        block = Block(self.values.names)
        at, points = self._points()

        def fold(inner: Block, length: int) -> None:
            states = self._accumulated(inner, length, at, False)
            where = inner.named(self._where(self.piece.variable, at), "p")
            inner.statements += self._writes(self.totals, where, states)

        self.piece.lengths(block, fold)
        return step(self.values, block, self._pieces(points))

    def _totalled(self) -> PlainKernel:
        """What the pieces left, in order; without prefixes this is the result."""
        block = Block(self.values.names)
        at, points = self._points()
        number, states = block.variable("piece"), self.names("state")
        where = self._where(number, at)
        kept = self._writes(self.before, where, states) if self.op.keep else []
        made = self._elements(self.totals, where)
        count = self.piece.count
        block.add(Accumulate(number, count, False, (), made, states, self.how, tuple(kept)))
        behind = self.values.behind(self.group) if self.op.keep else []
        self.give(states)
        for position, _ in self.program.stores():
            if position not in behind:
                self.values.store(block, position, at)
        return step(self.values, block, points)

    def _kept(self) -> PlainKernel:
        """Each piece again, behind those before it."""
        block = Block(self.values.names)
        at, points = self._points()
        last = Call("max", (plus(self.piece.variable, index(-1)), index(0)), "i64")
        where = block.named(self._where(last, at), "p")
        for number, element in enumerate(self._elements(self.before, where)):
            block.keep(("before", number), block.let(element, "before"))
        self.piece.lengths(block, lambda inner, n: _nothing(self._accumulated(inner, n, at, True)))
        return step(self.values, block, self._pieces(points))


def _always(state: Scalar) -> Given:
    return lambda block, at: state


def _nothing(_: object) -> None:
    """What is done for its effect."""


class Columns(_Cut):
    """The kernel of a fold of neighbours along another axis, some at a time: their states are in an
    array, and each step along the fold's axis is one pass over them."""

    def __init__(
        self, values: Values, group: list[int], op: Fold, args: Sequence[int], inner: str,
        ways: Ways,
    ) -> None:  # fmt: skip
        super().__init__(values, group, op, args)
        self.inner = inner
        rest = [axis for axis in other_axes(self.program, op, args) if axis != inner]
        self.at = values.points(rest)
        extents = self.program.axes
        own = math.prod(extents[axis] for axis in rest)
        wanted = max(-(-extents[inner] // _TOGETHER), ways.owners // own)
        self.piece = Piece.of(values, inner, wanted, "block")
        self.states = [
            values.array("states", dtype, self.piece.length, THREAD) for dtype in self.dtypes
        ]
        self.kept = values.behind(group) if op.keep else []

    def kernel(self) -> PlainKernel:
        block = Block(self.values.names)
        self.piece.lengths(block, self._columns)
        points = [(name, self.program.axes[axis]) for axis, name in self.at.items()]
        return step(self.values, block, [*points, self.piece.point])

    def _columns(self, block: Block, length: int) -> None:
        rest = self.program.axes[self.op.axis] - 1
        backward = self.op.backward
        self._pass(block, length, index(rest if backward else 0), True)
        if rest:
            variable, inner = block.variable(self.op.axis), block.inner()
            there = variable if backward else inner.named(plus(variable, index(1)), "p")
            self._pass(inner, length, there, False)
            block.add(Loop(variable, rest, inner.body, backward))
        finals = [at for at, _ in self.program.stores() if at not in self.kept]
        if finals:
            column, inner, at = self._column(block)
            self.give([_element(state, column) for state in self.states])
            for position in finals:
                self.values.store(inner, position, at)
            block.add(Spread(((column, length),), inner.body))

    def _column(self, block: Block) -> tuple[Name, Block, Point]:
        """A variable for neighbours, what is done with each, and where it is."""
        column, inner = block.variable(self.inner), block.inner()
        place = inner.named(plus(self.piece.first, column), "p")
        return column, inner, {**self.at, self.inner: place}

    def _pass(self, block: Block, length: int, there: Scalar, first: bool) -> None:
        """One element of each column joins its states."""
        column, inner, at = self._column(block)
        here = {**at, self.op.axis: there}
        found: list[Scalar] = [self.values.value(inner, arg, here) for arg in self.args]
        if not first:
            before = [inner.let(_element(state, column), "before") for state in self.states]
            found = merged(self.how, before, found)
        new = [inner.let(value, "new") for value in found]
        for state, value in zip(self.states, new, strict=True):
            inner.add(Write(state.name, column, value))
        if self.kept:
            self.give(new)
            for position in self.kept:
                self.values.store(inner, position, here)
        block.add(Spread(((column, length),), inner.body))


def _element(array: Array, place: Scalar) -> Element:
    return Element(array.name, place, array.dtype)
