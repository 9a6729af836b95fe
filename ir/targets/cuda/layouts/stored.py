"""A tile that threads compute into shared memory, as wgmma reads it: lines along the sum.

Lines of up to 128 bytes are one panel, swizzled over their own width.
"""

from __future__ import annotations

from dataclasses import dataclass

from ir.layout.expressions import Expression, scaled
from ir.targets.cuda.layouts.lanes import line_swizzle, panel_offset
from ir.targets.cuda.layouts.operands import ATOM, LINE, SWIZZLE_CODE


@dataclass(frozen=True, slots=True)
class StoredTile:
    """`lines` rows of `points` summed points of `size` bytes each."""

    lines: int
    points: int
    size: int

    @property
    def width(self) -> int:
        """Bytes of a line of a panel."""
        return min(LINE, self.points * self.size)

    @property
    def panel_bytes(self) -> int:
        return self.lines * self.width

    @property
    def bytes(self) -> int:
        return self.lines * self.points * self.size

    def offset(self, line: Expression, point: Expression) -> Expression:
        """The byte at which a point of a line lies."""
        swizzle = line_swizzle(self.width)
        return panel_offset(line, scaled(point, self.size), self.width, self.panel_bytes, swizzle)

    @property
    def descriptor_strides(self) -> tuple[int, int, int]:
        """Leading and stride byte offsets, and the swizzle's code."""
        return 16, ATOM * self.width, SWIZZLE_CODE[self.width]

    def step_offset(self, step: int, points: int) -> int:
        """Bytes from the tile's start to the `step`-th group of `points` summed points."""
        panel, inside = divmod(step * points * self.size, self.width)
        return panel * self.panel_bytes + inside

    def free_offset(self, start: int) -> int:
        """Bytes to line `start`."""
        return start * self.width
