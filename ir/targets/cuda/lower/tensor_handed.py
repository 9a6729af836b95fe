"""A state that is handed on, as text: sums that are scaled where they are."""

from __future__ import annotations

from ir.handed import Handed
from ir.targets.cuda.lower.tensor_evaluate import TensorEvaluator
from ir.targets.cuda.text.registers import Fragment


def scale(e: TensorEvaluator, one: Handed, sums: Fragment) -> None:
    """Multiply the state by the factor of the point that comes next."""
    assert one.factor is not None
    e.fragment(one.factor)
    with e.each(sums.digits) as point:
        place = e.element(sums, point)
        e.w.line(f"{place} = {place} * {e.scalar(one.factor, point, {})};")
    e.hold(sums)
