"""Text of a kernel of tiles whose products are mma.sync's: roles, rings and loops are those of one
on wgmma; operands come by cp.async."""

from __future__ import annotations

from ir.targets.cuda.layouts.frame import GROUP
from ir.targets.cuda.lower.tensor_lower import TensorLowering
from ir.targets.cuda.lower.warp_evaluate import WarpEvaluator
from ir.targets.cuda.lower.warp_producer import WarpProducer


class WarpLowering(TensorLowering):
    """Lowers one plan."""

    produces = WarpProducer
    evaluates = WarpEvaluator
    ends = GROUP
