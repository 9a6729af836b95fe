"""The registry of instruction rows: `find` by name, `matrix_rows` by type and target.

An instruction set is one module with a tuple ROWS; a new one is added to FAMILIES.
"""

from __future__ import annotations

import difflib
from functools import lru_cache

from ir.layout.errors import LayoutError
from ir.layout.instructions import copies, matrix_copy, mma, tma, wgmma
from ir.layout.instructions.rows import (
    MatrixRow,
    Row,
)

FAMILIES: tuple[tuple[Row, ...], ...] = (
    mma.ROWS,
    wgmma.ROWS,
    matrix_copy.ROWS,
    copies.ROWS,
    tma.ROWS,
)
ROWS: dict[str, Row] = {row.name: row for family in FAMILIES for row in family}


def find(name: str) -> Row:
    """The row called `name`; LayoutError "unknown-instruction" names the nearest."""
    row = ROWS.get(name)
    if row is not None:
        return row
    nearest = difflib.get_close_matches(name, ROWS, n=3, cutoff=0)
    raise LayoutError(
        "unknown-instruction",
        f"unknown instruction {name!r} among {len(ROWS)}: nearest are {', '.join(nearest)}",
    )


@lru_cache(maxsize=64)
def matrix_rows(dtype: str, sm: int) -> tuple[MatrixRow, ...]:
    """The rows that multiply A of `dtype` on a target, those of warps before those of groups."""
    return tuple(
        row
        for row in ROWS.values()
        if isinstance(row, MatrixRow) and row.a.dtype == dtype and row.sm <= sm
    )
