"""Slots whose tiles arrive in parts: products begin with what is there, the rest on its way.

Copies of a slot are boxes, in the order in which they are issued; so many neighbours have a barrier
of their own. A step of an instruction waits for the part that its points lie in.
"""

from __future__ import annotations

from dataclasses import dataclass

from ir.targets.cuda.layouts.operands import OperandTile
from ir.targets.cuda.plans.tensor_plan import Plan, Ring

ARRIVALS = "arrivals"  # the decision in how many parts
RING = "inner"  # whose tiles may


@dataclass(frozen=True, slots=True)
class Arriving:
    """The parts of a ring's slots."""

    boxes: tuple[tuple[int, int], ...]  # position of an operand, and which of its boxes
    each: int  # boxes of a part

    @property
    def parts(self) -> int:
        return max(1, -(-len(self.boxes) // self.each))

    def of_box(self, operand: OperandTile, box: int) -> int:
        """The part that a box comes with."""
        if self.parts == 1:
            return 0
        return self.boxes.index((operand.position, box)) // self.each

    def of_step(self, operand: OperandTile, byte: int) -> int:
        """The part behind which a step may begin whose points lie at a byte of their lines: that of
        its panel, of the last one where lines do not run along the sum."""
        along = operand.sums_inside and operand.times == 1
        last = operand.panels * operand.times - 1
        return self.of_box(operand, byte // operand.width if along else last)


def arriving(plan: Plan, ring: Ring) -> Arriving:
    """How the slots of a ring are filled."""
    copied = plan.copied(ring)
    boxes = tuple((x.position, box) for x in copied for box in range(x.panels * x.times))
    parts = plan.arrivals if ring.name == RING else 1
    return Arriving(boxes, max(1, -(-len(boxes) // parts)))
