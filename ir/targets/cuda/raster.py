"""The order in which tiles of a grid are numbered: rows, columns, or bands of either."""

from __future__ import annotations

from ir.targets.cuda.writer import Writer


def declare_place(w: Writer, raster: str, tile: str, rows: int, columns: int) -> tuple[str, str]:
    """Declare row and column of the tile numbered `tile` in a grid; returns their names."""
    row, column = w.name("row"), w.name("column")
    if raster == "rows" or columns == 1:
        w.line(f"const i32 {row} = {tile} % {rows}, {column} = {tile} / {rows};")
    elif raster == "columns" or rows == 1:
        w.line(f"const i32 {row} = {tile} / {columns}, {column} = {tile} % {columns};")
    else:
        along = "rows" if raster.startswith("rows") else "columns"
        height = int(raster[len(along) :])
        major, minor = (rows, columns) if along == "rows" else (columns, rows)
        band, first, size = w.name("band"), w.name("first"), w.name("size")
        w.line(f"const i32 {band} = {tile} / {height * minor}, {first} = {band} * {height};")
        w.line(f"const i32 {size} = min({height}, {major} - {first});")
        inside = w.name("inside")
        w.line(f"const i32 {inside} = {tile} - {band} * {height * minor};")
        one, other = (row, column) if along == "rows" else (column, row)
        w.line(f"const i32 {one} = {first} + {inside} % {size}, {other} = {inside} / {size};")
    return row, column
