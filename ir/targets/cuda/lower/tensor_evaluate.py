"""Products by wgmma as text: accumulators, descriptors of operand tiles, the instructions."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ir.dtypes import dtype_of
from ir.errors import Refusal
from ir.layout.instructions.descriptor import TYPE_FIELD, Descriptor
from ir.targets.cuda.build.products import Product, summed_order
from ir.targets.cuda.layouts.operands import OperandTile
from ir.targets.cuda.lower.tensor_left import words_address
from ir.targets.cuda.plans.tensor_plan import ROWS, Plan
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.evaluate import Evaluator
from ir.targets.cuda.text.registers import Fragment, Team
from ir.targets.cuda.text.writer import Writer

if TYPE_CHECKING:
    from ir.targets.cuda.lower.tensor_lower import TensorLowering

SECTOR = 32  # bytes that L2 hands out together


class TensorEvaluator(Evaluator):
    """Multiplies by wgmma; everything else as any evaluator."""

    side_by_side = True  # few warps: none waits for long

    def __init__(self, lowering: TensorLowering, writer: Writer, team: Team) -> None:
        plan = lowering.plan
        super().__init__(lowering.program, writer, plan.frame, plan.tiles, team)
        writer.reserve("lane", "member", "group", "smem", "rank", "tile", "blocks", "turn")
        writer.reserve("own_part", "exchange_phase")
        self.lowering, self.plan = lowering, plan
        self.inner = {product.position: product for product in lowering.plan.roles.inner}
        self.outer = {product.position: product for product in lowering.plan.roles.outer}
        self.back: dict[str, int] = {}  # by ring: how many slots ago what is read now was filled

    def ragged(self, axis: str) -> bool:
        """Clusters may reach a whole tile over the end."""
        if axis in self.inside_of:
            return False
        plan = self.plan
        tile = plan.tiles[axis]
        if axis == plan.roles.rows[-1]:
            tile *= plan.cluster[0]
        if axis == plan.column_axis:
            tile *= plan.cluster[1]
        return self.program.axes[axis] % tile != 0

    def read_once(self, position: int) -> bool:
        """Not where four threads read less than a sector, which the next load reads again."""
        size = self.width(position) * dtype_of(self.nodes[position].dtype).bytes
        return 4 * size >= SECTOR and super().read_once(position)

    def crossing(self, count: int, dtype: str) -> int:
        """Those of up to 32 bits are two to a place: rings leave little room."""
        return crossing(count, dtype)

    def descriptor_b(self, product: Product) -> str:
        """Declare the descriptor of a product's second operand in the present slot."""
        b = self.plan.operand(product, "b")
        assert b is not None
        return self._descriptor(b, self._b_start(product, b))

    def columns(self, product: Product) -> int:
        inner = product.position in self.inner
        return self.plan.group_walk if inner else self.plan.group_columns

    def accumulator(self, product: Product, blocks: int = 0) -> Fragment:
        """Declare the sums of a product, for all blocks of 64 rows or for so many of them."""
        node, blocks = self.nodes[product.position], blocks or self.plan.row_blocks
        digits = self.own(node.axes)
        columns, row = self.columns(product), self.across(product) // 2
        fragment = Fragment(self.w.name(f"acc_{product.position}"), digits, row)
        if fragment.count != blocks * columns // 2:
            raise Refusal("accumulator", f"{fragment.count} registers for {columns} columns")
        kind = scalars.register_type(node.dtype)
        self.w.line(f"{kind} {fragment.name}[{fragment.count // row}][{row}];")
        return fragment

    def across(self, product: Product) -> int:
        """Columns of one instruction of a product."""
        columns = self.columns(product)
        return columns if product.position in self.inner else columns // self.plan.column_pieces

    def hold(self, fragment: Fragment) -> None:
        for piece in range(fragment.count // fragment.row):
            self.w.line(f"tw_hold({fragment.name}[{piece}]);")

    def multiply(
        self, product: Product, fragment: Fragment, keep: str, words: str | None = None,
        only: int | None = None,
    ) -> None:  # fmt: skip
        """Issue all wgmma of one block: accumulators += a * b, or = if not `keep` at first.

        `words` is the register array of a computed `a`; `only` the one block of 64 rows whose sums
        the fragment has.
        """
        plan, columns = self.plan, self.across(product)
        a, b = plan.operand(product, "a"), plan.operand(product, "b")
        assert b is not None
        pieces = self.columns(product) // columns
        b_names = self._b_names(product, b, columns)
        stored = a is None and plan.shared_words and product.position in self.outer
        forms = "ss" if a is not None or stored else "rs"
        transposed = ("_ta" if a is not None and not a.sums_inside else "") + (
            "_tb" if not b.sums_inside else ""
        )
        call = f"tw_wgmma_{plan.shape_of(product, columns)}_{forms}{transposed}"
        depth, order = plan.step_of(product), summed_in_block(plan, product)
        a_names = self._stored_names(product) if stored else self._a_names(a)
        for step in range(self.steps_of(product)):
            first = keep if step == 0 else "1"
            offset = b.step_offset(step, depth, order)
            for block in range(plan.row_blocks) if only is None else (only,):
                if a is not None or stored:
                    at = a.step_offset(step, depth, order) if a else self._word_offset(step, depth)
                    a_at = shifted(a_names[block], at)
                else:
                    a_at = f"{words}[{block}][{step}]"
                for piece, b_name in enumerate(b_names):
                    sums = f"{fragment.name}[{(block if only is None else 0) * pieces + piece}]"
                    b_at = shifted(b_name, offset)
                    self.w.line(f"{call}({sums}, {a_at}, {b_at}, {first});")

    def steps_of(self, product: Product) -> int:
        """Instructions along the sum of one block."""
        points, depth = [self.plan.tiles[axis] for axis in product.over], self.plan.step_of(product)
        if prod(points) < depth:
            raise Refusal("walk", f"a block of {points} points is less than {depth}")
        return prod(points) // depth

    def _word_offset(self, step: int, depth: int) -> int:
        return self.plan.words.step_offset(step, depth)

    def _b_names(self, product: Product, b: OperandTile, columns: int) -> list[str]:
        """Descriptors of the columns of each instruction."""
        start = self._b_start(product, b)
        offsets = (b.free_offset(first) for first in range(0, self.columns(product), columns))
        return [self._descriptor(b, start + (f" + {o}" if o else "")) for o in offsets]

    def _b_start(self, product: Product, b: OperandTile) -> str:
        inner = product.position in self.inner
        if self.plan.partition != "columns" or (inner and self.plan.apart):
            return ""
        own = self.plan.group_walk if inner else self.plan.group_columns
        return f" + member * {b.free_offset(own)}"

    def _stored_names(self, product: Product) -> list[str]:
        """Descriptors of a computed operand's blocks of 64 rows."""
        tile, names = self.plan.words, []
        for number in range(self.plan.row_blocks):
            offset = tile.free_offset(number * ROWS)
            address = words_address(self.plan, product.a, offset)
            names.append(self._described("words_tile", address, tile.descriptor))
        return names

    def _a_names(self, a: OperandTile | None) -> list[str]:
        if a is None:
            return []
        start = ""
        if self.plan.partition == "rows":
            start = f" + member * {a.free_offset(self.plan.group_rows)}"
        names = []
        for block in range(self.plan.row_blocks):
            offset = a.free_offset(block * ROWS)
            names.append(self._descriptor(a, start + (f" + {offset}" if offset else "")))
        return names

    def _descriptor(self, operand: OperandTile, start: str) -> str:
        ring = self.plan.ring_of(operand)
        slot = self.lowering.slot_back(ring, self.back.get(ring.name, 0))
        address = self.lowering.slot(ring, operand, slot) + start
        return self._described(f"{operand.spec.name}_tile", address, operand.descriptor)

    def _described(self, stem: str, address: str, one: Descriptor) -> str:
        """Declare a descriptor."""
        name, code = self.w.name(stem), TYPE_FIELD[one.mode]
        fields = f"{one.leading}, {one.stride}, {code}"
        self.w.line(f"const u64 {name} = tw_descriptor({address}, {fields});")
        return name


def crossing(count: int, dtype: str) -> int:
    """Registers of 8 bytes that `count` of a type take."""
    return -(-count // 2) if dtype_of(dtype).bits <= 32 else count


def shifted(name: str, offset: int) -> str:
    """A descriptor moved by bytes."""
    return f"{name} + {offset // 16}" if offset else name


def summed_in_block(plan: Plan, product: Product) -> tuple[tuple[str, int], ...]:
    """The axes that a block of a product sums, with their points, outermost first, where a factor
    lacks some: others count all of their own, one line after the other."""
    tiled = {axis for axis in product.over if plan.tiles[axis] > 1}
    nodes = plan.program.nodes
    if all(tiled <= {*nodes[x].axes} for x in (product.a, product.b)):
        return ()
    order = summed_order(plan.program, product)
    return tuple((axis, plan.tiles[axis]) for axis in order if axis in tiled)
