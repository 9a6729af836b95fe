"""Who holds what in mma.sync and wgmma: tables written from the PTX ISA's index formulas.

A table is (rows, columns), each [thread, value]: A as (m, k), B as (n, k), C as (m, n). From
"Matrix Fragments" of mma and wgmma.mma_async in the PTX ISA 8; group = lane div 4, q = lane mod 4.
Registers are 32 bits: one of w-bit elements holds 32 / w of them side by side in k.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tests.layout.checker.values import width

Table = NDArray[np.int64]
_NAME = re.compile(
    r"(?P<family>w?g?mma)\.m(?P<m>\d+)n(?P<n>\d+)k(?P<k>\d+)\.(?P<dtype>\w+)(?:\.(?P<form>\w+))?$"
)
DTYPES = {"s8": "i8", "s4": "i4"}


@dataclass(frozen=True, slots=True)
class MatrixInstruction:
    """What the name of a matrix instruction says; `form` is "rr" for mma, else "ss" or "rs"."""

    name: str
    group: bool
    m: int
    n: int
    k: int
    dtype: str
    form: str

    @property
    def threads(self) -> int:
        return 128 if self.group else 32

    @property
    def bits(self) -> int:
        return width(self.dtype)


@lru_cache(maxsize=1024)
def instruction(name: str) -> MatrixInstruction:
    """Read "mma.m16n8k16.f16" or "wgmma.m64n128k16.bf16.ss"; ValueError when it is neither."""
    match = _NAME.match(name)
    if match is None or match["family"] not in ("mma", "wgmma"):
        raise ValueError(f"{name!r} names no matrix instruction")
    group = match["family"] == "wgmma"
    dtype = DTYPES.get(match["dtype"], match["dtype"])
    form = match["form"] or ("ss" if group else "rr")
    m, n, k = (int(match[axis]) for axis in "mnk")
    found = MatrixInstruction(name, group, m, n, k, dtype, form)
    _exists(found)
    return found


_MMA_DEPTHS = {
    "f16": (8, 16), "bf16": (8, 16), "tf32": (4, 8), "i8": (16, 32), "u8": (16, 32),
    "e4m3": (16, 32), "e5m2": (16, 32), "i4": (32, 64), "u4": (32, 64),
}  # fmt: skip


def _exists(row: MatrixInstruction) -> None:
    """Refuse shapes that the hardware does not have (PTX ISA, mma and wgmma.mma_async)."""
    if row.group:
        depth = 256 // row.bits
        widths = range(8, 257, 8)
        if row.dtype in ("i8", "u8"):
            widths = [8, 16, 24, *range(32, 257, 16)]  # type: ignore[assignment]
        legal = row.m == 64 and row.k == depth and row.n in widths and row.bits >= 8
    else:
        legal = (row.m, row.n) == (16, 8) and row.k in _MMA_DEPTHS.get(row.dtype, ())
    if not legal:
        raise ValueError(f"{row.name!r}: the hardware has no such shape")


def _lanes(threads: int) -> tuple[Table, Table, Table]:
    thread = np.arange(threads, dtype=np.int64)[:, None]
    return thread // 32, (thread % 32) // 4, thread % 4


@lru_cache(maxsize=1024)
def operand_a(row: MatrixInstruction) -> tuple[Table, Table]:
    """(m, k) of every register element of A: [threads, values]."""
    pack = max(1, 32 // row.bits)
    warp, group, q = _lanes(row.threads)
    registers = row.k * row.m * row.bits // (32 * row.threads)
    value = np.arange(registers * pack, dtype=np.int64)[None, :]
    register, within = value // pack, value % pack
    m = warp * 16 + group + 8 * (register % 2)
    k = (q * pack + within) + 4 * pack * (register // 2)
    return m, k + 0 * m


@lru_cache(maxsize=1024)
def operand_b(row: MatrixInstruction) -> tuple[Table, Table]:
    """(n, k) of every register element of B: [threads, values]; mma.sync only."""
    pack = max(1, 32 // row.bits)
    _, group, q = _lanes(row.threads)
    value = np.arange(row.k * row.n // row.threads, dtype=np.int64)[None, :]
    register, within = value // pack, value % pack
    return group + 0 * value, q * pack + within + 4 * pack * register


@lru_cache(maxsize=1024)
def accumulator(row: MatrixInstruction) -> tuple[Table, Table]:
    """(m, n) of every accumulator element: [threads, values]."""
    warp, group, q = _lanes(row.threads)
    value = np.arange(row.m * row.n // row.threads, dtype=np.int64)[None, :]
    m = warp * 16 + group + 8 * ((value // 2) % 2)
    return m, 8 * (value // 4) + 2 * q + value % 2
