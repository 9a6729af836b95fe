"""The pass of chained products: its loop in the decided order, waits and releases derived."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ir.kernel.body import TENSOR, THREADS
from ir.kernel.synchronise import synchronised
from ir.kernel.turns import turn_of
from ir.targets.cuda.bodies.tensor_bodies import BETWEEN, INNER, OUTER, shared_values
from ir.targets.cuda.build.tensor_plan import Ring
from ir.targets.cuda.text.bounds import free_blocks
from ir.targets.cuda.text.passes import Pass, needed
from ir.targets.cuda.text.registers import Fragment

if TYPE_CHECKING:
    from ir.targets.cuda.build.products import Product
    from ir.targets.cuda.lower.tensor_consumer import TensorBody


def _folded(function: str, texts: Sequence[str]) -> str:
    found = texts[0]
    for text in texts[1:]:
        found = f"{function}({found}, {text})"
    return found


@dataclass(frozen=True, slots=True)
class Section:
    """A step before the loop (`ahead`), of it, or behind it (`behind`): which iterations it has."""

    depth: int
    ahead: int | None = None
    behind: int | None = None

    def has(self, stage: int) -> bool:
        """Whether it has an operation of that stage."""
        if self.ahead is not None:
            return self.ahead >= stage
        return self.behind is None or stage > self.behind

    def iteration(self, stage: int) -> str:
        """The number of an operation's iteration, as text."""
        if self.ahead is not None:
            return str(self.ahead - stage)
        if self.behind is not None:
            return f"(blocks - {stage - self.behind})"
        return f"(block - {stage})" if stage else "block"

    def begun(self, back: int) -> str | None:
        """Whether there is an iteration `back` steps and stages before this step: "" if always,
        None if never, or when."""
        if self.ahead is not None:
            return "" if self.ahead >= back else None
        if self.behind is not None:
            if self.behind >= back:
                return None
            return "" if back - self.behind <= 1 else f"blocks >= {back - self.behind}"
        return "" if self.depth >= back else f"block >= {back}"

    def later(self, stage: int) -> str:
        """Whether an operation's iteration is not the first."""
        when = self.begun(stage + 1)
        return "false" if when is None else when or "true"


