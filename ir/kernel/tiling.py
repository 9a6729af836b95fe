"""How the points of a kernel's axes are dealt to tiles, and those of its main loop to blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from ir.ops.base import Array
from ir.program import Program


@dataclass(frozen=True, slots=True)
class Tiling:
    """Points of a tile along each axis of a program, and the axes of its main loop."""

    tiles: Mapping[str, int]
    walked: tuple[str, ...]

    def grid(self, program: Program) -> Iterator[dict[str, Array]]:
        """The points of each tile of the axes that are not walked."""
        free = [axis for axis in program.axes if axis not in self.walked]
        counts = [range(-(-program.axes[axis] // self.tiles[axis])) for axis in free]
        for place in product(*counts):
            yield {
                axis: self._points(program, axis, number)
                for axis, number in zip(free, place, strict=True)
            }

    def blocks(self, program: Program) -> int:
        """Blocks of the main loop."""
        return prod(-(-program.axes[axis] // self.tiles[axis]) for axis in self.walked)

    def block(self, program: Program, number: int) -> dict[str, Array]:
        """The points of a block along the walked axes, the last of them fastest."""
        found = {}
        for axis in reversed(self.walked):
            count = -(-program.axes[axis] // self.tiles[axis])
            number, here = divmod(number, count)
            found[axis] = self._points(program, axis, here)
        return found

    def _points(self, program: Program, axis: str, number: int) -> Array:
        start, end = number * self.tiles[axis], (number + 1) * self.tiles[axis]
        return np.arange(start, min(end, program.axes[axis]), dtype=np.int64)
