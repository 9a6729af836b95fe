"""Kernels of tiles on cards without wgmma: chains of products, sums that begin with others, results
that are reduced further, multiplied by mma.sync; lowering is warp_lower's.

Their decisions, constraints and seeds are those of kernels on wgmma, as far as the card has what
they are about: no clusters, no registers that warps hand to each other, no copies by TMA.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ir.columns import Decision
from ir.errors import Refusal
from ir.schedule import Value
from ir.targets.cuda.build.mma_roles import has_mma
from ir.targets.cuda.build.roles import find_roles
from ir.targets.cuda.grid import drawing
from ir.targets.cuda.grid.overlap import PREFETCH
from ir.targets.cuda.lower.warp_lower import WarpLowering
from ir.targets.cuda.plans.planning import make_plan
from ir.targets.cuda.plans.tensor_plan import Plan
from ir.targets.cuda.plans.warp_plan import WarpPlan
from ir.targets.cuda.space.tensor import WITH_WGMMA, TensorKernel

SHARE = 0.6  # of wgmma's rate that mma.sync reaches on Hopper
ONLY: Mapping[str, Value] = {
    "cluster": "1x1", "registers": "none", "promotion": 256, "stream": "none", "wait": 0,
    "epilogue": "direct", "epilogue_slots": 1, PREFETCH: 0, drawing.NAME: drawing.STATIC,
}  # fmt: skip


class WarpKernel(TensorKernel):
    """One kernel. `mark` ends the names of its decisions."""

    kind = "warp"
    rate = SHARE
    splits = False
    weighs = False
    may_stream = False

    def check_card(self) -> None:
        if self.hardware["major"] == WITH_WGMMA:
            raise Refusal("mma", f"{self.hardware.name} has wgmma for chains of products")
        roles = find_roles(self.program, False)
        for dtype in {roles.dtype_of(product) for product in roles.products}:
            if not has_mma(self.hardware, dtype):
                raise Refusal("mma", f"{self.hardware.name} has no mma.sync of {dtype}")

    def may_use_registers(self) -> bool:
        return False

    def decisions(self) -> list[Decision]:
        only = {self.name(name): value for name, value in ONLY.items()}
        return [
            replace(one, domain=(only[one.name],)) if one.name in only else one
            for one in super().decisions()
        ]

    def fitted(self, seed: Mapping[str, Value]) -> dict[str, Value]:
        only = {self.name(name): value for name, value in ONLY.items()}
        return {**seed, **{name: only[name] for name in seed if name in only}}

    def lowering(self, plan: Plan, name: str) -> WarpLowering:
        return WarpLowering(plan, self.streamed, name)

    def plan(self, values: Mapping[str, Value]) -> Plan:
        """All numbers of a schedule."""
        roles = find_roles(self.streamed, bool(values[self.name("swap")]))
        return make_plan(self.streamed, roles, values, self.mark, kind=WarpPlan)
