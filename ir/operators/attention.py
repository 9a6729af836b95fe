"""Attention as plain maths. That it can be streamed over the keys is derived, not written."""

from __future__ import annotations

import math

from ir import Axis, Graph, Tile, UsageError, cast, contract, exp, operator, reduce, where


def _mask(g: Graph, scores: Tile, sq: Axis, sk: Axis, causal: bool, window: int) -> Tile:
    """Scores with -inf at the keys that a query may not see; queries end where keys end."""
    ahead = sk.extent - sq.extent
    if causal:
        scores = where(g.iota(sk) <= sq + ahead, scores, -math.inf)
    if window:
        scores = where(g.iota(sk) > sq + (ahead - window), scores, -math.inf)
    return scores


def _check(heads: int, kv_heads: int, sq: int, sk: int, causal: bool, window: int) -> None:
    if kv_heads < 1 or heads % kv_heads:
        raise UsageError(f"attention: heads={heads} is no multiple of kv_heads={kv_heads}")
    if (causal or window) and sq > sk:
        raise UsageError(f"attention: sq={sq} > sk={sk}: a masked query would see no key")
    if window < 0:
        raise UsageError(f"attention: window={window}; it is a number of keys, 0 for all")


@operator
def attention(
    g: Graph, b: int, heads: int, sq: int, d: int, sk: int = 0, dv: int = 0, kv_heads: int = 0,
    causal: bool = False, window: int = 0, dtype: str = "f32", scale: float = 0.0,
) -> None:  # fmt: skip
    """O = softmax(Q K^T * scale) V for every head; Q is (b, heads, sq, d), K (b, heads, sk, d).

    With fewer kv_heads, Q is (b, kv_heads, group, sq, d), the same bytes. `window` keys up to and
    including its own are seen by a query (0: all). sk, dv, kv_heads, scale default to sq, d, heads,
    1/sqrt(d).
    """
    sk, dv, kv_heads, scale = sk or sq, dv or d, kv_heads or heads, scale or 1 / math.sqrt(d)
    _check(heads, kv_heads, sq, sk, causal, window)
    bb, hk = g.axes(b=b, hk=kv_heads)
    group = g.axes(g=heads // kv_heads) if kv_heads != heads else ()
    queries, keys, dd, dvv = g.axes(sq=sq, sk=sk, d=d, dv=dv)
    q = g.input("Q", (bb, hk, *group, queries, dd), dtype)
    k = g.input("K", (bb, hk, keys, dd), dtype)
    v = g.input("V", (bb, hk, keys, dvv), dtype)
    scores = _mask(g, contract(q, k, over=dd) * scale, queries, keys, causal, window)
    p = exp(scores - reduce("max", scores, over=keys))
    o = contract(cast(p, dtype), v, over=keys) / reduce("sum", p, over=keys)
    g.output("O", o, dtype, (bb, hk, *group, queries, dvv))
