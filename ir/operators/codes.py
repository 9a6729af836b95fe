"""Products with weights in codes of two and four bits: NF4, FP4 in blocks of MX, ternary."""

from __future__ import annotations

from ir import Graph, UsageError, cast, contract, lookup, operator, reduce
from ir.values import positive

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "nf4_matmul": {
        "small": {"m": 9, "n": 33, "k": 80, "group": 16},
        "llama-3-8b gate and up, one token": {"m": 1, "n": 28672, "k": 4096},
        "llama-3-8b gate and up": {"m": 4096, "n": 28672, "k": 4096},
    },
    "mxfp4_matmul": {
        "small": {"m": 9, "n": 33, "k": 96},
        "gpt-oss-20b gate and up, 64 tokens": {"m": 64, "n": 5760, "k": 2880},
        "gpt-oss-20b gate and up": {"m": 4096, "n": 5760, "k": 2880},
    },
    "mx_matmul": {
        "small": {"m": 9, "n": 33, "k": 96},
        "small-e2m1": {"m": 9, "n": 33, "k": 96, "dtype": "e2m1"},
        "gpt-oss-20b gate and up": {"m": 4096, "n": 5760, "k": 2880},
        "llama-3-8b gate and up": {"m": 4096, "n": 28672, "k": 4096, "dtype": "e2m1"},
    },
    "w2a8_matmul": {
        "small": {"m": 9, "n": 33, "k": 76},
        "bitnet-b1.58-2b gate and up, one token": {"m": 1, "n": 13824, "k": 2560},
        "bitnet-b1.58-2b gate and up": {"m": 2048, "n": 13824, "k": 2560},
    },
}
# the quantiles of a normal distribution that QLoRA gives the 16 codes (Dettmers et al., 2023)
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip
_ACTIVATIONS = ("e4m3", "e2m1")


def _parts(what: str, k: int, group: int) -> int:
    """How many groups k has; a byte of codes belongs to one of them."""
    if group < 2 or group % 2 or k % group:
        raise UsageError(f"{what}: k={k}: no multiple of group={group}, an even number")
    return k // group


@operator
def nf4_matmul(g: Graph, m: int, n: int, k: int, group: int = 64, dtype: str = "bf16") -> None:
    """C = A (NF4[W] * scale)^T: weights are codes of a table of 16 values, with scales of groups.

    A is (m, k / group, group / 2, 2), the bytes of (m, k); W is (n, k / group, group) of u4, two
    neighbours in a byte, the first in its low bits; scale is (n, k / group) of f32.
    """
    parts = _parts("nf4_matmul", k, group)
    rows, columns, part, pair, half = g.axes(m=m, n=n, part=parts, pair=group // 2, half=2)
    a = g.input("A", (rows, part, pair, half), dtype)
    codes = g.tensor("W", (n, parts, group), "u4")[columns, part, pair * 2 + half]
    scale = g.input("scale", (columns, part), "f32", values=positive(0.1))
    weights = cast(lookup(NF4, codes) * scale, dtype)
    g.output("C", contract(a, weights, over=(part, pair, half)), dtype, (rows, columns))


@operator
def mxfp4_matmul(g: Graph, m: int, n: int, k: int, group: int = 32, dtype: str = "bf16") -> None:
    """C = A (W * scale)^T: weights of FP4 (e2m1) with powers of two (e8m0) as scales of groups.

    A is (m, k / group, group / 2, 2), the bytes of (m, k); W is (n, k / group, group), two
    neighbours in a byte, the first in its low bits; scale is (n, k / group).
    """
    parts = _parts("mxfp4_matmul", k, group)
    rows, columns, part, pair, half = g.axes(m=m, n=n, part=parts, pair=group // 2, half=2)
    a = g.input("A", (rows, part, pair, half), dtype)
    w = g.tensor("W", (n, parts, group), "e2m1")[columns, part, pair * 2 + half]
    scale = g.input("scale", (columns, part), "e8m0", values=positive())
    weights = cast(w * scale, dtype)
    g.output("C", contract(a, weights, over=(part, pair, half)), dtype, (rows, columns))


@operator
def mx_matmul(
    g: Graph, m: int, n: int, k: int, group: int = 32, dtype: str = "e4m3", out: str = "bf16"
) -> None:
    """C = sum over groups of k of (A W^T of the group) * scale_a * scale_w: both operands in MX.

    W is (n, k / group, group) of e2m1, A of `dtype` e4m3 (MXFP8 by MXFP4), (m, k / group,
    group / 2, 2), or e2m1, (m, k / group, group). Scales are e8m0, one for each row and group.
    """
    if dtype not in _ACTIVATIONS:
        raise UsageError(f"mx_matmul: dtype={dtype!r}: A is of {' or '.join(_ACTIVATIONS)}")
    parts = _parts("mx_matmul", k, group)
    rows, columns, part, pair, half = g.axes(m=m, n=n, part=parts, pair=group // 2, half=2)
    if dtype == "e2m1":
        packed = g.tensor("A", (m, parts, group), dtype)
        a = cast(packed[rows, part, pair * 2 + half], "e4m3")  # has all numbers of e2m1
    else:
        a = g.input("A", (rows, part, pair, half), dtype)
    w = g.tensor("W", (n, parts, group), "e2m1")[columns, part, pair * 2 + half]
    scale_a = g.input("scale_a", (rows, part), "e8m0", values=positive())
    scale_w = g.input("scale_w", (columns, part), "e8m0", values=positive())
    scaled = contract(a, cast(w, "e4m3"), over=(pair, half)) * scale_a * scale_w
    g.output("C", reduce("sum", scaled, over=part), out, (rows, columns))


@operator
def w2a8_matmul(g: Graph, m: int, n: int, k: int, out: str = "bf16") -> None:
    """C = (A W^T) * scale_a * scale_w: weights of two bits by bytes, summed exactly (BitNet).

    A is (m, k / 4, 4) of i8, the bytes of (m, k); W is (n, k) of i2 (-2 .. 1), four neighbours in a
    byte, the first in its lowest bits; scale_a is (m), scale_w (n).
    """
    if k < 4 or k % 4:
        raise UsageError(f"w2a8_matmul: k={k}: no multiple of 4, and a byte has four weights")
    rows, columns, octet, place = g.axes(m=m, n=n, octet=k // 4, place=4)
    a = g.input("A", (rows, octet, place), "i8")
    w = g.tensor("W", (n, k), "i2")[columns, octet * 4 + place]
    scale_a = g.input("scale_a", (rows,), "f32", values=positive(0.01))
    scale_w = g.input("scale_w", (columns,), "f32", values=positive())
    product = cast(contract(a, cast(w, "i8"), over=(octet, place)), "f32")
    g.output("C", product * scale_a * scale_w, out, (rows, columns))
