"""Numpy meanings of functions of whole numbers, tables and bits, on arrays that are int64.

What overflows a narrower dtype keeps its low bits. Works on arrays of libraries like numpy too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ir.dtypes import dtype_of, from_float, is_float, numpy_dtype, rounded, to_float, whole_range
from ir.errors import ProgramError
from ir.printable import shortened

MOST_ENTRIES = 256  # of a lookup table


def wrapped(value: Any, dtype: str) -> Any:
    """The low bits of whole numbers, as numbers of `dtype`."""
    return value.astype(numpy_dtype(dtype)).astype(value.dtype)


def shl(value: Any, amount: Any, dtype: str) -> Any:
    """x * 2^n; all bits are gone where n is the width or more, or below 0."""
    return wrapped(np.left_shift(value, amount), dtype)


def floordiv(value: Any, divisor: Any, dtype: str) -> Any:
    """Rounded down, as Python's //; 0 where the divisor is 0."""
    return wrapped(np.floor_divide(value, divisor), dtype)


def popcount(value: Any, dtype: str) -> Any:
    """How many bits of each number are set."""
    count = value & 0
    for bit in range(dtype_of(dtype).bits):
        count = count + (np.right_shift(value, bit) & 1)
    return count


def bitcast(value: Any, source: str, target: str) -> Any:
    """The numbers of `target` that have the bits of `value`, which is of `source`."""
    stored = from_float(value, source) if is_float(source) else value.astype(numpy_dtype(source))
    return to_float(stored.view(numpy_dtype(target)), target)


def table_of(entries: Sequence[float], dtype: str) -> tuple[float, ...]:
    """The entries of a table as `dtype` has them."""
    if not is_float(dtype):
        return tuple(int(entry) for entry in entries)
    return tuple(float(entry) for entry in rounded(np.array(entries, np.float64), dtype))


def lookup(index: Any, table: Sequence[float], dtype: str) -> Any:
    """The entry at each index; the first one below 0, the last one beyond the end."""
    kind = np.float64 if is_float(dtype) else np.int64
    entries = np.asarray(table_of(table, dtype), dtype=kind, like=index)
    return entries[np.clip(index, 0, len(table) - 1)]


def refuse_table(table: Sequence[float] | None, dtype: str | None) -> None:
    """Raises ProgramError for what is no table of a lookup."""
    if table is None or dtype is None:
        raise ProgramError("lookup: it needs a table and the dtype of its entries")
    if not 1 <= len(table) <= MOST_ENTRIES:
        raise ProgramError(f"lookup: {len(table)} entries; a table has 1 to {MOST_ENTRIES}")
    if dtype_of(dtype).kind == "bool":
        raise ProgramError(
            "lookup: entries are numbers; compare them with == or < for truth values"
        )
    low, high = (-math.inf, math.inf) if is_float(dtype) else whole_range(dtype)
    for number, entry in enumerate(table):
        if not low <= entry <= high or (not is_float(dtype) and entry != int(entry)):
            raise ProgramError(
                f"lookup: entry {number} is {shortened(str(entry))}, which is no {dtype}"
            )


def refuse_bitcast(source: str, target: str | None) -> None:
    """Raises ProgramError where the bits of one dtype are none of the other."""
    if target is None:
        raise ProgramError("bitcast: it needs the dtype that the bits are read as")
    widths = [dtype_of(name).bits for name in (source, target)]
    if widths[0] != widths[1]:
        raise ProgramError(
            f"bitcast: {source} has {widths[0]} bits, {target} has {widths[1]}; widths must agree"
        )
    for name in (source, target):
        if dtype_of(name).kind == "bool":
            raise ProgramError(f"bitcast: {source} to {target}; the bits of bool are nobody's")
