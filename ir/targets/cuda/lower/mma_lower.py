"""Text of a kernel on mma.sync: all threads fill stages ahead, multiply, and write one tile.

Multistage as in CUTLASS's SM80 kernels: a block's stage is filled `stages` - 1 blocks ahead of its
use, and one barrier a block orders both its arrival and the release of the stage before. What is
done when is the kernel's, behind its passes; it is printed statement by statement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import takewhile
from math import prod

from ir.kernel.passes import after_each
from ir.kernel.tile_kernel import (
    BARRIER,
    BLOCK,
    BLOCKS,
    LEFT,
    PRESENT,
    At,
    Do,
    If,
    KernelError,
    Loop,
    Sync,
    TileKernel,
    When,
)
from ir.layout.addresses import coordinate
from ir.layout.expressions import variable
from ir.program import Program
from ir.targets.cuda.bodies.mma_bodies import COPIES, FORM, LOAD, MULTIPLY
from ir.targets.cuda.build.mma_kernel import (
    BEGIN,
    FINISHED,
    HOIST,
    STORED,
    build,
    passes_of,
)
from ir.targets.cuda.grid.raster import declare_place
from ir.targets.cuda.launch import Launch, Parameter
from ir.targets.cuda.layouts.mma_operands import StageTile
from ir.targets.cuda.lower.block_lower import kernel_head
from ir.targets.cuda.lower.mma_computed import Computed
from ir.targets.cuda.lower.mma_copy import Copies
from ir.targets.cuda.lower.mma_fragments import Fragments
from ir.targets.cuda.lower.mma_store import put_sums, store_direct, store_staged
from ir.targets.cuda.plans.mma_plan import MmaPlan
from ir.targets.cuda.text.bounds import blocks_along
from ir.targets.cuda.text.evaluate import Evaluator
from ir.targets.cuda.text.naming import text_name
from ir.targets.cuda.text.printer import Printer
from ir.targets.cuda.text.registers import Fragment, Team
from ir.targets.cuda.text.writer import Writer


class MmaLowering:
    """Lowers one plan."""

    def __init__(self, plan: MmaPlan, program: Program, name: str) -> None:
        self.plan, self.program, self.name = plan, program, name
        self.w = Writer()
        (*_, (_, self.kernel)) = after_each(build(plan, name), passes_of(plan))
        self.w.reserve(
            "thread", "warp", "lane", "smem", "block", "next", "slot", "ahead", "later",
            "blocks",
            *(text_name(spec.name) for spec in program.tensors),
        )  # fmt: skip

    def run(self) -> Launch:
        w, plan = self.w, self.plan
        self._prologue()
        origins = self._decode("tw_block_x()")
        MmaPrinter(plan, self.kernel, w, origins).all(self.kernel.body)
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


class MmaPrinter(Printer):
    """Prints the statements of a kernel. `origins`: where its tile begins."""

    who = "a kernel on mma.sync"

    def __init__(
        self, plan: MmaPlan, kernel: TileKernel, w: Writer, origins: Mapping[str, str]
    ) -> None:
        super().__init__(kernel, w)
        self.plan, self.origins = plan, origins
        self.fragments = Fragments(plan, w)
        self.sums: dict[int, Fragment] = {}
        self.copies: list[Copies] = []
        self.computed: dict[int, Computed] = {}  # by operand
        self.blocks = ""  # how many there are, as text
        self.present = "block"  # the number of the present one
        self.walk: Mapping[str, str] = {}  # where that begins

    def do(self, one: Do) -> None:
        self._does[one.operation.partition(".")[0]](self, one)

    def loop(self, one: Loop) -> None:
        if one.over != BLOCK:
            self.lacks(one)
        self.blocks = self.blocks or self._count_blocks()
        self._steady(one) if one.order else self._fill(one)

    def branch(self, one: If) -> None:
        with self.w.block(f"if ({self._when(one.when)})"):
            self.all(one.body)

    def sync(self, one: Sync) -> None:
        if one.kind == BARRIER:
            self.w.line("tw_sync();")
        else:
            super().sync(one)

    # -- loops

    def _count_blocks(self) -> str:
        """Blocks of the walk, declared where masks or lengths may end it early."""
        plan, walked = self.plan, self.plan.roles.walked
        evaluator = self._evaluator()
        evaluator.looped = frozenset(walked)
        found = blocks_along(evaluator, walked)
        if found is None:
            return str(plan.blocks)
        self.w.line(f"const i32 blocks = {found};")
        return "blocks"

    def _fill(self, loop: Loop) -> None:
        """Blocks that are begun ahead, each in the slot of its number."""
        end = self.blocks if loop.end.of == BLOCKS else str(loop.end)
        with self.w.block(f"for (i32 next = {loop.first}; next < {end}; next++)"):
            self.present, self.walk = "next", self._origins("next")
            self.all(loop.body)
        self.present, self.walk = "block", {}

    def _steady(self, loop: Loop) -> None:
        """The loop, with the slots of the block that is multiplied and of that which is copied."""
        w, stages = self.w, self.plan.stages
        w.line(f"i32 slot = 0, ahead = {stages - 1};")
        w.line("#pragma unroll 1")
        with w.block(f"for (i32 block = {loop.first}; block < {self.blocks}; block++)"):
            leading = list(takewhile(lambda one: isinstance(one, Sync), loop.body))
            self.all(leading)
            w.line(f"const i32 next = block + {stages - 1};")
            self.all(loop.body[len(leading) :])
            for name in ("slot", "ahead"):
                w.line(f"{name} = {name} + 1 == {stages} ? 0 : {name} + 1;")

    # -- where and when

    def _when(self, when: When) -> str:
        if when.of == LEFT:
            return f"{self._block(At(BLOCK, when.least - 1))} < {self.blocks}"
        if when.of == BLOCKS:
            return f"{self.blocks} >= {when.least}"
        raise KernelError(f"{self.kernel.name}: no block is left out if {when}")

    def _block(self, at: At) -> str:
        """The number of a block."""
        if not at.of or at == PRESENT:
            return self.present if at == PRESENT else str(at)
        ahead = at.number == self.plan.stages - 1
        return "next" if ahead else f"({self.present} + {at.number})"

    def _origins(self, block: str) -> dict[str, str]:
        """Declare where block number `block` begins along the walked axes."""
        origins: dict[str, str] = {}
        inner = 1
        walked, axes, tiles = self.plan.roles.walked, self.plan.program.axes, self.plan.tiles
        if len(walked) > 1 and not block.isdigit():
            number = self.w.name("number")
            self.w.line(f"const i32 {number} = tw_any({block});")
            block = number
        for place, axis in enumerate(reversed(walked)):
            count = -(-axes[axis] // tiles[axis])
            last = place == len(walked) - 1
            if count > 1 or last:
                value = f"{block} / {inner}" if inner > 1 else block
                value = value if last else f"({value}) % {count}"
                name = self.w.name(f"{axis}_at")
                self.w.line(f"const i32 {name} = {value} * {tiles[axis]};")
                origins[axis] = name
            inner *= count
        return origins

    def _walk_to(self, at: At) -> Mapping[str, str]:
        """Where a block begins; the present one's place is told where its loop begins."""
        return self.walk if at == PRESENT and self.walk else self._origins(self._block(at))

    def _slot(self, tile: StageTile, at: At) -> str:
        """The slot of a block, as text."""
        slots, last = self.plan.slots(tile), self.plan.stages - 1
        if not at.of:
            return str(at.number % slots)
        if self.present == "next":
            return self.present
        if slots != self.plan.stages:
            return f"{self._block(at)} % {slots}"
        names = {0: "slot", 1: "later", last: "ahead"}
        if at.number not in names:
            raise KernelError(f"{self.kernel.name}: nothing is known of the slot of {at}")
        return names[at.number]

    def _address(self, tile: StageTile, at: At) -> str:
        return f"smem + {self.plan.offset(tile)} + {self._slot(tile, at)} * {tile.bytes}"

    # -- operations

    def _start(self, one: Do) -> None:
        """Cleared sums, and what stays the same over the walk."""
        plan, w = self.plan, self.w
        for product in plan.roles.outer:
            self.sums[product.position] = self.fragments.accumulator(product)
        self.fragments.declare()
        made = self.origins
        self.copies = [Copies(plan, tile, w, made) for tile in plan.stored if tile.copied]
        self.computed = {t.position: Computed(plan, t, w, made) for t in self._formed}
        for copy in self.copies:
            copy.declare()

    @property
    def _formed(self) -> list[StageTile]:
        return [tile for tile in self.plan.operands if not tile.copied]

    def _nodes(self, one: Do) -> list[int]:
        """Nodes of an operation's parts, or of the one that is done."""
        parts = self.kernel.operation(one.operation).parts
        return [part.node for part in (parts if one.piece is None else parts[one.piece :][:1])]

    def _hoist(self, one: Do) -> None:
        operand = int(one.operation.partition(".")[2])
        self.computed[operand].declare(self._nodes(one))

    def _copy(self, one: Do) -> None:
        walk = self._walk_to(one.at)
        for copy in self.copies:  # a part each, in their order
            copy.start(walk, self._address(copy.tile, one.at))

    def _load(self, one: Do) -> None:
        """Load what a block of computed operands is made of."""
        if one.at.of and one.at.number == 1 < self.plan.stages - 1:
            self.w.line(f"const i32 later = slot + 1 == {self.plan.stages} ? 0 : slot + 1;")
        walk = self._walk_to(one.at)
        for node in self._nodes(one):
            computed = self.computed[node]
            raw = self.plan.raw(computed.tile)
            computed.start(walk, {tile.position: self._address(tile, one.at) for tile in raw})

    def _form(self, one: Do) -> None:
        """Compute what was loaded last, where products will read it."""
        for node in self._nodes(one):
            computed = self.computed[node]
            computed.finish(self._address(computed.tile, one.at))

    def _multiply(self, one: Do) -> None:
        self.fragments.multiply({t.position: self._slot(t, one.at) for t in self.plan.operands})

    # -- outputs

    def _finish(self, one: Do) -> None:
        for number, node in enumerate(self._nodes(one)):
            put_sums(self.plan, self.w, self.sums[node].name, number)

    def _store(self, one: Do) -> None:
        for position in self._nodes(one):
            if self.plan.epilogue == "staged":
                store_staged(self.plan, self.w, position, self.origins)
            else:
                store_direct(self.plan, self._outputs, position)

    @cached_property
    def _outputs(self) -> Evaluator:
        """What outputs are made by where sums are."""
        evaluator = self._evaluator()
        evaluator.declare_threads()
        evaluator.values |= self.sums
        return evaluator

    def _evaluator(self) -> Evaluator:
        plan = self.plan
        team = Team("thread", plan.frame.team, "tw_sync();", "tw_shared_base()")
        evaluator = Evaluator(plan.program, self.w, plan.frame, plan.tiles, team)
        evaluator.origins |= self.origins
        return evaluator

    _does: Mapping[str, Callable[[MmaPrinter, Do], None]] = {
        BEGIN: _start, HOIST: _hoist, COPIES: _copy, LOAD: _load, FORM: _form,
        MULTIPLY: _multiply, FINISHED: _finish, STORED: _store,
    }  # fmt: skip
