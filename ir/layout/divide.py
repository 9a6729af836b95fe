"""Dividing layouts by tilers: the tile in one mode, the rest in another (CuTe's divides).

A tiler is a layout, an extent, or a tuple of these, one for each mode from the left.
"""

from __future__ import annotations

from collections.abc import Callable

from ir.layout.algebra import UNIT, Tiler, as_layout, complement, composition, paired
from ir.layout.layout import Layout, concat

Parts = tuple[list[Layout], list[Layout]]


def logical_divide(layout: Layout, tiler: Tiler) -> Layout:
    """`layout` after (tiler, its complement); with a tuple mode by mode, further modes as they are.

    Raises LayoutError: rank for too long a tuple, and what composition and complement raise.
    """
    if not isinstance(tiler, tuple):
        tile = as_layout(tiler)
        return composition(layout, concat(tile, complement(tile, layout.size)))
    parts = [logical_divide(*pair) for pair in paired(layout, tiler)]
    return concat(*parts, *layout.modes[len(tiler) :])


def zipped_divide(layout: Layout, tiler: Tiler) -> Layout:
    """(tiles, rests): what logical_divide gives, gathered; further modes join the rests."""
    return zipped(*parts_of(layout, tiler, logical_divide))


def tiled_divide(layout: Layout, tiler: Tiler) -> Layout:
    """(tiles, rest, rest, ...): as zipped_divide, with the rests side by side."""
    return tiled(*parts_of(layout, tiler, logical_divide))


def flat_divide(layout: Layout, tiler: Tiler) -> Layout:
    """(tile, tile, ..., rest, rest, ...): everything side by side."""
    tiles, rests = parts_of(layout, tiler, logical_divide)
    return concat(*tiles, *rests)


# -- forms of what a divide or a product gives


def parts_of(layout: Layout, tiler: Tiler, logical: Callable[[Layout, Tiler], Layout]) -> Parts:
    """First and second parts of what `logical` makes of every mode; further modes are second."""
    if not isinstance(tiler, tuple):
        first, second = logical(layout, tiler).modes
        return [first], [second]
    pairs = [zipped(*parts_of(*pair, logical)).modes for pair in paired(layout, tiler)]
    return [a for a, _ in pairs], [*(b for _, b in pairs), *layout.modes[len(tiler) :]]


def zipped(first: list[Layout], second: list[Layout]) -> Layout:
    """(first parts, second parts)."""
    return concat(_gathered(first), _gathered(second))


def tiled(first: list[Layout], second: list[Layout]) -> Layout:
    """(first parts, second, second, ...)."""
    return concat(_gathered(first), *second)


def _gathered(parts: list[Layout]) -> Layout:
    if not parts:
        return UNIT
    return parts[0] if len(parts) == 1 else concat(*parts)
