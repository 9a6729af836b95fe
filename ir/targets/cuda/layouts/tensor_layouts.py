"""What the layouts of operand tiles come to, for many schedules at a time, and their choice.

The closed form of what `synthesised` finds: lines, padding, and how many layouts there are. A test
holds the two together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ir.columns import Columns, Decision
from ir.dtypes import dtype_of
from ir.targets.cuda.build.roles import Roles
from ir.targets.cuda.layouts.operands import LINE
from ir.targets.cuda.layouts.synthesised import LAYOUTS, NARROWEST
from ir.targets.cuda.space.tensor_sources import TensorSources

LEAST_ACROSS = LINE // 2  # bytes of a line across the sum that are not padded to a whole one


class TensorLayouts(TensorSources):
    """Lines of a kernel's operand tiles."""

    computes: bool

    def layout_decisions(self, owner: str) -> list[Decision]:
        """Which layouts of the operands' tiles; where threads read them, the best ones."""
        if self.computes:
            return []
        why = "which of the synthesised layouts of operand tiles, the best first"
        return [Decision(self.name("layout"), LAYOUTS, "layout", owner, why, 0, unsaid=0)]

    def _padded(
        self, columns: Columns, roles: Roles, operand: int, run: tuple[str, ...], length: Any
    ) -> Any:
        """Points of a line across the sum as they lie in memory; the tile has `length`."""
        size = dtype_of(self.program.nodes[operand].dtype).bytes
        points = LINE // size
        whole = self._shared_out(columns, roles, run, length) * size % LEAST_ACROSS == 0
        return np.where(whole, length, -(-np.maximum(length, 1) // points) * points)

    def _shared_out(
        self, columns: Columns, roles: Roles, run: tuple[str, ...], length: Any
    ) -> Any:  # fmt: skip
        """The points of a line that one warp group multiplies."""
        groups = self._consumers(columns, "columns") if run[0] in roles.columns else 1
        return length // groups

    def _layout_fits(self, columns: Columns) -> Any:
        """Whether there are as many layouts."""
        name = self.name("layout")
        if name not in columns:
            return np.ones(columns.rows, dtype=bool)
        chosen = columns[name]
        there = self._by_swap(columns, lambda roles: self._layouts(columns, roles))
        return (chosen == 0) | (~self._from_registers(columns) & (chosen < there))

    def _layouts(self, columns: Columns, roles: Roles) -> Any:
        """The best layouts, and those with one operand's lines narrower."""
        count: Any = np.ones(columns.rows, dtype=np.int64)
        for operand, over in self._operands(roles):
            length, run = self._run(columns, operand)
            size = dtype_of(self.program.nodes[operand].dtype).bytes
            least = NARROWEST if run[0] in over else LEAST_ACROSS
            if run[0] not in over:
                length = self._shared_out(columns, roles, run, length)
            widths = [width for width in (LINE, LINE // 2, LINE // 4) if width >= least]
            fitting = sum((length * size % width == 0).astype(np.int64) for width in widths)
            count += np.maximum(fitting - 1, 0)
        return count
