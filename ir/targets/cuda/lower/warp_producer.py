"""The producer of a kernel on mma.sync as text: a group that keeps rings full by cp.async."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ir.kernel.tile_kernel import ADVANCE, FREE, Role, Sync
from ir.targets.cuda.layouts.operands import OperandTile
from ir.targets.cuda.lower.box_copy import BoxCopy
from ir.targets.cuda.lower.tensor_producer import ProducerPrinter
from ir.targets.cuda.plans.tensor_plan import Ring
from ir.targets.cuda.text.writer import Writer

if TYPE_CHECKING:
    from ir.targets.cuda.lower.tensor_lower import TensorLowering


class WarpProducer(ProducerPrinter):
    """Prints the statements of one role."""

    who = "a group that copies"

    def __init__(self, lowering: TensorLowering) -> None:
        super().__init__(lowering)
        self.copies = {
            (ring.name, operand.position): BoxCopy(self.plan, operand, self.w)
            for ring in self.plan.rings
            for operand in ring.operands
        }

    def role(self, role: Role) -> Writer:
        w = self.w
        w.reserve("thread")
        w.line("const i32 thread = tw_thread();")
        for one in self.copies.values():
            one.declare()
        self.lowering.state(w)
        self.all(role.body)
        w.line("tw_copy_async_commit();")
        w.line("tw_copy_async_wait<0>();")
        return w

    def sync(self, one: Sync) -> None:
        if not one.of or one.kind not in (FREE, ADVANCE):
            super().sync(one)
            return
        w, ring = self.w, self.lowering.ring(one.of)
        stage, phase = f"{ring.name}_slot", f"{ring.name}_phase"
        if one.kind == FREE:
            w.line(f"tw_barrier_wait({self.lowering.empty(ring, stage)}, {phase} ^ 1);")
        else:
            w.line(f"tw_copy_async_arrive({self.lowering.full(ring, stage)});")
            self.lowering.advance_ring(w, ring)

    def _copy(self, ring: Ring, operand: OperandTile, origins: Mapping[str, str]) -> None:
        slot = self.lowering.slot(ring, operand, f"{ring.name}_slot")
        copy = self.copies[ring.name, operand.position]
        for number, (at, where) in enumerate(self.lowering.places(operand, origins)):
            copy.start(slot, at, where, number % operand.times)
