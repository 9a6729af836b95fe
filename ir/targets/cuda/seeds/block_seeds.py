"""Seeds of block kernels whose sums are over axes that cannot be walked together, and of those
whose points share what they read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ir.columns import Mask
from ir.schedule import Schedule, Value
from ir.space import Space
from ir.targets.cuda.layouts.frame import WARP

if TYPE_CHECKING:
    from ir.targets.cuda.space.block import BlockKernel

OWN = (16, 8, 32)  # points of a whole axis in one thread
SHARING = ((4, 1), (8, 1), (4, 2), (2, 1), (1, 1))  # its points along two axes that windows span
TAPS = 32  # points of a summed axis in one thread, at most, where a window spans it


def legal_seeds(space: Space, found: Sequence[Mapping[str, Value]]) -> Mask:
    """Which of these values are legal."""
    return space.legal(np.array([space.encode(Schedule.of("cuda", own)) for own in found]))


def whole_seeds(kernel: BlockKernel) -> list[dict[str, Value]]:
    """Some of the summed axes are whole, the others walked point by point; many are illegal."""
    found = []
    for looped, own in product(reversed(kernel.shape.loops), OWN):
        values: dict[str, Value] = {}
        for axis, extent in kernel.program.axes.items():
            whole = axis in kernel.shape.reduced and axis not in looped
            tile = kernel.reach(axis, extent) if whole else 1
            values[kernel.name(f"tile.{axis}")] = tile
            values[kernel.name(f"own.{axis}")] = min(own, tile)
        _widen(kernel, values)
        for lane in kernel.shape.lanes:
            vector = min(kernel.widest, int(values[kernel.name(f"own.{lane}")]))
            found.append(values | {kernel.name("lanes"): lane, kernel.name("vector"): vector})
    return found


def window_seeds(kernel: BlockKernel) -> list[dict[str, Value]]:
    """Neighbours along the axes that windows span lie in one thread; many are illegal."""
    if not kernel.reads.spanned:
        return []
    return [_sharing(kernel, own, wide) for own, wide in product(SHARING, (True, False))]


def _sharing(kernel: BlockKernel, own: tuple[int, int], wide: bool) -> dict[str, Value]:
    """So many points along the last and the last but one axis that windows span, beside the lanes;
    with vectors of them if `wide`."""
    axes, reduced, spanned = kernel.program.axes, kernel.shape.reduced, kernel.reads.spanned
    lane = kernel.shape.lanes[0]
    mine = {axis: TAPS if axis in spanned and axis in reduced else 1 for axis in axes}
    free = (axis for axis in reversed(axes) if axis in spanned and axis not in (lane, *reduced))
    mine |= dict(zip(free, own, strict=False))
    mine[lane] = kernel.widest if wide else 1
    mine = {axis: min(points, kernel.reach(axis, axes[axis])) for axis, points in mine.items()}
    tiles = dict(mine)
    for axis in (lane, *(axis for axis in axes if axis not in spanned)):
        while prod(tiles.values()) < 4 * WARP * prod(mine.values()) and axis not in reduced:
            if tiles[axis] == kernel.reach(axis, axes[axis]):
                break
            tiles[axis] *= 2
    values: dict[str, Value] = {kernel.name(f"own.{axis}"): n for axis, n in mine.items()}
    values |= {kernel.name(f"tile.{axis}"): n for axis, n in tiles.items()}
    return values | {kernel.name("lanes"): lane, kernel.name("vector"): mine[lane]}


def _widen(kernel: BlockKernel, values: dict[str, Value]) -> None:
    """Larger tiles of what is not summed, until a block has a few warps."""
    for axis, extent in reversed(kernel.program.axes.items()):
        name, tile = kernel.name(f"tile.{axis}"), 1
        if axis in kernel.shape.reduced:
            continue
        while kernel.threads(values) < 4 * WARP and tile < kernel.reach(axis, extent):
            tile *= 2
            values[name] = tile
