"""What threads leave in shared memory for products, and for the threads of another role."""

from __future__ import annotations

from itertools import product as indices
from typing import TYPE_CHECKING

from ir.dtypes import dtype_of
from ir.kernel.body import Part
from ir.layout.expressions import ZERO, constant, variable
from ir.layout.printing import summand
from ir.targets.cuda.bodies.apart import WEIGHTS
from ir.targets.cuda.layouts.lanes import matrix_row
from ir.targets.cuda.plans.summed import summed_in_block
from ir.targets.cuda.plans.tensor_plan import ROWS, Plan
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


def declare_words(printer: ConsumerPrinter, position: int) -> str:
    """Registers of an operand along the rows: of a block's steps, or of those that stay."""
    plan, name = printer.plan, printer.w.name("words")
    held = any(product.a == position for product in plan.roles.inner)
    steps = plan.kept if held else plan.steps
    printer.w.line(f"u32 {name}[{plan.row_blocks}][{steps}][4];")
    return name


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


def hold(printer: ConsumerPrinter, part: Part) -> None:
    """The first steps of what a tile holds, by ldmatrix, as instructions take them in registers."""
    lowering, plan, w = printer.lowering, printer.plan, printer.w
    product = next(one for one in plan.roles.inner if one.a == part.node)
    tile, words, depth = plan.operand(product, "a"), printer.words[part.node], plan.step_of(product)
    assert tile is not None
    row, point = matrix_row(plan.held_values, tile.size * 8, 4, not tile.sums_inside)
    line, inner = (row, point) if tile.sums_inside else (point, row)
    ring, start = plan.ring_of(tile), w.name("held_lane")
    w.line(f"const u32 {start} = {tile.offset(line, inner)};")
    slot, order = lowering.slot(ring, tile, lowering.present(ring)), summed_in_block(plan, product)
    transposed = "" if tile.sums_inside else "_trans"
    for block, step in indices(range(plan.row_blocks), range(plan.kept)):
        line_at, byte = tile.step_place(step, depth, order)
        rows = block * ROWS
        there = (line_at + rows, byte) if tile.sums_inside else (line_at, byte + rows * tile.size)
        exchanged, added = tile.memory.moved(constant(there[0]), constant(there[1]))
        at = start if exchanged == ZERO else f"({start} ^ ({exchanged}))"
        at += f" + {summand(added)}" if added != ZERO else ""
        into = ", ".join(f"{words}[{block}][{step}][{n}]" for n in range(4))
        w.line(f"tw_ldmatrix_x4{transposed}({slot} + {at}, {into});")


def take(printer: ConsumerPrinter, part: Part) -> None:
    """What products came to, in registers of its own. A product with 1 is not taken for a copy,
    which ptxas (13.0) leaves out, so that it has products wait for each other."""
    e, scores = printer.e, printer.plan.roles.scores
    shown = part.node if scores is None else scores
    given = e.values[shown]
    one = printer.w.name("one")
    printer.w.line(f"const f32 {one} = __uint_as_float(tw_kept({0x3F800000:#x}u));")
    copy = e.new(f"taken_{shown}", printer.nodes[shown].axes, printer.nodes[shown].dtype)
    with e.each(copy.digits) as point:
        printer.w.line(f"{e.element(copy, point)} = {e.element(given, point)} * {one};")
    e.values[shown] = copy


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
