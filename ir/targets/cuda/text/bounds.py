"""Loop bounds narrowed to the points that matter: what masks leave of a main loop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import prod

from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.ops.map import Map
from ir.program import Program
from ir.rewrite.domain import (
    MOST_READ,
    Condition,
    block_of,
    ending,
    live_gap,
    live_range,
    sufficient,
)
from ir.targets.cuda.text.evaluate import Evaluator

_FAR = 1 << 30  # of what is read: what is added to it does not overflow


@dataclass(frozen=True, slots=True)
class Free:
    """Blocks in which all `masks` (conditions) hold: from the largest of `low` on, below the least
    of `high`, as texts."""

    masks: frozenset[int]
    low: tuple[str, ...]
    high: tuple[str, ...]


def narrowing(program: Program, axis: str) -> tuple[Condition, ...]:
    """What a point of an axis must fulfil to matter: nothing where something is stored over it."""
    stored = any(axis in store.axes for _, store in program.stores())
    return () if stored else live_range(program, axis)


def loop_bounds(evaluator: Evaluator, axis: str) -> tuple[str, str]:
    """First point (a multiple of the tile) and end of the main loop along `axis`, as text."""
    extent, tile = evaluator.program.axes[axis], evaluator.tiles[axis]
    low, high = "0", str(extent)
    for condition in narrowing(evaluator.program, axis):
        terms = dict(condition.terms)
        coefficient = terms.get(axis, 0)
        rest = _largest(evaluator, condition, axis)
        if not coefficient or coefficient > 1 or rest is None:
            continue
        if coefficient < -1:
            high = f"min({high}, (max({rest}, -1) + {-coefficient}) / {-coefficient})"
        elif coefficient < 0:
            high = f"min({high}, {rest} + 1)"
        else:
            low = f"max({low}, (-({rest})) / {tile} * {tile})"
    return low, high


def stops(evaluator: Evaluator, axis: str) -> tuple[int, ...]:
    """Conditions by which a thread's main loop along `axis` ends for its own points, whose bounds
    a tile has several of."""
    conditions = (one for one in narrowing(evaluator.program, axis) if one.reads)
    ends = [one for one in conditions if dict(one.terms).get(axis, 0) < 0]
    told = all(_largest(evaluator, one, axis) is not None for one in ends)
    return () if told else ending(evaluator.program, axis)


def gap_bounds(evaluator: Evaluator, axis: str) -> tuple[str, str, str] | None:
    """Where a mask leaves two spans of a main loop: the end of the first, the begin of the second,
    and the end of that or the axis' extent, as text."""
    program = evaluator.program
    gap = live_gap(program, axis)
    if gap is None or any(axis in store.axes for _, store in program.stores()):
        return None

    def told(conditions: tuple[Condition, ...]) -> list[str] | None:
        found = [_largest(evaluator, condition, axis) for condition in conditions]
        return None if None in found else [text for text in found if text is not None]

    near, far, last = (told(conditions) for conditions in (gap.near, gap.far, gap.last))
    if near is None or far is None:
        return None
    end = reduce("max({}, {})".format, [f"{text} + 1" for text in near])
    begin = reduce("min({}, {})".format, [f"-({text})" for text in far])
    close = str(program.axes[axis])
    if last:
        close = reduce("max({}, {})".format, [end, *(f"{text} + 1" for text in last)])
    return end, begin, close


def ends_early(program: Program, axis: str) -> bool:
    """Whether a mask, or what is read, may end a main loop along an axis before the axis does."""
    return any(dict(one.terms).get(axis, 0) < 0 for one in narrowing(program, axis))


