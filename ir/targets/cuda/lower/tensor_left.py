"""What threads leave in shared memory for products, and for the threads of another role."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ir.dtypes import dtype_of
from ir.layout.expressions import variable
from ir.targets.cuda.bodies.apart import WEIGHTS
from ir.targets.cuda.plans.tensor_plan import Plan
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.registers import Fragment, Point

if TYPE_CHECKING:
    from ir.targets.cuda.lower.tensor_consumer import ConsumerPrinter


def words_address(plan: Plan, position: int, offset: int = 0) -> str:
    """Where a computed operand of the present slot lies in shared memory."""
    at = plan.memory.words_at(position) + offset
    return f"smem + {at}{_slot(plan, plan.memory.words_pitch)}"


def _slot(plan: Plan, pitch: int) -> str:
    return f" + {WEIGHTS}_slot * {pitch}" if plan.weights > 1 else ""


def store_words(printer: ConsumerPrinter, root: int) -> None:
    """A computed operand, in pairs, to shared memory, where all groups' products read it."""
    e, plan, w = printer.e, printer.plan, printer.w
    walk = plan.roles.main_walk
    digits = e.own((*plan.roles.rows, walk))
    pair, rest = digits[0], digits[1:]
    dtype, tile = printer.nodes[root].dtype, plan.words
    with e.each(rest) as point:
        places = [Point({**point.digits, pair: half}) for half in ("0", "1")]
        values = [printer.within(e.scalar(root, place, {}), dtype, place) for place in places]
        line, column = w.name("line"), w.name("column")
        w.line(f"const u32 {line} = {e.place_in_tile(plan.roles.rows, places[0])};")
        w.line(f"const u32 {column} = {e.place_in_tile((walk,), places[0])};")
        where = tile.offset(variable(line, tile.lines), variable(column, tile.points))
        word = scalars.pack_word(values, dtype)
        w.line(f"tw_store_shared_4({words_address(plan, root)} + ({where}), {word});")


def leave(printer: ConsumerPrinter, position: int, number: int) -> None:
    """A value of each row, by one of the threads that have it."""
    e, w = printer.e, printer.w
    fragment = e.fragment(position)
    only = e.first_holder(printer.nodes[position].axes)
    with w.block(f"if ({only})" if only else ""):
        left = _declare(printer, position, number)
        with e.each(fragment.digits) as point:
            where = e.place_in_tile(_rows(printer, position), point)
            w.line(f"{left}[{where}] = {e.element(fragment, point)};")


def get(printer: ConsumerPrinter, position: int, number: int) -> Fragment:
    """The value as the other role has left it."""
    e, w, node = printer.e, printer.w, printer.nodes[position]
    fragment = e.new(f"left_{position}", node.axes, node.dtype)
    with w.block(""):
        left = _declare(printer, position, number)
        with e.each(fragment.digits) as point:
            where = e.place_in_tile(_rows(printer, position), point)
            w.line(f"{e.element(fragment, point)} = {left}[{where}];")
    e.values[position] = fragment
    return fragment


def _rows(printer: ConsumerPrinter, position: int) -> tuple[str, ...]:
    axes = printer.nodes[position].axes
    return tuple(axis for axis in printer.plan.roles.rows if axis in axes)


def _declare(printer: ConsumerPrinter, position: int, number: int) -> str:
    """Declare a pointer to where values lie that are the so many-th to be left at a time."""
    plan, w = printer.plan, printer.w
    kind, name = scalars.register_type(printer.nodes[position].dtype), w.name("left")
    assert dtype_of(printer.nodes[position].dtype).bits == 32
    at = f"{plan.memory.left_at(number)}{_slot(plan, plan.memory.left_pitch)}"
    w.line(f"{kind}* {name} = ({kind}*)(tw_shared_base() + {at});")
    return name
