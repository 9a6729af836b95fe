"""Text of a kernel of tiles whose products are mma.sync's: roles, rings and loops are those of one
on wgmma; operands come by cp.async, and nothing of them is in flight that a warp would wait for.
"""

from __future__ import annotations

from ir.kernel.tile_kernel import AWAIT, COMMIT, FENCE, PUBLISH, Sync
from ir.targets.cuda.layouts.frame import GROUP
from ir.targets.cuda.lower.tensor_lower import TensorLowering
from ir.targets.cuda.lower.tensor_sync import ConsumerSync
from ir.targets.cuda.lower.warp_evaluate import WarpEvaluator
from ir.targets.cuda.lower.warp_producer import WarpProducer


class WarpSync(ConsumerSync):
    """What is left to wait for: rings, and each other. A product's sums are there behind it."""

    def sync(self, one: Sync) -> None:
        if one.kind == PUBLISH:
            self.w.line(self.printer.e.team.sync)
        elif one.kind not in (AWAIT, COMMIT, FENCE):
            super().sync(one)


class WarpLowering(TensorLowering):
    """Lowers one plan."""

    produces = WarpProducer
    evaluates = WarpEvaluator
    syncs = WarpSync
    ends = GROUP