def blocks_along(evaluator: Evaluator, walked: tuple[str, ...]) -> str | None:
    """Blocks of a main loop along several axes that go as far as masks leave of the outermost one,
    from its beginning, as text; None where none ends it."""
    program, tiles = evaluator.program, evaluator.tiles
    outer = walked[0]
    if not ends_early(program, outer):
        return None
    _, high = loop_bounds(evaluator, outer)
    inner = prod(-(-program.axes[axis] // tiles[axis]) for axis in walked[1:])
    around = f"(max({high}, 0) + {tiles[outer] - 1}) / {tiles[outer]}"
    return f"{around} * {inner}" if inner > 1 else around


def masks_along(program: Program, axis: str) -> dict[int, tuple[Condition, ...]]:
    """The masks that coordinates of an axis decide: what is enough for each to hold."""
    masks: dict[int, tuple[Condition, ...]] = {}
    for node in program.nodes:
        if isinstance(node.op, Map) and node.op.function == "where":
            bounds = sufficient(program, node.args[0], axis)
            if bounds and any(axis in dict(bound.terms) for bound in bounds):
                masks[node.args[0]] = bounds
    return masks


def free_blocks(
    evaluator: Evaluator, axis: str, start: str, spans: tuple[str, str] | None = None
) -> Free | None:
    """Which blocks of a main loop that begins at `start` no mask touches; None if that is not told.
    Of two spans, so many blocks and as many left out behind them, those of the second.

    That is where every bound of a mask holds for the least that its other terms can be in the tile,
    and where the whole block lies inside the axis.
    """
    program, tile = evaluator.program, evaluator.tiles[axis]
    masks = masks_along(program, axis)
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
    if spans:
        near, gone = spans
        low = [near, *(f"{text} - {gone}" for text in low)]
        high = [f"{text} - {gone}" for text in high]
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
        extent = evaluator.program.axes[name]
        if name in evaluator.looped:  # of which a block may be anywhere
            parts.append(str((extent - 1) * coefficient if (coefficient > 0) != least else 0))
            continue
        tile = min(evaluator.tiles[name], extent)
        origin = evaluator.origins.get(name, "0")
        reach = tile - 1 if (coefficient > 0) != least else 0
        point = f"min({origin} + {reach}, {extent - 1})" if reach else origin
        parts.append(f"{point} * {coefficient}")
    for position, coefficient in condition.reads:
        values = _read(evaluator, position)
        if not values or abs(coefficient) != 1:
            return None
        held = [f"min(max({value}, {-_FAR}), {_FAR})" for value in values]
        chosen = reduce(
            f"{'max' if (coefficient > 0) != least else 'min'}({{}}, {{}})".format, held
        )
        parts.append(f"{chosen} * {coefficient}")
    return f"({' + '.join(parts)})"


def _read(evaluator: Evaluator, position: int) -> list[str]:
    """The whole numbers that a load reads in a tile, where these are few; else none."""
    node = evaluator.nodes[position]
    assert isinstance(node.op, Load)
    if node.op.fill is not None:
        return []
    found = [""]
    access = evaluator.access(position)
    for dimension in access.dimensions:
        if any(_varies(evaluator, axis) for axis, _ in dimension.terms):
            return []
        at = [f"{evaluator.origins.get(axis, '0')} * {c}" for axis, c in dimension.terms]
        at.append(str(dimension.constant))
        begin = f"(i64)({' + '.join(at)}"
        gathered = [""]
        if dimension.gather is not None:
            gathered = [f" + {index}" for index in _indices(evaluator, node.args[dimension.gather])]
        found = [
            f"{before}{begin}{index}) * {dimension.stride} + "
            for before in found
            for index in gathered
        ]
    pointer = evaluator.w.pointer(access.tensor)
    return [f"(i32){pointer}[{place}0]" for place in found] if len(found) <= MOST_READ else []


def _indices(evaluator: Evaluator, position: int) -> list[str]:
    """Places that are themselves read, or the blocks of points that a tile lies in."""
    node = evaluator.nodes[position]
    whole = dtype_of(node.dtype).kind in ("int", "uint") and dtype_of(node.dtype).bits >= 8
    if isinstance(node.op, Load):
        return _read(evaluator, position) if whole else []
    return _blocks(evaluator, position)


def _blocks(evaluator: Evaluator, position: int) -> list[str]:
    """Of a coordinate that is shifted to the right, what it may be in a tile."""
    found = block_of(evaluator.program, position)
    if found is None or found[0] in evaluator.looped:
        return []
    axis, points = found
    extent = evaluator.program.axes[axis]
    tile = min(evaluator.tiles[axis], extent)
    origin = evaluator.origins.get(axis, "0")
    within = points % tile == 0 or tile % points == 0  # tiles begin at multiples of their length
    count = -(-tile // points) + (0 if within else 1)
    last = (extent - 1) // points
    return [f"min(({origin}) / {points} + {n}, {last})" for n in range(count)]


def _varies(evaluator: Evaluator, axis: str) -> bool:
    """Whether a tile has several points of an axis, or a loop goes along it."""
    return axis in evaluator.looped or min(evaluator.tiles[axis], evaluator.program.axes[axis]) > 1
