"""The order in which tiles of a grid are numbered: rows, columns, bands of either, or patches.

A band is taken across its short side. Patches are rectangles in bands of rectangles; inside one,
tiles go line by line. Every other band is taken backwards, and every other patch of it upwards:
tiles that run at a time form a rectangle, and what follows shares one of its sides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ir.targets.cuda.text.writer import Writer

BANDS = ("rows", "columns", "rows4", "rows8", "rows16", "columns4", "columns8", "columns16")
PATCHES = {
    f"patch{rows}x{columns}": (rows, columns)
    for rows, columns in ((8, 8), (16, 8), (8, 16), (16, 16), (32, 8))
}


def declare_place(w: Writer, raster: str, tile: str, rows: int, columns: int) -> tuple[str, str]:
    """Declare row and column of the tile numbered `tile` in a grid; returns their names."""
    row, column = w.name("row"), w.name("column")
    if raster in PATCHES and rows > 1 and columns > 1:
        _place_in_patch(w, PATCHES[raster], tile, (rows, columns), (row, column))
    elif raster == "rows" or columns == 1:
        w.line(f"const i32 {row} = {tile} % {rows}, {column} = {tile} / {rows};")
    elif raster == "columns" or rows == 1:
        w.line(f"const i32 {row} = {tile} / {columns}, {column} = {tile} % {columns};")
    else:
        along = "rows" if raster.startswith("rows") else "columns"
        height = int(raster[len(along) :])
        major, minor = (rows, columns) if along == "rows" else (columns, rows)
        _, first, size, inside = _declare_band(w, tile, height, major, minor)
        one, other = (row, column) if along == "rows" else (column, row)
        w.line(f"const i32 {one} = {first} + {inside} % {size}, {other} = {inside} / {size};")
    return row, column


def run_of(raster: str, rows: int, columns: int) -> int:
    """Tiles that are numbered one after another along one line, before the next line begins."""
    if raster == "hilbert":
        raster = "rows"
    if raster in PATCHES and rows > 1 and columns > 1:
        return min(PATCHES[raster][1], columns)
    if raster == "rows" or columns == 1:
        return rows
    if raster == "columns" or rows == 1:
        return columns
    along = "rows" if raster.startswith("rows") else "columns"
    return min(int(raster[len(along) :]), rows if along == "rows" else columns)


def _declare_band(
    w: Writer, tile: str, height: int, major: int, minor: int
) -> tuple[str, str, str, str]:
    """Declare a tile's band: its number, first line and lines, and the tile's number inside."""
    band, first, size = w.name("band"), w.name("first"), w.name("size")
    w.line(f"const i32 {band} = {tile} / {height * minor}, {first} = {band} * {height};")
    w.line(f"const i32 {size} = min({height}, {major} - {first});")
    inside = w.name("inside")
    w.line(f"const i32 {inside} = {tile} - {band} * {height * minor};")
    return band, first, size, inside


def _place_in_patch(
    w: Writer, patch: tuple[int, int], tile: str, grid: tuple[int, int], names: tuple[str, str]
) -> None:
    (height, width), (rows, columns), (row, column) = patch, grid, names
    band, first, size, inside = _declare_band(w, tile, height, rows, columns)
    number, left, wide = w.name("patch"), w.name("left"), w.name("wide")
    w.line(f"const i32 {number} = {inside} / ({size} * {width}), {left} = {number} * {width};")
    w.line(f"const i32 {wide} = min({width}, {columns} - {left});")
    at, line, across = w.name("at"), w.name("line"), w.name("across")
    w.line(f"const i32 {at} = {inside} - {left} * {size};")
    w.line(f"const i32 {line} = {at} / {wide}, {across} = {left} + {at} % {wide};")
    up, back = f"{number} % 2 * ({size} - 1 - 2 * {line})", f"{columns - 1} - 2 * {across}"
    w.line(f"const i32 {row} = {first} + {line} + {up};")
    w.line(f"const i32 {column} = {across} + {band} % 2 * ({back});")


def patches_fit(chosen: Any, rows: Any, columns: Any) -> Any:
    """Where a patch is no larger than the grid needs, and not all of it: there it is an order of
    its own. `chosen(raster)` tells where a raster is chosen; arrays over schedules.
    """
    passed: Any = np.ones_like(rows * columns, dtype=bool)
    for name, (height, width) in PATCHES.items():
        needed = (2 * rows > height) & (2 * columns > width)
        several = (rows > height) | (columns > width)
        passed &= ~chosen(name) | (needed & several)
    return passed
