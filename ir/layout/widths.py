"""Widths of every element type: those of ir.dtypes. Knows no layout and no instruction."""

from __future__ import annotations

from ir.dtypes import DTYPES
from ir.layout.errors import LayoutError

WIDTHS: dict[str, int] = {name: dtype.bits for name, dtype in DTYPES.items()}


def bits(dtype: str) -> int:
    """Width of one element in bits; LayoutError "unknown-dtype" names the known ones."""
    if dtype not in WIDTHS:
        known = ", ".join(WIDTHS)
        raise LayoutError("unknown-dtype", f"unknown dtype {dtype!r}: known are {known}")
    return WIDTHS[dtype]
