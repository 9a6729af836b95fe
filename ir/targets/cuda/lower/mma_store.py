"""How a tile is written: straight from the accumulators, or through shared memory, by lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ir.layout.addresses import address
from ir.layout.expressions import (
    Expression,
    constant,
    quotient,
    remainder,
    scaled,
    total,
    variable,
)
from ir.ops.store import Store
from ir.targets.cuda.layouts.frame import Digit, Frame
from ir.targets.cuda.layouts.placed import Placed, framed
from ir.targets.cuda.plans.mma_plan import COLUMNS, SUM, MmaPlan
from ir.targets.cuda.plans.sides import Side
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.evaluate import Evaluator
from ir.targets.cuda.text.late import fixing_all
from ir.targets.cuda.text.registers import Fragment, Point, Team
from ir.targets.cuda.text.writer import Writer

TOGETHER = 4  # accumulators of one instruction


def store_direct(plan: MmaPlan, e: Evaluator, position: int) -> None:
    """An output from the threads that hold its sums, a block of columns at a time."""
    e.form_without(position, plan.roles.columns)
    digits = [d for d in plan.columns.digits(plan.column_blocks, COLUMNS) if d.size > 1]
    with fixing_all(e, position, digits, plan.ahead):
        e.store(position)


class _Staged(Evaluator):
    """Reads the sums from shared memory, adding the parts of warps along the summed axes."""

    plan: MmaPlan

    def _reduced(self, position: int) -> Fragment:
        plan, w, node = self.plan, self.w, self.nodes[position]
        products = [product.position for product in plan.roles.outer]
        start = products.index(position) * plan.sums_bytes
        kind = scalars.register_type(node.dtype)
        fragment = self.new(self.label(position), node.axes, node.dtype)
        with self.each_group(fragment.digits, [digit.size for digit in fragment.digits]) as points:
            for numbers in self._loads(fragment):
                row, column = (
                    self._number(side, points[numbers[0]]) for side in (plan.rows, plan.columns)
                )
                for part in range(plan.warps[2]):
                    at = address(plan.crossing.memory, row, column, constant(part))
                    words, size = w.name("sums"), len(numbers) * SUM
                    load = f"tw_load_shared_{size}(smem + {start} + ({scaled(at, SUM)}))"
                    w.line(f"const {scalars.vector_type(size)} {words} = {load};")
                    for i, number in enumerate(numbers):
                        word = f"{words}.w[{i}]" if size > SUM else words
                        value = f"tw_float({word})" if kind == "f32" else f"(i32){word}"
                        own = self.element(fragment, points[number])
                        w.line(f"{own} {'+=' if part else '='} {value};")
        return fragment

    def _loads(self, fragment: Fragment) -> Iterable[Sequence[int]]:
        """The loads of a fragment's points, by their numbers, in the order of the words."""
        count = fragment.count
        for axis, side in enumerate((self.plan.rows, self.plan.columns)):
            if count > 1 and fragment.digits == tuple(side.digits(count, 1)):
                return self.plan.crossing.loads(axis, count)
        return [(number,) for number in range(count)]

    def _number(self, side: Side, point: Point) -> Expression:
        """Where a point lies along a side."""
        spans = [(axis, inner) for axis, tile, inner in side.spans() if tile > 1]
        places = ((self.thread_part(a), self.registers_part(a, point)) for a, _ in spans)
        return total(
            *(scaled(total(*own), inner) for own, (_, inner) in zip(places, spans, strict=True))
        )


def store_staged(plan: MmaPlan, w: Writer, position: int, origins: Mapping[str, str]) -> None:
    """An output of sums in shared memory, in lines of memory by whoever is at hand."""
    op = plan.program.nodes[position].op
    assert isinstance(op, Store)
    frame, outer = line_frame(plan, op)
    with w.block(f"if (thread < {frame.team})" if frame.team < plan.threads else ""):
        team = Team("thread", frame.team, "tw_sync();", "tw_shared_base()")
        e = _Staged(plan.program, w, frame, plan.tiles, team)
        e.plan = plan
        e.origins |= origins
        e.declare_threads()
        with fixing_all(e, position, outer, plan.ahead):
            e.store(position)


def put_sums(plan: MmaPlan, w: Writer, name: str, number: int) -> None:
    """The accumulators of one product, those that lie side by side in shared memory at once."""
    crossing, start, turn = plan.crossing, number * plan.sums_bytes, w.name("turn")
    count, stores = (mode.size for mode in crossing.words.modes)
    thread, store = variable("thread", plan.threads), variable(turn, stores)
    place = address(crossing.memory, address(crossing.first, thread, store))
    with w.unrolled(turn, stores):
        sums = [address(crossing.words, constant(n), store) for n in range(count)]
        places = ((quotient(one, TOGETHER), remainder(one, TOGETHER)) for one in sums)
        words = ", ".join(f"tw_word({name}[{block}][{own}])" for block, own in places)
        words = f"tw_vec16{{{{{words}}}}}" if count > 2 else words
        at = f"smem + {start} + ({scaled(place, SUM)})"
        w.line(f"tw_store_shared_{count * SUM}({at}, {words});")


def line_frame(plan: MmaPlan, op: Store) -> tuple[Frame, list[Digit]]:
    """Threads along the lines of an output, which has a vector for each if it can.

    Also the register digits beyond one vector, which are gone through one after another.
    """
    sides = plan.line_sides(op)
    whole = framed([Placed(plan.lines(op), sides)])
    threads = tuple(digit for digit in whole.threads if digit.strides)  # the others have no point
    vector = sides[0].digits(plan.line_vector(op), 1)
    return Frame(whole.registers, threads), [*whole.registers[len(vector) :]]
