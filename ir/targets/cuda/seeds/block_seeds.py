"""Seeds of block kernels whose sums are over axes that cannot be walked together, and of those
whose points share what they read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations, product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ir.columns import Mask
from ir.schedule import Schedule, Value
from ir.space import Space
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.space.block_options import MAX_TILE, PARTS, power_above

if TYPE_CHECKING:
    from ir.targets.cuda.space.block import BlockKernel

OWN = (16, 8, 32)  # points of a whole axis in one thread
SHARING = ((4, 1), (8, 1), (4, 2), (2, 1), (1, 1))  # its points along two axes that windows span
PAIRED = (
    (4, 8, 128),
    (2, 16, 128),
    (8, 4, 128),
    (4, 8, 64),
    (1, 32, 128),
    (2, 8, 256),
    (2, 4, 128),
    (1, 8, 128),
)
"""A thread's points along an axis and along one that is walked, and threads."""
TILED = (
    (8, 8, 8, 16, 8),
    (8, 8, 16, 16, 4),
    (4, 8, 16, 16, 8),
    (8, 4, 8, 32, 4),
    (4, 4, 16, 16, 8),
    (4, 4, 8, 16, 16),
    (2, 4, 8, 32, 8),
)
"""A thread's points along two axes, threads along each, and its points of the sum of both."""
LAGGED = ((8, 8, 16), (8, 16, 16), (16, 8, 32), (8, 4, 64), (4, 8, 8))
"""A thread's points along an axis and along a long one that shifts it, and parts of its sums."""
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


def lagged_seeds(kernel: BlockKernel) -> list[tuple[dict[str, Value], Mapping[str, Value]]]:
    """A long sum whose axis shifts another, as lags of a correlation: a thread has several points
    of both, which share what they read, and a block parts of the sum; with what is said of the
    options, many are illegal."""
    axes, reduced, name = kernel.program.axes, kernel.shape.reduced, kernel.name
    lanes = {*kernel.shape.lanes} - {*reduced}
    shifted = [
        [axis for axis, _ in dimension.terms]
        for group in kernel.reads.groups
        for dimension in group.first.dimensions
    ]
    pairs = [
        (free, gone)
        for one in shifted
        for free, gone in permutations(one, 2)
        if free in lanes and gone in reduced and axes[gone] > TAPS
    ]
    if not pairs:
        return []
    free, gone = max(pairs, key=lambda pair: axes[pair[0]] * axes[pair[1]])
    found: list[tuple[dict[str, Value], Mapping[str, Value]]] = []
    for mine, other, parts in LAGGED:
        own = dict.fromkeys(axes, 1) | {free: mine, gone: other}
        own = {axis: min(points, kernel.reach(axis, axes[axis])) for axis, points in own.items()}
        tiles = own | {free: min(own[free] * 2 * WARP, kernel.reach(free, axes[free]))}
        values: dict[str, Value] = {name(f"own.{axis}"): n for axis, n in own.items()}
        values |= {name(f"tile.{axis}"): n for axis, n in tiles.items()}
        values |= {name("lanes"): free, name("vector"): min(kernel.widest, own[free])}
        found.append((values, {PARTS: parts}))
    return found


def paired_seeds(kernel: BlockKernel) -> list[dict[str, Value]]:
    """Every point of one axis meets every one of another, which is walked: a thread has several of
    both, so that what it reads of either serves several of the other; many are illegal."""
    axes, reduced = kernel.program.axes, kernel.shape.reduced
    read = [{*group.axes} for group in kernel.reads.groups]
    pairs = [
        (free, gone)
        for gone in reduced
        for free in axes
        if free not in reduced
        and any(free in one and gone not in one for one in read)
        and any(gone in one and free not in one for one in read)
    ]
    if not pairs:
        return []
    free, gone = max(pairs, key=lambda pair: axes[pair[0]] * axes[pair[1]])
    found: list[dict[str, Value]] = []
    for mine, other, threads in PAIRED:
        own = {axis: min(kernel.reach(axis, axes[axis]), TAPS) if axis in reduced else 1
               for axis in axes}  # fmt: skip
        own |= {free: mine, gone: other}
        own = {axis: min(points, kernel.reach(axis, axes[axis])) for axis, points in own.items()}
        tiles = own | {free: min(own[free] * threads, kernel.reach(free, axes[free]))}
        lane = free if free in kernel.shape.lanes else kernel.shape.lanes[0]
        values: dict[str, Value] = {kernel.name(f"own.{axis}"): n for axis, n in own.items()}
        values |= {kernel.name(f"tile.{axis}"): n for axis, n in tiles.items()}
        found.append(values | {kernel.name("lanes"): lane, kernel.name("vector"): 1})
    return found


