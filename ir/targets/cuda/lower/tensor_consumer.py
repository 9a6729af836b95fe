"""What the consumers of a kernel on tensor cores do: products by wgmma, passes over the blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ir.dtypes import dtype_of
from ir.errors import Refusal
from ir.ops.load import Load
from ir.ops.reduce import Carry
from ir.ops.store import Store
from ir.rewrite.domain import live_range
from ir.targets.cuda.build.computed import below
from ir.targets.cuda.build.products import Product
from ir.targets.cuda.build.tensor_plan import ROWS, Ring
from ir.targets.cuda.build.tensor_rings import HELD
from ir.targets.cuda.grid.tensor_exchange import Exchange
from ir.targets.cuda.layouts.frame import Digit
from ir.targets.cuda.layouts.operands import OperandTile
from ir.targets.cuda.lower.tensor_chain import ChainedPass
from ir.targets.cuda.lower.tensor_folds import FoldingPass
from ir.targets.cuda.lower.tensor_fragments import Fragments
from ir.targets.cuda.lower.tensor_store import TensorStore
from ir.targets.cuda.lower.tensor_strip import StripProducts, shifted
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.evaluate import Evaluator
from ir.targets.cuda.text.loops import Loop, TileBody
from ir.targets.cuda.text.passes import Pass
from ir.targets.cuda.text.registers import Fragment, Point, Team
from ir.targets.cuda.text.writer import Writer

if TYPE_CHECKING:
    from ir.targets.cuda.lower.tensor_lower import TensorLowering


SECTOR = 32  # bytes that L2 hands out together


class TensorEvaluator(Evaluator):
    """Forms inner products by wgmma; everything else as any evaluator."""

    def __init__(self, lowering: TensorLowering, writer: Writer, team: Team) -> None:
        plan = lowering.plan
        super().__init__(lowering.program, writer, plan.frame, plan.tiles, team)
        writer.reserve("lane", "member", "group", "smem", "rank", "tile", "blocks", "turn")
        writer.reserve("own_part", "exchange_phase")
        self.lowering, self.plan = lowering, plan
        self.inner = {product.position: product for product in lowering.plan.roles.inner}
        self.outer = {product.position: product for product in lowering.plan.roles.outer}
        self.used: list[Ring] = []

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

    def _reduced(self, position: int) -> Fragment:
        if position not in self.inner:
            return super()._reduced(position)
        wanted = [p for p in self.inner.values() if p.position not in self.values]
        fragments = [self.accumulator(product) for product in wanted]
        rings = self.rings_of(wanted)
        for ring in rings:
            self.wait_full(ring)
        self.w.line("tw_wgmma_fence();")
        for product, fragment in zip(wanted, fragments, strict=True):
            self.multiply(product, fragment, "0")
        self.w.line("tw_wgmma_commit();")
        self.w.line("tw_wgmma_wait<0>();")
        for product, fragment in zip(wanted, fragments, strict=True):
            self.hold(fragment)
            self.values[product.position] = fragment
        for ring in rings:
            self.lowering.release(self.w, ring, f"{ring.name}_slot")
            self.lowering.advance_ring(self.w, ring)
        return self.values[position]

    def rings_of(self, products: list[Product]) -> list[Ring]:
        found: list[Ring] = []
        for product in products:
            for tile in self.plan.fetched(product):
                ring = self.plan.ring_of(tile)
                if ring.name != HELD and ring not in found:
                    found.append(ring)
        return found

    def descriptor_b(self, product: Product) -> str:
        """Declare the descriptor of a product's second operand in the present slot."""
        b = self.plan.operand(product, "b")
        assert b is not None
        return self._descriptor(b, self._b_start(product, b))

    def wait_full(self, ring: Ring) -> None:
        self.used.append(ring)
        stage, phase = f"{ring.name}_slot", f"{ring.name}_phase"
        self.w.line(f"tw_barrier_wait({self.lowering.full(ring, stage)}, {phase});")

    def columns(self, product: Product) -> int:
        inner = product.position in self.inner
        return self.plan.tiles[self.plan.roles.main_walk] if inner else self.plan.group_columns

    def accumulator(self, product: Product, blocks: int = 0) -> Fragment:
        """Declare the sums of a product, for all blocks of 64 rows or for so many of them."""
        node, blocks = self.nodes[product.position], blocks or self.plan.row_blocks
        digits = self.own(node.axes)
        columns = self.columns(product)
        fragment = Fragment(self.w.name(f"acc_{product.position}"), digits, columns // 2)
        if fragment.count != blocks * columns // 2:
            raise Refusal("accumulator", f"{fragment.count} registers for {columns} columns")
        kind = scalars.register_type(node.dtype)
        self.w.line(f"{kind} {fragment.name}[{blocks}][{columns // 2}];")
        return fragment

    def hold(self, fragment: Fragment, blocks: int = 0) -> None:
        for block in range(blocks or self.plan.row_blocks):
            self.w.line(f"tw_hold({fragment.name}[{block}]);")

    def multiply(
        self, product: Product, fragment: Fragment, keep: str, words: str | None = None,
        only: int | None = None,
    ) -> None:  # fmt: skip
        """Issue all wgmma of one block: accumulators += a * b, or = if not `keep` at first.

        `words` is the register array of a computed `a`; `only` the one block of 64 rows whose sums
        the fragment has.
        """
        plan, columns = self.plan, self.columns(product)
        a, b = plan.operand(product, "a"), plan.operand(product, "b")
        assert b is not None
        b_name = self._descriptor(b, self._b_start(product, b))
        forms = "ss" if a is not None else "rs"
        turned = ("_ta" if a is not None and not a.sums_inside else "") + (
            "_tb" if not b.sums_inside else ""
        )
        call = f"tw_wgmma_m64n{columns}k{plan.step}_{plan.kind}_{forms}{turned}"
        summed = [plan.tiles[axis] for axis in product.over if plan.tiles[axis] > 1]
        steps = (summed[0] if summed else 1) // plan.step
        if not steps:
            raise Refusal("walk", f"a block of {summed} points is less than {plan.step}")
        a_names = self._a_names(a)
        for step in range(steps):
            first = keep if step == 0 else "1"
            b_at = shifted(b_name, b.step_offset(step, plan.step))
            for block in range(plan.row_blocks) if only is None else (only,):
                if a is not None:
                    a_at = shifted(a_names[block], a.step_offset(step, plan.step))
                else:
                    a_at = f"{words}[{block}][{step}]"
                sums = f"{fragment.name}[{block if only is None else 0}]"
                self.w.line(f"{call}({sums}, {a_at}, {b_at}, {first});")

    def _b_start(self, product: Product, b: OperandTile) -> str:
        if self.plan.partition != "columns" or product.position in self.inner:
            return ""
        return f" + member * {b.free_offset(self.plan.group_columns)}"

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
        address = self.lowering.slot(ring, operand, f"{ring.name}_slot") + start
        leading, stride, code = operand.descriptor_strides
        name = self.w.name(f"{operand.spec.name}_tile")
        self.w.line(f"const u64 {name} = tw_descriptor({address}, {leading}, {stride}, {code});")
        return name


class TensorBody(TileBody):
    """Passes with outer products by wgmma."""

    def __init__(self, lowering: TensorLowering, evaluator: TensorEvaluator) -> None:
        super().__init__(evaluator, lowering.passes, lowering.looped)
        self.lowering, self.t, self.plan = lowering, evaluator, lowering.plan
        self.writer = TensorStore(lowering, evaluator)
        self.states: dict[int, Fragment] = {}
        self.fragments: Fragments | None = None
        if self.plan.from_registers:
            self.fragments = Fragments(lowering, evaluator.w, evaluator.team)
            self.fragments.declare()
        self.strip = StripProducts(self, self.fragments)
        self.last_pass = len(lowering.passes.passes) - 1

    @property
    def store_used(self) -> bool:
        return self.writer.used

    def emit(self, loop: Loop) -> None:
        """Passes, then what is stored: by the block that has the whole sums."""
        for number, one in enumerate(self.passes.passes):
            self._pass(number, one, loop)
        with self._whole_sums():
            for store in self.passes.after:
                self.store(store)

    @contextmanager
    def _whole_sums(self) -> Iterator[None]:
        if not self.plan.shared_sums:
            yield
            return
        sums = [
            (self.e.values[position], scalars.register_type(self.nodes[position].dtype))
            for position in self.t.outer
        ]
        if self.plan.exchanges:
            Exchange(self.plan).whole(self.e.w, sums, self.t.team.sync)
            self._take_own([fragment for fragment, _ in sums])
            yield
            return
        with self.lowering.meeting().whole(self.e.w, sums):
            yield

    def _take_own(self, sums: Sequence[Fragment]) -> None:
        """Go on with the columns that are this block's own, at the front of all sums."""
        e, plan = self.e, self.plan
        axis, own = plan.column_axis, plan.tile_columns // plan.parts
        origin = e.w.name(f"{axis}_own")
        e.w.line(f"const i32 {origin} = {e.origins.get(axis, '0')} + own_part * {own};")
        e.origins[axis] = origin
        e.frame, e.tiles = plan.own_frame, {**plan.tiles, axis: own}
        e.values = {
            position: replace(one, digits=e.own(self.nodes[position].axes), row=own // 2)
            for position, one in zip(self.t.outer, sums, strict=True)
        }

    @contextmanager
    def walk(self, number: int) -> Iterator[None]:
        """The loop over the blocks of one pass."""
        w = self.e.w
        with w.block("for (i32 block = 0; block < blocks; block++)"):
            self.e.origins |= self.lowering.walk_origins(w, "block")
            self.later = "block > 0"
            yield
        self.lowering.uses[number] = self.t.used
        self.leave(number)

    def leave(self, number: int) -> None:
        """What follows the loop of a pass: turns pass, slots that are still read are released."""
        w = self.e.w
        held = [r for r in self.plan.rings if r.name == HELD]
        pending = self._pending(number)
        if number == self.last_pass and not self.plan.cooperative:
            self.lowering.pass_tile(w)
        if pending:
            w.line("tw_wgmma_wait<0>();")
            for ring in pending:
                last = f"({ring.name}_slot + {ring.stages - 1}) % {ring.stages}"
                with w.block("if (blocks > 0)"):
                    self.lowering.release(w, ring, f"({last})")
        if number == self.last_pass:
            for ring in held:
                self.lowering.release(w, ring, self.lowering.present(ring))
                self.lowering.advance_ring(w, ring)

    def _pending(self, number: int) -> list[Ring]:
        """Rings whose last slot is still being read when the loop ends."""
        if not self.plan.through or not any(r.name == "outer" for r in self.t.used):
            return []
        return [ring for ring in self.t.used if ring.name == "outer"]

    def open(self, position: int) -> Fragment:
        product = self.t.outer.get(position)
        if product is None:
            return super().open(position)
        if self.fragments is not None and position == next(iter(self.t.outer)):
            self.fragments.open(self.e.origins)
        fragment = self.t.accumulator(product)
        if self.plan.roles.begins:
            self.begin(fragment)
        elif self.starts_at_zero(position):
            self.e.fill(fragment, self.e.identity(position))
        return fragment

    def keeps(self, position: int) -> str:
        """Whether a block's products are added to the sum that is there, as text."""
        if self.has_begun(position):
            return "1"
        fresh = self.plan.fresh
        return f"block % {fresh} > 0" if fresh else "block > 0"

    def has_begun(self, position: int) -> bool:
        """Whether a sum has something in it ahead of the walk."""
        return bool(self.plan.roles.begins) or self.starts_at_zero(position)

    def starts_at_zero(self, position: int) -> bool:
        """Whether the sum is cleared first: it is corrected on its way, or may have no terms."""
        carried = isinstance(self.nodes[position].op, Carry)
        narrowed = any(live_range(self.program, axis) for axis in self.looped)
        return carried or narrowed

    def advance(self, position: int, state: Fragment) -> None:
        product = self.t.outer.get(position)
        if product is None:
            super().advance(position, state)
        elif self.fragments is not None or self.plan.direct(product):
            self._together(position, state)
        else:
            raise Refusal("chain", "an operand is computed beside others that are loaded")

    def _together(self, position: int, state: Fragment) -> None:
        """Products over the walk begin together, when the sums of all are there."""
        self.states[position] = state
        if len(self.states) == len(self.t.outer):
            self.strip.block(self.states)
            self.states = {}

    def release_before(self, rings: list[Ring]) -> None:
        """Release the slots of the block before."""
        w = self.e.w
        for ring in rings:
            last = f"({ring.name}_slot == 0 ? {ring.stages - 1} : {ring.name}_slot - 1)"
            with w.block("if (block > 0)"):
                self.lowering.release(w, ring, last)

    def _pass(self, number: int, one: Pass, loop: Loop) -> None:
        """A pass; of chained products the one with the outer ones in the order that is decided."""
        self.t.used = []  # one list for each pass: the producer fills what it says
        if self.plan.fresh:
            self._hoist(one)
            FoldingPass(self, number, one).run(loop)
            return
        if self.plan.order is None or not any(p in self.t.outer for p in one.reductions):
            super()._pass(number, one, loop)
            return
        self._hoist(one)
        states = {position: self.open(position) for position in one.reductions}
        chain = ChainedPass(self, one)
        chain.emit(states)
        self.lowering.uses[number] = self.t.rings_of(
            [*self.t.inner.values(), *self.t.outer.values()]
        )
        self.leave(number)
        for position in one.reductions:
            self.close(position, states[position])

    def begin(self, state: Fragment) -> None:
        """Begin a sum with another product and what is made of it."""
        (begin,) = self.plan.roles.begins
        e, product = self.e, begin.product.position
        self.e.w.line("tw_wgmma_fence();")
        self.t.multiply(begin.product, state, "0")
        self.e.w.line("tw_wgmma_commit();")
        self.e.w.line("tw_wgmma_wait<0>();")
        self.t.hold(state)
        if begin.start == product:
            return
        with e.scope():
            e.values[product] = state
            e.prepare(begin.start)
            with e.each(state.digits) as point:
                value = e.scalar(begin.start, point, {})
                e.w.line(f"{e.element(state, point)} = {value};")

    def declare_words(self) -> str:
        """Declare the registers of a computed operand."""
        plan, name = self.plan, self.e.w.name("words")
        steps = plan.tiles[plan.roles.main_walk] // plan.step
        self.e.w.line(f"u32 {name}[{plan.row_blocks}][{steps}][4];")
        return name

    def pack_words(self, product: Product, name: str) -> None:
        """The computed operand packed into wgmma's register words, rounded to its type."""
        e, plan = self.e, self.plan
        axes = (*plan.roles.rows, plan.roles.main_walk)
        root = product.a
        e.prepare(root) if root not in e.values else None
        steps = plan.tiles[plan.roles.main_walk] // plan.step
        digits = e.own(axes)
        pair = digits[0]
        rest = digits[1:]
        dtype = self.nodes[root].dtype
        with e.each(rest) as point:
            values = []
            for half in ("0", "1"):
                inner = Point({**point.digits, pair: half})
                memo: dict[int, str] = {}
                values.append(self._within(e.scalar(root, inner, memo), dtype, inner))
            index = _linear(rest, point.digits)
            per_block = steps * 4
            where = f"[({index}) / {per_block}][({index}) / 4 % {steps}][({index}) % 4]"
            e.w.line(f"{name}{where} = {scalars.pack_word(values, dtype)};")

    def _within(self, value: str, dtype: str, point: Point) -> str:
        """A computed operand's value, or 0 behind the end of what is walked, where the other
        operand is 0: it may be infinite there."""
        inside = self.e.inside((self.plan.roles.main_walk,), point)
        zero = scalars.convert("0.0f", "f32", dtype)
        return f"({inside} ? {value} : {zero})" if inside else value

    def close(self, position: int, state: Fragment) -> None:
        if position not in self.t.outer:
            super().close(position, state)
            return
        self.t.hold(state)
        whole = next((begin.whole for begin in self.plan.roles.begins), position)
        self.e.values[whole] = state

    def hoistable(self, position: int) -> bool:
        if position in self.t.inner:
            return False
        return self._held_in_registers(position) and super().hoistable(position)

    def _held_in_registers(self, position: int) -> bool:
        """Not an operand that stays in shared memory."""
        operands = {x for p in (*self.t.inner.values(), *self.t.outer.values()) for x in (p.a, p.b)}
        if isinstance(self.nodes[position].op, Load) and position in operands:
            return False
        made = (below(self.program, operand) for operand in self.plan.roles.computed)
        return not any(position in values for values in made)

    def store(self, position: int) -> None:
        assert isinstance(self.nodes[position].op, Store)
        self.writer.store(position)


def _linear(digits: Sequence[Digit], values: Mapping[Digit, str]) -> str:
    """The mixed-radix number of the digits."""
    parts, weight = [], 1
    for digit in digits:
        parts.append(f"{values[digit]} * {weight}" if weight > 1 else values[digit])
        weight *= digit.size
    return " + ".join(parts) or "0"
