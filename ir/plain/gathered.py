"""Scatters that groups combine in shared arrays of their own, before what they have meets.

Where the order does not show, or need not be the same in every run, all of a group combine in one
array. Else each of some *workers* has an array of its own, and takes every so-manieth element of
the piece: their arrays are then combined in halves, which is an order that depends on nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ir.dtypes import compute_dtype, dtype_of
from ir.ops.scatter import Scatter, nothing_sent
from ir.plain.block import Block
from ir.plain.code import (
    GROUP,
    Call,
    Combine,
    Element,
    Loop,
    PlainKernel,
    Scalar,
    Spread,
    Write,
)
from ir.plain.ordered import Plan, plan_of
from ir.plain.pieces import Piece, step
from ir.plain.scalars import both, call, convert, flat, index, number, plus, times
from ir.plain.values import Point
from ir.program import Program
from ir.scalar import COMBINES

if TYPE_CHECKING:
    from ir.plain.scatters import Scattering

_BYTES = 32 << 10  # of an array that all of a group combine in
_OWN_BYTES = 96 << 10  # of those of all workers
_WORKERS = (256, 128, 64, 32)
Combining = Callable[[Block, Scalar, Scalar], None]
Giving = Callable[[Block, Scalar], Scalar]


def fits_a_group(program: Program, position: int) -> bool:
    """Whether a group may have all that is combined along the axes that are not its own."""
    size = _bytes(program, position)
    return size is not None and size <= _BYTES


def workers_of(program: Program, position: int) -> int:
    """How many workers of a group may have it each; 0 where too few."""
    size = _bytes(program, position)
    if size is None:
        return 0
    return next((count for count in _WORKERS if count * size <= _OWN_BYTES), 0)


def _bytes(program: Program, position: int) -> int | None:
    plan, node = plan_of(program, position), program.nodes[position]
    if plan is None:
        return None
    assert isinstance(node.op, Scatter)
    size = math.prod(program.axes[axis] for axis in _axes(node.op, plan))
    return size * dtype_of(compute_dtype(node.dtype)).bytes


def _axes(op: Scatter, plan: Plan) -> list[str]:
    """The axes of the output that a group has all of."""
    own = [axis for axis in plan.places if axis in op.owned]
    return [axis for axis in op.axes if axis not in own]


class Gathered:
    """The kernel of a scatter whose groups each take a piece of the axis that is cut."""

    def __init__(self, maker: Scattering, piece: Piece | None, axis: str) -> None:
        self.maker, self.values, self.op = maker, maker.values, maker.op
        self.program, self.extents = maker.values.program, maker.values.program.axes
        plan = plan_of(self.program, maker.position)
        assert plan is not None
        self.piece = Piece.of(self.values, axis, 1) if piece is None else piece
        self.axes = _axes(self.op, plan)
        self.shape = self.program.scope.shape(self.axes)
        self.size = math.prod(self.shape)
        self.points = self.values.points([axis for axis in plan.places if axis not in self.axes])
        sent = [axis for axis in (*plan.rows, *plan.columns) if axis not in self.points]
        self.rest = [axis for axis in sent if axis != self.piece.axis]

    def at_once(self) -> PlainKernel:
        """All of a group combine in one array, and this with the output, in any order."""
        block = Block(self.values.names)
        own = self.values.array("own", self.maker.dtype, self.size, GROUP).name
        self._started(block, own, self.size)
        wide = [(axis, block.variable(axis)) for axis in self.rest]
        place, body = block.variable(self.piece.axis), block.inner()

        def combine(inner: Block, where: Scalar, value: Scalar) -> None:
            inner.add(Combine(self.op.kind, own, where, value))

        at = {**self.points, **dict(wide)}
        self._sent(body, plus(self.piece.first, place), at, combine)
        loops = ((place, self.piece.length), *((n, self.extents[axis]) for axis, n in wide))
        block.add(Spread(loops, body.body))
        self._left(block, lambda inner, where: Element(own, where, self.maker.dtype), True)
        return self._kernel(block)

    def in_order(self, workers: int) -> PlainKernel:
        """Each worker combines in an array of its own; together they are the piece's part."""
        block, dtype = Block(self.values.names), self.maker.dtype
        own = self.values.array("own", dtype, self.size * workers, GROUP).name
        self._started(block, own, self.size * workers)
        worker, body = block.variable("worker"), block.inner()
        turn, inner = body.variable("turn"), body.inner()

        def combine(here: Block, where: Scalar, value: Scalar) -> None:
            there = here.named(plus(times(where, workers), worker), "p")
            new = self._both(Element(own, there, dtype), value)
            here.add(Write(own, there, new))

        def send(here: Block, at: Point) -> None:
            place = plus(self.piece.first, plus(times(turn, workers), worker))
            self._sent(here, place, at, combine, workers)

        self.values.looped(inner, self.rest, self.points, send)
        body.add(Loop(turn, -(-self.piece.length // workers), inner.body))
        block.add(Spread(((worker, workers),), body.body))
        self._halved(block, own, workers)
        self._left(block, lambda here, where: Element(own, times(where, workers), dtype), False)
        return self._kernel(block)

    # --- statements -------------------------------------------------------------------------------

    def _kernel(self, block: Block) -> PlainKernel:
        points = [(name, self.extents[axis]) for axis, name in self.points.items()]
        parts = [self.piece.point] if self.piece.count > 1 else []
        return step(self.values, block, [*points, *parts], cooperative=True)

    def _both(self, left: Scalar, right: Scalar) -> Scalar:
        kind = self.op.kind
        return call("or" if kind == "or" else COMBINES[kind].function, left, right)

    def _started(self, block: Block, own: str, size: int) -> None:
        place = block.variable("place")
        start = number(nothing_sent(self.op.kind, self.maker.dtype), self.maker.dtype)
        block.add(Spread(((place, size),), (Write(own, place, start),)))

    def _sent(
        self, block: Block, place: Scalar, at: Point, combine: Combining, workers: int = 1
    ) -> None:
        """One element, if it is there and sent inside."""
        place = block.named(place, "p")
        there = {**at, self.piece.axis: place}
        inner = block.inner()
        aimed, within = self.maker.aimed(inner, there, self.op.axes)
        (arg, *_) = self.program.nodes[self.maker.position].args
        value = convert(self.values.value(inner, arg, there), self.maker.dtype)
        value = inner.named(value, "x")  # read before it is known whether it is wanted
        send = inner.inner()
        combine(send, send.named(flat([aimed[axis] for axis in self.axes], self.shape), "p"), value)
        under(inner, within, send)
        under(block, self._is_there(place, workers), inner)

    def _is_there(self, place: Scalar, workers: int) -> Scalar | None:
        """Whether a place is the piece's."""
        found: Scalar | None = None
        if self.piece.length % workers:
            end = plus(self.piece.first, index(self.piece.length))
            found = Call("lt", (place, end), "bool")
        if self.piece.last == self.piece.length:
            return found
        extent = index(self.extents[self.piece.axis])
        return both(found, Call("lt", (place, extent), "bool"))

    def _halved(self, block: Block, own: str, workers: int) -> None:
        """The arrays of half of the workers with those of the others, until one is left."""
        half = workers // 2
        while half:
            place, worker = block.variable("place"), block.variable("worker")
            here = plus(times(place, workers), worker)
            left, right = (
                Element(own, where, self.maker.dtype) for where in (here, plus(here, index(half)))
            )
            write = Write(own, here, self._both(left, right))
            block.add(Spread(((place, self.size), (worker, half)), (write,)))
            half //= 2

    def _left(self, block: Block, element: Giving, combined: bool) -> None:
        """What a group has, combined with the output or written to the piece's part."""
        inner = block.inner()
        there = {axis: inner.variable(axis) for axis in self.axes}
        value = element(inner, flat(list(there.values()), self.shape))
        where = self.maker.where({**self.points, **there})
        if combined:
            inner.add(Combine(self.op.kind, self.maker.target, where, value))
        else:
            inner.add(Write(self.maker.target, where, value))
        loops = tuple((name, self.extents[axis]) for axis, name in there.items())
        block.add(Spread(loops, inner.body))


def under(block: Block, condition: Scalar | None, inner: Block) -> None:
    """What stands in an inner block, under a condition if there is one."""
    if condition is None:
        block.statements.extend(inner.statements)
    else:
        block.branch(condition, inner)
