"""Text of a kernel on mma.sync: all threads fill stages ahead, multiply, and write one tile.

Multistage as in CUTLASS's SM80 kernels: a block's stage is filled `stages` - 1 blocks ahead of its
use, and one barrier a block orders both its arrival and the release of the stage before.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from math import prod

from ir.kernel.barriers import barriers
from ir.layout.addresses import coordinate
from ir.layout.expressions import variable
from ir.program import Program
from ir.targets.cuda.bodies.mma_bodies import COPIES, LOAD, MULTIPLY, order_of
from ir.targets.cuda.build.mma_plan import MmaPlan
from ir.targets.cuda.grid.overlap import await_kernel_before
from ir.targets.cuda.grid.raster import declare_place
from ir.targets.cuda.launch import Launch, Parameter
from ir.targets.cuda.layouts.mma_operands import StageTile
from ir.targets.cuda.lower.block_lower import kernel_head
from ir.targets.cuda.lower.mma_computed import Computed
from ir.targets.cuda.lower.mma_copy import Copies
from ir.targets.cuda.lower.mma_fragments import Fragments
from ir.targets.cuda.lower.mma_store import store_direct, store_staged
from ir.targets.cuda.text.bounds import blocks_along
from ir.targets.cuda.text.evaluate import Evaluator
from ir.targets.cuda.text.naming import text_name
from ir.targets.cuda.text.registers import Fragment, Team
from ir.targets.cuda.text.writer import Writer


class MmaLowering:
    """Lowers one plan."""

    def __init__(self, plan: MmaPlan, program: Program, name: str) -> None:
        self.plan, self.program, self.name = plan, program, name
        self.w, self.blocks = Writer(), str(plan.blocks)
        self.w.reserve(
            "thread", "warp", "lane", "smem", "block", "next", "slot", "ahead", "later",
            "blocks",
            *(text_name(spec.name) for spec in program.tensors),
        )  # fmt: skip

    def run(self) -> Launch:
        w, plan = self.w, self.plan
        self._prologue()
        origins = self._decode("tw_block_x()")
        await_kernel_before(w, plan.early)
        fragments = Fragments(plan, w)
        sums = {p.position: fragments.accumulator(p) for p in plan.roles.outer}
        fragments.declare()
        self._walk(fragments, origins)
        self._store(sums, origins)
        head = kernel_head(self.program, self.name, plan.threads, "", plan.resident)
        text = f"{head} {{\n{w.text}}}\n"
        parameters = tuple(Parameter(spec.name) for spec in self.program.tensors)
        return Launch(
            self.name, text, self._grid(), plan.threads, plan.shared, parameters, early=plan.early
        )

    def _prologue(self) -> None:
        w = self.w
        w.line("const u32 smem = tw_shared_address(tw_shared_base());")
        w.line("const i32 thread = tw_thread(), lane = thread % 32;")
        w.line("const i32 warp = tw_uniform(thread / 32);")
        row, column, depth = coordinate(variable("warp", prod(self.plan.warps)), self.plan.warps)
        w.line(f"const i32 warp_row = {row}, warp_column = {column}, warp_depth = {depth};")

    # -- tiles of the grid

    def _count(self, axis: str) -> int:
        return -(-self.program.axes[axis] // self.plan.tiles[axis])

    def _grid(self) -> int:
        roles = self.plan.roles
        return prod(self._count(axis) for axis in (*roles.batch, *roles.rows, *roles.columns))

    def _decode(self, block: str) -> dict[str, str]:
        """Declare where this block's tile begins along each axis of the outputs."""
        w, roles = self.w, self.plan.roles
        rows = prod(self._count(axis) for axis in roles.rows)
        columns = prod(self._count(axis) for axis in roles.columns)
        origins: dict[str, str] = {}
        tile = block
        if roles.batch:
            tile = w.name("tile")
            w.line(f"const i32 {tile} = {block} % {rows * columns};")
            self._split(f"{block} / {rows * columns}", roles.batch, origins)
        row, column = declare_place(w, self.plan.raster, tile, rows, columns)
        self._split(row, roles.rows, origins)
        self._split(column, roles.columns, origins)
        return origins

    def _split(self, number: str, axes: tuple[str, ...], origins: dict[str, str]) -> None:
        """Declare the origins of `axes` for a tile's number along all of them."""
        inner = 1
        for place, axis in enumerate(reversed(axes)):
            count = self._count(axis)
            if count == 1:
                continue
            value = f"({number}) / {inner}" if inner > 1 else f"({number})"
            value = value if place == len(axes) - 1 else f"{value} % {count}"
            name = self.w.name(f"{axis}_first")
            self.w.line(f"const i32 {name} = {value} * {self.plan.tiles[axis]};")
            origins[axis] = name
            inner *= count

    # -- the walk over the summed axes

    def _walk(self, fragments: Fragments, origins: Mapping[str, str]) -> None:
        w, plan = self.w, self.plan
        self.copies = [Copies(plan, t, w, origins) for t in plan.stored if t.copied]
        self.computed = [Computed(plan, t, w, origins) for t in plan.operands if not t.copied]
        for copy in self.copies:
            copy.declare()
        for one in self.computed:
            one.declare()
        narrowed = self._narrowed(origins)
        if narrowed is not None:
            w.line(f"const i32 blocks = {narrowed};")
            self.blocks = "blocks"
        self._fill_ahead()
        w.line(f"i32 slot = 0, ahead = {plan.stages - 1};")
        w.line("#pragma unroll 1")
        with w.block(f"for (i32 block = 0; block < {self.blocks}; block++)"):
            self._step(fragments)
            for name in ("slot", "ahead"):
                w.line(f"{name} = {name} + 1 == {plan.stages} ? 0 : {name} + 1;")
        w.line("tw_copy_async_wait<0>();")

    def _narrowed(self, origins: Mapping[str, str]) -> str | None:
        """Blocks of the walk, where masks or lengths may end it early."""
        plan, walked = self.plan, self.plan.roles.walked
        team = Team("thread", plan.frame.team, "tw_sync();", "tw_shared_base()")
        evaluator = Evaluator(self.program, self.w, plan.frame, plan.tiles, team)
        evaluator.origins |= origins
        evaluator.looped = frozenset(walked)
        return blocks_along(evaluator, walked)

    def _step(self, fragments: Fragments) -> None:
        """A block's products with what is done for later ones, behind a barrier where one is."""
        order = order_of(self.plan)
        there = {barrier.place: barrier.running for barrier in barriers(order)}
        for number, place in enumerate(order.places):
            if number in there:
                self._meet(there[number])
            if number == 0:
                self.w.line(f"const i32 next = block + {self.plan.stages - 1};")
            self._do(order.body.operations[place].name, fragments)

    def _meet(self, running: int | None) -> None:
        if running is not None:
            self.w.line(f"tw_copy_async_wait<{running}>();")
        self.w.line("tw_sync();")

    def _do(self, name: str, fragments: Fragments) -> None:
        if name == LOAD:
            self._compute_next()
        elif name == COPIES:
            self._copy_next()
        elif name == MULTIPLY:
            fragments.multiply({t.position: self._slot(t) for t in self.plan.operands})
        else:
            for one in self.computed:
                slot = "(block + 1) % 2" if self.plan.staged else "ahead"
                one.finish(self._address(one.tile, slot))

    def _address(self, tile: StageTile, slot: str) -> str:
        return f"smem + {self.plan.offset(tile)} + {slot} * {tile.bytes}"

    def _slot(self, tile: StageTile) -> str:
        """The slot of the block that is multiplied."""
        return "slot" if tile.copied or not self.plan.staged else "block % 2"

    def _fill_ahead(self) -> None:
        """Start the first blocks, and compute of them what is not computed a block ahead."""
        w, plan = self.w, self.plan
        ahead = min(plan.stages - 1, plan.blocks)
        with w.block(f"for (i32 next = 0; next < {ahead}; next++)"):
            walk = self._at("next")
            narrowed = self.blocks != str(plan.blocks)
            with w.block(f"if (next < {self.blocks})") if narrowed else nullcontext():
                for copy in self.copies:
                    copy.start(walk, self._address(copy.tile, "next"))
            w.line("tw_copy_async_commit();")
            if not plan.staged:
                for one in self.computed:
                    one.start(walk, {})
                    one.finish(self._address(one.tile, "next"))
        for _ in range(plan.stages - 1 - ahead):
            w.line("tw_copy_async_commit();")
        if plan.staged:
            w.line(f"tw_copy_async_wait<{plan.stages - 2}>();")
            w.line("tw_sync();")
            with w.block(""):
                self._start_computed("0", "0")
                for one in self.computed:
                    one.finish(self._address(one.tile, "0"))

    def _start_computed(self, block: str, slot: str) -> None:
        walk = self._at(block)
        for one in self.computed:
            raw = {t.position: self._address(t, slot) for t in self.plan.raw(one.tile)}
            one.start(walk, raw)

    def _compute_next(self) -> None:
        """Load what the next block to be computed is made of."""
        if not self.plan.staged:
            self._start_computed("next", "0")
            return
        self.w.line(f"const i32 later = slot + 1 == {self.plan.stages} ? 0 : slot + 1;")
        self._start_computed("(block + 1)", "later")

    def _copy_next(self) -> None:
        with self.w.block(f"if (next < {self.blocks})"):
            walk = self._at("next")
            for copy in self.copies:
                copy.start(walk, self._address(copy.tile, "ahead"))
        self.w.line("tw_copy_async_commit();")

    def _at(self, block: str) -> dict[str, str]:
        """Declare where block number `block` begins along the walked axes."""
        origins: dict[str, str] = {}
        inner = 1
        walked = self.plan.roles.walked
        for place, axis in enumerate(reversed(walked)):
            count = self._count(axis)
            last = place == len(walked) - 1
            if count > 1 or last:
                value = f"{block} / {inner}" if inner > 1 else block
                value = value if last else f"({value}) % {count}"
                name = self.w.name(f"{axis}_at")
                self.w.line(f"const i32 {name} = {value} * {self.plan.tiles[axis]};")
                origins[axis] = name
            inner *= count
        return origins

    # -- outputs

    def _store(self, sums: Mapping[int, Fragment], origins: Mapping[str, str]) -> None:
        if self.plan.epilogue == "staged":
            store_staged(self.plan, self.program, self.w, sums, origins)
            return
        plan = self.plan
        team = Team("thread", plan.frame.team, "tw_sync();", "tw_shared_base()")
        evaluator = Evaluator(self.program, self.w, plan.frame, plan.tiles, team)
        evaluator.origins |= origins
        evaluator.declare_threads()
        evaluator.values |= sums
        store_direct(plan, evaluator)
