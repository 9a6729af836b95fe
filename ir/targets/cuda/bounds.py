"""Loop bounds narrowed to the points that matter: what masks leave of a main loop."""

from __future__ import annotations

from dataclasses import dataclass

from ir.ops.map import Map
from ir.rewrite.domain import Condition, live_range, sufficient
from ir.targets.cuda.evaluate import Evaluator


@dataclass(frozen=True, slots=True)
class Free:
    """Blocks in which all `masks` (conditions) hold: from the largest of `low` on, below the least
    of `high`, as texts."""

    masks: frozenset[int]
    low: tuple[str, ...]
    high: tuple[str, ...]


def loop_bounds(evaluator: Evaluator, axis: str) -> tuple[str, str]:
    """First point (a multiple of the tile) and end of the main loop along `axis`, as text."""
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


def free_blocks(evaluator: Evaluator, axis: str, start: str) -> Free | None:
    """Which blocks of a main loop that begins at `start` no mask touches; None if that is not told.

    That is where every bound of a mask holds for the least that its other terms can be in the tile,
    and where the whole block lies inside the axis.
    """
    program, tile = evaluator.program, evaluator.tiles[axis]
    masks: dict[int, tuple[Condition, ...]] = {}
    for node in program.nodes:
        if isinstance(node.op, Map) and node.op.function == "where":
            bounds = sufficient(program, node.args[0])
            if bounds and any(axis in dict(bound.terms) for bound in bounds):
                masks[node.args[0]] = bounds
    low, high = [], []
    for condition in (bound for bounds in masks.values() for bound in bounds):
        rest = _extreme(evaluator, condition, axis, least=True)
        coefficient = dict(condition.terms).get(axis, 0)
        if abs(coefficient) != 1 or rest is None:
            return None
        if coefficient < 0:
            high.append(f"max({rest} + 1 - {start}, 0) / {tile}")
        else:
            low.append(f"(max(-({rest}) - {start}, 0) + {tile - 1}) / {tile}")
    if evaluator.ragged(axis):
        high.append(f"({program.axes[axis]} - {start}) / {tile}")
    return Free(frozenset(masks), tuple(low), tuple(high)) if low or high else None


def _largest(evaluator: Evaluator, condition: Condition, axis: str) -> str | None:
    """The most that a condition's other terms can be within the tile."""
    return _extreme(evaluator, condition, axis, least=False)


def _extreme(evaluator: Evaluator, condition: Condition, axis: str, least: bool) -> str | None:
    """The most or the least that a condition's other terms can be within the tile."""
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
        reach = tile - 1 if (coefficient > 0) != least else 0
        point = f"min({origin} + {reach}, {extent - 1})" if reach else origin
        parts.append(f"{point} * {coefficient}")
    return f"({' + '.join(parts)})"
