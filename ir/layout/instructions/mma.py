"""The warp's matrix instructions (PTX ISA, "Matrix multiply-accumulate using mma instruction").

Data only: one line per shape and type. A index m + M k, B index n + N k, C index m + M n.
"""

from __future__ import annotations

from ir.layout.instructions.rows import Cost, MatrixRow, Operand, suffix
from ir.layout.layout import Layout

M, N, THREADS = 16, 8, 32
LATENCY = 16.0
ACCUMULATOR = Layout(((4, 8), (2, 2)), ((32, 1), (16, 8)))

FRAGMENTS: dict[tuple[int, int], tuple[Layout, Layout]] = {
    # (bits of an element, k): fragments of A and of B
    (16, 8): (
        Layout(((4, 8), (2, 2)), ((32, 1), (16, 8))),
        Layout(((4, 8), 2), ((16, 1), 8)),
    ),
    (16, 16): (
        Layout(((4, 8), (2, 2, 2)), ((32, 1), (16, 8, 128))),
        Layout(((4, 8), (2, 2)), ((16, 1), (8, 64))),
    ),
    (32, 4): (
        Layout(((4, 8), 2), ((16, 1), 8)),
        Layout(((4, 8), 1), ((8, 1), 0)),
    ),
    (32, 8): (
        Layout(((4, 8), (2, 2)), ((16, 1), (8, 64))),
        Layout(((4, 8), 2), ((8, 1), 32)),
    ),
    (8, 16): (
        Layout(((4, 8), (4, 2)), ((64, 1), (16, 8))),
        Layout(((4, 8), 4), ((32, 1), 8)),
    ),
    (8, 32): (
        Layout(((4, 8), (4, 2, 2)), ((64, 1), (16, 8, 256))),
        Layout(((4, 8), (4, 2)), ((32, 1), (8, 128))),
    ),
    (4, 32): (
        Layout(((4, 8), (8, 2)), ((128, 1), (16, 8))),
        Layout(((4, 8), 8), ((64, 1), 8)),
    ),
    (4, 64): (
        Layout(((4, 8), (8, 2, 2)), ((128, 1), (16, 8, 512))),
        Layout(((4, 8), (8, 2)), ((64, 1), (8, 256))),
    ),
}

TYPES: tuple[tuple[str, tuple[str, ...], tuple[str, ...], int, tuple[int, ...], str], ...] = (
    # A's type, B's legal types, accumulators, bits, the k there are, least target
    ("f16", ("f16",), ("f32", "f16"), 16, (8, 16), "sm_80"),
    ("bf16", ("bf16",), ("f32",), 16, (8, 16), "sm_80"),
    ("tf32", ("tf32",), ("f32",), 32, (4, 8), "sm_80"),
    ("i8", ("i8", "u8"), ("i32",), 8, (16, 32), "sm_80"),
    ("u8", ("u8", "i8"), ("i32",), 8, (16, 32), "sm_80"),
    ("e4m3", ("e4m3", "e5m2"), ("f32", "f16"), 8, (16, 32), "sm_89"),
    ("e5m2", ("e5m2", "e4m3"), ("f32", "f16"), 8, (16, 32), "sm_89"),
    ("i4", ("i4", "u4"), ("i32",), 4, (32, 64), "sm_80"),
    ("u4", ("u4", "i4"), ("i32",), 4, (32, 64), "sm_80"),
)


def _row(
    dtype: str,
    partners: tuple[str, ...],
    accumulators: tuple[str, ...],
    width: int,
    k: int,
    requires: str,
) -> MatrixRow:
    """Issue is 8 cycles for 32 bytes of k and half of that for 16; on sm_90 the unit reaches
    62 to 65 % of what wgmma does, and 4-bit types are emulated there."""
    a, b = FRAGMENTS[width, k]
    return MatrixRow(
        name=f"mma.m{M}n{N}k{k}.{suffix(dtype)}",
        kind="mma",
        threads=THREADS,
        a=Operand((M, k), a, (dtype,)),
        b=Operand((N, k), b, partners),
        c=Operand((M, N), ACCUMULATOR, accumulators),
        requires=requires,
        cost=Cost(issue=k * width / 32, latency=LATENCY),
    )


ROWS: tuple[MatrixRow, ...] = tuple(
    _row(dtype, partners, accumulators, width, k, requires)
    for dtype, partners, accumulators, width, depths, requires in TYPES
    for k in depths
)
