"""Dividing layouts by tilers: the tile in one mode, the rest in another (CuTe's divides).

A tiler is a layout, an extent, or a tuple of these, one for each mode from the left.
"""

from __future__ import annotations

from ir.layout.algebra import UNIT, complement, composition
from ir.layout.errors import LayoutError
from ir.layout.layout import Layout, concat

Tiler = Layout | int | tuple["Tiler", ...]


def logical_divide(layout: Layout, tiler: Tiler) -> Layout:
    """`layout` after (tiler, its complement); with a tuple mode by mode, further modes as they are.

    Raises LayoutError: rank for too long a tuple, and what composition and complement raise.
    """
    if not isinstance(tiler, tuple):
        tile = _as_layout(tiler)
        return composition(layout, concat(tile, complement(tile, layout.size)))
    parts = [logical_divide(mode, part) for mode, part in _pairs(layout, tiler)]
    return concat(*parts, *layout.modes[len(tiler) :])


def zipped_divide(layout: Layout, tiler: Tiler) -> Layout:
    """(tiles, rests): what logical_divide gives, gathered; further modes join the rests."""
    tiles, rests = _parts(layout, tiler)
    return concat(_gathered(tiles), _gathered(rests))


def tiled_divide(layout: Layout, tiler: Tiler) -> Layout:
    """(tiles, rest, rest, ...): as zipped_divide, with the rests side by side."""
    tiles, rests = _parts(layout, tiler)
    return concat(_gathered(tiles), *rests)


def flat_divide(layout: Layout, tiler: Tiler) -> Layout:
    """(tile, tile, ..., rest, rest, ...): everything side by side."""
    tiles, rests = _parts(layout, tiler)
    return concat(*tiles, *rests)


def _as_layout(tiler: Layout | int) -> Layout:
    return tiler if isinstance(tiler, Layout) else Layout(tiler, 1)


def _pairs(layout: Layout, tiler: tuple[Tiler, ...]) -> list[tuple[Layout, Tiler]]:
    if len(tiler) > layout.rank:
        raise LayoutError("rank", f"a tiler of {len(tiler)} parts on {layout.rank} modes: {layout}")
    return list(zip(layout.modes, tiler, strict=False))


def _parts(layout: Layout, tiler: Tiler) -> tuple[list[Layout], list[Layout]]:
    """Tiles and rests of every mode."""
    if not isinstance(tiler, tuple):
        tile, rest = logical_divide(layout, tiler).modes
        return [tile], [rest]
    tiles, rests = [], []
    for mode, part in _pairs(layout, tiler):
        divided = zipped_divide(mode, part)
        tiles.append(divided.mode(0))
        rests.append(divided.mode(1))
    return tiles, [*rests, *layout.modes[len(tiler) :]]


def _gathered(parts: list[Layout]) -> Layout:
    if not parts:
        return UNIT
    return parts[0] if len(parts) == 1 else concat(*parts)
