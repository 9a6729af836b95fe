"""A tile that threads compute into shared memory, as wgmma reads it: lines along the sum.

Lines of up to 128 bytes are one panel, swizzled over their own width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ir.layout.expressions import Expression, scaled
from ir.layout.instructions.descriptor import Descriptor
from ir.targets.cuda.layouts.lines import TileLines, line_swizzle
from ir.targets.cuda.layouts.operands import LINE


@dataclass(frozen=True, slots=True)
class StoredTile:
    """`lines` rows of `points` summed points of `size` bytes each."""

    lines: int
    points: int
    size: int

    @property
    def sums_inside(self) -> bool:
        """Whether lines run along the summed axis."""
        return True

    @property
    def width(self) -> int:
        """Bytes of a line of a panel."""
        return min(LINE, self.points * self.size)

    @property
    def memory(self) -> TileLines:
        """Its lines, of which addresses are made."""
        return TileLines(self.lines, self.width, line_swizzle(self.width))

    @property
    def bytes(self) -> int:
        return self.lines * self.points * self.size

    def offset(self, line: Expression, point: Expression) -> Expression:
        """The byte at which a point of a line lies."""
        return self.memory.offset(line, scaled(point, self.size))

    @property
    def descriptor(self) -> Descriptor:
        """That of its first step; others start further on."""
        return self.memory.descriptor(True)

    def step_offset(self, step: int, points: int) -> int:
        """Bytes from the tile's start to the `step`-th group of `points` summed points."""
        return self.memory.start(*self.step_place(step, points))

    def step_place(
        self, step: int, points: int, order: Sequence[tuple[str, int]] = ()
    ) -> tuple[int, int]:
        """The line, and the byte along it, at which that group of points begins; `order`: as other
        tiles have it, of which this one has all."""
        return 0, step * points * self.size

    def free_offset(self, start: int) -> int:
        """Bytes to line `start`."""
        return self.memory.start(start, 0)
