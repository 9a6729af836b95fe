"""Blocks of products over the walk: of tiles in shared memory, or with operands in registers.

What waits for what, and when a block's slots are free, is what the strip of the plan says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ir.kernel.body import TENSOR
from ir.kernel.strip import Strip
from ir.targets.cuda.build.products import Product
from ir.targets.cuda.build.tensor_plan import Ring
from ir.targets.cuda.lower.tensor_fragments import Fragments
from ir.targets.cuda.text.registers import Fragment

if TYPE_CHECKING:
    from ir.targets.cuda.lower.tensor_consumer import TensorBody


class StripProducts:
    """Emits the products of one block after the other."""

    def __init__(self, body: TensorBody, fragments: Fragments | None) -> None:
        self.body, self.fragments = body, fragments
        self.t, self.w, self.lowering = body.t, body.e.w, body.lowering
        self.plan = body.plan
        self.products = tuple(self.t.outer.values())

    @property
    def strip(self) -> Strip:
        return self.plan.strip

    def block(self, states: Mapping[int, Fragment]) -> None:
        """The block in the present slots, added to `states`.

        What does not run into the next block ends with a wait for all: ptxas (13.0) takes sums for
        ready once any wait follows several groups of products that add to them, and where nothing
        else holds them would read them before the last ended.
        """
        rings = self.t.rings_of(list(self.products))
        for ring in rings:
            self.t.wait_full(ring)
        if self.fragments is None:
            self._pieces(rings, lambda _: self._begin(states), lambda _: None)
        else:
            names = {product.position: self.t.descriptor_b(product) for product in self.products}
            with self.fragments.block():
                self._pieces(
                    rings, lambda piece: self._begin_piece(piece, states, names),
                    self.fragments.form,
                )  # fmt: skip
        self._leave(rings)

    def _pieces(
        self, rings: list[Ring], begin: Callable[[int], None], form: Callable[[int], None]
    ) -> None:
        """Products and what threads do for them, each behind what it waits for."""
        for moment in self.strip.moments:
            self._wait(moment.running)
            if moment.freed is not None:
                self.body.release_before(rings)
            if self.strip.body.operations[moment.operation].unit == TENSOR:
                self.w.line("tw_wgmma_fence();")
                begin(moment.piece)
                self.w.line("tw_wgmma_commit();")
            else:
                form(moment.piece)
        self._wait(self.strip.end[0])

    def _wait(self, running: int | None) -> None:
        if running is not None:
            self.w.line(f"tw_wgmma_wait<{running}>();")

    def _leave(self, rings: list[Ring]) -> None:
        """Free the slots of this block or of the one before, and go on to the next ones."""
        freed = self.strip.end[1]
        if freed:
            self.body.release_before(rings)
        for ring in rings:
            if freed == 0:
                self.lowering.release(self.w, ring, f"{ring.name}_slot")
            self.lowering.advance_ring(self.w, ring)

    def _begin(self, states: Mapping[int, Fragment]) -> None:
        """Whole products of two tiles in shared memory."""
        for product in self.products:
            keep = self.body.keeps(product.position)
            self.t.multiply(product, states[product.position], keep)

    def _begin_piece(
        self, piece: int, states: Mapping[int, Fragment], names: Mapping[int, str]
    ) -> None:  # fmt: skip
        """The steps of a piece, with operands in registers."""
        together = self.plan.together
        for step in range(piece * together, (piece + 1) * together):
            for product in self.products:
                self._step(product, step, states[product.position], names[product.position])

    def _step(self, product: Product, step: int, state: Fragment, b_name: str) -> None:
        """One step of one product, for all blocks of rows."""
        plan, fragments = self.plan, self.fragments
        assert fragments is not None
        b = plan.operand(product, "b")
        assert b is not None
        keep = "1" if step else self.body.keeps(product.position)
        turned = "" if b.sums_inside else "_tb"
        call = f"tw_wgmma_m64n{self.t.columns(product)}k{plan.step}_{plan.kind}_rs{turned}"
        b_at = shifted(b_name, b.step_offset(step, plan.step))
        for block in range(plan.row_blocks):
            words = fragments.step_words(product.a, step, block)
            self.w.line(f"{call}({state.name}[{block}], {words}, {b_at}, {keep});")


def shifted(name: str, offset: int) -> str:
    """A descriptor moved by bytes."""
    return f"{name} + {offset // 16}" if offset else name
