"""A plan whose products are those of warps: four of mma.sync side by side have the sums and the
operands of one wgmma, and each warp reads what it multiplies for itself."""

from __future__ import annotations

from dataclasses import dataclass

from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.plans.tensor_plan import GROUP, Plan


@dataclass(frozen=True)
class WarpPlan(Plan):
    """All numbers of one kernel on mma.sync."""

    unit = "mma.sync"
    copies = "cp.async"

    @property
    def releases(self) -> int:
        return GROUP // WARP
