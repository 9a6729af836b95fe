"""Products of narrow numbers: fp8 with scales, weights of four bits, both operands in bytes."""

from __future__ import annotations

from ir import Graph, UsageError, absolute, apply, cast, contract, maximum, operator, reduce
from ir.operators.matmul import activation_of
from ir.values import positive

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "scaled_matmul": {
        "small": {"m": 33, "n": 47, "k": 65},
        "large": {"m": 8192, "n": 8192, "k": 8192},
    },
    "row_scaled_matmul": {
        "small": {"m": 33, "n": 47, "k": 65},
        "llama-3-8b down": {"m": 4096, "n": 4096, "k": 14336},
    },
    "block_scaled_matmul": {
        "small": {"m": 33, "n": 48, "k": 64, "block": 16},
        "deepseek-v3 gate and up": {"m": 4096, "n": 4096, "k": 7168},
        "deepseek-v3 kv": {"m": 4096, "n": 24576, "k": 1536},
        "deepseek-v3 down, 128 tokens": {"m": 128, "n": 7168, "k": 2048},
    },
    "w4a16_matmul": {
        "small": {"m": 9, "n": 33, "k": 80, "group": 16, "zero": True},
        "large, one token": {"m": 1, "n": 8192, "k": 8192},
        "llama-3-70b gate and up": {"m": 64, "n": 28672, "k": 8192},
        "llama-3-8b gate and up": {"m": 4096, "n": 28672, "k": 4096, "zero": True},
    },
    "w8a16_matmul": {
        "small": {"m": 9, "n": 33, "k": 77},
        "llama-3-8b down": {"m": 16, "n": 4096, "k": 14336},
    },
    "w8a8_matmul": {
        "small": {"m": 9, "n": 33, "k": 77},
        "llama-3-8b gate and up": {"m": 4096, "n": 28672, "k": 4096},
    },
}


@operator
def scaled_matmul(
    g: Graph, m: int, n: int, k: int, dtype: str = "e4m3", out: str = "bf16",
    activation: str = "none",
) -> None:  # fmt: skip
    """C = activation(A B^T * scale_a * scale_b): narrow operands with one scale a tensor.

    A is stored (m, k), B (n, k); the scales are f32 scalars.
    """
    act = activation_of("scaled_matmul", activation)
    mm, nn, kk = g.axes(m=m, n=n, k=k)
    a, b = g.input("A", (mm, kk), dtype), g.input("B", (nn, kk), dtype)
    scale = g.input("scale_a", (), "f32") * g.input("scale_b", (), "f32")
    g.output("C", act(contract(a, b, over=kk) * scale), out, (mm, nn))


@operator
def row_scaled_matmul(
    g: Graph, m: int, n: int, k: int, dtype: str = "e4m3", out: str = "bf16"
) -> None:
    """C = (A B^T) * scale_a * scale_b: narrow operands, a scale for each row of both.

    A is stored (m, k), B (n, k), the scales (m) and (n).
    """
    mm, nn, kk = g.axes(m=m, n=n, k=k)
    a, b = g.input("A", (mm, kk), dtype), g.input("B", (nn, kk), dtype)
    scale_a = g.input("scale_a", (mm,), "f32", values=positive())
    scale_b = g.input("scale_b", (nn,), "f32", values=positive())
    g.output("C", contract(a, b, over=kk) * scale_a * scale_b, out, (mm, nn))


@operator
def block_scaled_matmul(
    g: Graph, m: int, n: int, k: int, block: int = 128, dtype: str = "e4m3", out: str = "bf16"
) -> None:
    """C = sum over blocks of k of (A B^T of the block) * scale_a * scale_b: fp8 with fine scales.

    A is (m, k) with a scale for each 1 x block, B (n, k) with one for each block x block. C is
    (m, n / block, block), the same bytes as (m, n).
    """
    if n % block or k % block:
        raise UsageError(f"block_scaled_matmul: n={n}, k={k}: no multiples of block={block}")
    mm, nb, ni, kb, ki = g.axes(m=m, nb=n // block, ni=block, kb=k // block, ki=block)
    a, b = g.input("A", (mm, kb, ki), dtype), g.input("B", (nb, ni, kb, ki), dtype)
    scale_a = g.input("scale_a", (mm, kb), "f32", values=positive())
    scale_b = g.input("scale_b", (nb, kb), "f32", values=positive())
    scaled = contract(a, b, over=ki) * scale_a * scale_b
    g.output("C", reduce("sum", scaled, over=kb), out, (mm, nb, ni))


@operator
def w4a16_matmul(
    g: Graph, m: int, n: int, k: int, group: int = 128, zero: bool = False, dtype: str = "bf16"
) -> None:
    """C = A ((W - zero) * scale)^T: weights of four bits with a scale for each group of k.

    A is (m, k); W is (n, k) with two neighbours in a byte, the first in its low bits; scale and
    zero points are (n, k / group). Without `zero` the zero point is 8.
    """
    if group < 2 or group % 2 or k % group:
        raise UsageError(f"w4a16_matmul: k={k}: no multiple of group={group}, an even number")
    rows, columns, part, pair, half = g.axes(m=m, n=n, part=k // group, pair=group // 2, half=2)
    a, w = g.input("A", (rows, part, pair, half), dtype), g.input("W", (columns, part, pair), "u8")
    scale = g.input("scale", (columns, part), dtype, values=positive())
    q = apply("bitand", apply("shr", cast(w, "i32"), g.iota(half) * 4), 15)
    shift = apply("bitand", cast(g.input("zero", (columns, part), "u8"), "i32"), 15) if zero else 8
    weights = cast(cast(q - shift, "f32") * scale, dtype)
    g.output("C", contract(a, weights, over=(part, pair, half)), dtype, (rows, columns))


@operator
def w8a16_matmul(
    g: Graph, m: int, n: int, k: int, dtype: str = "bf16", weights: str = "i8"
) -> None:
    """C = A (W * scale)^T: weights in bytes with a scale for each of their rows.

    A is (m, k), W (n, k) of i8, or what `weights` says (e4m3), scale (n).
    """
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    a, w = g.input("A", (rows, depth), dtype), g.input("W", (columns, depth), weights)
    scale = g.input("scale", (columns,), "f32", values=positive(0.01))
    g.output("C", contract(a, cast(w, dtype), over=depth) * scale, dtype, (rows, columns))


@operator
def w8a8_matmul(g: Graph, m: int, n: int, k: int, dtype: str = "bf16") -> None:
    """C = (Q W^T) * s * scale for Q = round(A / s), s = max |A| / 127: A in bytes on the way.

    A is (m, k), s belongs to each of its rows; W is (n, k) of i8, scale (n).
    """
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    a, w = g.input("A", (rows, depth), dtype), g.input("W", (columns, depth), "i8")
    scale = g.input("scale", (columns,), "f32", values=positive(0.01))
    step = maximum(reduce("max", absolute(a), over=depth), 1e-12) / 127.0
    q = cast(apply("floor", a / step + 0.5), "i8")
    product = cast(contract(q, w, over=depth), "f32")
    g.output("C", product * step * scale, dtype, (rows, columns))
