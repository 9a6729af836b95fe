"""The top of an axis: each point of the other axes, or piece, holds the best so far in order.

Elements are inserted one by one, or sorted and merged where much of the axis is held.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ir.dtypes import is_float
from ir.errors import ProgramError
from ir.ops.top import Top
from ir.plain.block import Block
from ir.plain.code import (
    THREAD,
    Array,
    Call,
    Element,
    Loop,
    Name,
    PlainKernel,
    Scalar,
    Write,
)
from ir.plain.grouped_tops import Grouped, Ranked, may_be_ordered
from ir.plain.pieces import Choices, Piece, Ways, step
from ir.plain.scalars import call, convert, flat, index, plus, times
from ir.plain.selecting import Keys
from ir.plain.sorting import Sorting, is_worth_merging
from ir.plain.values import Given, Point, Values
from ir.program import Program


def top_kernels(values: Values, group: list[int], ways: Ways) -> tuple[PlainKernel, ...]:
    """Elements are inserted one after the other into what is held; of an axis in pieces into what
    each piece holds, and then what these hold, piece by piece, into what is held of all."""
    program = values.program
    op, arg = _shared(values, group)
    size = program.axes[op.rank]
    pieces = min(ways.pieces, program.axes[op.axis] // max(1, size))
    if ways.ordered and may_be_ordered(program, op, arg):
        return Ranked(values, group, op, arg).kernels()
    if ways.shared and Keys.exist(values.dtype(arg)):
        return Grouped(values, group, op, arg, pieces).kernels()
    if pieces > 1:
        return _Pieced(values, group, op, arg, pieces).kernels()
    points = values.points([axis for axis in program.nodes[arg].axes if axis != op.axis])
    block = Block(values.names)
    if is_worth_merging(program.axes[op.axis], size):
        return (_merging(values, block, group, points, op, arg),)
    held, places = _arrays(values, group, arg, size)
    variable, body = Name(values.names.fresh(f"i_{op.axis}")), block.inner()
    new = body.named(values.value(body, arg, {**points, op.axis: variable}))
    _insert(body, op, (new, variable), variable, held, places)
    block.add(Loop(variable, program.axes[op.axis], body.body))
    _stored(values, block, group, points, held, places)
    return (values.kernel(points, block),)


def _merging(
    values: Values, block: Block, group: list[int], points: dict[str, Name], op: Top, arg: int
) -> PlainKernel:
    """Blocks of the axis sorted and merged into what is held."""
    extent, size = values.program.axes[op.axis], values.program.axes[op.rank]

    def element(body: Block, where: Name) -> Scalar:
        return values.value(body, arg, {**points, op.axis: where})

    def ahead(new: Scalar, old: Scalar) -> Scalar:
        return _precedes(op, new, old)

    sorting = Sorting(values, values.dtype(arg), extent, size, op.axis)
    found = sorting.emit(block, element, ahead)
    for position in group:
        of = found.place if _top(values, position).where else found.value
        values.given[position] = _given(of, op.rank)
    for position, _ in values.program.stores():
        values.store(block, position, points)
    return values.kernel(points, block)


def _given(of: Callable[[Scalar], Scalar], rank: str) -> Given:
    return lambda block, at: of(at[rank])


def top_choices(program: Program, group: list[int]) -> Choices:
    """How a top may be cut: into pieces much longer than what is held."""
    op, arg = _shared(Values(program), group)
    longest = program.axes[op.axis] // max(1, program.axes[op.rank] // 8)
    shared = Keys.exist(program.nodes[arg].dtype)
    return Choices(longest, ordered=may_be_ordered(program, op, arg), shared=shared)


def _arrays(values: Values, group: list[int], arg: int, size: int) -> tuple[Array, Array | None]:
    """What is held, and where it stands, if that is wanted."""
    held = values.array("held", values.dtype(arg), size, THREAD)
    wheres = any(_top(values, position).where for position in group)
    return held, values.array("places", "i32", size, THREAD) if wheres else None


def _stored(
    values: Values, block: Block, group: list[int], points: Point, held: Array, places: Array | None
) -> None:
    for position in group:
        op = _top(values, position)
        array = places if op.where else held
        assert array is not None
        values.given[position] = _element(array, op.rank)
    for position, _ in values.program.stores():
        values.store(block, position, points)


class _Pieced:
    """The kernels of a top in pieces."""

    def __init__(self, values: Values, group: list[int], op: Top, arg: int, pieces: int) -> None:
        self.values, self.group, self.op, self.arg = values, group, op, arg
        self.program = values.program
        self.piece = Piece.of(values, op.axis, pieces)
        self.size = self.program.axes[op.rank]
        self.others = [axis for axis in self.program.nodes[arg].axes if axis != op.axis]
        self.count = (self.piece.count - 1) * self.size + min(self.piece.last, self.size)
        self.shape = (*self.program.scope.shape(self.others), self.count)
        self.tops = values.part(1, self.shape, values.dtype(arg))
        self.places = values.part(1, self.shape, "i32")

    def kernels(self) -> tuple[PlainKernel, ...]:
        return (self._of_pieces(), self._of_all())

    def _points(self) -> tuple[dict[str, Name], list[tuple[Name, int]]]:
        at = self.values.points(self.others)
        return at, [(name, self.program.axes[axis]) for axis, name in at.items()]

    def _where(self, at: Point, number: Scalar) -> Scalar:
        return flat([*(at[axis] for axis in self.others), number], self.shape)

    def _held(self) -> tuple[Array, Array]:
        held = self.values.array("held", self.values.dtype(self.arg), self.size, THREAD)
        return held, self.values.array("places", "i32", self.size, THREAD)

    def _of_pieces(self) -> PlainKernel:
        """The top of each piece, and where it stands in the whole axis."""
        block = Block(self.values.names)
        at, points = self._points()
        held, places = self._held()

        def search(outer: Block, length: int) -> None:
            variable, body = outer.variable(self.op.axis), outer.inner()
            place = body.named(plus(self.piece.first, variable), "p")
            new = body.named(self.values.value(body, self.arg, {**at, self.op.axis: place}))
            _insert(body, self.op, (new, place), variable, held, places)
            outer.add(Loop(variable, length, body.body))
            rank, leave = outer.variable(self.op.rank), outer.inner()
            number = plus(times(self.piece.variable, self.size), rank)
            where = leave.named(self._where(at, number), "p")
            leave.add(Write(self.tops.name, where, Element(held.name, rank, held.dtype)))
            leave.add(Write(self.places.name, where, Element(places.name, rank, "i32")))
            outer.add(Loop(rank, min(length, self.size), leave.body))

        self.piece.lengths(block, search)
        return step(self.values, block, [*points, self.piece.point])

    def _of_all(self) -> PlainKernel:
        """The top of what the pieces hold: their order is that of the axis."""
        block = Block(self.values.names)
        at, points = self._points()
        held, places = _arrays(self.values, self.group, self.arg, self.size)
        number, body = block.variable(self.op.axis), block.inner()
        where = body.named(self._where(at, number), "p")
        new = body.let(Element(self.tops.name, where, self.tops.dtype), "top")
        place = convert(Element(self.places.name, where, "i32"), "i64")
        _insert(body, self.op, (new, place), number, held, places)
        block.add(Loop(number, self.count, body.body))
        _stored(self.values, block, self.group, at, held, places)
        return step(self.values, block, points)


def _element(array: Array, rank: str) -> Given:
    return lambda block, at: Element(array.name, at[rank], array.dtype)


def _insert(
    block: Block, op: Top, one: tuple[Scalar, Scalar], count: Name, held: Array,
    places: Array | None,
) -> None:  # fmt: skip
    """Put an element, which stands somewhere, where it belongs, if it does, and those behind it one
    further.

    As many elements are held as came before (`count`), or as there is room for.
    """
    new, stands = one
    last = index(held.size - 1)
    enters = block.let(Call("lt", (count, index(held.size)), "bool"), "enters")
    full, inserted = block.inner(), block.inner()
    full.assign(enters, _precedes(op, new, Element(held.name, last, held.dtype)))
    block.branch(call("not", enters), full)
    free = inserted.let(Call("min", (count, last), "i64"), "free")
    if held.size > 1:
        _shift(inserted, op, new, count, free, held, places)
    inserted.add(Write(held.name, free, new))
    if places is not None:
        inserted.add(Write(places.name, free, convert(stands, "i32")))
    block.branch(enters, inserted)


def _shift(
    block: Block, op: Top, new: Scalar, count: Name, free: Name, held: Array, places: Array | None
) -> None:
    """From the last one up, move what the new element precedes; `free` is its place then."""
    rank = block.variable(op.rank)
    loop = block.inner()
    filled, moved = loop.inner(), loop.inner()
    old = filled.let(Element(held.name, rank, held.dtype))
    further = Call("add", (rank, index(1)), "i64")
    moved.add(Write(held.name, further, old))
    if places is not None:
        moved.add(Write(places.name, further, Element(places.name, rank, "i32")))
    moved.assign(free, rank)
    filled.branch(_precedes(op, new, old), moved)
    loop.branch(Call("lt", (rank, count), "bool"), filled)
    block.add(Loop(rank, held.size - 1, loop.body, backward=True))


def _precedes(op: Top, new: Scalar, old: Scalar) -> Scalar:
    """Whether an element stands before one that came earlier: only if it is better."""
    better = call("lt", new, old) if op.least else call("lt", old, new)
    if not is_float(new.dtype):
        return better
    nothing = call("and", call("not", call("eq", new, new)), call("eq", old, old))
    return call("or", better, nothing)


def _top(values: Values, position: int) -> Top:
    op = values.program.nodes[position].op
    assert isinstance(op, Top)
    return op


def _shared(values: Values, group: list[int]) -> tuple[Top, int]:
    """The op and its argument, which all of the group have but for what they give."""
    nodes = values.program.nodes
    found = {(replace(_top(values, p), where=False), nodes[p].args) for p in group}
    if len(found) > 1:
        axes = ", ".join(sorted({op.axis for op, _ in found}))
        raise ProgramError(
            f"{values.program.name}: {len(found)} different tops, over {axes}: a plain kernel "
            "computes one, its values and where they stand"
        )
    op, args = found.pop()
    return op, args[0]
