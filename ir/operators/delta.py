"""The delta rule: a state of keys by values that is corrected towards each new pair.

From the recurrence; in chunks, whose corrections are a small triangular system; and one step of
decoding. The gated delta net also lets the state decay, by one number for each head and step.
"""

from __future__ import annotations

import math

from ir import (
    Axis,
    Graph,
    Tile,
    cast,
    contract,
    cumulative,
    decay,
    exp,
    normal,
    operator,
    recur,
    uniform,
    where,
)
from ir.forward import solved
from ir.operators.linear_attention import chunks_of

_HEADS: dict[str, object] = {"b": 1, "heads": 2, "d": 5, "dv": 6}
_SMALL = _HEADS | {"t": 12}
_LARGE: dict[str, object] = {"d": 128, "dtype": "bf16"}
EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "delta_rule": {
        "small": _SMALL,
        "fla, 2048 tokens": {"b": 8, "t": 2048, "heads": 4, "d": 64, "dtype": "bf16"},
        "fla": {"b": 2, "t": 8192, "heads": 4, "d": 64, "dtype": "bf16"},
    },
    "delta_rule_chunked": {
        "small": _SMALL | {"chunk": 4},
        "fla, 2048 tokens": {"b": 8, "t": 2048, "heads": 4, "d": 64, "chunk": 64, "dtype": "bf16"},
        "fla": {"b": 2, "t": 8192, "heads": 4, "d": 64, "chunk": 64, "dtype": "bf16"},
    },
    "gated_delta_net": {
        "small": _SMALL,
        "qwen3-next, 2048 tokens": _LARGE | {"b": 1, "t": 2048, "heads": 32},
        "prefill": _LARGE | {"b": 1, "t": 32768, "heads": 16},
        "fla": {"b": 2, "t": 16384, "heads": 4, "d": 64, "dtype": "bf16"},
    },
    "gated_delta_net_chunked": {
        "small": _SMALL | {"chunk": 4},
        "qwen3-next, 4096 tokens": _LARGE | {"b": 1, "t": 4096, "heads": 32, "chunk": 64},
        "prefill": _LARGE | {"b": 1, "t": 32768, "heads": 16, "chunk": 64},
        "fla": {"b": 2, "t": 16384, "heads": 4, "d": 64, "chunk": 64, "dtype": "bf16"},
    },
    "delta_rule_decode": {"small": _HEADS, "fla": _LARGE | {"b": 64, "heads": 16}},
    "gated_delta_net_decode": {"small": _HEADS, "qwen3-next": _LARGE | {"b": 64, "heads": 32}},
}


def _inputs(
    g: Graph, points: tuple[Axis, ...], d: Axis, dv: Axis, dtype: str, most: float = 1
) -> tuple[Tile, Tile, Tile, Tile]:
    """Queries, keys (about as long as 1), values, and beta: how much of a correction is made.

    Of a random one at `most` this: without a decay, what is not known of a state may grow by it.
    """
    q = g.input("Q", (*points, d), dtype)
    k = g.input("K", (*points, d), dtype, normal(1 / math.sqrt(d.extent)))
    v = g.input("V", (*points, dv), dtype)
    return q, k, v, g.input("beta", points, "f32", uniform(0, most))


def _corrected(before: Tile, k: Tile, v: Tile, beta: Tile, d: Axis) -> Tile:
    """The state after a step: k^T S is moved towards v."""
    return before + k * ((v - contract(before, k, over=d)) * beta)


def _solved(
    lower: Tile, values: Tile, keys: Tile, points: tuple[Axis, ...],
    axes: tuple[Axis, Axis, Axis], dtype: str,
) -> tuple[Tile, Tile]:  # fmt: skip
    """(I + L)^-1 times values and times keys, of `dtype` as the factors are; `axes` are those of
    L[i, j] and one more of the same extent."""
    i, j, step = axes
    g = lower.graph
    column = g.axis("r", i.extent)
    identity = where(g.iota(i) == g.iota(column), 1.0, 0.0)
    inverse = cast(solved(lower, identity, (*points, i, column), j, step), dtype)
    return (
        cast(contract(inverse, cast(values, dtype).at({i: column}), over=column), dtype),
        cast(contract(inverse, cast(keys, dtype).at({i: column}), over=column), dtype),
    )


