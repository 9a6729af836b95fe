"""The warp group's matrix instructions, all from one row with n, the type and A's place as its
parameters (PTX ISA, "Asynchronous warpgroup level matrix multiply-accumulate instructions").

Where shared operands lie is descriptor.py's affair; here every thread sees their whole tile.
"""

from __future__ import annotations

from functools import lru_cache

from ir.layout.instructions.rows import Cost, MatrixRow, Operand, suffix
from ir.layout.layout import Layout

M, THREADS = 64, 128
REQUIRES = "sm_90a"
EVERY_N = tuple(range(8, 257, 8))
INTEGER_N = (8, 16, 24, *range(32, 257, 16))
SHARED_CYCLES_A = 16
"""Cycles to read one A tile of 64 x 32 bytes from shared memory at 128 bytes a cycle."""

REGISTER_A: dict[int, Layout] = {
    # bits of an element: A from registers, four 32-bit registers in every type
    16: Layout(((4, 8, 4), (2, 2, 2)), ((128, 1, 16), (64, 8, 512))),
    8: Layout(((4, 8, 4), (4, 2, 2)), ((256, 1, 16), (64, 8, 1024))),
    32: Layout(((4, 8, 4), (2, 2)), ((64, 1, 16), (8, 256))),
}

TYPES: tuple[tuple[str, tuple[str, ...], tuple[str, ...], int, tuple[int, ...]], ...] = (
    # A's type, B's legal types, accumulators, bits, the n there are
    ("f16", ("f16",), ("f32", "f16"), 16, EVERY_N),
    ("bf16", ("bf16",), ("f32",), 16, EVERY_N),
    ("tf32", ("tf32",), ("f32",), 32, EVERY_N),
    ("e4m3", ("e4m3", "e5m2"), ("f32", "f16"), 8, EVERY_N),
    ("e5m2", ("e5m2", "e4m3"), ("f32", "f16"), 8, EVERY_N),
    ("i8", ("i8", "u8"), ("i32",), 8, INTEGER_N),
    ("u8", ("u8", "i8"), ("i32",), 8, INTEGER_N),
)


@lru_cache(maxsize=64)
def accumulator(n: int) -> Layout:
    """(thread, value) -> m + 64 n of the accumulator, the same for all types."""
    across = 8 * M if n > 8 else 0
    return Layout(((4, 8, 4), (2, 2, n // 8)), ((128, 1, 16), (64, 8, across)))


@lru_cache(maxsize=256)
def seen_by_all(rows: int, k: int) -> Layout:
    """The pseudo layout of a shared operand: every thread sees all of rows x k."""
    return Layout((THREADS, (rows, k)), (0, (1, rows)))


def cost(n: int, shared_a: bool) -> Cost:
    """The tensor unit takes n/2 cycles; reading shared memory takes n/4, and 16 more for A."""
    reading = n / 4 + (SHARED_CYCLES_A if shared_a else 0)
    busy = max(n / 2, reading)
    return Cost(issue=busy, latency=busy)


def _row(
    dtype: str,
    partners: tuple[str, ...],
    accumulators: tuple[str, ...],
    width: int,
    n: int,
    form: str,
) -> MatrixRow:
    k = 256 // width
    majors = ("k", "mn") if width == 16 else ("k",)
    shared = form == "ss"
    a = (
        Operand((M, k), seen_by_all(M, k), (dtype,), "shared", majors)
        if shared
        else Operand((M, k), REGISTER_A[width], (dtype,))
    )
    return MatrixRow(
        name=f"wgmma.m{M}n{n}k{k}.{suffix(dtype)}.{form}",
        kind="wgmma",
        threads=THREADS,
        a=a,
        b=Operand((n, k), seen_by_all(n, k), partners, "shared", majors),
        c=Operand((M, n), accumulator(n), accumulators),
        requires=REQUIRES,
        cost=cost(n, shared),
    )


ROWS: tuple[MatrixRow, ...] = tuple(
    _row(dtype, partners, accumulators, width, n, form)
    for dtype, partners, accumulators, width, extents in TYPES
    for n in extents
    for form in ("ss", "rs")
)
