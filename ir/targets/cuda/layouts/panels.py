"""Panels of lines, read off a layout: what TMA writes, wgmma reads, and kernels address.

A tile of two axes is a row of panels; a panel has a line for each point of one axis, which runs so
many points along the other. Knows no instruction.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ir.layout.algebra import coalesce, max_common_vector
from ir.layout.layout import Layout, concat
from ir.layout.product import logical_product
from ir.layout.swizzle import PLAIN, Composed, Swizzle, parse
from ir.layout.synthesis import Tile
from ir.targets.cuda.layouts.lanes import line_swizzle

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


@lru_cache(maxsize=1024)
def panels_of(tile: Tile, layout: str) -> Panels | None:
    """The panels of a layout of the tile, given as text; None where it has none."""
    value = parse(layout)
    swizzle, plain = (
        (value.swizzle, value.layout) if isinstance(value, Composed) else (PLAIN, value)
    )
    modes = [coalesce(mode) for mode in plain.modes]
    for along in (0, 1):
        points = max_common_vector(modes[along], Layout(tile.shape[along]))
        count, rest = divmod(tile.shape[along], points)
        if points == 1 or rest:
            continue
        panel = logical_product(Layout(points), Layout(tile.shape[1 - along]))
        line, lines = panel.modes
        behind = logical_product(panel, Layout(count)).mode(1)
        if modes[along] == coalesce(concat(line, behind)) and modes[1 - along] == coalesce(lines):
            in_bytes = PLAIN if swizzle.plain else swizzle.recast(tile.bits, 8)
            return Panels(points * tile.bits // 8, along, count, in_bytes)
    return None


def _bare(swizzle: Swizzle) -> Swizzle:
    return PLAIN if swizzle.plain else swizzle
