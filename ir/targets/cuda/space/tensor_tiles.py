"""The tiles of a kernel on wgmma, for many schedules at a time: how many, in clusters, their order.

Knows extents and decisions of the grid; nothing of shared memory, registers and loops.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ir.columns import Columns
from ir.targets.cuda.build.roles import Roles
from ir.targets.cuda.grid import batching, drawing, stream_k
from ir.targets.cuda.grid.dealing import AS_THEY_COME
from ir.targets.cuda.grid.dealing import NAME as DEAL
from ir.targets.cuda.grid.hilbert import LONGEST
from ir.targets.cuda.layouts.tensor_layouts import TensorLayouts

CLUSTERS = ("1x1", "2x1", "1x2", "2x2", "4x1", "1x4", "8x1", "1x8")
PAIR = 2  # blocks of the largest cluster that finds room wherever two blocks do


def whole_groups(processors: int) -> int:
    """How many of a card's processors larger clusters surely have at a time: a cluster's are of one
    group of processors, and not all groups are whole, nor the same ones on every card."""
    return max(processors // 8 * 8 - 8, min(processors, 8))


class TensorTiles(TensorLayouts):
    """Tiles of a kernel's grid."""

    def _cluster_sides(self, columns: Columns) -> tuple[Any, Any]:
        """Blocks of a cluster along the rows and along the columns."""
        name = self.name("cluster")
        down = columns.lookup(name, {c: int(c.split("x")[0]) for c in CLUSTERS})
        across = columns.lookup(name, {c: int(c.split("x")[1]) for c in CLUSTERS})
        return down.astype(np.int64), across.astype(np.int64)

    def _batch_tiles(self, columns: Columns) -> tuple[Any, Any]:
        """Tiles of clusters along the rows and along the columns of one batch."""
        down, wide = self._cluster_sides(columns)
        rows = self._by_swap(columns, lambda roles: self._tile_count(columns, roles.rows))
        if self.roles.inner:
            return -(-rows // down), np.ones(columns.rows)
        across = self._by_swap(columns, lambda roles: self._tile_count(columns, roles.columns))
        return -(-rows // down), -(-across // wide)

    def _stream_tiles(self, columns: Columns) -> Any:
        """Tiles of clusters in the grid, over all batches."""
        rows, across = self._batch_tiles(columns)
        return rows * across * prod(self.program.axes[axis] for axis in self.roles.batch)

    def _cluster_tiles(self, columns: Columns) -> tuple[Any, Any]:
        """Tiles of clusters along the rows and along the columns that the raster goes over: of one
        batch, or of all, where they stand beside each other."""
        rows, across = self._batch_tiles(columns)
        beside, along = self._beside_each_other(columns)
        batches = prod(self.program.axes[axis] for axis in self.roles.batch)
        return (
            np.where(beside & along, rows * batches, rows),
            np.where(beside & ~along, across * batches, across),
        )

    def _beside_each_other(self, columns: Columns) -> tuple[Any, Any]:
        """Whether batches stand beside each other, and whether they do as further rows."""
        name = self.name(batching.NAME)
        if name not in columns:
            return np.zeros(columns.rows, dtype=bool), np.zeros(columns.rows, dtype=bool)
        along = self._by_swap(columns, lambda roles: batching.along_rows(self.program, roles))
        return columns.is_(name, batching.BESIDE), along & np.ones(columns.rows, dtype=bool)

    def _batches_fit(self, columns: Columns) -> Any:
        beside, _ = self._beside_each_other(columns)
        passed = ~self._is(columns, "raster", "hilbert")
        for name, none in ((DEAL, AS_THEY_COME), (stream_k.NAME, stream_k.NONE)):
            if self.name(name) in columns:
                passed &= columns.is_(self.name(name), none)
        return ~beside | passed

    def _draws_fit(self, columns: Columns) -> Any:
        """Blocks draw their tiles where they have several, all groups of a block share each, and no
        other block has a part of its sums."""
        name = self.name(drawing.NAME)
        if name not in columns:
            return np.ones(columns.rows, dtype=bool)
        tiles = self._tile_count(columns, self.roles.batch)
        for axes in (self.roles.rows, () if self.roles.inner else self.roles.columns):
            tiles = tiles * self._tile_count(columns, axes)
        passed = self._waits_for_its_next_tile(columns, tiles) & (tiles < drawing.MOST)
        passed &= self.parts(columns) == 1
        passed &= self._is(columns, "cluster", "1x1") & ~self._is(columns, "partition", "whole")
        if self.name(stream_k.NAME) in columns:
            passed &= columns.is_(self.name(stream_k.NAME), stream_k.NONE)
        return columns.is_(name, drawing.STATIC) | passed

    def _waits_for_its_next_tile(self, columns: Columns, tiles: Any) -> Any:
        """Whether blocks walk several tiles, of which the next one's operands may come early."""
        processors = self._value(columns, "processors")
        sizes = {c: prod(map(int, c.split("x"))) for c in CLUSTERS}
        return (processors > 0) & (tiles * columns.lookup(self.name("cluster"), sizes) > processors)

    def _walks_a_curve(self, columns: Columns) -> Any:
        """Whether the grid is short enough for a table of its tiles."""

        def short(roles: Roles) -> Any:
            rows, across = (self._tile_count(columns, a) for a in (roles.rows, roles.columns))
            return (rows <= LONGEST) & (across <= LONGEST)

        return self._by_swap(columns, short)

    def _tile_count(self, columns: Columns, axes: tuple[str, ...]) -> Any:
        """Tiles along some axes."""
        total: Any = np.ones(columns.rows, dtype=np.int64)
        for axis in axes:
            total = total * -(-self.program.axes[axis] // self._tile(columns, axis))
        return total