class ChainedPass:
    """Emits the pass with the outer products."""

    def __init__(self, body: TensorBody, one: Pass) -> None:
        self.body, self.one, self.t, self.w = body, one, body.t, body.e.w
        self.lowering, self.plan = body.lowering, body.plan
        assert self.plan.order is not None
        self.order = self.plan.order
        self.scheduled = synchronised(self.order)
        self.turn = turn_of(self.scheduled, self.plan.turns)
        self.products: dict[str, list[Product]] = {
            INNER: list(self.t.inner.values()), OUTER: list(self.t.outer.values()),
        }  # fmt: skip
        self.sums: dict[int, Fragment] = {}
        self.words: dict[int, str] = {}
        self.present = ""  # the iteration of what threads do

    def emit(self, states: dict[int, Fragment]) -> None:
        """The loop with what comes ahead of it and behind it."""
        depth, w = self.order.depth, self.w
        self.sums = dict(states)
        with w.block("if (blocks > 0)"):
            for product in self.products[INNER]:
                self.sums[product.position] = self.t.accumulator(product)
            for product in self.products[OUTER]:
                self.words[product.position] = self.body.declare_words()
            for ahead in range(depth):
                with w.block(""):
                    self._step(Section(depth, ahead=ahead))
            self._loops(depth)
            for behind in range(depth):
                with w.block(""):
                    self._step(Section(depth, behind=behind))
            if self.scheduled.left:
                w.line("tw_wgmma_wait<0>();")
                self._done(Section(depth, behind=depth), self.scheduled.left)

    def _loops(self, depth: int) -> None:
        """The loop; where masks or an end touch only some blocks, one loop for those between."""
        e, axis = self.body.e, self.plan.roles.main_walk
        free = None
        stages = {
            self.order.stages[place]
            for place, one in enumerate(self.order.body.operations) if one.unit == THREADS
        }  # fmt: skip
        if len(self.plan.roles.walked) == 1 and not self.plan.shared_sums and len(stages) == 1:
            free = free_blocks(e, axis, self.lowering.walk_from)
        first = str(depth)
        if free is not None:
            (stage,) = stages
            if free.low:
                first = self._until(first, _folded("max", free.low), stage)
            with self._assuming(free.masks, frozenset((axis,))):
                first = self._until(first, _folded("min", free.high or ("blocks",)), stage)
        self._loop(first, "blocks")

    def _until(self, first: str, free: str, stage: int) -> str:
        """A loop as far as a block; where the next one begins."""
        name = self.w.name("until")
        self.w.line(f"const i32 {name} = min(max({free} + {stage}, {first}), blocks);")
        self._loop(first, name)
        return name

    def _loop(self, first: str, end: str) -> None:
        with self.w.block(f"for (i32 block = {first}; block < {end}; block++)"):
            self._step(Section(self.order.depth))

    @contextmanager
    def _assuming(self, masks: frozenset[int], axes: frozenset[str]) -> Iterator[None]:
        e = self.body.e
        e.assumed, e.inside_of = masks, axes
        yield
        e.assumed, e.inside_of = frozenset(), frozenset()

    def _rings(self, name: str) -> list[Ring]:
        return self.t.rings_of(self.products[name])

    def _step(self, section: Section) -> None:
        self.present = ""
        with self.body.e.scope(), self.body.e.repeating(True):
            for place in range(len(self.scheduled.steps)):
                self._one(section, place)

    def _one(self, section: Section, place: int) -> None:
        """One operation of a step, with what it waits for, and the turn that begins or ends."""
        entry, turn = self.scheduled.steps[place], self.turn
        operation = self.order.body.operations[entry.operation]
        stage = self.order.stages[entry.operation]
        if entry.wait is not None:
            self.w.line(f"tw_wgmma_wait<{entry.wait.running}>();")
            self._done(section, entry.wait.done)
        if turn is not None and turn.ended and turn.give == place:
            self.lowering.give_turn(self.w)
        takes = turn is not None and turn.take == place
        if section.has(stage) and operation.unit != TENSOR:
            self.body.later = section.later(stage)
            self._compute(operation.name, section.iteration(stage))
        elif section.has(stage):
            self._await(operation.name, takes)
            self._issue(operation.name, section.later(stage))
        elif operation.unit == TENSOR:  # so that waits and turns count alike
            self._await("", takes)
            self.w.line("tw_wgmma_commit();")
        if turn is not None and not turn.ended and turn.give == place:
            self.lowering.give_turn(self.w)

    def _await(self, name: str, takes: bool) -> None:
        """Wait for the tiles of products, if any, then for the group's turn."""
        for ring in self._rings(name) if name else ():
            self.t.wait_full(ring)
        if takes:
            self.lowering.take_turn(self.w)

    def _issue(self, name: str, later: str) -> None:
        products = self.products[name]
        self.w.line("tw_wgmma_fence();")
        for product in products:
            keep = "0"
            if name == OUTER:
                there = self.body.has_begun(product.position)
                keep = "1" if there else {"true": "1", "false": "0"}.get(later, later)
            self.t.multiply(
                product, self.sums[product.position], keep, self.words.get(product.position)
            )
        self.w.line("tw_wgmma_commit();")

    def _done(self, section: Section, done: tuple[tuple[int, int], ...]) -> None:
        """What may be read, and the slots that are free, behind a wait."""
        for place, age in done:
            name = self.order.body.operations[place].name
            when = section.begun(age + self.order.stages[place])
            if when is None:
                continue
            for product in self.products[name]:
                self.t.hold(self.sums[product.position])
            with self._if(when):
                for ring in self._rings(name):
                    self.lowering.release(self.w, ring, self.lowering.present(ring))
                    self.lowering.advance_ring(self.w, ring)

    @contextmanager
    def _if(self, when: str) -> Iterator[None]:
        if not when:
            yield
            return
        with self.w.block(f"if ({when})"):
            yield

    # -- what threads do

    def _compute(self, name: str, iteration: str) -> None:
        e = self.body.e
        if iteration != self.present:
            self.present = iteration
            e.origins |= self.lowering.walk_origins(self.w, iteration)
            for product in self.products[INNER]:
                e.values[product.position] = self.sums[product.position]
        self._between() if name == BETWEEN else self._fold()

    def _between(self) -> None:
        """Reductions of the inner products' block, and what is made of it once for all readers."""
        e = self.body.e
        for position in self.one.reductions:
            if position in self.t.outer:
                continue
            for value in self._shared:
                if value in needed(self.body.program, (position,), frozenset(e.values)):
                    e.fragment(value)  # once for all that read it
            self.body.advance(position, self.sums[position])
        for store in self.one.stores:
            self.body.store(store)
        for value in self._shared:
            e.fragment(value)

    @cached_property
    def _shared(self) -> tuple[int, ...]:
        """What becomes an operand, ahead of its conversion."""
        return shared_values(self.body.program, self.products[OUTER])

    def _fold(self) -> None:
        """Correct the outer sums, and pack what they add up next."""
        for product in self.products[OUTER]:
            if self.body.later != "false":
                self.body.rescale(product.position, self.sums[product.position])
            self.body.pack_words(product, self.words[product.position])