def product_seeds(kernel: BlockKernel) -> list[dict[str, Value]]:
    """Every point of one axis meets every one of another in a sum: a thread has several of both, as
    in a product of matrices, so that what it reads for either serves the other; many are illegal.
    """
    axes, reduced = kernel.program.axes, kernel.shape.reduced
    read = [{*group.axes} for group in kernel.reads.groups]
    meeting = [
        (first, last, gone)
        for gone in reduced
        for first, last in permutations([axis for axis in axes if axis not in reduced], 2)
        if any({first, gone} <= one and last not in one for one in read)
        and any({last, gone} <= one and first not in one for one in read)
        and last in kernel.shape.lanes
    ]
    if not meeting:
        return []
    sizes = [axes[first] * axes[last] * axes[gone] for first, last, gone in meeting]
    most = max(sizes)
    found: list[dict[str, Value]] = []
    for (first, last, gone), size in zip(meeting, sizes, strict=True):
        for own_first, own_last, *threads, own_gone in TILED if size == most else ():
            own = {**dict.fromkeys(axes, 1), first: own_first, last: own_last, gone: own_gone}
            own |= {axis: TAPS for axis in reduced if axis != gone}
            own = {
                axis: min(points, kernel.reach(axis, axes[axis])) for axis, points in own.items()
            }
            tiles = own | {
                axis: min(own[axis] * count, kernel.reach(axis, axes[axis]))
                for axis, count in zip((first, last), threads, strict=True)
            }
            values: dict[str, Value] = {kernel.name(f"own.{axis}"): n for axis, n in own.items()}
            values |= {kernel.name(f"tile.{axis}"): n for axis, n in tiles.items()}
            vector = min(kernel.widest, own[last])
            found.append(values | {kernel.name("lanes"): last, kernel.name("vector"): vector})
    return found


def _widen(kernel: BlockKernel, values: dict[str, Value]) -> None:
    """Larger tiles of what is not summed, until a block has a few warps."""
    for axis, extent in reversed(kernel.program.axes.items()):
        name, tile = kernel.name(f"tile.{axis}"), 1
        if axis in kernel.shape.reduced:
            continue
        while kernel.threads(values) < 4 * WARP and tile < kernel.reach(axis, extent):
            tile *= 2
            values[name] = tile


def column_seed(kernel: BlockKernel, across: int, threads: int, own: int) -> dict[str, Value]:
    """`across` threads side by side along the lanes, the others below one another."""
    axes, lane = kernel.program.axes, kernel.shape.lanes[0]
    below = max(kernel.shape.reduced, key=lambda axis: axes[axis])
    vector = min(kernel.widest, power_above(axes[lane]))
    across = max(1, min(across, power_above(axes[lane]) // vector))
    values: dict[str, Value] = {kernel.name("lanes"): lane, kernel.name("vector"): vector}
    for axis in axes:
        tile, mine = 1, 1
        if axis == lane:
            tile, mine = across * vector, vector
        elif axis == below:
            mine = min(own, power_above(axes[axis]))
            tile = min(mine * (threads // across), power_above(axes[axis]), MAX_TILE)
        values[kernel.name(f"tile.{axis}")] = tile
        values[kernel.name(f"own.{axis}")] = mine
    return values
