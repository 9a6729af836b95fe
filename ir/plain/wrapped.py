"""Reads whose index is computed of one coordinate and stays near it, but at the ends of the axis:
edges that are repeated, mirrored, or wrapped around. Knows no target.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ir.of_coordinates import values_of
from ir.ops.load import Index
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.read import Read
from ir.program import Program

_FAR = 16  # points that an index goes at most
_LONG = 1 << 24  # coordinates of an axis, up to which all are looked at


@dataclass(frozen=True, slots=True)
class Turn:
    """How an index goes along an axis: by `inner` points but for so many coordinates at the `ends`,
    by `low` to `high` everywhere; or (`wraps`) by `inner` points round a ring."""

    low: int
    high: int
    inner: int
    ends: tuple[int, int]
    wraps: bool = False


def turn_of(program: Program, read: int, axis: str, index: Index) -> Turn | None:
    """That of an index of a read that a tile of coordinates tells; None where it is another."""
    node = program.nodes[read]
    if not isinstance(node.op, Read) or index.gather is None or index.terms:
        return None
    tile = node.args[index.gather]
    if program.nodes[tile].axes != (axis,) or program.axes[axis] > _LONG:
        return None
    return _turn(program, tile, axis, index.constant)


@lru_cache(maxsize=256)
def _turn(program: Program, tile: int, axis: str, constant: int) -> Turn | None:
    behind = program.behind([tile], lambda p: False)
    if not all(isinstance(program.nodes[p].op, Iota | Constant | Map | Cast) for p in behind):
        return None
    extent = program.axes[axis]
    here = np.arange(extent)
    found = values_of(program, behind, {axis: here})[tile].array.astype(np.int64) + constant
    if found.min() < 0 or found.max() >= extent:
        return None
    moved = found - here
    inner = int(moved[extent // 2])
    if abs(inner) <= _FAR and (moved != inner).any() and ((moved - inner) % extent == 0).all():
        return Turn(inner, inner, inner, (0, 0), True)
    same = np.flatnonzero(moved == inner)
    if (np.abs(moved) > _FAR).any() or int(same[-1]) + 1 - int(same[0]) != len(same):
        return None
    ends = (int(same[0]), extent - 1 - int(same[-1]))
    return Turn(int(moved.min()), int(moved.max()), inner, ends)
