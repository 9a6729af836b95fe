"""How a tile is written: straight from the accumulators, or through shared memory, by lines."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ir.dtypes import dtype_of
from ir.layout.addresses import address
from ir.layout.expressions import scaled, total, variable
from ir.ops.store import Store
from ir.program import Program
from ir.targets.cuda.layouts.frame import Digit, Frame
from ir.targets.cuda.layouts.lanes import place, places_of_values
from ir.targets.cuda.layouts.placed import Placed, framed
from ir.targets.cuda.layouts.written import written
from ir.targets.cuda.plans.mma_plan import COLUMNS, ROWS, MmaPlan
from ir.targets.cuda.plans.sides import Side
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.evaluate import Evaluator
from ir.targets.cuda.text.late import fixing_all
from ir.targets.cuda.text.registers import Fragment, Point, Team
from ir.targets.cuda.text.writer import Writer

PAIR = 2  # neighbours in a line that a thread has


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
        start = products.index(position) * plan.warps[2] * plan.part_bytes
        kind = scalars.register_type(node.dtype)
        fragment = self.new(self.label(position), node.axes, node.dtype)
        width = 4 if _fours(plan, fragment) else 1
        with self.each_vector(fragment.digits, width) as points:
            at = w.name("at")
            row, column = (self._number(s, points[0]) for s in (plan.rows, plan.columns))
            w.line(f"const u32 {at} = smem + {start} + (({row}) * {plan.pitch} + {column}) * 4;")
            for part in range(plan.warps[2]):
                where = f"{at} + {part * plan.part_bytes}" if part else at
                words = w.name("sums")
                load = "tw_load_shared_16" if width == 4 else "tw_load_shared_4"
                w.line(f"const {'tw_vec16' if width == 4 else 'u32'} {words} = {load}({where});")
                for i, point in enumerate(points):
                    word = f"{words}.w[{i}]" if width == 4 else words
                    value = f"tw_float({word})" if kind == "f32" else f"(i32){word}"
                    w.line(f"{self.element(fragment, point)} {'+=' if part else '='} {value};")
        return fragment

    def _number(self, side: Side, point: Point) -> str:
        parts = []
        for axis, tile, inner in side.spans():
            if tile > 1:
                own = [self._thread_parts.get(axis, ""), self.step(axis, point)]
                place = " + ".join(p for p in own if p)
                if place:
                    parts.append(f"({place}) * {inner}")
        return " + ".join(parts) or "0"


def _fours(plan: MmaPlan, fragment: Fragment) -> bool:
    """Whether a thread's points come in fours along the columns."""
    first = fragment.digits[:1]
    return any(
        d.axis == plan.columns.tiled[-1] and d.stride == 1 and d.size % 4 == 0 for d in first
    )


def store_staged(plan: MmaPlan, w: Writer, position: int, origins: Mapping[str, str]) -> None:
    """An output of sums in shared memory, in lines of memory by whoever is at hand."""
    op = plan.program.nodes[position].op
    assert isinstance(op, Store)
    frame, outer = line_frame(plan, plan.program, op)
    with w.block(f"if (thread < {frame.team})" if frame.team < plan.threads else ""):
        team = Team("thread", frame.team, "tw_sync();", "tw_shared_base()")
        e = _Staged(plan.program, w, frame, plan.tiles, team)
        e.plan = plan
        e.origins |= origins
        e.declare_threads()
        with fixing_all(e, position, outer, plan.ahead):
            e.store(position)


def put_sums(plan: MmaPlan, w: Writer, name: str, number: int) -> None:
    """A warp's accumulators of one product, in pairs, to rows of floats."""
    start = f"{number * plan.warps[2]} * {plan.part_bytes} + warp_depth * {plan.part_bytes}"
    row, column = place(plan.sums)
    row = total(scaled(variable("warp_row", plan.warps[0]), plan.warp_rows), row)
    column = total(scaled(variable("warp_column", plan.warps[1]), plan.warp_columns), column)
    at = w.name("put_at")
    memory = plan.sums_memory
    w.line(f"const u32 {at} = smem + {start} + ({address(memory, row, column)});")
    r, c = w.name("r"), w.name("c")
    with w.unrolled(r, plan.row_blocks), w.unrolled(c, plan.column_blocks):
        index = f"{name}[{r} * {plan.column_blocks} + {c}]"
        places = places_of_values(plan.sums)
        for number in range(0, len(places), PAIR):
            (down, across), *_ = places[number:]
            rows = f"({r} * {ROWS} + {down}) * {memory((1, 0))}"
            behind = f" + {memory((0, across))}" if across else ""
            where = f"{rows} + {c} * {memory((0, COLUMNS))}{behind}"
            words = ", ".join(f"tw_word({index}[{number + i}])" for i in range(PAIR))
            w.line(f"tw_store_shared_8({at} + {where}, {words});")


def line_frame(plan: MmaPlan, program: Program, op: Store) -> tuple[Frame, list[Digit]]:
    """Threads along the lines of an output, which has a vector for each if it can.

    Also the register digits beyond one vector, which are gone through one after another.
    """
    first, second = plan.columns, plan.rows
    if op.axes[-1] in plan.roles.rows:
        first, second = second, first
    spec = program.scope.tensors[op.tensor]
    vector = min(16 // dtype_of(spec.dtype).bytes, 8)
    share = max(1, prod((first.size, second.size)) // plan.threads)
    vector = min(vector, share, first.size)
    held = written(spec.dtype, first.size, second.size, plan.threads, vector)
    whole = framed([Placed(held, (first, second))])
    threads = tuple(digit for digit in whole.threads if digit.strides)  # the others have no point
    return Frame(whole.registers, threads), [*whole.registers[len(first.digits(vector, 1)) :]]
