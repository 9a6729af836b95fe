"""Products by mma.sync as text, where wgmma's stand in other kernels: fragments from the same tiles
by ldmatrix, sums in the same registers.

A warp of a group has 16 of the 64 rows of a wgmma, and its sums as PTX has those of an m64nNkK: by
8 columns, as those of one m16n8kK.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ir.errors import Refusal
from ir.layout.expressions import ZERO, constant, scaled, total, variable
from ir.layout.instructions.rows import suffix
from ir.layout.printing import summand, text
from ir.targets.cuda.build.products import Product
from ir.targets.cuda.layouts.frame import GROUP, WARP
from ir.targets.cuda.layouts.lanes import fragment_row, operand
from ir.targets.cuda.layouts.mma_synthesised import COLUMNS as ACROSS
from ir.targets.cuda.layouts.mma_synthesised import ROWS as DOWN
from ir.targets.cuda.layouts.operands import OperandTile
from ir.targets.cuda.layouts.stored import StoredTile
from ir.targets.cuda.lower.tensor_evaluate import TensorEvaluator, summed_in_block
from ir.targets.cuda.plans.tensor_plan import ROWS
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.registers import Fragment

REGISTERS = 4  # of the sums of one mma.sync in a thread


@dataclass(frozen=True, slots=True)
class _Part:
    """An operand of a product in shared memory: where its tile begins in the present slot, and
    where a lane's first matrix lies in it, both as text."""

    tile: OperandTile | StoredTile
    start: str
    lane: str

    @property
    def form(self) -> str:
        """The end of the name of what reads it."""
        return "" if self.tile.sums_inside else "_trans"

    def at(self, step: tuple[int, int], free: int) -> str:
        """Where the matrices of a step are, `free` rows or columns further on. What is moved by
        shares no bit with a lane's own place."""
        (line, byte), tile = step, self.tile
        if tile.sums_inside:
            line += free
        else:
            byte += free * tile.size
        exchanged, added = tile.memory.moved(constant(line), constant(byte))
        lane = f"({self.lane} ^ {text(exchanged)})" if exchanged != ZERO else self.lane
        further = f" + {summand(added)}" if added != ZERO else ""
        return f"{self.start} + {lane}{further}"


