"""Fragments of one block: from shared memory by ldmatrix, multiplied by mma.sync.

Layouts of the instructions' operands are those of the PTX ISA (m16n8k16, m16n8k8, m16n8k32): in
bytes they agree, 32 of a row for one step.
"""

from __future__ import annotations

from collections.abc import Mapping

from ir.layout.expressions import scaled, total, variable
from ir.targets.cuda.build.products import Product
from ir.targets.cuda.layouts.lanes import fragment_row, place, places_of_values
from ir.targets.cuda.layouts.mma_operands import STEP, StageTile
from ir.targets.cuda.plans.mma_plan import COLUMNS, ROWS, MmaPlan
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.registers import Fragment
from ir.targets.cuda.text.writer import Writer


class Fragments:
    """Emits the products of a block. `smem` is the address of the first stage."""

    def __init__(self, plan: MmaPlan, w: Writer) -> None:
        self.plan, self.w = plan, w
        self.lanes: dict[tuple[int, str], str] = {}
        self.names: dict[tuple[int, str], str] = {}
        self.sums: dict[int, str] = {}

    def accumulator(self, product: Product) -> Fragment:
        """Declare a product's accumulators, cleared."""
        plan, node = self.plan, self.plan.program.nodes[product.position]
        name = self.w.name(f"acc_{product.position}")
        count = plan.row_blocks * plan.column_blocks
        self.w.line(f"{scalars.register_type(node.dtype)} {name}[{count}][4] = {{}};")
        self.sums[product.position] = name
        return Fragment(name, plan.frame.own(node.axes), 4)

    def declare(self) -> None:
        """Where this lane's part of every fragment begins."""
        for product in self.plan.roles.outer:
            for position, part in ((product.a, "a"), (product.b, "b")):
                if (position, part) not in self.lanes:
                    tile = self.plan.operand(position)
                    stem = self.w.name(f"{part}_{position}")
                    self.names[position, part] = stem
                    self.lanes[position, part] = self._lane(tile, part, stem)

    def _lane(self, tile: StageTile, part: str, stem: str) -> str:
        """Declare the byte offset of a lane in the first fragment of its warp."""
        plan = self.plan
        assert tile.read is not None
        rows, columns, depth = plan.warps
        held = tile.read.operands[part]
        if tile.words:
            free, inner = place(held)
        else:
            bits = tile.size * 8
            free, inner = fragment_row(held, part, plan.column_blocks, bits, tile.transposed)
        warp, count = ("warp_row", rows) if part == "a" else ("warp_column", columns)
        size = plan.warp_rows if part == "a" else plan.warp_columns
        free = total(scaled(variable(warp, count), size), free)
        first = scaled(variable("warp_depth", depth), plan.steps * plan.step)
        offset = tile.offset(free, total(first, inner))
        name = self.w.name(f"{stem}_lane")
        self.w.line(f"const u32 {name} = {offset};")
        return name

    # -- one block

    def multiply(self, slots: Mapping[int, str]) -> None:
        """All products of the block in `slots` (of each operand), fragments ahead where asked."""
        plan, w = self.plan, self.w
        buffers = plan.fragments
        for (position, part), stem in self.names.items():
            blocks, words = (plan.row_blocks, 4) if part == "a" else (plan.column_blocks, 2)
            w.line(f"u32 {stem}[{buffers}][{blocks}][{words}];")
            tile = plan.operand(position)
            at = f"smem + {plan.offset(tile)} + {slots[position]} * {tile.bytes}"
            w.line(f"const u32 {stem}_tile = {at};")
        ahead = buffers - 1
        for step in range(-ahead, plan.steps):
            if step + ahead < plan.steps:
                self._load(step + ahead)
            if step >= 0:
                self._step(step)

    def _load(self, step: int) -> None:
        for position, part in self.names:
            tile = self.plan.operand(position)
            if tile.words:
                self._load_words(tile, part, step)
            else:
                self._load_matrices(tile, part, step)

    def _at(self, tile: StageTile, part: str, line: int, byte: int) -> str:
        stem, lane = self.names[tile.position, part], self.lanes[tile.position, part]
        return f"{stem}_tile + {tile.moved(lane, line, byte)}"

    def _load_matrices(self, tile: StageTile, part: str, step: int) -> None:
        plan = self.plan
        name = f"{self.names[tile.position, part]}[{step % plan.fragments}]"
        transposed = "_trans" if tile.transposed else ""
        blocks = plan.row_blocks if part == "a" else -(-plan.column_blocks // 2)
        for block in range(blocks):
            if tile.inside:
                at = self._at(tile, part, block * ROWS, step * STEP)
            else:
                at = self._at(tile, part, step * plan.step, block * ROWS * tile.size)
            if part == "a":
                words = [f"{name}[{block}][{i}]" for i in range(4)]
            else:
                pairs = range(min(2, plan.column_blocks))
                words = [f"{name}[{2 * block + p}][{i}]" for p in pairs for i in range(2)]
            self.w.line(f"tw_ldmatrix_x{len(words)}{transposed}({at}, {', '.join(words)});")

    def _load_words(self, tile: StageTile, part: str, step: int) -> None:
        """Fragments of 32-bit elements that lie across the sum, word by word."""
        plan = self.plan
        assert tile.read is not None
        held = tile.read.operands[part]
        name = f"{self.names[tile.position, part]}[{step % plan.fragments}]"
        blocks, apart = (plan.row_blocks, ROWS) if part == "a" else (plan.column_blocks, COLUMNS)
        for block in range(blocks):
            for number, (free, depth) in enumerate(places_of_values(held)):
                byte = (block * apart + free) * tile.size
                at = self._at(tile, part, step * plan.step + depth, byte)
                self.w.line(f"{name}[{block}][{number}] = tw_load_shared_4({at});")

    def _step(self, step: int) -> None:
        plan, w = self.plan, self.w
        call = f"tw_mma_m16n8k{plan.step}_{plan.kind}"
        buffer = step % plan.fragments
        row, column = w.name("r"), w.name("c")
        with w.unrolled(row, plan.row_blocks), w.unrolled(column, plan.column_blocks):
            for product in plan.roles.outer:
                target = f"{self.sums[product.position]}[{row} * {plan.column_blocks} + {column}]"
                a = f"{self.names[product.a, 'a']}[{buffer}][{row}]"
                b = f"{self.names[product.b, 'b']}[{buffer}][{column}]"
                w.line(f"{call}({target}, {a}, {b});")