@operator
def delta_rule(
    g: Graph, b: int, t: int, heads: int, d: int, dv: int = 0, dtype: str = "f32"
) -> None:
    """O[t] = Q[t] S[t] / sqrt(d), S[t] = S[t - 1] + beta[t] K[t] (V[t] - K[t]^T S[t - 1])^T.

    Q and K are (b, t, heads, d), V and O (b, t, heads, dv), beta (b, t, heads); `S` is the last
    state of every head, in f32.
    """
    bb, time, head, dd, dvv = g.axes(b=b, t=t, h=heads, d=d, dv=dv or d)
    q, k, v, beta = _inputs(g, (bb, time, head), dd, dvv, dtype, min(1, 16 / max(t, 1)))
    before = g.state(time, (bb, head, dd, dvv))
    after = _corrected(before, k, v, beta, dd)
    o = contract(q, after, over=dd) * (1 / math.sqrt(d))
    g.output("O", o, dtype, (bb, time, head, dvv))
    g.output("S", recur(before, after), "f32", (bb, head, dd, dvv))


@operator
def delta_rule_chunked(
    g: Graph, b: int, t: int, heads: int, d: int, chunk: int, dv: int = 0, dtype: str = "f32"
) -> None:
    """O[t] = Q[t] S[t] / sqrt(d), S[t] = S[t - 1] + beta K (V - K^T S[t - 1])^T; chunked.

    The corrections U of a chunk solve (I + L) U = beta (V - K S), L[i, j] = beta[i] K[i] . K[j] for
    j < i, S the state before it; U = Y - W S with Y and W of all chunks at once, by the inverse of
    I + L. t = c * chunk + i: the arrays are those of `delta_rule`, with (b, c, i) for (b, t). What
    is multiplied is of `dtype`, the state itself of f32.
    """
    bb, c, head = g.axes(b=b, c=chunks_of("delta_rule_chunked", t, chunk), h=heads)
    i, j, step, dd, dvv = g.axes(i=chunk, j=chunk, step=chunk, d=d, dv=dv or d)
    q, k, v, beta = _inputs(g, (bb, c, i, head), dd, dvv, dtype, min(1, 16 / max(t, 1)))
    lower = contract(k, k.at(i=j), over=dd) * beta
    y, w = _solved(lower, v * beta, k * beta, (bb, c, head), (i, j, step), dtype)
    before = g.state(c, (bb, head, dd, dvv))
    rounded = cast(before, dtype)
    u = cast(y - contract(w, rounded, over=dd), dtype)
    last = recur(before, before + contract(k, u, over=i))
    scores = where(g.iota(j) <= i, contract(q, k.at(i=j), over=dd), 0.0)
    o = contract(cast(scores, dtype), u.at(i=j), over=j) + contract(q, rounded, over=dd)
    g.output("O", o * (1 / math.sqrt(d)), dtype, (bb, c, i, head, dvv))
    g.output("S", last, "f32", (bb, head, dd, dvv))


@operator
def gated_delta_net(
    g: Graph, b: int, t: int, heads: int, d: int, dv: int = 0, dtype: str = "f32"
) -> None:
    """O[t] = Q[t] S[t] / sqrt(d), S[t] = S' + beta K (V - K^T S')^T for S' = exp(G[t]) S[t - 1].

    Q and K are (b, t, heads, d), V and O (b, t, heads, dv), beta and G, the logarithm of the decay,
    (b, t, heads); `S` is the last state of every head, in f32.
    """
    bb, time, head, dd, dvv = g.axes(b=b, t=t, h=heads, d=d, dv=dv or d)
    q, k, v, beta = _inputs(g, (bb, time, head), dd, dvv, dtype, min(1, 16 / max(t, 1)))
    gate = exp(g.input("G", (bb, time, head), "f32", decay(0.5)))
    before = g.state(time, (bb, head, dd, dvv))
    after = _corrected(before * gate, k, v, beta, dd)
    o = contract(q, after, over=dd) * (1 / math.sqrt(d))
    g.output("O", o, dtype, (bb, time, head, dvv))
    g.output("S", recur(before, after), "f32", (bb, head, dd, dvv))


