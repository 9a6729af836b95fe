"""Schedules to start from on mma.sync: tiles and stages that do well on many shapes."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ir.dtypes import dtype_of
from ir.schedule import Value
from ir.targets.cuda.layouts.mma_operands import STEP
from ir.targets.cuda.plans.mma_plan import COLUMNS, ROWS

if TYPE_CHECKING:
    from ir.targets.cuda.space.mma import MmaKernel

# rows, columns, bytes of depth, warps, stages, raster, swap
SHAPES = (
    (128, 128, 64, (2, 2, 1), 4, "rows8", False),
    (128, 256, 64, (2, 4, 1), 3, "rows8", False),
    (256, 128, 64, (4, 2, 1), 3, "columns8", False),
    (128, 64, 128, (2, 2, 1), 3, "rows8", False),
    (64, 128, 128, (2, 2, 1), 3, "rows8", False),
    (64, 64, 128, (2, 2, 1), 4, "rows", False),
    (64, 64, 256, (2, 2, 2), 3, "rows", False),
    (32, 64, 128, (1, 4, 1), 5, "rows", False),
    (16, 64, 256, (1, 2, 4), 4, "rows", False),
    (16, 128, 256, (1, 4, 2), 4, "rows", False),
    (16, 32, 512, (1, 1, 8), 3, "rows", False),
    (64, 8, 256, (2, 1, 4), 6, "rows", True),
    (64, 16, 256, (2, 1, 4), 5, "rows", True),
    (128, 16, 256, (4, 1, 2), 4, "rows", True),
    (128, 32, 128, (4, 1, 2), 5, "rows", True),
    (32, 8, 512, (1, 1, 8), 4, "rows", True),
    (16, 8, 512, (1, 1, 8), 6, "rows", True),
)


def mma_seeds(kernel: MmaKernel) -> list[dict[str, Value]]:
    """Seeds of one kernel; what does not fit is repaired or left out by the space."""
    return [_seed(kernel, *shape) for shape in SHAPES]


def _seed(
    kernel: MmaKernel, rows: int, columns: int, line: int, warps: tuple[int, int, int],
    stages: int, raster: str, swap: bool,
) -> dict[str, Value]:  # fmt: skip
    roles = kernel.swapped if swap else kernel.roles
    size = dtype_of(roles.dtype).bytes
    tiles = _tiles(kernel, roles.rows, rows) | _tiles(kernel, roles.columns, columns)
    have = [prod(tiles[axis] for axis in side) for side in (roles.rows, roles.columns)]
    least = STEP // size
    extent = prod(kernel.program.axes[axis] for axis in roles.walked)
    reach = 1 << max(0, extent - 1).bit_length()
    warps = (
        max(1, min(warps[0], have[0] // ROWS)), max(1, min(warps[1], have[1] // COLUMNS)),
        max(1, min(warps[2], reach // least)),
    )  # fmt: skip
    depth = line // size
    while depth > STEP // size * warps[2] and depth >= 2 * extent:
        depth //= 2
    room = kernel.hardware["shared_bytes"] // (
        (have[0] + have[1] * len(roles.outer)) * depth * size
    )
    one = 1 in (_count(kernel, roles.rows, tiles), _count(kernel, roles.columns, tiles))
    steps = depth * size // STEP // warps[2]
    pairs: dict[str, Value] = {
        "depth": depth, "swap": swap, "warps.rows": warps[0], "warps.columns": warps[1],
        "warps.depth": warps[2], "stages": max(2, min(stages, room)),
        "fragments": 2 if steps > 1 else 1, "raster": "rows" if one else raster, "resident": 1,
        "epilogue": "staged",
    }  # fmt: skip
    if kernel.raw:
        pairs["loads"] = "staged" if pairs["stages"] != 2 else "direct"
    found = {f"tile.{axis}": tile for axis, tile in tiles.items()}
    return {kernel.name(name): value for name, value in {**found, **pairs}.items()}


def _tiles(kernel: MmaKernel, axes: tuple[str, ...], wanted: int) -> dict[str, int]:
    """`wanted` points over axes, the last one first."""
    found = {}
    for number, axis in enumerate(reversed(axes)):
        reach = 1 << max(0, kernel.program.axes[axis] - 1).bit_length()
        last = number == len(axes) - 1
        found[axis] = min(wanted, max(reach, 16) if last else reach)
        wanted //= found[axis]
    return found


def _count(kernel: MmaKernel, axes: tuple[str, ...], tiles: dict[str, int]) -> int:
    return prod(-(-kernel.program.axes[axis] // tiles[axis]) for axis in axes)
