"""Linear attention whose state is a matrix for each head: retention and gated linear attention.

From the recurrence, a step for each position; in chunks, inside of which it is masked attention and
between which the state is carried; and one step of decoding, state in and state out.
"""

from __future__ import annotations

import math

from ir import (
    Axis,
    Graph,
    Tile,
    UsageError,
    cast,
    contract,
    cumulative,
    decay,
    exp,
    maximum,
    operator,
    recur,
    recurrence,
    reduce,
    where,
)

_HEADS: dict[str, object] = {"b": 1, "heads": 2, "d": 5, "dv": 6}
_SMALL = _HEADS | {"t": 12}
EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "retention": {
        "small": _SMALL,
        "retnet, 2048 tokens": {"b": 8, "t": 2048, "heads": 32, "d": 128, "dtype": "bf16"},
        "retnet": {"b": 8, "t": 4096, "heads": 32, "d": 128, "dtype": "bf16"},
    },
    "retention_chunked": {
        "small": _SMALL | {"chunk": 4},
        "retnet": {"b": 8, "t": 4096, "heads": 32, "d": 128, "chunk": 64, "dtype": "bf16"},
        "long": {"b": 1, "t": 8192, "heads": 96, "d": 128, "chunk": 64, "dtype": "bf16"},
    },
    "retention_decode": {
        "small": _HEADS,
        "retnet": {"b": 64, "heads": 32, "d": 128, "dtype": "bf16"},
    },
    "gla": {
        "small": _SMALL,
        "fla, 2048 tokens": {"b": 8, "t": 2048, "heads": 4, "d": 64, "dtype": "bf16"},
        "fla": {"b": 2, "t": 8192, "heads": 4, "d": 64, "dtype": "bf16"},
    },
    "gla_chunked": {
        "small": _SMALL | {"chunk": 4},
        "fla": {"b": 2, "t": 8192, "heads": 4, "d": 64, "chunk": 64, "dtype": "bf16"},
    },
    "gla_decode": {
        "small": _HEADS,
        "fla": {"b": 64, "heads": 4, "d": 64, "dtype": "bf16"},
    },
}


def chunks_of(what: str, t: int, chunk: int) -> int:
    """How many chunks there are; refuses a part of one."""
    if chunk < 1 or t % chunk:
        raise UsageError(f"{what}: t={t} is no multiple of chunk={chunk}")
    return t // chunk


def _stepped(
    g: Graph, time: Axis, axes: tuple[Axis, ...], q: Tile, k: Tile, v: Tile, factor: Tile
) -> tuple[Tile, Tile]:
    """o[t] = q[t] S[t] and the last S, for S[t] = factor[t] * S[t - 1] + k[t] v[t]^T.

    `axes` are those of S, the last two being those of k and of v.
    """
    state = g.state(time, axes)
    after = state * factor + k * v
    return contract(q, after, over=axes[-2]), recur(state, after)


@operator
def retention(
    g: Graph, b: int, t: int, heads: int, d: int, dv: int = 0, dtype: str = "f32"
) -> None:
    """O[t] = Q[t] S[t] / sqrt(d), S[t] = exp(rate) S[t - 1] + K[t] V[t]^T, for every head.

    Q and K are (b, t, heads, d), V and O (b, t, heads, dv), rate (heads), S the last one, in f32.
    """
    bb, time, head, dd, dvv = g.axes(b=b, t=t, h=heads, d=d, dv=dv or d)
    q, k = (g.input(name, (bb, time, head, dd), dtype) for name in "QK")
    v = g.input("V", (bb, time, head, dvv), dtype)
    factor = exp(g.input("rate", (head,), "f32", decay(0.5)))
    o, last = _stepped(g, time, (bb, head, dd, dvv), q, k, v, factor)
    g.output("O", o * (1 / math.sqrt(d)), dtype, (bb, time, head, dvv))
    g.output("S", last, "f32", (bb, head, dd, dvv))


@operator
def retention_chunked(
    g: Graph, b: int, t: int, heads: int, d: int, chunk: int, dv: int = 0, dtype: str = "f32"
) -> None:
    """O[t] = Q[t] S[t] / sqrt(d), S[t] = exp(rate) S[t - 1] + K[t] V[t]^T, a chunk at a time.

    Inside a chunk as attention with weights exp(rate * (i - j)) for j <= i; what comes before it is
    in the state. t = c * chunk + i: the arrays are those of `retention`, as (b, c, i, heads, d).
    Factors of products are of `dtype`.
    """
    bb, c, head = g.axes(b=b, c=chunks_of("retention_chunked", t, chunk), h=heads)
    i, j, dd, dvv = g.axes(i=chunk, j=chunk, d=d, dv=dv or d)
    q = g.input("Q", (bb, c, i, head, dd), dtype)
    k = g.input("K", (bb, c, j, head, dd), dtype)
    v = g.input("V", (bb, c, j, head, dvv), dtype)
    rate = g.input("rate", (head,), "f32", decay(0.5))
    weight = where(g.iota(j) <= i, exp(rate * maximum(g.iota(i) - j, 0)), 0.0)
    inner = contract(cast(contract(q, k, over=dd) * weight, dtype), v, over=j)
    added = contract(cast(k * exp(rate * (chunk - 1 - g.iota(j))), dtype), v, over=j)
    carried = recurrence(exp(rate * chunk), added, c).at(c=c - 1, fill=0)
    weighted = cast(q * exp(rate * (g.iota(i) + 1)), dtype)
    outer = contract(weighted, cast(carried, dtype), over=dd)
    g.output("O", (inner + outer) * (1 / math.sqrt(d)), dtype, (bb, c, i, head, dvv))