@operator
def gated_delta_net_chunked(
    g: Graph, b: int, t: int, heads: int, d: int, chunk: int, dv: int = 0, dtype: str = "f32"
) -> None:
    """O[t] = Q[t] S[t] / sqrt(d), S[t] = S' + beta K (V - K^T S')^T, S' = exp(G) S[t - 1]; chunked.

    With A the sums of G inside a chunk, its corrections U solve (I + L) U = beta (V - exp(A) K S),
    L[i, j] = beta[i] exp(A[i] - A[j]) K[i] . K[j] for j < i, S the state before it; U = Y - W S
    with Y and W of all chunks at once, by the inverse of I + L. t = c * chunk + i: the arrays are
    those of `gated_delta_net`, with (b, c, i) for (b, t). What is multiplied is of `dtype`, the
    state itself of f32.
    """
    bb, c, head = g.axes(b=b, c=chunks_of("gated_delta_net_chunked", t, chunk), h=heads)
    i, j, step, dd, dvv = g.axes(i=chunk, j=chunk, step=chunk, d=d, dv=dv or d)
    q, k, v, beta = _inputs(g, (bb, c, i, head), dd, dvv, dtype, min(1, 16 / max(t, 1)))
    total = cumulative("sum", g.input("G", (bb, c, i, head), "f32", decay(0.5)), i)
    weight = exp(where(g.iota(j) <= i, total - total.at(i=j), -math.inf))
    lower = contract(k, k.at(i=j), over=dd) * weight * beta
    scaled = k * (beta * exp(total))
    y, w = _solved(lower, v * beta, scaled, (bb, c, head), (i, j, step), dtype)
    whole = total.at(i=chunk - 1)
    before = g.state(c, (bb, head, dd, dvv))
    rounded = cast(before, dtype)
    u = cast(y - contract(w, rounded, over=dd), dtype)
    added = contract(cast(k * exp(whole - total), dtype), u, over=i)
    recur(before, before * exp(whole) + added)
    scores = cast(contract(q, k.at(i=j), over=dd) * weight, dtype)
    o = contract(scores, u.at(i=j), over=j) + contract(q, rounded, over=dd) * exp(total)
    g.output("O", o * (1 / math.sqrt(d)), dtype, (bb, c, i, head, dvv))


def _decoded(g: Graph, b: int, heads: int, d: int, dv: int, dtype: str, gated: bool) -> None:
    bb, head, dd, dvv = axes = g.axes(b=b, h=heads, d=d, dv=dv or d)
    q, k, v, beta = _inputs(g, (bb, head), dd, dvv, dtype)
    before = g.input("S", axes, "f32")
    if gated:
        before = before * exp(g.input("G", (bb, head), "f32", decay(0.5)))
    after = _corrected(before, k, v, beta, dd)
    g.output("O", contract(q, after, over=dd) * (1 / math.sqrt(d)), dtype, (bb, head, dvv))
    g.output("S_next", after, "f32", axes)


@operator
def delta_rule_decode(
    g: Graph, b: int, heads: int, d: int, dv: int = 0, dtype: str = "f32"
) -> None:
    """O = Q S' / sqrt(d), S' = S + beta K (V - K^T S)^T: one position of every sequence.

    Q and K are (b, heads, d), V and O (b, heads, dv), S and S' (b, heads, d, dv) in f32.
    """
    _decoded(g, b, heads, d, dv, dtype, gated=False)


@operator
def gated_delta_net_decode(
    g: Graph, b: int, heads: int, d: int, dv: int = 0, dtype: str = "f32"
) -> None:
    """O = Q S' / sqrt(d), S' = exp(G) S + beta K (V - K^T exp(G) S)^T: one position of each.

    Q and K are (b, heads, d), V and O (b, heads, dv), S and S' (b, heads, d, dv) in f32.
    """
    _decoded(g, b, heads, d, dv, dtype, gated=True)
