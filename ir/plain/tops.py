"""The top of an axis: each point of the other axes holds the best so far in order."""

from __future__ import annotations

from dataclasses import replace

from ir.dtypes import is_float
from ir.errors import ProgramError
from ir.ops.top import Top
from ir.plain.block import Block
from ir.plain.code import THREAD, Array, Call, Element, Loop, Name, PlainKernel, Scalar, Write
from ir.plain.scalars import call, convert, index
from ir.plain.values import Given, Values


def top_kernel(values: Values, group: list[int]) -> PlainKernel:
    """Elements are inserted one after the other into what is held."""
    program = values.program
    op, arg = _shared(values, group)
    points = values.points([axis for axis in program.nodes[arg].axes if axis != op.axis])
    size = program.axes[op.rank]
    held = values.array("held", values.dtype(arg), size, THREAD)
    wheres = [_top(values, position).where for position in group]
    places = values.array("places", "i32", size, THREAD) if any(wheres) else None
    block = Block(values.names)
    variable, body = Name(values.names.fresh(f"i_{op.axis}")), block.inner()
    new = body.named(values.value(body, arg, {**points, op.axis: variable}))
    _insert(body, op, new, variable, held, places)
    block.add(Loop(variable, program.axes[op.axis], body.body))
    for position in group:
        array = places if _top(values, position).where else held
        assert array is not None
        values.given[position] = _element(array, op.rank)
    for position, _ in program.stores():
        values.store(block, position, points)
    return values.kernel(points, block)


def _element(array: Array, rank: str) -> Given:
    return lambda block, at: Element(array.name, at[rank], array.dtype)


def _insert(
    block: Block, op: Top, new: Scalar, count: Name, held: Array, places: Array | None
) -> None:
    """Put an element where it belongs, if it does, and those behind it one further.

    As many elements are held as came before, or as there is room for.
    """
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
        inserted.add(Write(places.name, free, convert(count, "i32")))
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
