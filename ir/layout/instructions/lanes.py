"""The CPU's vector lanes and matrix tiles as rows of the same form. Data only.

A "thread" is a lane as wide as the accumulator; the narrow elements that a dot product sums inside
it are its values, so the pairs and quads of k that such an instruction wants lie in the layout of
B. A is one element, pair or quad broadcast to all lanes. In an AMX tile a "thread" is a tile row.
"""

from __future__ import annotations

from ir.layout.instructions.rows import Cost, MatrixRow, Operand
from ir.layout.layout import Layout
from ir.layout.widths import bits

VECTOR = Cost(issue=0.5, latency=4)
"""Two vectors a cycle, result after four."""
HALF_RATE = Cost(issue=1, latency=5)
TILE = Cost(issue=16, latency=52)
TILE_ROWS, TILE_ROW_BITS = 16, 512

VECTORS: tuple[tuple[str, int, str, tuple[str, ...], str, str, Cost], ...] = (
    # set, bits, A's type, B's legal types, accumulator, CPU feature, cost
    ("avx2", 256, "f32", ("f32",), "f32", "fma", VECTOR),
    ("avx2", 256, "f64", ("f64",), "f64", "fma", VECTOR),
    ("avx2", 256, "i32", ("i32",), "i32", "avx2", HALF_RATE),
    ("avx2", 256, "u8", ("i8",), "i32", "avxvnni", VECTOR),
    ("avx2", 256, "i8", ("i8", "u8"), "i32", "avxvnniint8", VECTOR),
    ("avx512", 512, "f32", ("f32",), "f32", "avx512f", VECTOR),
    ("avx512", 512, "f64", ("f64",), "f64", "avx512f", VECTOR),
    ("avx512", 512, "f16", ("f16",), "f16", "avx512fp16", VECTOR),
    ("avx512", 512, "i32", ("i32",), "i32", "avx512f", HALF_RATE),
    ("avx512", 512, "bf16", ("bf16",), "f32", "avx512bf16", VECTOR),
    ("avx512", 512, "u8", ("i8",), "i32", "avx512vnni", VECTOR),
)

TILES: tuple[tuple[str, tuple[str, ...], str, str], ...] = (
    # A's type, B's legal types, accumulator, CPU feature
    ("bf16", ("bf16",), "f32", "amx-bf16"),
    ("f16", ("f16",), "f32", "amx-fp16"),
    ("i8", ("i8", "u8"), "i32", "amx-int8"),
    ("u8", ("u8", "i8"), "i32", "amx-int8"),
)


def _vector(
    family: str,
    width: int,
    dtype: str,
    partners: tuple[str, ...],
    accumulator: str,
    requires: str,
    cost: Cost,
) -> MatrixRow:
    lanes = width // bits(accumulator)
    k = bits(accumulator) // bits(dtype)
    return MatrixRow(
        name=f"lanes.{family}.{dtype}",
        kind="lanes",
        threads=lanes,
        a=Operand((1, k), Layout((lanes, k), (0, 1)), (dtype,)),
        b=Operand((lanes, k), Layout((lanes, k), (1, lanes)), partners),
        c=Operand((1, lanes), Layout((lanes, 1), (1, 0)), (accumulator,)),
        requires=requires,
        cost=cost,
    )


def _tile(dtype: str, partners: tuple[str, ...], accumulator: str, requires: str) -> MatrixRow:
    n = TILE_ROW_BITS // bits(accumulator)
    inner = bits(accumulator) // bits(dtype)
    k = TILE_ROWS * inner
    return MatrixRow(
        name=f"lanes.amx.{dtype}",
        kind="lanes",
        threads=TILE_ROWS,
        a=Operand((TILE_ROWS, k), Layout((TILE_ROWS, k), (1, TILE_ROWS)), (dtype,)),
        b=Operand((n, k), Layout((TILE_ROWS, (inner, n)), (inner * n, (n, 1))), partners),
        c=Operand((TILE_ROWS, n), Layout((TILE_ROWS, n), (1, TILE_ROWS)), (accumulator,)),
        requires=requires,
        cost=TILE,
    )


ROWS: tuple[MatrixRow, ...] = (
    *(_vector(*entry) for entry in VECTORS),
    *(_tile(*entry) for entry in TILES),
)
