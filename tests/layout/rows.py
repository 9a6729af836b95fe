"""Rows of instructions as the tests ask for them: by name and kind."""

from __future__ import annotations

from ir.layout.instructions import ROWS, CopyRow, MatrixRow, find


def find_matrix(name: str) -> MatrixRow:
    row = find(name)
    assert isinstance(row, MatrixRow), row
    return row


def find_copy(name: str) -> CopyRow:
    row = find(name)
    assert isinstance(row, CopyRow), row
    return row


def multiplying(kind: str) -> tuple[MatrixRow, ...]:
    return tuple(row for row in ROWS.values() if isinstance(row, MatrixRow) and row.kind == kind)


def copying(kind: str) -> tuple[CopyRow, ...]:
    return tuple(row for row in ROWS.values() if isinstance(row, CopyRow) and row.kind == kind)
