"""Products by mma.sync as text, where wgmma's stand in other kernels: fragments from the same tiles
by ldmatrix, sums in the same registers.

A warp of a group has 16 of the 64 rows of a wgmma, and its sums as PTX has those of an m64nNkK: by
8 columns, as those of one m16n8kK.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ir.errors import Refusal
from ir.layout.expressions import ZERO, constant, scaled, total, variable
from ir.layout.instructions.rows import suffix
from ir.layout.printing import summand, text
from ir.targets.cuda.build.products import Product
from ir.targets.cuda.layouts.frame import GROUP, WARP
from ir.targets.cuda.layouts.lanes import matrix_row, operand
from ir.targets.cuda.layouts.lines import TileLines
from ir.targets.cuda.layouts.operands import OperandTile
from ir.targets.cuda.layouts.placed import Step, ThreadValues
from ir.targets.cuda.layouts.stored import StoredTile
from ir.targets.cuda.lower.tensor_evaluate import TensorEvaluator, summed_in_block
from ir.targets.cuda.plans.tensor_plan import ROWS
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.registers import Fragment

DOWN, ACROSS = 16, 8  # rows and columns of one mma.sync
REGISTERS = 4  # of its sums in a thread


@dataclass(frozen=True, slots=True)
class _Part:
    """An operand of a product in shared memory: its lines, where it begins in the present slot and
    where a lane's first matrix lies in it, both as text."""

    memory: TileLines
    size: int
    inside: bool
    start: str
    lane: str

    @property
    def form(self) -> str:
        """The end of the name of what reads it."""
        return "" if self.inside else "_trans"

    def at(self, step: tuple[int, int], free: int) -> str:
        """Where the matrices of a step are, `free` rows or columns further on. What is moved by
        shares no bit with a lane's own place."""
        line, byte = step
        line, byte = (line + free, byte) if self.inside else (line, byte + free * self.size)
        exchanged, added = self.memory.moved(constant(line), constant(byte))
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
        self._lanes: dict[tuple[int, int], str] = {}
        for product in self.plan.roles.products:
            for side in (product.a, product.b):
                self._declare_lane(product, side)

    def _declare_lane(self, product: Product, side: int) -> None:
        """Declare where this lane's line of the first matrices of an operand lies in its tile."""
        tile = self._tile(product, side)
        if tile is None:
            return
        size, first = _size(tile), side == product.a
        dtype, step = self.plan.roles.dtype_of(product), self.plan.step_of(product)
        held = operand(f"mma.m{DOWN}n{ACROSS}k{step}.{suffix(dtype)}", "a" if first else "b")
        if not first and self.columns(product) > ACROSS:
            held = ThreadValues(held.threads, (*held.values, Step(0, 2, ACROSS)))
        count = REGISTERS if first or self.columns(product) > ACROSS else 2
        inside, lane = _inside(tile), variable("matrices", WARP)
        free, depth = matrix_row(held, 8 * size, count, not inside, lane)
        if first:
            free = total(scaled(variable("warp", GROUP // WARP), DOWN), free)
        name = self.w.name("part")
        line, inner = (free, depth) if inside else (depth, free)
        self.w.line(f"const u32 {name} = {tile.offset(line, inner)};")
        self._lanes[product.position, side] = name

    def _tile(self, product: Product, side: int) -> OperandTile | StoredTile | None:
        """The tile that tensor cores read an operand from; None for one in registers."""
        found = self.plan.operand(product, "a" if side == product.a else "b")
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

    def hold(self, fragment: Fragment, blocks: int = 0) -> None:
        """Nothing: what multiplied has ended."""

    def multiply(
        self, product: Product, fragment: Fragment, keep: str, words: str | None = None,
        only: int | None = None,
    ) -> None:  # fmt: skip
        """All products of one block: accumulators += a * b, or = if not `keep`."""
        plan = self.plan
        blocks = list(range(plan.row_blocks)) if only is None else [only]
        self._clear(fragment, keep)
        order, depth = summed_in_block(plan, product), plan.step_of(product)
        summed = [plan.tiles[axis] for axis in product.over]
        steps = prod(summed) // depth
        if not steps:
            raise Refusal("walk", f"a block of {summed} points is less than {depth}")
        with self.w.block(""):
            a = [self._part(product, product.a, block) for block in blocks]
            b = self._part(product, product.b)
            assert b is not None
            for step in range(steps):
                at = self._step(product, product.b, step, order)
                with self.w.block(""):
                    names = []
                    for block, one in zip(blocks, a, strict=True):
                        if one is None:
                            names.append(f"{words}[{block}][{step}]")
                            continue
                        names.append(self.w.name("first"))
                        where = one.at(self._step(product, product.a, step, order), 0)
                        self._read(one, names[-1], (REGISTERS,), where)
                    self._columns(product, fragment, names, b, at)

    def _columns(
        self, product: Product, fragment: Fragment, rows: list[str], b: _Part, at: tuple[int, int]
    ) -> None:
        """A step of all columns, of which two blocks' fragments are read at a time."""
        depth, dtype = self.plan.step_of(product), self.plan.roles.dtype_of(product)
        call = f"tw_mma_m{DOWN}n{ACROSS}k{depth}_{dtype}"
        wide = self.columns(product) // ACROSS
        for column in range(0, wide, 2):
            count = min(2, wide - column)
            name = self.w.name("second")
            self._read(b, name, (count, 2), b.at(at, column * ACROSS))
            for number in range(count):
                for row, words in enumerate(rows):
                    sums = f"{fragment.name}[{row * wide + column + number}]"
                    self.w.line(f"{call}({sums}, {words}, {name}[{number}]);")

    def _read(self, part: _Part, name: str, shape: tuple[int, ...], where: str) -> None:
        """Declare fragments and read them."""
        sizes = "".join(f"[{size}]" for size in shape)
        self.w.line(f"u32 {name}{sizes};")
        places = [f"{name}[{n}]" for n in range(shape[0])]
        if len(shape) == 2:
            places = [f"{place}[{n}]" for place in places for n in range(shape[1])]
        call = f"tw_ldmatrix_x{len(places)}{part.form}"
        self.w.line(f"{call}({where}, {', '.join(places)});")

    def _clear(self, fragment: Fragment, keep: str) -> None:
        if keep == "1":
            return
        with self.w.block("" if keep == "0" else f"if (!({keep}))"):
            self.fill(fragment, "0")

    def _step(
        self, product: Product, side: int, step: int, order: tuple[tuple[str, int], ...]
    ) -> tuple[int, int]:
        """Where a step of a block begins in an operand's tile: line, and byte along it."""
        tile, depth = self._tile(product, side), self.plan.step_of(product)
        if isinstance(tile, OperandTile):
            return tile.step_place(step, depth, order)
        assert tile is not None
        return tile.step_place(step, depth)

    def _part(self, product: Product, side: int, block: int = 0) -> _Part | None:
        """An operand in its present slot, from a block of 64 rows on; None for one in registers."""
        tile = self._tile(product, side)
        if tile is None:
            return None
        first, plan = side == product.a, self.plan
        if isinstance(tile, StoredTile):
            address = f"smem + {plan.memory.words_at(product.a)}"
        else:
            ring = plan.ring_of(tile)
            slot = self.lowering.slot_back(ring, self.back.get(ring.name, 0))
            address = self.lowering.slot(ring, tile, slot)
            address += self._first_row(tile) if first else self._b_start(product, tile)
        further = tile.free_offset(block * ROWS) if block else 0
        if further % tile.memory.pattern:
            raise Refusal("panels", f"rows begin {further} bytes on, inside a pattern")
        name = self.w.name("tile")
        self.w.line(f"const u32 {name} = {address}{f' + {further}' if further else ''};")
        lane = self._lanes[product.position, side]
        return _Part(tile.memory, _size(tile), _inside(tile), name, lane)

    def _first_row(self, tile: OperandTile) -> str:
        """What a group's first row is behind the tile's."""
        if self.plan.partition != "rows" or self.plan.consumers == 1:
            return ""
        return f" + member * {tile.free_offset(self.plan.group_rows)}"


def _size(tile: OperandTile | StoredTile) -> int:
    """Bytes of an element."""
    return tile.size


def _inside(tile: OperandTile | StoredTile) -> bool:
    """Whether lines run along the sum."""
    return tile.sums_inside if isinstance(tile, OperandTile) else True
