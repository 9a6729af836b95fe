"""Blocks of products whose operands along the rows are formed in registers, piece by piece.

What waits for what, and when a block's slots are free, is what the strip of the plan says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ir.kernel.body import TENSOR
from ir.targets.cuda.products import Product
from ir.targets.cuda.registers import Fragment
from ir.targets.cuda.tensor_fragments import Fragments
from ir.targets.cuda.tensor_plan import Ring

if TYPE_CHECKING:
    from ir.targets.cuda.tensor_consumer import TensorBody


class StripProducts:
    """Emits the products of one block after the other."""

    def __init__(self, body: TensorBody, fragments: Fragments) -> None:
        self.body, self.fragments = body, fragments
        self.t, self.w, self.lowering = body.t, body.e.w, body.lowering
        self.plan, self.strip = body.plan, body.plan.strip
        self.products = tuple(self.t.outer.values())

    def block(self, states: Mapping[int, Fragment]) -> None:
        """The block in the present slots, added to `states`.

        What does not run into the next block ends with a wait for all: ptxas (13.0) takes sums for
        ready once any wait follows several groups of products that add to them, and where nothing
        else holds them would read them before the last ended.
        """
        rings = self.t.rings_of(list(self.products))
        for ring in rings:
            self.t.wait_full(ring)
        names = {product.position: self.t.descriptor_b(product) for product in self.products}
        with self.fragments.block():
            for moment in self.strip.moments:
                if moment.running is not None:
                    self.w.line(f"tw_wgmma_wait<{moment.running}>();")
                if moment.freed is not None:
                    self.body.release_before(rings)
                if self.strip.body.operations[moment.operation].unit == TENSOR:
                    self._issue(moment.piece, states, names)
                else:
                    self.fragments.form(moment.piece)
            if not self.strip.through:
                self.w.line("tw_wgmma_wait<0>();")
        self._leave(rings)

    def _leave(self, rings: list[Ring]) -> None:
        for ring in rings:
            if not self.strip.through:
                self.lowering.release(self.w, ring, f"{ring.name}_slot")
            self.lowering.advance_ring(self.w, ring)

    def _issue(
        self, piece: int, states: Mapping[int, Fragment], names: Mapping[int, str]
    ) -> None:  # fmt: skip
        together = self.plan.together
        self.w.line("tw_wgmma_fence();")
        for step in range(piece * together, (piece + 1) * together):
            for product in self.products:
                self._step(product, step, states[product.position], names[product.position])
        self.w.line("tw_wgmma_commit();")

    def _step(self, product: Product, step: int, state: Fragment, b_name: str) -> None:
        """One step of one product, for all blocks of rows."""
        plan = self.plan
        b = plan.operand(product, "b")
        assert b is not None
        zero = self.body.starts_at_zero(product.position)
        keep = "1" if step or zero else "block > 0"
        turned = "" if b.sums_inside else "_tb"
        call = f"tw_wgmma_m64n{self.t.columns(product)}k{plan.step}_{plan.kind}_rs{turned}"
        b_at = shifted(b_name, b.step_offset(step, plan.step))
        for block in range(plan.row_blocks):
            words = self.fragments.step_words(product.a, step, block)
            self.w.line(f"{call}({state.name}[{block}], {words}, {b_at}, {keep});")


def shifted(name: str, offset: int) -> str:
    """A descriptor moved by bytes."""
    return f"{name} + {offset // 16}" if offset else name
