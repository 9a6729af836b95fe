"""Tiles whose number fills whole waves of a card's processors.

A persistent kernel lasts as long as the processor that has most tiles: 224 tiles take 132
processors as long as 264 would. Knows extents and rates, and nothing of programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MACS_PER_CLOCK = 4096.0  # of one processor's tensor cores, on bytes; halved as elements double
L2_BYTES_PER_CLOCK = 48.0  # into one processor at its highest clock,
LOADED_BYTES_PER_CLOCK = 64.0  # and at the clock that long products leave it
TILE_CLOCKS = 2000.0  # of a tile beside its products: its epilogue, the first of the next
GAIN = 0.97  # of the best usual tile's time: what is not faster than this is left out
SHARED = {64: 1, 128: 2, 256: 2}  # rows of a tile, and the warp groups that share them
IN_TURN = {128: 2}  # rows of a tile that one of so many warp groups has alone
ACCUMULATORS = 256 * 64  # sums that one warp group holds at most


@dataclass(frozen=True, slots=True)
class Grid:
    """Sums of one kernel: extents in points, `products` of one shape in each tile.

    `batches` grids lie beside each other; elements have `size` bytes.
    """

    rows: int
    columns: int
    depth: int
    batches: int
    products: int
    size: int


@dataclass(frozen=True, slots=True)
class WaveTile:
    """A tile, the warp groups that it takes, and the clocks that all tiles take."""

    rows: int
    columns: int
    consumers: int
    clocks: float


def best_tiles(grid: Grid, processors: int, whole: bool, count: int = 2) -> list[WaveTile]:
    """Tiles that take less time than those of usual widths, for their number; the best first.

    Warp groups share a tile, or take `whole` ones in turn.
    """
    every = sorted(_tiles(grid, processors, whole), key=lambda tile: (tile.clocks, -tile.columns))
    usual = [tile.clocks for tile in every if tile.columns * grid.products in (64, 128, 192, 256)]
    limit = GAIN * min(usual, default=float("inf"))
    return [tile for tile in every if tile.clocks < limit][:count]


def _tiles(grid: Grid, processors: int, whole: bool) -> Iterator[WaveTile]:
    for rows, consumers in (IN_TURN if whole else SHARED).items():
        most = min(256, ACCUMULATORS * (1 if whole else consumers) // rows) // grid.products
        for columns in range(32, most + 1, 8):
            yield WaveTile(rows, columns, consumers, _clocks(grid, processors, rows, columns))


def _clocks(grid: Grid, processors: int, rows: int, columns: int) -> float:
    """Clocks of the processor that has most tiles."""
    tiles = -(-grid.rows // rows) * -(-grid.columns // columns) * grid.batches
    macs = rows * columns * grid.products * grid.depth / (MACS_PER_CLOCK / grid.size)
    moved = (rows + columns * grid.products) * grid.depth * grid.size
    each = max(macs, moved / LOADED_BYTES_PER_CLOCK) + TILE_CLOCKS
    return -(-tiles // processors) * each
