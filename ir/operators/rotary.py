"""Rotary positions: pairs of coordinates turned by an angle that grows with the position."""

from __future__ import annotations

import math

from ir import Axis, Graph, Tile, UsageError, cast, contract, operator
from ir.operators.attention import attended, masked, sharing
from ir.tiles import TensorHandle
from ir.values import uniform

_LLAMA: dict[str, object] = {"b": 1, "heads": 32, "d": 128, "dtype": "bf16"}

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "rotary": {
        "small": {"b": 2, "heads": 3, "s": 19, "d": 22},
        "llama-3-8b": _LLAMA | {"s": 8192},
        "gpt-j-6b": {"b": 4, "heads": 16, "s": 2048, "d": 64, "paired": True, "dtype": "bf16"},
    },
    "rotary_attention": {
        "small": {"b": 1, "heads": 4, "kv_heads": 2, "s": 37, "d": 24},
        "llama-3-8b": _LLAMA | {"kv_heads": 8, "s": 4096},
    },
}


def _pairs(g: Graph, d: int) -> tuple[Axis, Axis]:
    """The axes of a head's coordinates: which of the two, and which pair."""
    if d < 2 or d % 2:
        raise UsageError(f"{g.name}: d={d}: coordinates are turned in pairs, so d is even")
    return g.axis("half", 2), g.axis("pair", d // 2)


def _tables(g: Graph, s: int, d: int) -> tuple[TensorHandle, TensorHandle]:
    """cos and sin of each position's and pair's angle."""
    shape, size = (s, d // 2), uniform(-1, 1)
    return g.tensor("cos", shape, "f32", values=size), g.tensor("sin", shape, "f32", values=size)


def _turned(
    g: Graph, x: TensorHandle, at: tuple[Axis, ...], cos: Tile, sin: Tile,
    half: Axis, pair: Axis, paired: bool,
) -> Tile:  # fmt: skip
    """x cos - y sin and y cos + x sin for pairs (x, y), side by side or half a head apart."""
    far, near = (1, 2) if paired else (pair.extent, 1)
    own = x[(*at, half * far + pair * near)]
    other = x[(*at, far - half * far + pair * near)]
    sign = cast(g.iota(half) * 2 - 1, "f32")
    return own * cos + other * sin * sign


@operator
def rotary(
    g: Graph, b: int, heads: int, s: int, d: int, paired: bool = False, dtype: str = "f32"
) -> None:
    """Y = (x cos - y sin, y cos + x sin) for the pairs (x, y) of each head's coordinates.

    X is (b, heads, s, d); cos and sin are (s, d / 2) of f32. A pair is coordinates i and i + d / 2,
    or 2 i and 2 i + 1 with `paired`; Y is (b, heads, s, 2, d / 2) or (b, heads, s, d / 2, 2), the
    same bytes as X.
    """
    at = g.axes(b=b, h=heads, s=s)
    half, pair = _pairs(g, d)
    x = g.tensor("X", (b, heads, s, d), dtype)
    cos, sin = (table[at[2], pair] for table in _tables(g, s, d))
    y = _turned(g, x, at, cos, sin, half, pair, paired)
    g.output("Y", y, dtype, (*at, pair, half) if paired else (*at, half, pair))


@operator
def rotary_attention(
    g: Graph, b: int, heads: int, s: int, d: int, kv_heads: int = 0, paired: bool = False,
    causal: bool = True, dtype: str = "f32",
) -> None:  # fmt: skip
    """O = softmax(rotary(Q) rotary(K)^T / sqrt(d)) V: positions are turned in front of attention.

    Q is (b, heads, s, d), K and V are (b, kv_heads, s, d), cos and sin (s, d / 2) as of `rotary`.
    With fewer kv_heads, Q and O are (b, kv_heads, group, s, d), the same bytes.
    """
    kv_heads, shared = sharing(g, heads, kv_heads)
    bb, hk, group = g.axes(b=b, hk=kv_heads, g=shared)
    queries, keys, columns = g.axes(sq=s, sk=s, dv=d)
    half, pair = _pairs(g, d)
    q = g.tensor("Q", (b, kv_heads, shared, s, d), dtype)
    k = g.tensor("K", (b, kv_heads, s, d), dtype)
    cos, sin = _tables(g, s, d)
    how = half, pair, paired
    q_turned = _turned(g, q, (bb, hk, group, queries), cos[queries, pair], sin[queries, pair], *how)
    k_turned = _turned(g, k, (bb, hk, keys), cos[keys, pair], sin[keys, pair], *how)
    products = contract(cast(q_turned, dtype), cast(k_turned, dtype), over=(half, pair))
    scores = masked(g, products * (1 / math.sqrt(d)), queries, keys, causal)
    v = g.input("V", (bb, hk, keys, columns), dtype)
    g.output("O", attended(scores, v, keys, dtype), dtype, (bb, hk, group, queries, columns))
