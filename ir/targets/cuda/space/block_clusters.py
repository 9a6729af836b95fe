"""Rows that the blocks of a cluster share: each holds a tile of a summed axis in its registers.

They give each other their parts of every sum over it through distributed shared memory, so that a
row that is too long for one block, or of which there are too few for all processors, is read once.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.reduce import Contract, Reduce
from ir.ops.store import Store
from ir.program import Program
from ir.schedule import Value
from ir.space import Columns
from ir.stages import is_reduction, reduced_axes
from ir.targets.cuda.layouts.access import load_access
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.space.block_fitted import divides
from ir.targets.cuda.text import scalars

if TYPE_CHECKING:
    from ir.targets.cuda.space.block import BlockKernel

SPREAD = "spread"
NONE = "none"
MOST_BLOCKS = 8  # of a cluster on every card that has them
LEAST_POINTS = 512  # of an axis that blocks share
POINTWISE = (Load, Store, Map, Constant, Iota, Cast)
WORDS = frozenset({"f32", "i32"})  # register types of 4 bytes, which a block reads of another
THREADS = (256, 512, 1024)  # of a block, in seeds
MOST_HELD = 128  # values of a thread, in seeds
BESIDE = (1, 4, 8)  # rows of a block that lie beside each other in memory, in seeds


def spread_axes(program: Program) -> tuple[str, ...]:
    """Summed axes that the blocks of a cluster may share: what is summed over them meets in words,
    and nothing goes along an axis in an order."""
    if not all(isinstance(node.op, POINTWISE) or is_reduction(node) for node in program.nodes):
        return ()
    sums = [node for node in program.nodes if is_reduction(node)]
    if not all(isinstance(node.op, (Reduce, Contract)) for node in sums):
        return ()
    summed = {axis for node in sums for axis in reduced_axes(node)}
    wide = (node for node in sums if scalars.register_type(node.dtype) not in WORDS)
    summed -= {axis for node in wide for axis in reduced_axes(node)}
    extents = program.axes.items()
    return tuple(axis for axis, extent in extents if axis in summed and extent >= LEAST_POINTS)


def blocks_along(kernel: BlockKernel, columns: Any, axis: str) -> Any:
    """Tiles of an axis."""
    return -(-kernel.program.axes[axis] // columns[kernel.name(f"tile.{axis}")])


def is_spread(kernel: BlockKernel, columns: Columns, axis: str) -> Any:
    """Whether the blocks of a cluster share this axis."""
    name = kernel.name(SPREAD)
    if name not in columns:
        return np.zeros(columns.rows, dtype=bool)
    return columns.is_(name, axis)


def cluster_of(kernel: BlockKernel, columns: Columns) -> Any:
    """Blocks of a cluster; 1 where none share a row."""
    found: Any = np.ones(columns.rows, dtype=np.int64)
    for axis in kernel.spread:
        here = is_spread(kernel, columns, axis)
        found = np.where(here, blocks_along(kernel, columns, axis), found)
    return found


def spread_seeds(kernel: BlockKernel) -> list[tuple[dict[str, Value], Mapping[str, Value]]]:
    """Rows in two, four and eight blocks, alone and with those beside them in memory."""
    found: list[tuple[dict[str, Value], Mapping[str, Value]]] = []
    for axis in kernel.spread:
        whole, extent = kernel.whole(axis, kernel.program.axes[axis]), kernel.program.axes[axis]
        for blocks in (8, 4, 2):
            fitted = [t for t in kernel.tiles(axis) if t * blocks >= extent][:1]
            for tile, threads in product((*fitted, whole // blocks), THREADS):
                for beside in BESIDE:
                    values = _seed(kernel, axis, tile, threads, beside)
                    if values and values not in [known for known, _ in found]:
                        found.append((values, {SPREAD: axis}))
    return found


def _seed(
    kernel: BlockKernel, axis: str, tile: int, threads: int, beside: int
) -> dict[str, Value] | None:
    """All summed axes whole but for `axis`, threads along lanes, then along it, then the others."""
    axes, lane, reduced = kernel.program.axes, kernel.shape.lanes[0], kernel.shape.reduced
    tiles = {a: kernel.whole(a, extent) if a in reduced else 1 for a, extent in axes.items()}
    tiles[axis] = tile
    neighbour = _neighbour(kernel)
    if beside > 1:
        if not neighbour or axes[neighbour] < beside:
            return None
        tiles[neighbour] = beside
    values: dict[str, Value] = {kernel.name("lanes"): lane}
    left, held = threads, 1
    for a in dict.fromkeys((lane, axis, *axes)):
        least = min(kernel.widest, tiles[a]) if a == lane else 1
        across = _across(tiles[a], left, least)
        values[kernel.name(f"tile.{a}")] = tiles[a]
        values[kernel.name(f"own.{a}")] = tiles[a] // across
        left, held = left // across, held * tiles[a] // across
    few = prod(tiles.values()) < held * WARP
    if few or held > MOST_HELD or max(tiles.values()) > kernel.most_points:
        return None
    values[kernel.name("vector")] = min(kernel.widest, int(values[kernel.name(f"own.{lane}")]))
    return values


def _across(tile: int, threads: int, least: int) -> int:
    """How many of so many threads share a tile, each with no fewer than the least points."""
    own = (1 << power for power in range(tile.bit_length()))
    fits = (tile // n for n in own if n >= least and divides(n, tile))
    return max((count for count in fits if count <= threads), default=1)


def _neighbour(kernel: BlockKernel) -> str:
    """The free axis whose rows lie nearest to each other in the largest tensor that is read."""
    loads = [node.op for node in kernel.program.nodes if isinstance(node.op, Load)]
    tensors = kernel.program.scope.tensors
    strides: dict[str, int] = {}
    for op in sorted(loads, key=lambda op: -prod(tensors[op.tensor].shape))[:1]:
        for dimension in load_access(op, tensors[op.tensor]).dimensions:
            for axis, factor in dimension.terms:
                if axis not in kernel.shape.reduced:
                    strides[axis] = abs(dimension.stride * factor)
    return min(strides, key=lambda axis: strides[axis], default="")
