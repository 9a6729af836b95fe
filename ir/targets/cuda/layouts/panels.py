"""Panels of lines, read off a layout: what TMA writes, wgmma reads, and kernels address.

A tile of two axes is a row of panels; a panel has a line for each point of one axis, which runs so
many points along the other. Knows no instruction.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ir.layout.algebra import coalesce, logical_product, max_common_vector, right_inverse
from ir.layout.layout import Layout, concat
from ir.layout.swizzle import PLAIN, Composed, Swizzle, parse
from ir.layout.synthesis import Tile
from ir.targets.cuda.layouts.lines import line_swizzle

LINES = (128, 64, 32, 16)  # bytes that a line may have


@dataclass(frozen=True, slots=True)
class Panels:
    """`width`: bytes of a line along axis `along`; `count`: panels; `swizzle` acts on bytes.

    `order`: digits (size, stride) of the points across the lines in the order in which their lines
    lie; empty where these are one after the other.
    """

    width: int
    along: int
    count: int
    swizzle: Swizzle
    order: tuple[tuple[int, int], ...] = ()

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
    modes = coalesce(plain, (0, 0)).modes  # each by itself
    for along in (0, 1):
        points = max_common_vector(modes[along], Layout(tile.shape[along]))
        count, rest = divmod(tile.shape[along], points)
        if points == 1 or rest:
            continue
        panel = logical_product(Layout(points), Layout(tile.shape[1 - along]))
        line = panel.mode(0)
        behind = logical_product(panel, Layout(count)).mode(1)
        order = _order_of(modes[1 - along], points)
        if modes[along] == coalesce(concat(line, behind)) and order is not None:
            in_bytes = PLAIN if swizzle.plain else swizzle.recast(tile.bits, 8)
            return Panels(points * tile.bits // 8, along, count, in_bytes, order)
    return None


def _order_of(across: Layout, points: int) -> tuple[tuple[int, int], ...] | None:
    """The order of lines of `points` whose starts are `across`; None where they leave gaps."""
    if across.size == 1:
        return ()
    if any(stride % points for _, stride in across.flat()):
        return None
    number = Layout(
        tuple(size for size, _ in across.flat()),
        tuple(stride // points for _, stride in across.flat()),
    )
    found = right_inverse(number)
    if found.size != across.size:
        return None
    return tuple(found.flat()) if found.rank > 1 else ()


def _bare(swizzle: Swizzle) -> Swizzle:
    return PLAIN if swizzle.plain else swizzle
