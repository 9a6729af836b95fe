"""What synchronises the consumers of a kernel on wgmma, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ir.kernel.tile_kernel import (
    ADVANCE,
    AWAIT,
    BEFORE,
    COMMIT,
    DONE,
    FENCE,
    FREE,
    FULL,
    GIVE,
    MEET,
    NEXT_TILE,
    PUBLISH,
    RELEASE,
    SKIP,
    STORED,
    TAKE,
    Sync,
)
from ir.targets.cuda.grid.multicast import first_block
from ir.targets.cuda.grid.overlap import await_kernel_before
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.plans.tensor_plan import GROUP, Ring
from ir.targets.cuda.plans.tensor_rings import HELD

if TYPE_CHECKING:
    from ir.targets.cuda.lower.tensor_consumer import ConsumerPrinter

ORDER_BARRIER = 9  # ids of named barriers: one for each consumer that takes turns


class ConsumerSync:
    """Prints what one role does to synchronise."""

    def __init__(self, printer: ConsumerPrinter) -> None:
        self.printer, self.lowering, self.plan = printer, printer.lowering, printer.plan
        self.w = printer.w

    def sync(self, one: Sync) -> None:
        w = self.w
        if one.kind == AWAIT:
            w.line(f"tw_wgmma_wait<{one.number}>();")
        elif one.kind == FENCE:
            w.line("tw_wgmma_fence();")
        elif one.kind == COMMIT:
            w.line("tw_wgmma_commit();")
        elif one.kind == DONE:
            for part in self.printer.kernel.operation(one.of).parts:
                self.printer.show(part.node)
        elif one.of and one.kind in (FULL, FREE, RELEASE, ADVANCE):
            self._ring(one)
        elif one.kind == BEFORE:
            await_kernel_before(w, True)
        elif one.kind == STORED:
            with w.block("if (lane == 0)"):
                w.line("tw_store_wait<0>();")
        elif one.kind == PUBLISH:
            w.line("tw_fence_async();")
            w.line(self.printer.e.team.sync)
            if one.of:
                full = self.lowering.full(self.lowering.ring(one.of), f"{one.of}_slot")
                w.line(f"if (lane == 0) tw_barrier_arrive({full});")
        elif one.kind == MEET:
            w.line(self.printer.e.team.sync)
        elif one.kind == SKIP:
            self._skip_others()
        else:
            self._turn(one)

    def _turn(self, one: Sync) -> None:
        w = self.w
        if one.kind == TAKE:
            self._take()
        elif one.kind == GIVE and one.of:  # the first group begins
            with w.block(f"if (member == {self.plan.consumers - 1})"):
                self._give()
        elif one.kind == GIVE:
            self._give()
        elif one.kind == NEXT_TILE:
            with w.block("if (more)"):
                self._give()
        else:
            self.printer.lacks(one)

    def _ring(self, one: Sync) -> None:
        ring = self.lowering.ring(one.of)
        slot, phase = self.lowering.present(ring), f"{ring.name}_phase"
        if one.kind == ADVANCE:
            self.lowering.advance_ring(self.w, ring)
        elif one.kind == RELEASE:
            self._release(ring, self._slot(ring, one.number))
        elif one.kind == FREE:
            empty = self.lowering.empty(ring, f"{ring.name}_slot")
            self.w.line(f"tw_barrier_wait({empty}, {phase} ^ 1);")
        else:
            stage = slot if ring.name == HELD else f"{ring.name}_slot"
            self.w.line(f"tw_barrier_wait({self.lowering.full(ring, stage)}, {phase});")

    def _slot(self, ring: Ring, back: int) -> str:
        """The slot that was used so many slots ago."""
        if not back:
            return self.lowering.present(ring)
        here, stages = f"{ring.name}_slot", ring.stages
        if self.printer.in_loop and back == 1:
            return f"({here} == 0 ? {stages - 1} : {here} - 1)"
        return self.lowering.slot_back(ring, back)

    def _release(self, ring: Ring, slot: str) -> None:
        """Tell the producers that fill it that this group is done with a slot.

        Where threads read tiles themselves, every warp tells it for itself.
        """
        size, empty = self.plan.cluster_size, self.lowering.empty(ring, slot)
        lane = "lane" if self.plan.releases == 1 else f"lane % {WARP}"
        if size == 1:
            self.w.line(f"if ({lane} == 0) tw_barrier_arrive({empty});")
            return
        first = f" + {first_block(self.plan)}" if self.plan.exchanges else ""
        self.w.line(f"if ({lane} < {size}) tw_barrier_arrive_at({empty}, {lane}{first});")

    # -- turns

    def _take(self) -> None:
        """Wait until the group before has passed the turn at the tensor cores."""
        self.w.line(f"tw_group_sync({ORDER_BARRIER} + member, {2 * GROUP});")

    def _give(self) -> None:
        following = f"(member + 1) % {self.plan.consumers}"
        self.w.line(f"tw_group_arrive({ORDER_BARRIER} + {following}, {2 * GROUP});")

    def _skip_others(self) -> None:
        """Tiles go round the consumers; the rings move on by what the others use.

        Then wait until the consumer before has read its last block: parities tell only neighbouring
        uses of a slot apart, so blocks are waited for in order.
        """
        w = self.w
        with w.block(f"if (++turn % {self.plan.consumers} != member)"):
            for ring in self.plan.rings:
                runs = self.lowering.runs_of(ring)
                many = "1" if ring.name == HELD else f"blocks * {runs}"
                w.line(f"{ring.name}_slot += {many};")
                w.line(f"{ring.name}_phase ^= ({ring.name}_slot / {ring.stages}) & 1;")
                w.line(f"{ring.name}_slot %= {ring.stages};")
            w.line("continue;")
        with w.block("if (turn > 0)"):
            self._take()