@operator
def retention_decode(g: Graph, b: int, heads: int, d: int, dv: int = 0, dtype: str = "f32") -> None:
    """O = Q S' / sqrt(d), S' = exp(rate) S + K V^T: one position of every sequence.

    Q and K are (b, heads, d), V and O (b, heads, dv), S and S' (b, heads, d, dv) in f32.
    """
    axes = bb, head, dd, dvv = g.axes(b=b, h=heads, d=d, dv=dv or d)
    q, k = (g.input(name, (bb, head, dd), dtype) for name in "QK")
    v, before = g.input("V", (bb, head, dvv), dtype), g.input("S", axes, "f32")
    after = before * exp(g.input("rate", (head,), "f32", decay(0.5))) + k * v
    g.output("O", contract(q, after, over=dd) * (1 / math.sqrt(d)), dtype, (bb, head, dvv))
    g.output("S_next", after, "f32", axes)


@operator
def gla(g: Graph, b: int, t: int, heads: int, d: int, dv: int = 0, dtype: str = "f32") -> None:
    """O[t] = Q[t] S[t] / sqrt(d), S[t] = diag(exp(G[t])) S[t - 1] + K[t] V[t]^T, for every head.

    Gated linear attention: G is the logarithm of a gate for each row of S. Q, K and G are
    (b, t, heads, d), V and O (b, t, heads, dv), S the last one, in f32.
    """
    bb, time, head, dd, dvv = g.axes(b=b, t=t, h=heads, d=d, dv=dv or d)
    q, k = (g.input(name, (bb, time, head, dd), dtype) for name in "QK")
    v = g.input("V", (bb, time, head, dvv), dtype)
    gate = exp(g.input("G", (bb, time, head, dd), "f32", decay(0.5)))
    o, last = _stepped(g, time, (bb, head, dd, dvv), q, k, v, gate)
    g.output("O", o * (1 / math.sqrt(d)), dtype, (bb, time, head, dvv))
    g.output("S", last, "f32", (bb, head, dd, dvv))


@operator
def gla_chunked(
    g: Graph, b: int, t: int, heads: int, d: int, chunk: int, dv: int = 0, dtype: str = "f32"
) -> None:
    """O[t] = Q[t] S[t] / sqrt(d), S[t] = diag(exp(G[t])) S[t - 1] + K[t] V[t]^T, chunk by chunk.

    With the gates' sums up to each point of a chunk, A[i], the weight of j <= i is the sum over d
    of Q[i] K[j] exp(A[i] - A[j]). t = c * chunk + i: the arrays are those of `gla`. Factors of
    products are of `dtype`.
    """
    bb, c, head = g.axes(b=b, c=chunks_of("gla_chunked", t, chunk), h=heads)
    i, j, dd, dvv = g.axes(i=chunk, j=chunk, d=d, dv=dv or d)
    q, k = (g.input(name, (bb, c, i, head, dd), dtype) for name in "QK")
    v = g.input("V", (bb, c, j, head, dvv), dtype)
    total = cumulative("sum", g.input("G", (bb, c, i, head, dd), "f32", decay(0.5)), i)
    k, others, whole = k.at(i=j), total.at(i=j), total.at(i=chunk - 1)
    apart = where(g.iota(j) <= i, total - others, -math.inf)
    inner = contract(cast(reduce("sum", q * k * exp(apart), over=dd), dtype), v, over=j)
    added = contract(cast(k * exp(whole - others), dtype), v, over=j)
    carried = recurrence(exp(whole), added, c).at(c=c - 1, fill=0)
    outer = contract(cast(q * exp(total), dtype), cast(carried, dtype), over=dd)
    g.output("O", (inner + outer) * (1 / math.sqrt(d)), dtype, (bb, c, i, head, dvv))


@operator
def gla_decode(g: Graph, b: int, heads: int, d: int, dv: int = 0, dtype: str = "f32") -> None:
    """O = Q S' / sqrt(d), S' = diag(exp(G)) S + K V^T: one position of every sequence.

    Q, K and G are (b, heads, d), V and O (b, heads, dv), S and S' (b, heads, d, dv) in f32.
    """
    axes = bb, head, dd, dvv = g.axes(b=b, h=heads, d=d, dv=dv or d)
    q, k = (g.input(name, (bb, head, dd), dtype) for name in "QK")
    v, before = g.input("V", (bb, head, dvv), dtype), g.input("S", axes, "f32")
    after = before * exp(g.input("G", (bb, head, dd), "f32", decay(0.5))) + k * v
    g.output("O", contract(q, after, over=dd) * (1 / math.sqrt(d)), dtype, (bb, head, dvv))
    g.output("S_next", after, "f32", axes)
