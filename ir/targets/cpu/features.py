"""Analytic features of schedules, vectorised: blocks, footprints, traffic, registers, balance.

Closed-form counts derived from the staged program; the learned model sees them beside the raw
decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.dtypes import dtype_of
from ir.space import Columns
from ir.targets.cpu.decisions import Decisions
from ir.targets.cpu.shape import StageShape

Block = Mapping[str, Any]


class Features:
    """Callable: columns -> (names, float32 matrix of log2 counts)."""

    def __init__(self, decisions: Decisions) -> None:
        self.decisions = decisions
        self.extents = decisions.extents
        self.names = {d.name for d in decisions.found}

    def __call__(self, columns: Columns) -> tuple[tuple[str, ...], NDArray[np.float32]]:
        inner, outer = self._blocks(columns, 0), self._blocks(columns, 1)
        table: dict[str, Any] = {}
        for shape in self.decisions.shapes:
            if shape.product:
                self._product(columns, shape, inner, outer, table)
        self._balance(columns, outer, table)
        if not table:
            return (), np.zeros((columns.rows, 0), dtype=np.float32)
        rows = [
            np.broadcast_to(np.asarray(v, dtype=np.float64), (columns.rows,))
            for v in table.values()
        ]
        return tuple(table), np.log2(np.maximum(np.stack(rows, axis=1), 2.0**-20)).astype(
            np.float32
        )

    def _blocks(self, columns: Columns, level: int) -> Block:
        found: dict[str, Any] = {}
        for axis, extent in self.extents.items():
            name = f"tile.{axis}.{level}"
            found[axis] = np.minimum(columns[name], extent) if name in self.names else extent
            if axis in self.decisions.outer:
                found[axis] = 1
        return found

    def _product(
        self, columns: Columns, shape: StageShape, inner: Block, outer: Block, table: dict[str, Any]
    ) -> None:
        """Footprints of each operand at both levels, re-reads, and the register tile."""
        name = shape.stage.name
        nodes = self.decisions.staged.program.nodes
        rows = columns[f"rows.{name}"] if f"rows.{name}" in self.names else 1
        vectors = columns[f"vectors.{name}"]
        count = len(shape.stage.accumulators)
        table[f"{name}.accumulators"] = count * rows * vectors
        table[f"{name}.loads_per_step"] = (rows + vectors) / (count * rows * vectors)
        sums: dict[int, Any] = {0: 0.0, 1: 0.0}
        for operand in shape.operands:
            element = dtype_of(nodes[operand.node].dtype).bytes
            for level, block in ((0, inner), (1, outer)):
                size: Any = float(element)
                for axis in operand.axes:
                    size = size * block[axis]
                table[f"{name}.{operand.name}.bytes{level}"] = size
                sums[level] = sums[level] + size
            repeats: Any = 1.0
            for axis in shape.stage.domain:
                if axis not in operand.axes:
                    repeats = repeats * np.ceil(self.extents[axis] / outer[axis])
            table[f"{name}.{operand.name}.rereads"] = repeats
        table[f"{name}.working_set0"] = sums[0] / self.decisions.hardware["l1_bytes"]
        table[f"{name}.working_set1"] = sums[1] / self.decisions.hardware["l2_bytes"]
        state: Any = 4.0 * count
        passes: Any = 1.0
        for axis in shape.stage.domain:
            if axis in shape.stage.reduce:
                passes = passes * np.ceil(self.extents[axis] / inner[axis])
            else:
                state = state * inner[axis]
        table[f"{name}.state_bytes"] = state
        table[f"{name}.state_passes"] = passes
        self._waste(columns, shape, table)

    def _waste(self, columns: Columns, shape: StageShape, table: dict[str, Any]) -> None:
        """Share of the register tile that the tails of lanes and rows leave idle."""
        name = shape.stage.name
        total: Any = 1.0
        for axis in shape.lanes:
            step = columns[f"vectors.{name}"] * self.decisions.vector.lanes
            extent = self.extents[axis]
            used = np.ceil(extent / step) * step / extent
            total = np.where(columns.is_(f"lane.{name}", axis), used, total)
        table[f"{name}.waste"] = total

    def _balance(self, columns: Columns, outer: Block, table: dict[str, Any]) -> None:
        """Blocks that the threads share, and how evenly."""
        threads = self.decisions.hardware.threads
        trips: Any = np.ones(columns.rows)
        domain = next(d for d in self.decisions.found if d.name == "parallel").domain
        for choice in domain:
            here: Any = np.ones(columns.rows)
            for axis in str(choice).split():
                here = here * np.ceil(self.extents[axis] / outer[axis])
            trips = np.where(columns.is_("parallel", choice), here, trips)
        table["tasks"] = trips
        table["balance"] = np.ceil(trips / threads) * threads / trips
