"""Loop bounds narrowed to the points that matter: what masks leave of a walked axis."""

from __future__ import annotations

from ir.rewrite.domain import Condition, live_range
from ir.targets.cuda.evaluate import Evaluator


def loop_bounds(evaluator: Evaluator, axis: str) -> tuple[str, str]:
    """First point (a multiple of the tile) and end of the walk along `axis`, as text."""
    extent, tile = evaluator.program.axes[axis], evaluator.tiles[axis]
    low, high = "0", str(extent)
    for condition in live_range(evaluator.program, axis):
        terms = dict(condition.terms)
        coefficient = terms.get(axis, 0)
        rest = _largest(evaluator, condition, axis)
        if abs(coefficient) != 1 or rest is None:
            continue
        if coefficient < 0:
            high = f"min({high}, {rest} + 1)"
        else:
            low = f"max({low}, (-({rest})) / {tile} * {tile})"
    return low, high


def _largest(evaluator: Evaluator, condition: Condition, axis: str) -> str | None:
    """The most that a condition's other terms can be within the tile."""
    parts = [str(condition.constant)]
    for name, coefficient in condition.terms:
        if name == axis:
            continue
        if name in evaluator.looped:
            return None
        extent, tile = (
            evaluator.program.axes[name],
            min(evaluator.tiles[name], evaluator.program.axes[name]),
        )
        origin = evaluator.origins.get(name, "0")
        reach = tile - 1 if coefficient > 0 else 0
        point = f"min({origin} + {reach}, {extent - 1})" if reach else origin
        parts.append(f"{point} * {coefficient}")
    return f"({' + '.join(parts)})"
