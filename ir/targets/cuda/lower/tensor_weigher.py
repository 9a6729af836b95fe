"""The warp group that makes what the sums of a chain are multiplied by, as text."""

from __future__ import annotations

from ir.targets.cuda.layouts.frame import GROUP
from ir.targets.cuda.lower.tensor_consumer import ConsumerPrinter
from ir.targets.cuda.text.registers import Team


class WeigherPrinter(ConsumerPrinter):
    """Prints the statements of the role of weighers: one group, which has all columns of the inner
    products of a tile."""

    who = "the group of weighers"

    def team(self) -> Team:
        return self.lowering.weighers()

    def declare_self(self) -> None:
        self.w.line(f"const i32 thread = tw_thread() - {GROUP * (1 + self.plan.consumers)};")
        self.w.line(f"const i32 lane = thread % {GROUP};")
