"""Mamba 2: a state of head by state dimension that decays by one number for each head and step.

From the recurrence; in chunks as one program; the parts of that by themselves, as libraries launch
them: what chunks add to the state, the states between chunks, the outputs; a step of decoding.
Heads are (group, head of the group): the same bytes as one axis; B and C are shared by a group.
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
    exp,
    operator,
    prefix_sums,
    recur,
    recurrence,
    uniform,
    where,
)
from ir.operators.linear_attention import chunks_of

_LAYER: dict[str, object] = {"t": 4096, "heads": 80, "p": 64, "n": 128}
_CHUNKED: dict[str, dict[str, object]] = {
    "small": {"b": 1, "t": 12, "heads": 4, "p": 3, "n": 5, "groups": 2, "chunk": 4},
    "tilelang example": _LAYER | {"b": 8, "chunk": 256, "dtype": "f16"},
    "b1 s8192 h64": _LAYER | {"b": 1, "t": 8192, "heads": 64, "chunk": 256, "dtype": "bf16"},
    "b64 s2048 h64": _LAYER | {"b": 64, "t": 2048, "heads": 64, "chunk": 256, "dtype": "bf16"},
}
EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "mamba2": {
        "small": {"b": 2, "t": 7, "heads": 4, "p": 3, "n": 5, "groups": 2},
        "mamba2-2.7b, 2048 tokens": _LAYER | {"b": 8, "t": 2048, "dtype": "bf16"},
        "mamba2-2.7b": _LAYER | {"b": 8, "dtype": "bf16"},
    },
    "mamba2_chunked": _CHUNKED,
    "mamba2_chunk_state": _CHUNKED,
    "mamba2_chunk_scan": _CHUNKED,
    "mamba2_state_passing": {
        "small": {"b": 2, "chunks": 7, "heads": 3, "p": 4, "n": 5},
        "128 chunks": {"b": 2, "chunks": 128, "heads": 80, "p": 64, "n": 128},
    },
    "mamba2_decode": {
        "small": {"b": 3, "heads": 4, "p": 3, "n": 5, "groups": 2},
        "mamba2-2.7b": {"b": 64, "heads": 80, "p": 64, "n": 128, "dtype": "bf16"},
    },
}


def _groups(what: str, heads: int, groups: int) -> int:
    """Heads of a group."""
    if groups < 1 or heads % groups:
        raise UsageError(f"{what}: heads={heads} is no multiple of groups={groups}")
    return heads // groups


def _steps(g: Graph, axes: tuple[Axis, ...]) -> Tile:
    """dt, the length of each step."""
    return g.input("dt", axes, "f32", uniform(0.001, 0.1))


def _rates(g: Graph, heads: tuple[Axis, Axis]) -> Tile:
    """A, the rate of decay of each head."""
    return g.input("A", heads, "f32", uniform(-16, -1))


@operator
def mamba2(
    g: Graph, b: int, t: int, heads: int, p: int, n: int, groups: int = 1, dtype: str = "f32"
) -> None:
    """y[t] = S[t] C[t] + D x[t], S[t] = exp(dt[t] A) S[t - 1] + dt[t] x[t] B[t]^T, for every head.

    x and y are (b, t, groups, heads / groups, p), dt (b, t, heads), B and C (b, t, groups, n), A
    and D (heads). `last` is the last S, in f32.
    """
    bb, time, gg = g.axes(b=b, t=t, g=groups)
    h, pp, nn = g.axes(h=_groups("mamba2", heads, groups), p=p, n=n)
    x, dt = g.input("x", (bb, time, gg, h, pp), dtype), _steps(g, (bb, time, gg, h))
    left, right = (g.input(name, (bb, time, gg, nn), dtype) for name in "BC")
    before = g.state(time, (bb, gg, h, pp, nn))
    after = before * exp(dt * _rates(g, (gg, h))) + dt * x * left
    y = contract(after, right, over=nn) + g.input("D", (gg, h), "f32") * x
    g.output("y", y, dtype, (bb, time, gg, h, pp))
    g.output("last", recur(before, after), "f32", (bb, gg, h, pp, nn))


def _added(total: Tile, dt: Tile, x: Tile, left: Tile, j: Axis) -> Tile:
    """What the positions j of a chunk add to the state at its end; `total` sums dt A up to each.

    Factors of products are rounded to the type of the arrays, here and in `_outputs`.
    """
    weighted = x * (dt * exp(total.at(j=j.extent - 1) - total))
    return contract(left, cast(weighted, x.dtype), over=j)


def _outputs(
    total: Tile, dt: Tile, x: Tile, products: Tile, right: Tile, before: Tile,
    i: Axis, j: Axis, n: Axis,
) -> Tile:  # fmt: skip
    """S C at the positions i of a chunk: from the positions j <= i of it, and from before it."""
    own = total.at(j=i)
    weight = exp(where(total.graph.iota(j) <= i, own - total, -math.inf))
    inner = contract(cast(products * weight * dt, x.dtype), x, over=j)
    return inner + contract(right, cast(before, right.dtype), over=n) * exp(own)


@operator
def mamba2_chunked(
    g: Graph, b: int, t: int, heads: int, p: int, n: int, chunk: int, groups: int = 1,
    dtype: str = "f32",
) -> None:  # fmt: skip
    """y[t] = S[t] C[t] + D x[t], S[t] = exp(dt[t] A) S[t - 1] + dt[t] x[t] B[t]^T, chunk by chunk.

    t = c * chunk + i: the arrays are those of `mamba2`, with (b, c, i) for (b, t). Factors of
    products are of `dtype`.
    """
    bb, c, gg = g.axes(b=b, c=chunks_of("mamba2_chunked", t, chunk), g=groups)
    h, i, j = g.axes(h=_groups("mamba2_chunked", heads, groups), i=chunk, j=chunk)
    pp, nn = g.axes(p=p, n=n)
    x, dt = g.input("x", (bb, c, j, gg, h, pp), dtype), _steps(g, (bb, c, j, gg, h))
    left = g.input("B", (bb, c, j, gg, nn), dtype)
    right = g.input("C", (bb, c, i, gg, nn), dtype)
    total = cumulative("sum", dt * _rates(g, (gg, h)), j)
    added = _added(total, dt, x, left, j)
    carried = recurrence(exp(total.at(j=chunk - 1)), added, c).at(c=c - 1, fill=0)
    products = contract(right, left, over=nn)
    y = _outputs(total, dt, x, products, right, carried, i, j, nn)
    y = y + g.input("D", (gg, h), "f32") * x.at(j=i)
    g.output("y", y, dtype, (bb, c, i, gg, h, pp))


@operator
def mamba2_chunk_state(
    g: Graph, b: int, t: int, heads: int, p: int, n: int, chunk: int, groups: int = 1,
    dtype: str = "f32",
) -> None:  # fmt: skip
    """S[c] = the sum over i of exp(a[c, last] - a[c, i]) dt[c, i] x[c, i] B[c, i]^T.

    What each chunk adds to the state at its end; a is the sum of dt A up to each point of a chunk.
    x is (b, c, i, groups, heads / groups, p), B (b, c, i, groups, n), a and dt (b, heads, c, i), S
    (b, c, heads, p, n). Factors of products are of `dtype`.
    """
    bb, c, gg = g.axes(b=b, c=chunks_of("mamba2_chunk_state", t, chunk), g=groups)
    h, j, pp, nn = g.axes(h=_groups("mamba2_chunk_state", heads, groups), j=chunk, p=p, n=n)
    dt = _steps(g, (bb, gg, h, c, j))
    total = g.input("a", (bb, gg, h, c, j), "f32", prefix_sums(-0.1, 0))
    x, left = g.input("x", (bb, c, j, gg, h, pp), dtype), g.input("B", (bb, c, j, gg, nn), dtype)
    g.output("S", _added(total, dt, x, left, j), "f32", (bb, c, gg, h, pp, nn))


@operator
def mamba2_chunk_scan(
    g: Graph, b: int, t: int, heads: int, p: int, n: int, chunk: int, groups: int = 1,
    dtype: str = "f32",
) -> None:  # fmt: skip
    """y[c, i] = exp(a[c, i]) S[c] C[i] + sum_j<=i CB[c, i, j] exp(a[i] - a[j]) dt[j] x[j] + D x[i].

    S is the state before each chunk, CB the products of C and B inside it; a and the other arrays
    are as in `mamba2_chunk_state`, CB is (b, c, groups, i, j). Factors of products are of `dtype`.
    """
    bb, c, gg = g.axes(b=b, c=chunks_of("mamba2_chunk_scan", t, chunk), g=groups)
    h, i, j = g.axes(h=_groups("mamba2_chunk_scan", heads, groups), i=chunk, j=chunk)
    pp, nn = g.axes(p=p, n=n)
    dt = _steps(g, (bb, gg, h, c, j))
    total = g.input("a", (bb, gg, h, c, j), "f32", prefix_sums(-0.1, 0))
    x = g.input("x", (bb, c, j, gg, h, pp), dtype)
    products = g.input("CB", (bb, c, gg, i, j), dtype)
    right = g.input("C", (bb, c, i, gg, nn), dtype)
    before = g.input("S", (bb, c, gg, h, pp, nn), dtype)
    y = _outputs(total, dt, x, products, right, before, i, j, nn)
    y = y + g.input("D", (gg, h), "f32") * x.at(j=i)
    g.output("y", y, dtype, (bb, c, i, gg, h, pp))


@operator
def mamba2_state_passing(g: Graph, b: int, chunks: int, heads: int, p: int, n: int) -> None:
    """before[c] = exp(a[c - 1]) before[c - 1] + S[c - 1], from 0; `last` is behind them all.

    S is what chunks add, (b, chunks, heads, p, n), a (b, heads, chunks) the sum of dt A of a chunk.
    """
    bb, c, h, pp, nn = g.axes(b=b, c=chunks, h=heads, p=p, n=n)
    factor = exp(g.input("a", (bb, h, c), "f32", uniform(-2, 0)))
    after = recurrence(factor, g.input("S", (bb, c, h, pp, nn), "f32"), c)
    g.output("before", after.at(c=c - 1, fill=0), "f32", (bb, c, h, pp, nn))
    g.output("last", after.at(c=chunks - 1), "f32", (bb, h, pp, nn))


@operator
def mamba2_decode(
    g: Graph, b: int, heads: int, p: int, n: int, groups: int = 1, dtype: str = "f32"
) -> None:
    """y = S' C + D x, S' = exp(dt A) S + dt x B^T: one position of every sequence.

    x and y are (b, groups, heads / groups, p), dt (b, heads), B and C (b, groups, n), S and S'
    (b, heads, p, n) in f32.
    """
    bb, gg, h, pp, nn = g.axes(b=b, g=groups, h=_groups("mamba2", heads, groups), p=p, n=n)
    x, dt = g.input("x", (bb, gg, h, pp), dtype), _steps(g, (bb, gg, h))
    left, right = (g.input(name, (bb, gg, nn), dtype) for name in "BC")
    before = g.input("S", (bb, gg, h, pp, nn), "f32")
    after = before * exp(dt * _rates(g, (gg, h))) + dt * x * left
    y = contract(after, right, over=nn) + g.input("D", (gg, h), "f32") * x
    g.output("y", y, dtype, (bb, gg, h, pp))
    g.output("S_next", after, "f32", (bb, gg, h, pp, nn))
