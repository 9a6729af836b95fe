"""Tiles whose number fills whole waves of a card's processors.

A persistent kernel lasts as long as the processor that has most tiles: 224 tiles take 132
processors as long as 264 would. Knows extents and rates, and nothing of programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MACS_PER_CLOCK = 4096.0  # of one processor's tensor cores, on bytes; halved as elements double
L2_BYTES_PER_CLOCK = 48.0  # into one processor
TILE_CLOCKS = 2000.0  # of a tile beside its products: its epilogue, the first of the next
GAIN = 0.97  # of the best usual tile's time: what is not faster than this is left out
ROWS = {64: 1, 128: 2, 256: 2}  # of a tile, and the warp groups that share them
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
    """A tile, the cluster that shares its operands, and the clocks that all tiles take."""

    rows: int
    columns: int
    cluster: str
    clocks: float
    consumers: int


def best_tiles(grid: Grid, processors: int, count: int = 2, whole: bool = False) -> list[WaveTile]:
    """Tiles that take less time than those of powers of two, for their number; the best first.

    Two or more warp groups share a tile, or each of two has `whole` ones.
    """
    every = sorted(_tiles(grid, processors, whole), key=lambda t: (t.clocks, -_area(t)))
    usual = [tile.clocks for tile in every if tile.columns * grid.products in (64, 128, 192, 256)]
    limit = GAIN * min(usual, default=float("inf"))
    found: dict[tuple[int, int], WaveTile] = {}
    for tile in every:
        if tile.clocks < limit:
            found.setdefault((tile.rows, tile.columns), tile)
    return list(found.values())[:count]


def _area(tile: WaveTile) -> int:
    return tile.rows * tile.columns


def _tiles(grid: Grid, processors: int, whole: bool) -> Iterator[WaveTile]:
    for rows, sharing in ROWS.items():
        most = min(256, ACCUMULATORS * (1 if whole else sharing) // rows) // grid.products
        for columns in range(32, most + 1, 8):
            for cluster, down, across in (("1x1", 1, 1), ("2x1", 2, 1), ("1x2", 1, 2)):
                shared = columns if down > 1 else rows
                if down * across > 1 and shared // 2 % 8:
                    continue
                clocks = _clocks(grid, processors, rows, columns, (down, across))
                yield WaveTile(rows, columns, cluster, clocks, 2 if whole else sharing)


def _clocks(
    grid: Grid, processors: int, rows: int, columns: int, cluster: tuple[int, int]
) -> float:
    """Clocks of the processor that has most tiles."""
    down, across = cluster
    lines = -(-grid.rows // (rows * down)) * down
    tiles = lines * -(-grid.columns // (columns * across)) * across * grid.batches
    rounds = -(-tiles // processors)
    macs = rows * columns * grid.products * grid.depth / (MACS_PER_CLOCK / grid.size)
    moved = (rows / across + columns * grid.products / down) * grid.depth * grid.size
    return rounds * (max(macs, moved / L2_BYTES_PER_CLOCK) + TILE_CLOCKS)
