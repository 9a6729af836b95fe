"""Lookups in tables that are the numbers of a code (FP4, a signed or an unsigned minifloat): by
integer arithmetic, where a table is read from memory for each element."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ir.targets.cuda.text.scalars import (
    literal,
    register_type,
    table_name,
    table_storage,
    table_text,
)

_MANTISSA = 23  # bits of an f32's


@dataclass(frozen=True, slots=True)
class Code:
    """The lowest `size` bits of an index, moved `up`, are those of an f32 that is `scale` times too
    small; the bit above them is its sign."""

    size: int
    up: int
    scale: float


def code_of(entries: tuple[float, ...], dtype: str) -> Code | None:
    """The code of which these are the numbers, if there is one; of zeros there is one only."""
    if any(entry == 0 and math.copysign(1, entry) < 0 for entry in entries):
        return None  # to a cache, it is the other zero
    return _code_of(entries, dtype)


@lru_cache(maxsize=64)
def _code_of(entries: tuple[float, ...], dtype: str) -> Code | None:
    count = len(entries)
    if dtype != "f32" or count < 4 or count & (count - 1):
        return None
    bits = count.bit_length() - 1
    codes, wanted = np.arange(count, dtype=np.uint32), np.array(entries, np.float64)
    for size in (bits - 1, bits):
        for up in range(_MANTISSA, _MANTISSA - size, -1):
            low = (codes & np.uint32((1 << size) - 1)) << np.uint32(up)
            numbers = (low | (codes >> np.uint32(size)) << np.uint32(31)).view(np.float32)
            made = numbers.astype(np.float64)
            if made[1] == 0 or not np.isfinite(made).all():
                continue
            scale = float(wanted[1] / made[1])
            if (
                np.frexp(scale)[0] == 0.5
                and 0 < scale < 2.0**128
                and (made * scale == wanted).all()
            ):
                return Code(size, up, scale)
    return None


def looked_up(entries: tuple[float, ...], dtype: str, index: str) -> str:
    """An entry of a table: made of the index, or read at it."""
    inside, code = f"tw_inside({index}, {len(entries)})", code_of(entries, dtype)
    if code is None:
        entry = f"{table_name(entries, dtype)}[{inside}]"
        kind = register_type(dtype)
        return entry if table_storage(entries, dtype) == kind else f"({kind}){entry}"
    return f"tw_coded({inside}, {code.size}, {code.up}, {literal(code.scale, 'f32')})"


def table_texts(tables: Iterable[tuple[tuple[float, ...], str]]) -> list[str]:
    """Those that are read from memory, each once."""
    return list(dict.fromkeys(table_text(*one) for one in tables if code_of(*one) is None))
