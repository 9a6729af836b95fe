"""Programs that the library does not have, as people write them: what a search of graphs is for."""

from __future__ import annotations

import math

from ir import (
    Graph,
    Tile,
    UsageError,
    cast,
    contract,
    exp,
    gelu,
    operator,
    reduce,
    relu,
    rsqrt,
    silu,
    where,
)
from ir.values import decay


@operator
def rms_linear(
    g: Graph, m: int, n: int, k: int, gain: str = "rounded", dtype: str = "bf16"
) -> None:
    """Y = (X / rms(X) * gamma) W: X is (m, k), W (n, k).

    `gain` is rounded, where the product's factor is rounded to dtype, as torch does; wide, where it
    is not; or none, where weights have been multiplied with gamma before.
    """
    mm, nn, kk = g.axes(m=m, n=n, k=k)
    x, w = g.input("X", (mm, kk), dtype), g.input("W", (nn, kk), dtype)
    root = rsqrt(reduce("sum", cast(x, "f32") * x, over=kk) * (1.0 / k) + 1e-6)
    normal = cast(x, "f32") * root
    if gain != "none":
        normal = normal * g.input("gamma", (kk,), dtype)
    if gain == "rounded":
        normal = cast(normal, dtype)
    g.output("Y", contract(normal, w, over=kk), dtype, (mm, nn))


@operator
def small_mlp(
    g: Graph, m: int, hidden: int, k: int = 0, n: int = 0, activation: str = "gelu",
    dtype: str = "bf16",
) -> None:  # fmt: skip
    """Y = act(X W1) W2, or of swiglu silu(X W1) * (X W3) in its place; weights are (out, in)."""
    rows, depth, middle, columns = g.axes(m=m, k=k or hidden, h=hidden, n=n or hidden)
    x = g.input("X", (rows, depth), dtype)

    def layer(name: str) -> Tile:
        return contract(x, g.input(name, (middle, depth), dtype), over=depth)

    if activation == "swiglu":
        h = silu(layer("W1")) * layer("W3")
    elif activation in ("gelu", "relu"):
        h = {"gelu": gelu, "relu": relu}[activation](layer("W1"))
    else:
        raise UsageError(f"small_mlp: activation={activation!r}: known are gelu, relu, swiglu")
    w2 = g.input("W2", (columns, middle), dtype)
    g.output("Y", contract(cast(h, dtype), w2, over=middle), dtype, (rows, columns))


@operator
def quadratic_retention(g: Graph, b: int, heads: int, t: int, d: int, dtype: str = "bf16") -> None:
    """O = (Q K^T * gamma^(i - j) where j <= i) V, as the paper's parallel form has it."""
    bb, hh, i, j, dd, ee = g.axes(b=b, h=heads, i=t, j=t, d=d, e=d)
    q, k = g.input("Q", (bb, i, hh, dd), dtype), g.input("K", (bb, j, hh, dd), dtype)
    v = g.input("V", (bb, j, hh, ee), dtype)
    rate = g.input("rate", (hh,), "f32", values=decay(0.5))
    apart = rate * cast(g.iota(i) - j, "f32")
    weight = exp(where(g.iota(j) <= i, apart, -math.inf)) * d**-0.5
    scores = cast(contract(q, k, over=dd) * weight, dtype)
    g.output("O", contract(scores, v, over=j), dtype, (bb, i, hh, ee))


@operator
def indexer(g: Graph, q: int, keys: int, heads: int, d: int, dtype: str = "bf16") -> None:
    """S = sum over heads of w relu(Q K^T): Q is (q, heads, d), K (keys, d), w (q, heads).

    What picks the keys of sparse attention: its heads share their keys.
    """
    i, j, h, dd = g.axes(i=q, j=keys, h=heads, d=d)
    query, key = g.input("Q", (i, h, dd), dtype), g.input("K", (j, dd), dtype)
    gated = relu(contract(query, key, over=dd)) * g.input("w", (i, h), "f32")
    g.output("S", reduce("sum", gated, over=h), "f32", (i, j))