class WarpEvaluator(TensorEvaluator):
    """Multiplies by mma.sync; everything else as where wgmma does."""

    def declare_threads(self) -> None:
        super().declare_threads()
        self.w.reserve("matrices", "warp")
        self.w.line(f"const i32 warp = lane / {WARP} % {GROUP // WARP};")
        self.w.line(f"const i32 matrices = lane % {WARP};")
        self._lanes: dict[tuple[int, str], str] = {}
        for product in self.plan.roles.products:
            for part in ("a", "b"):
                self._declare_lane(product, part)

    def _declare_lane(self, product: Product, part: str) -> None:
        """Declare where this lane's line of the first matrices of an operand lies in its tile."""
        tile = self._tile(product, part)
        if tile is None:
            return
        dtype, step = self.plan.roles.dtype_of(product), self.plan.step_of(product)
        held = operand(f"mma.m{DOWN}n{ACROSS}k{step}.{suffix(dtype)}", part)
        blocks, lane = self.columns(product) // ACROSS, variable("matrices", WARP)
        free, depth = fragment_row(held, part, blocks, 8 * tile.size, not tile.sums_inside, lane)
        if part == "a":
            free = total(scaled(variable("warp", GROUP // WARP), DOWN), free)
        name = self.w.name("part")
        line, inner = (free, depth) if tile.sums_inside else (depth, free)
        self.w.line(f"const u32 {name} = {tile.offset(line, inner)};")
        self._lanes[product.position, part] = name

    def _tile(self, product: Product, part: str) -> OperandTile | StoredTile | None:
        """The tile that an operand is read from; None for one in registers."""
        found = self.plan.operand(product, part)
        stored = self.plan.shared_words and product.position in self.outer
        return self.plan.words if found is None and stored else found

    def accumulator(self, product: Product, blocks: int = 0) -> Fragment:
        node, blocks = self.nodes[product.position], blocks or self.plan.row_blocks
        count = blocks * self.columns(product) // 2
        fragment = Fragment(
            self.w.name(f"acc_{product.position}"), self.own(node.axes), REGISTERS
        )  # fmt: skip
        if fragment.count != count:
            raise Refusal("accumulator", f"{fragment.count} registers, not {count}")
        kind = scalars.register_type(node.dtype)
        self.w.line(f"{kind} {fragment.name}[{count // REGISTERS}][{REGISTERS}];")
        return fragment

    def hold(self, fragment: Fragment) -> None:
        """Nothing: what multiplied has ended."""

    def multiply(
        self, product: Product, fragment: Fragment, keep: str, words: str | None = None,
        only: int | None = None,
    ) -> None:  # fmt: skip
        """All products of one block: accumulators += a * b, or = if not `keep`."""
        plan = self.plan
        blocks = range(plan.row_blocks) if only is None else (only,)
        self._clear(fragment, keep)
        order, depth = summed_in_block(plan, product), plan.step_of(product)
        with self.w.block(""):
            a = [self._part(product, "a", block) for block in blocks]
            b = self._part(product, "b")
            assert b is not None
            for step in range(self.steps_of(product)):
                with self.w.block(""):
                    rows = [
                        f"{words}[{block}][{step}]" if one is None
                        else self._row(one, one.tile.step_place(step, depth, order))
                        for block, one in zip(blocks, a, strict=True)
                    ]  # fmt: skip
                    at = b.tile.step_place(step, depth, order)
                    self._columns(product, fragment, rows, b, at)

    def _row(self, part: _Part, at: tuple[int, int]) -> str:
        """Read a step of 16 rows."""
        name = self.w.name("first")
        self.w.line(f"u32 {name}[{REGISTERS}];")
        self._read(part, part.at(at, 0), [f"{name}[{n}]" for n in range(REGISTERS)])
        return name

    def _columns(
        self, product: Product, fragment: Fragment, rows: Sequence[str], b: _Part,
        at: tuple[int, int],
    ) -> None:  # fmt: skip
        """A step of all columns, of which two blocks' fragments are read at a time."""
        depth, kind = self.plan.step_of(product), self.plan.roles.kind_of(product)
        call = f"tw_mma_m{DOWN}n{ACROSS}k{depth}_{kind}"
        wide = self.columns(product) // ACROSS
        for column in range(0, wide, 2):
            count = min(2, wide - column)
            name = self.w.name("second")
            self.w.line(f"u32 {name}[{count}][2];")
            places = [f"{name}[{number}][{n}]" for number in range(count) for n in range(2)]
            self._read(b, b.at(at, column * ACROSS), places)
            for number in range(count):
                for row, words in enumerate(rows):
                    sums = f"{fragment.name}[{row * wide + column + number}]"
                    self.w.line(f"{call}({sums}, {words}, {name}[{number}]);")

    def _read(self, part: _Part, where: str, places: Sequence[str]) -> None:
        """Read matrices to registers."""
        call = f"tw_ldmatrix_x{len(places)}{part.form}"
        self.w.line(f"{call}({where}, {', '.join(places)});")

    def _clear(self, fragment: Fragment, keep: str) -> None:
        if keep == "1":
            return
        with self.w.block("" if keep == "0" else f"if (!({keep}))"):
            self.fill(fragment, "0")

    def _part(self, product: Product, part: str, block: int = 0) -> _Part | None:
        """An operand in its present slot, from a block of 64 rows on; None for one in registers."""
        tile = self._tile(product, part)
        if tile is None:
            return None
        further = tile.free_offset(block * ROWS) if block else 0
        if further % tile.memory.pattern:
            raise Refusal("panels", f"rows begin {further} bytes on, inside a pattern")
        name, address = self.w.name("tile"), self._address(product, part, tile)
        self.w.line(f"const u32 {name} = {address}{f' + {further}' if further else ''};")
        return _Part(tile, name, self._lanes[product.position, part])

    def _address(self, product: Product, part: str, tile: OperandTile | StoredTile) -> str:
        """Where a group's share of an operand begins."""
        if isinstance(tile, StoredTile):
            return f"smem + {self.plan.memory.words_at(product.a)}"
        ring = self.plan.ring_of(tile)
        slot = self.lowering.slot_back(ring, self.back.get(ring.name, 0))
        start = self._first_row(tile) if part == "a" else self._b_start(product, tile)
        return self.lowering.slot(ring, tile, slot) + start

    def _first_row(self, tile: OperandTile) -> str:
        """What a group's first row is behind the tile's."""
        if self.plan.partition != "rows" or self.plan.consumers == 1:
            return ""
        return f" + member * {tile.free_offset(self.plan.group_rows)}"
