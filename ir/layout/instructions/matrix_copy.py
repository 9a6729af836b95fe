"""ldmatrix and stmatrix (PTX ISA, "Warp-level matrix load/store instruction").

Data only. The piece copied is 8 R rows of 128 bits; bit index = bit + 128 row, matrix i holding
rows 8 i to 8 i + 7. Lane t gives the address of row t (of row t mod 8 R for fewer than 4).
"""

from __future__ import annotations

from ir.layout.instructions.rows import CopyRow
from ir.layout.layout import Layout

THREADS, ROW_BITS, ROWS_OF_MATRIX = 32, 128, 8


def row_addresses(matrices: int) -> Layout:
    """(lane, bit) -> bit on the memory's side; lanes past the last row are stride 0."""
    rows = ROWS_OF_MATRIX * matrices
    if rows == THREADS:
        return Layout((THREADS, ROW_BITS), (ROW_BITS, 1))
    return Layout(((rows, THREADS // rows), ROW_BITS), ((ROW_BITS, 0), 1))


def fragments(matrices: int, transposed: bool) -> Layout:
    """(lane, bit) -> bit on the registers' side: one 32-bit register for each matrix."""
    size = ROW_BITS * ROWS_OF_MATRIX
    if transposed:
        return Layout(((4, 8), (16, 2, matrices)), ((256, 16), (1, ROW_BITS, size)))
    return Layout((THREADS, (32, matrices)), (32, (1, size)))


def _row(stem: str, matrices: int, transposed: bool) -> CopyRow:
    loads = stem == "ldmatrix"
    memory, registers = row_addresses(matrices), fragments(matrices, transposed)
    return CopyRow(
        name=f"{stem}.x{matrices}" + (".trans" if transposed else ""),
        kind=stem,
        threads=THREADS,
        bits=32 * matrices,
        alignment=16,
        extents=(ROW_BITS, ROWS_OF_MATRIX * matrices),
        source=memory if loads else registers,
        destination=registers if loads else memory,
        requires="sm_75" if loads else "sm_90",
        matrices=matrices,
        transposed=transposed,
    )


ROWS: tuple[CopyRow, ...] = tuple(
    _row(stem, matrices, transposed)
    for stem in ("ldmatrix", "stmatrix")
    for matrices in (4, 2, 1)
    for transposed in (False, True)
)
