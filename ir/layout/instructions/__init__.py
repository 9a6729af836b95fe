"""The registry of instruction rows: `find` by name, `rows` by what is asked of them.

An instruction set is one module with a tuple ROWS; a new one is added to FAMILIES.
"""

from __future__ import annotations

import difflib
from functools import lru_cache

from ir.layout.errors import LayoutError
from ir.layout.instructions import copies, lanes, matrix_copy, mma, tma, wgmma
from ir.layout.instructions.rows import (
    SHUFFLE,
    TWIN,
    CopyRow,
    Cost,
    MatrixRow,
    Operand,
    Path,
    Row,
    TmaRow,
    in_elements,
    swapped,
)

__all__ = [
    "SHUFFLE",
    "CopyRow",
    "Cost",
    "MatrixRow",
    "Operand",
    "Path",
    "Row",
    "TmaRow",
    "copy_rows",
    "find",
    "find_copy",
    "find_matrix",
    "in_elements",
    "matrix_rows",
    "rows",
    "swapped",
]

MATRIX_KINDS = ("mma", "wgmma", "lanes")
COPY_KINDS = ("load", "store", "cp.async", "ldmatrix", "stmatrix", "red")
FAMILIES: tuple[tuple[Row, ...], ...] = (
    mma.ROWS,
    wgmma.ROWS,
    matrix_copy.ROWS,
    copies.ROWS,
    tma.ROWS,
    lanes.ROWS,
)
ROWS: dict[str, Row] = {row.name: row for family in FAMILIES for row in family}


def find(name: str) -> Row:
    """The row called `name`; "<name>.swap" is the transposed twin of a matrix row.

    LayoutError "unknown-instruction" names the nearest.
    """
    row = ROWS.get(name)
    if row is not None:
        return row
    base = ROWS.get(name.removesuffix(TWIN)) if name.endswith(TWIN) else None
    if isinstance(base, MatrixRow):
        return _twin(base.name)
    nearest = difflib.get_close_matches(name, ROWS, n=3, cutoff=0)
    raise LayoutError(
        "unknown-instruction",
        f"unknown instruction {name!r} among {len(ROWS)}: nearest are {', '.join(nearest)}",
    )


def find_matrix(name: str) -> MatrixRow:
    """`find` for a row that multiplies; LayoutError "wrong-kind" otherwise."""
    row = find(name)
    if not isinstance(row, MatrixRow):
        raise LayoutError("wrong-kind", f"{name} is of kind {row.kind}, not a matrix instruction")
    return row


def find_copy(name: str) -> CopyRow:
    """`find` for a row by which threads copy; LayoutError "wrong-kind" otherwise."""
    row = find(name)
    if not isinstance(row, CopyRow):
        raise LayoutError("wrong-kind", f"{name} is of kind {row.kind}, not a copy by threads")
    return row


def rows(
    kind: str | None = None,
    *,
    dtype: str | None = None,
    accumulator: str | None = None,
    source: str | None = None,
    destination: str | None = None,
    sm: int | None = None,
    twins: bool = False,
) -> tuple[Row, ...]:
    """The rows that fit all of what is given, in the order of their tables.

    `dtype`: A's type of a matrix row, a type that a copy takes; `accumulator`: a legal type of C;
    `source`, `destination`: scopes of a copy; `sm`: what the target has, so rows that need more
    are left out, and rows of a CPU too; `twins`: each matrix row is followed by its twin.
    """
    found = _select(kind, dtype, accumulator, source, destination, sm)
    if not twins:
        return found
    return tuple(
        both
        for row in found
        for both in ((row, _twin(row.name)) if isinstance(row, MatrixRow) else (row,))
    )


def matrix_rows(
    kind: str | None = None,
    *,
    dtype: str | None = None,
    accumulator: str | None = None,
    sm: int | None = None,
    twins: bool = False,
) -> tuple[MatrixRow, ...]:
    """`rows` that multiply."""
    found = rows(kind, dtype=dtype, accumulator=accumulator, sm=sm, twins=twins)
    return tuple(row for row in found if isinstance(row, MatrixRow))


def copy_rows(
    kind: str | None = None,
    *,
    dtype: str | None = None,
    source: str | None = None,
    destination: str | None = None,
    sm: int | None = None,
) -> tuple[CopyRow, ...]:
    """`rows` by which threads copy; of each kind the widest first."""
    found = rows(kind, dtype=dtype, source=source, destination=destination, sm=sm)
    return tuple(row for row in found if isinstance(row, CopyRow))


@lru_cache(maxsize=256)
def _select(
    kind: str | None,
    dtype: str | None,
    accumulator: str | None,
    source: str | None,
    destination: str | None,
    sm: int | None,
) -> tuple[Row, ...]:
    return tuple(
        row
        for row in ROWS.values()
        if (kind is None or row.kind == kind)
        and (dtype is None or _takes(row, dtype))
        and (accumulator is None or _accumulates(row, accumulator))
        and ((source is None and destination is None) or _goes(row, source, destination))
        and (sm is None or 0 < row.sm <= sm)
    )


@lru_cache(maxsize=1024)
def _twin(name: str) -> MatrixRow:
    row = ROWS[name]
    assert isinstance(row, MatrixRow)
    return swapped(row)


def _takes(row: Row, dtype: str) -> bool:
    return row.a.dtype == dtype if isinstance(row, MatrixRow) else dtype in (row.dtypes or (dtype,))


def _accumulates(row: Row, accumulator: str) -> bool:
    return isinstance(row, MatrixRow) and accumulator in row.c.dtypes


def _goes(row: Row, source: str | None, destination: str | None) -> bool:
    if isinstance(row, MatrixRow):
        return False
    ends = (
        ((row.source, row.destination),)
        if isinstance(row, TmaRow)
        else tuple((path.source, path.destination) for path in row.paths)
    )
    return any(source in (None, start) and destination in (None, end) for start, end in ends)
