"""Panels of lines, read off a layout: what TMA writes, wgmma reads, and kernels address.

A tile of two axes is a row of panels; a panel has a line for each point of one axis, which runs so
many points along the other. Knows no instruction.
"""

from __future__ import annotations

from dataclasses import dataclass

from ir.layout.algebra import coalesce
from ir.layout.swizzle import PLAIN, Composed, Swizzle, parse
from ir.layout.synthesis import Tile
from ir.targets.cuda.lanes import line_swizzle

LINES = (128, 64, 32, 16)  # bytes that a line may have


@dataclass(frozen=True, slots=True)
class Panels:
    """`width`: bytes of a line along axis `along`; `count`: panels; `swizzle` acts on bytes."""

    width: int
    along: int
    count: int
    swizzle: Swizzle

    @property
    def canonical(self) -> bool:
        """Whether lines are as TMA has them, swizzled over their own width."""
        return self.width in LINES and self.swizzle == _bare(line_swizzle(self.width))


def panels_of(tile: Tile, layout: str) -> Panels | None:
    """The panels of a layout of the tile, given as text; None where it has none."""
    value = parse(layout)
    swizzle, plain = (
        (value.swizzle, value.layout) if isinstance(value, Composed) else (PLAIN, value)
    )
    modes = [coalesce(mode).flat() for mode in plain.modes]
    for along in (0, 1):
        lines = tile.shape[1 - along]
        points = modes[along][0][0]
        count, rest = divmod(tile.shape[along], points)
        run = ((points, 1), (count, points * lines)) if count > 1 else ((points, 1),)
        if not rest and modes[along] == run and modes[1 - along] == ((lines, points),):
            in_bytes = PLAIN if swizzle.plain else swizzle.recast(tile.bits, 8)
            return Panels(points * tile.bits // 8, along, count, in_bytes)
    return None


def _bare(swizzle: Swizzle) -> Swizzle:
    return PLAIN if swizzle.plain else swizzle
