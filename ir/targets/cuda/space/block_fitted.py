"""Tiles that fit rows of a block: as many whole warps as have a row, or a block's share of it.

Of a row whose length is no power of two, threads of a tile that is one would have up to half of
their points behind its end. Beyond a warp the digits of a thread's number may be of any size, so a
tile may be any number of warps, each thread with as many points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ir.targets.cuda.layouts.frame import WARP

if TYPE_CHECKING:
    from ir.targets.cuda.space.block_shape import BlockShape

LEAST_ROW = 256  # points of a row that is fitted
SHARES = range(1, 9)  # blocks, or steps of a walk, that a row is divided between
WHOLE_VECTOR = 8  # points of a thread that is no power of two are a multiple of
OWN = tuple(1 << power for power in range(2, 8))  # points of a thread
MAX_THREADS = 1024
ODD = (3, 5, 7, 9, 11, 13, 15)
LEAST_SHARED = 4  # threads or points that a short axis is a multiple of
LEAST_SHORT, LONGEST_SHORT = 16, 1024
LEAST_GAIN = 16  # the part of a power of two that a fitted tile saves at least
MOST_WASTE = 16  # the part of a share that others than the least tile add to it at most


def tiles_along(shape: BlockShape, axis: str, top: int) -> tuple[int, ...]:
    """Points of an axis in one block, up to `top`: powers of two, and of one that is summed whole
    those that fit its length."""
    extent, powers = shape.program.axes[axis], {1 << n for n in range(top.bit_length())}
    fitted = fitted_tiles(extent, top) if shape.has_rows(axis) else ()
    return tuple(
        sorted({*powers, *fitted, *(short_tiles(extent) if shape.is_beside(axis) else ())})
    )


def own_along(shape: BlockShape, axis: str, top: int) -> tuple[int, ...]:
    """Points of an axis in one thread, likewise."""
    extent, most = shape.program.axes[axis], min(top, OWN[-1])
    fitted = fitted_own(extent, top) if shape.has_rows(axis) else ()
    powers = {1 << n for n in range(most.bit_length())}
    return tuple(sorted({*powers, *fitted, *(short_own(extent) if shape.is_beside(axis) else ())}))


def fitted_tiles(extent: int, most: int) -> tuple[int, ...]:
    """Tiles of an axis beside the powers of two, the smallest first."""
    if extent < LEAST_ROW:
        return ()
    found = set[int]()
    for blocks in SHARES:
        share = -(-extent // blocks)
        power = 1 << (share - 1).bit_length()
        tiles = {
            -(-share // (WARP * own)) * WARP * own for own in OWN if share <= MAX_THREADS * own
        }
        saving = (t for t in tiles if t <= most and (power - t) * LEAST_GAIN >= power)
        found |= {t for t in saving if t == min(tiles) or (t - share) * MOST_WASTE <= share}
    return tuple(sorted(found))


def short_tiles(extent: int) -> tuple[int, ...]:
    """The least tile beside the powers of two of a short axis that other axes share its threads
    with: an odd number of points in a thread, or of warps, and a power of two of the others."""
    power = 1 << (extent - 1).bit_length()
    odd = ((-(-extent // (n * LEAST_SHARED)), n) for n in ODD)
    tiles = (n * LEAST_SHARED * (1 << (count - 1).bit_length()) for count, n in odd)
    fits = [t for t in tiles if (power - t) * LEAST_GAIN >= power]
    return (min(fits),) if fits and LEAST_SHORT < extent <= LONGEST_SHORT else ()


def short_own(extent: int) -> tuple[int, ...]:
    """Points of a thread of such a tile beside the powers of two."""
    found = set[int]()
    for tile in short_tiles(extent):
        odd = tile // (tile & -tile)
        found |= {odd << power for power in range((tile // odd).bit_length())}
    return tuple(sorted(n for n in found if n <= OWN[-1]))


def shared_evenly(extent: int, threads: int) -> tuple[int, int] | None:
    """Points of each thread, and how many of at most so many have such a tile; None for none."""
    found = [(own, tile // own) for tile in short_tiles(extent) for own in short_own(extent)]
    fits = [(own, across) for own, across in found if across <= threads]
    return min(fits, default=None)


def fitted_own(extent: int, most: int) -> tuple[int, ...]:
    """Points of a thread beside the powers of two, of which a power of two of threads has a row."""
    rows = [tile for tile in fitted_tiles(extent, most) if tile >= extent]
    counts = (
        tile // (WARP << power)
        for tile in rows
        for power in range(4)
        if tile % (WARP << power) == 0
    )
    return tuple(sorted({n for n in counts if n % WHOLE_VECTOR == 0 and n < OWN[-1]} - {*OWN}))


def divides(own: Any, tile: Any) -> Any:
    """Whether threads share a tile: by a power of two of them, or by whole warps."""
    threads = tile // own
    whole = (threads % WARP == 0) | ((threads & (threads - 1)) == 0)
    return (tile % own == 0) & (threads > 0) & whole


def fitting(tiles: tuple[int, ...], points: int, own: int) -> int:
    """The least tile that is no power of two and has so many points, `own` of them in a thread; 0
    for none."""
    fits = (t for t in tiles if t >= points and t & (t - 1) and t // own <= MAX_THREADS)
    return min((t for t in fits if divides(own, t)), default=0)
