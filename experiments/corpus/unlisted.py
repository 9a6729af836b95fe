"""Programs of no table whose figures README.md gives: masks of data, channels last, transposes.

tilewright tune experiments/corpus/unlisted.py:padded b=8 h=16 s=4096 d=64 --target cuda --seconds 8
tilewright tune ... --pin form=written
"""

from __future__ import annotations

import math

from ir import Axis, Graph, Tile, cast, contract, exp, operator, reduce, rsqrt, sigmoid, where
from ir.values import ascending


def _attended(g: Graph, keep: Tile, outer: tuple[Axis, ...], i: Axis, j: Axis, d: int) -> None:
    """O = softmax(Q K^T / sqrt(d) where `keep`) V in bf16; every row keeps some key."""
    scores, values = _scored(g, keep, outer, i, j, d)
    p = exp(scores - reduce("max", scores, over=j))
    mixed = contract(cast(p, "bf16"), values, over=j)
    g.output("O", mixed / reduce("sum", p, over=j), "bf16", (*outer, i, Axis("e", d)))


def _scored(
    g: Graph, keep: Tile, outer: tuple[Axis, ...], i: Axis, j: Axis, d: int
) -> tuple[Tile, Tile]:
    """Scores, and the values that they weigh."""
    k, e = g.axes(d=d, e=d)
    q, keys = g.input("Q", (*outer, i, k), "bf16"), g.input("K", (*outer, j, k), "bf16")
    scores = where(keep, contract(q, keys, over=k) * (1 / math.sqrt(d)), -math.inf)
    return scores, g.input("V", (*outer, j, e), "bf16")


@operator
def padded(g: Graph, b: int, h: int, s: int, d: int) -> None:
    """Keys from a place on are padding."""
    bb, hh, i, j = g.axes(b=b, h=h, i=s, j=s)
    pad = g.input("pad", (bb, j), "u8", values=ascending(0, 1))
    _attended(g, pad == 0, (bb, hh), i, j, d)


@operator
def near(g: Graph, b: int, h: int, s: int, d: int, w: int) -> None:
    """Positions at most w apart, of sequences with gaps."""
    bb, hh, i, j = g.axes(b=b, h=h, i=s, j=s)
    at = g.tensor("at", (b, s), "i32", values=ascending(0, 4 * s))
    _attended(g, abs(at[bb, i] - at[bb, j]) <= w, (bb, hh), i, j, d)


@operator
def windowed_documents(g: Graph, b: int, h: int, s: int, d: int, w: int, documents: int) -> None:
    """The last w tokens of a token's own document."""
    bb, hh, i, j = g.axes(b=b, h=h, i=s, j=s)
    document = g.tensor("document", (b, s), "i32", values=ascending(0, documents - 1))
    before = g.iota(i) - g.iota(j)
    seen = (document[bb, i] == document[bb, j]) & (before >= 0) & (before < w)
    _attended(g, seen, (bb, hh), i, j, d)


@operator
def two_sets(g: Graph, b: int, h: int, s: int, t: int, d: int, documents: int) -> None:
    """Packed pairs: a query sees the keys of its document's partner."""
    bb, hh, i, j = g.axes(b=b, h=h, i=s, j=t)
    own = g.input("own", (bb, i), "i32", values=ascending(0, documents - 1))
    other = g.input("other", (bb, j), "i32", values=ascending(0, documents - 1))
    scores, values = _scored(g, own == other, (bb, hh), i, j, d)
    top = reduce("max", scores, over=j)
    p = exp(scores - where(top > -1e30, top, 0.0))
    total, mixed = reduce("sum", p, over=j), contract(cast(p, "bf16"), values, over=j)
    g.output("O", where(total > 0, mixed / total, 0.0), "bf16", (bb, hh, i, Axis("e", d)))


@operator
def segments(g: Graph, n: int, d: int, f: int, parts: int) -> None:
    """Sums over a row's own segment, weighted by similarity."""
    i, j, k, e = g.axes(i=n, j=n, d=d, f=f)
    x, y = g.input("X", (i, k), "bf16"), g.input("Y", (j, k), "bf16")
    of = g.tensor("segment", (n,), "i32", values=ascending(0, parts - 1))
    weights = where(of[i] == of[j], contract(x, y, over=k), 0.0)
    v = g.input("V", (j, e), "bf16")
    g.output("O", contract(cast(weights, "bf16"), v, over=j), "bf16", (i, e))


@operator
def triangle(g: Graph, n: int, c: int) -> None:
    """Z = layer norm over c of sum over k of A[i, k, c] B[j, k, c], times a gate."""
    i, j, k, channel = g.axes(i=n, j=n, k=n, c=c)
    a, b = g.input("A", (i, k, channel), "bf16"), g.input("B", (j, k, channel), "bf16")
    z = contract(a, b, over=k)
    apart = z - reduce("sum", z, over=channel) / c
    scale = rsqrt(reduce("sum", apart * apart, over=channel) / c + 1e-5)
    gate = sigmoid(g.input("G", (i, j, channel), "bf16"))
    g.output("Z", apart * scale * gate, "bf16", (i, j, channel))


@operator
def turned(g: Graph, n: int, k: int, c: int) -> None:
    """Y[i, c, k] = X[i, k, c]."""
    i, j, channel = g.axes(i=n, k=k, c=c)
    g.output("Y", g.input("X", (i, j, channel), "bf16"), "bf16", (i, channel, j))
