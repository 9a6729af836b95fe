"""The consumers of a kernel on wgmma as text: what multiplies, computes and writes a tile.

Goes through the statements of the role, each of which knows when it is done and of which block;
what a part of an operation computes is the evaluator's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ir.dtypes import dtype_of
from ir.kernel.body import (
    CONVERT,
    CORRECT,
    FINISH,
    GET,
    LEAVE,
    MAP,
    REDUCE,
    START,
    STORE,
    TENSOR,
    Operation,
    Part,
)
from ir.kernel.passes.pairs import PAIR
from ir.kernel.tile_kernel import (
    AGAIN,
    BLOCK,
    EVERY,
    Alloc,
    Do,
    If,
    Loop,
    Merge,
    Role,
    Scope,
    Statement,
    Sync,
)
from ir.ops.reduce import Carry
from ir.rewrite.domain import is_narrowed
from ir.targets.cuda.bodies.tensor_order import MOVED
from ir.targets.cuda.build.products import Product
from ir.targets.cuda.build.tensor_kernel import BEGUN, KEEP, LOADED, NEXT, TMA
from ir.targets.cuda.layouts.frame import GROUP
from ir.targets.cuda.lower.tensor_evaluate import shifted
from ir.targets.cuda.lower.tensor_folding import Folding, block_text
from ir.targets.cuda.lower.tensor_fragments import Fragments
from ir.targets.cuda.lower.tensor_handed import scale
from ir.targets.cuda.lower.tensor_left import get, leave, store_words
from ir.targets.cuda.lower.tensor_store import TensorStore
from ir.targets.cuda.lower.tensor_sync import ConsumerSync
from ir.targets.cuda.lower.tensor_whole import whole_sums
from ir.targets.cuda.plans.tensor_plan import REGISTER_SPLITS
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.bounds import free_blocks
from ir.targets.cuda.text.conditions import when_text
from ir.targets.cuda.text.loops import TileBody
from ir.targets.cuda.text.printer import Printer
from ir.targets.cuda.text.registers import Fragment, Point, Team, linear
from ir.targets.cuda.text.writer import Writer

if TYPE_CHECKING:
    from ir.targets.cuda.lower.tensor_lower import TensorLowering


WORD = 4  # bytes of a register


class ConsumerPrinter(Printer):
    """Prints the statements of one role."""

    who = "a group of consumers"

    def __init__(self, lowering: TensorLowering) -> None:
        super().__init__(lowering.kernel, Writer(2))
        self.lowering, self.plan = lowering, lowering.plan
        self.e = lowering.evaluator(self.w, self.team())
        self.body = TileBody(self.e, lowering.passes, lowering.looped)
        self.nodes = self.plan.program.nodes
        self.syncs = ConsumerSync(self)
        self.stores = TensorStore(lowering, self.e)
        self.fragments: Fragments | None = None
        self.products = {
            product.position: product
            for product in (
                *self.plan.roles.inner, *self.plan.roles.outer,
                *(begin.product for begin in self.plan.roles.begins),
            )
        }  # fmt: skip
        self.sums: dict[int, Fragment] = {}  # of products
        self.states: dict[int, Fragment] = {}  # of the present run
        self.words: dict[int, str] = {}  # of computed operands
        self.names: dict[int, str] = {}  # of descriptors
        self.formed = ExitStack()  # what is there for the pieces of one block
        self.eager = True  # whether a loop declares where its block begins
        self.present = ""  # the block of what threads do
        self.in_loop = False
        self.folding = Folding(self)

    # -- the role

    def role(self, role: Role) -> Writer:
        w, plan = self.w, self.plan
        _, up = REGISTER_SPLITS[plan.registers]
        if up:
            w.line(f"tw_registers_up<{up}>();")
        self.declare_self()
        self.e.declare_threads()
        self.lowering.state(w)
        early = int(plan.early)
        self.all(role.body[:early])
        self._declare()
        self.all(role.body[early:])
        return w

    def team(self) -> Team:
        """The threads that meet."""
        return self.lowering.team()

    def declare_self(self) -> None:
        """Which of the role's threads this is."""
        own = "" if self.plan.cooperative else " * group"
        self.w.line("const i32 member = group - 1;")
        self.w.line(f"const i32 thread = tw_thread() - {GROUP}{own};")
        self.w.line(f"const i32 lane = thread % {GROUP};")

    def _declare(self) -> None:
        """What is there for all tiles."""
        plan, w = self.plan, self.w
        if plan.epilogue == "tma" and plan.epilogue_slots > 1:
            w.line("u32 store_turn = 0;")
        if plan.exchanges:
            w.line("u32 exchange_phase = 0;")
        if plan.from_registers:
            self.fragments = Fragments(self.lowering, w, self.e.team)
            self.fragments.declare()

    def sync(self, one: Sync) -> None:
        self.syncs.sync(one)

    def loop(self, one: Loop) -> None:
        self._tiles(one) if one.over != BLOCK else self._blocks(one)

    def branch(self, one: If) -> None:
        with self.w.block(f"if ({when_text(one.when)})"), self._own_values(one):
            self.all(one.body)

    def scope(self, one: Scope) -> None:
        with self.w.block(""):
            self.folding.products(one.body) if one.name == PAIR else self._step(one.body)

    def merge(self, one: Merge) -> None:
        with whole_sums(self):
            self.all(one.body)

    def _own_values(self, one: If) -> ExitStack:
        """What is formed in a fold of some blocks is forgotten behind it."""
        stack = ExitStack()
        if one.when.of in (EVERY, AGAIN):
            stack.enter_context(self.e.scope())
            for product in self.plan.roles.outer:
                self.show(product.position)
        return stack

    # -- loops

    def _tiles(self, loop: Loop) -> None:
        with self.lowering.tiles(self.w, self.e):
            self.states = {}
            self.all(loop.body)

    def _blocks(self, loop: Loop) -> None:
        self.in_loop = True
        if self.plan.fresh == 1 and not (self.plan.order is not None and loop.order):
            self.folding.loop(loop)
        else:
            self._in_stretches(loop)
        self.in_loop = False

    def _in_stretches(self, loop: Loop) -> None:
        """The loop; where masks or an end touch only some blocks, one loop for those between."""
        e, first = self.e, str(loop.first)
        free = None
        if loop.free is not None:
            lowering = self.lowering
            axis = self.plan.roles.main_walk
            free = free_blocks(e, axis, lowering.walk_from, lowering.spans)
        if free is not None:
            assert loop.free is not None
            if free.low:
                first = self._until(loop, first, _folded("max", free.low))
            self._assume(free.masks, frozenset((self.plan.roles.main_walk,)))
            first = self._until(loop, first, _folded("min", free.high or ("blocks",)))
            self._assume(frozenset(), frozenset())
        self._steps(loop, first, "blocks")

    def _assume(self, masks: frozenset[int], inside: frozenset[str]) -> None:
        """What holds for the blocks to come: masks, and that they lie inside axes."""
        for e in (self.e, *([self.fragments.e] if self.fragments is not None else [])):
            e.assumed, e.inside_of = masks, inside

    def _until(self, loop: Loop, first: str, free: str) -> str:
        """A loop as far as a block; where the next one begins."""
        name = self.w.name("until")
        self.w.line(f"const i32 {name} = min(max({free} + {loop.free}, {first}), blocks);")
        self._steps(loop, first, name)
        return name

    def _steps(self, loop: Loop, first: str, end: str) -> None:
        with self.w.block(f"for (i32 block = {first}; block < {end}; block++)"):
            if self.plan.order is not None and loop.order:
                self._step(loop.body)
            else:
                self._one(loop.body)

    def _one(self, body: Sequence[Statement]) -> None:
        """A block, before the next one begins."""
        self.e.origins |= self.lowering.walk_origins(self.w, "block")
        with self.e.scope(), self.e.repeating(bool(self.lowering.looped)):
            self.all(body)

    def _step(self, body: Sequence[Statement]) -> None:
        """A step of a scheduled loop: blocks of several iterations."""
        self.eager, self.present = False, ""
        with self.e.scope(), self.e.repeating(True):
            self.all(body)
        self.eager = True

    # -- operations

    def do(self, one: Do) -> None:
        operation = self.kernel.operation(one.operation)
        self.body.later = when_text(one.later)
        if operation.unit == TENSOR:
            self._multiply(operation, one)
        elif operation.name == LOADED:
            self.folding.load(one)
        elif one.piece is not None and self.plan.fresh == 1:
            self.folding.fold(operation, one)
        elif one.piece is not None:
            assert self.fragments is not None
            self.fragments.form(one.piece)
        elif operation.name == NEXT:
            self._take()
        elif operation.name == KEEP:
            self.formed.close()
        else:
            self._compute(operation, one)

    def _compute(self, operation: Operation, one: Do) -> None:
        """What threads do, part by part."""
        e, at = self.e, block_text(one.at)
        if not self.eager and at != self.present:
            self.present = at
            e.origins |= self.lowering.walk_origins(self.w, at)
            self._show_inner()
        if operation.name == BEGUN:
            self._begin()
            return
        number = 0
        for part in operation.parts:
            if part.kind in (LEAVE, GET):
                (leave if part.kind == LEAVE else get)(self, part.node, number)
                number += 1
            else:
                self._parts[part.kind](self, part)

    def _map(self, part: Part) -> None:
        self.e.fragment(part.node)

    def _start(self, part: Part) -> None:
        """A state's first value; an accumulator's registers."""
        position = part.node
        if position not in self.products:
            self.states[position] = self.body.open(position)
            return
        if self.fragments is not None and position == self._first:
            self.fragments.open(self.e.origins)
        if self._is_another(position):
            self.states[position] = self.sums[position] = self.sums[self._first]
            return
        state = self.e.accumulator(self.products[position])
        if not self.plan.roles.begins and self.starts_at_zero(position):
            self.e.fill(state, self.e.identity(position))
        self.states[position] = self.sums[position] = state
        for begin in self.plan.roles.begins:  # in the same registers
            self.sums[begin.product.position] = state

    def reduce(self, part: Part) -> None:
        self.body.advance(part.node, self.states[part.node])

    def _correct(self, part: Part) -> None:
        one = self.plan.roles.handed
        if one is not None:
            scale(self.e, one, self.sums[one.products[0]])
        elif self.body.later != "false" and not self._is_another(part.node):
            self.body.rescale(part.node, self.states[part.node], part.by == MOVED)

    def _finish(self, part: Part) -> None:
        position, state = part.node, self.states[part.node]
        if position not in self.products:
            self.body.close(position, state)
            return
        if self._is_another(position):
            return
        self.e.hold(state)
        whole = next((begin.whole for begin in self.plan.roles.begins), position)
        added = self.plan.roles.added
        self.e.values[whole if added is None else added] = state

    @property
    def _first(self) -> int:
        return self.plan.roles.outer[0].position

    def _is_another(self, position: int) -> bool:
        """Whether a product's sum is in the registers of the first one."""
        added = self.plan.roles.added is not None and position in self.products
        return added and position != self._first

    def _store(self, part: Part) -> None:
        self.stores.store(part.node, part.by == TMA)

    # -- products

    def _multiply(self, operation: Operation, one: Do) -> None:
        """Issue the products of an operation, of all rows and steps or of one piece."""
        products = [self.products[part.node] for part in operation.parts]
        if one.piece is not None and self.plan.fresh == 1:
            with self.e.at(self.plan.places_of(one.piece)):
                for product in products:
                    self.e.multiply(product, self.folding.piece(product, one), "0", only=one.piece)
        elif one.piece is not None and self.fragments is not None:
            together = self.plan.together
            for step in range(one.piece * together, (one.piece + 1) * together):
                for product in products:
                    self._multiply_step(product, step)
        else:
            for product in products:
                words = self.words.get(product.a)
                keep = self._keeps(product.position)
                shared = self.kernel.shared_rings & {*operation.takes}
                self.e.back = dict.fromkeys(shared, one.back)
                self.e.multiply(product, self.sums[product.position], keep, words)
                self.e.back = {}

    def _multiply_step(self, product: Product, step: int) -> None:
        """One step of one product with its operand in registers, for all blocks of rows."""
        plan, fragments = self.plan, self.fragments
        b = plan.operand(product, "b")
        assert b is not None
        assert fragments is not None
        keep = "1" if step else self._keeps(product.position)
        transposed = "" if b.sums_inside else "_tb"
        call = f"tw_wgmma_{plan.shape_of(product, self.e.columns(product))}_rs{transposed}"
        b_at = shifted(self.names[product.position], b.step_offset(step, plan.step))
        state = self.sums[product.position]
        for block in range(plan.row_blocks):
            words = fragments.step_words(product.a, step, block)
            self.w.line(f"{call}({state.name}[{block}], {words}, {b_at}, {keep});")

    def _keeps(self, position: int) -> str:
        """Whether products are added to the sum that is there, as text."""
        if position not in self.states:
            roles = self.plan.roles
            return str(int(roles.scores is not None and position != roles.inner[0].position))
        if self.plan.roles.begins or self.starts_at_zero(position):
            return "1"
        return {"true": "1", "false": "0"}.get(self.body.later, self.body.later)

    def starts_at_zero(self, position: int) -> bool:
        """Whether the sum is cleared first: it is corrected on its way, of several, or of none."""
        several = self.plan.roles.added is not None
        several = several or isinstance(self.nodes[position].op, Carry)
        return several or any(is_narrowed(self.plan.program, axis) for axis in self.lowering.looped)

    def show(self, position: int) -> None:
        """What tensor cores wrote may be read from here on."""
        one, scores = self.plan.roles.handed, self.plan.roles.scores
        if scores is not None and position in self.e.inner:
            if position == self.plan.roles.inner[0].position:
                self.e.hold(self.sums[position])
                self.e.values[scores] = self.sums[position]
            return
        self.e.hold(self.sums[position])
        if one is not None:
            self.e.values[one.state] = self.sums[position]
        elif position in self.e.inner or self.plan.fresh:
            self.e.values[position] = self.sums[position]

    def _show_inner(self) -> None:
        """The same of all inner products, of which a block of a scheduled loop is made."""
        roles = self.plan.roles
        shown = {product.position: product.position for product in roles.inner}
        if roles.scores is not None:
            shown = {roles.scores: roles.inner[0].position}
        self.e.values |= {position: self.sums[one] for position, one in shown.items()}

    def _begin(self) -> None:
        """Begin the sum with what is made of another product, which lies in its registers."""
        (begin,) = self.plan.roles.begins
        e, state = self.e, self.sums[begin.product.position]
        with e.scope():
            e.values[begin.product.position] = state
            e.prepare(begin.start)
            with e.each(state.digits) as point:
                value = e.scalar(begin.start, point, {})
                self.w.line(f"{e.element(state, point)} = {value};")

    # -- computed operands

    def alloc(self, one: Alloc) -> None:
        """Registers of products that a step begins anew, and of computed operands."""
        there = {tile.name: tile for tile in self.kernel.tiles if tile.residence == "registers"}
        for name in one.names:
            tile = there[name]
            if tile.layout:
                self.words[tile.node] = self._declare_words()
            else:
                self.sums[tile.node] = self.e.accumulator(self.products[tile.node])
        if self.plan.roles.scores is not None:
            first, *others = (product.position for product in self.plan.roles.inner)
            self.sums |= {other: self.sums[first] for other in others if first in self.sums}

    def _declare_words(self) -> str:
        plan, name = self.plan, self.w.name("words")
        steps = plan.steps
        self.w.line(f"u32 {name}[{plan.row_blocks}][{steps}][4];")
        return name

    def _convert(self, part: Part) -> None:
        """A computed operand packed into wgmma's register words, rounded to its type."""
        e, plan, root = self.e, self.plan, part.node
        if root not in e.values:
            e.prepare(root)
        if plan.shared_words:
            store_words(self, root)
            return
        name = self.words[root]
        steps = plan.steps
        digits = e.own((*plan.roles.rows, *plan.roles.walked))
        dtype = self.nodes[root].dtype
        count = WORD // dtype_of(dtype).bytes
        inside = [d for d in digits if d.axis == plan.roles.main_walk and d.stride < count]
        rest = [digit for digit in digits if digit not in inside]
        with e.each(rest) as point:
            values = []
            for number in range(count):
                own = {digit: str(number // digit.stride % digit.size) for digit in inside}
                inner = Point({**point.digits, **own})
                values.append(self.within(e.scalar(root, inner, {}), dtype, inner))
            index = linear(rest, point.digits)
            where = f"[({index}) / {steps * 4}][({index}) / 4 % {steps}][({index}) % 4]"
            self.w.line(f"{name}{where} = {scalars.pack_word(values, dtype)};")

    def within(self, value: str, dtype: str, point: Point) -> str:
        """A computed operand's value, or 0 behind the end of what is walked, where the other
        operand is 0: it may be infinite there."""
        inside = self.e.inside(self.plan.roles.walked, point)
        zero = scalars.convert("0.0f", "f32", dtype)
        return f"({inside} ? {value} : {zero})" if inside else value

    def _take(self) -> None:
        """What the operands of a block are made of, for its pieces."""
        outer = self.plan.roles.outer
        self.names = {p.position: self.e.descriptor_b(p) for p in outer}
        assert self.fragments is not None
        self.formed.enter_context(self.fragments.block())

    _parts: Mapping[str, Callable[[ConsumerPrinter, Part], None]] = {
        MAP: _map, START: _start, REDUCE: reduce, CORRECT: _correct, FINISH: _finish,
        STORE: _store, CONVERT: _convert,
    }  # fmt: skip


def _folded(function: str, texts: Sequence[str]) -> str:
    found = texts[0]
    for text in texts[1:]:
        found = f"{function}({found}, {text})"
    return found
