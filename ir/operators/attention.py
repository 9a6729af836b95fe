"""Attention as plain maths. That it can be streamed over the keys is derived, not written."""

from __future__ import annotations

import math
from typing import NamedTuple

from ir import (
    Axis,
    Graph,
    Tile,
    UsageError,
    absolute,
    cast,
    contract,
    exp,
    log,
    operator,
    philox_uniform,
    reduce,
    tanh,
    where,
)
from ir.values import ascending, normal

_LLAMA: dict[str, object] = {"b": 1, "heads": 32, "kv_heads": 8, "sq": 4096, "d": 128,
                             "causal": True, "dtype": "bf16"}  # fmt: skip
_LONG: dict[str, object] = {"b": 1, "heads": 16, "sq": 16384, "d": 128, "dtype": "bf16"}
_SMALL: dict[str, object] = {"b": 1, "heads": 4, "kv_heads": 2, "sq": 37, "d": 24, "causal": True}

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "attention": {
        "small": _SMALL,
        "llama-3-8b": _LLAMA,
        "16k tokens": _LONG,
        "starcoder, one head of keys": _LLAMA | {"heads": 48, "kv_heads": 1},
    },
    "attention_lse": {"small": _SMALL, "llama-3-8b": _LLAMA, "16k tokens": _LONG},
    "attention_backward": {
        "small": _SMALL,
        "llama-3-8b": _LLAMA,
        "gpt-3 6.7b": {"b": 2, "heads": 32, "sq": 2048, "d": 128, "causal": True, "dtype": "bf16"},
    },
    "sink_attention": {
        "small": _SMALL,
        "gpt-oss-120b": _LLAMA | {"heads": 64, "d": 64},
        "gpt-oss-120b, window": _LLAMA | {"heads": 64, "d": 64, "window": 128},
    },
    "softcap_attention": {
        "small": _SMALL,
        "gemma-2-9b": _LLAMA | {"heads": 16, "d": 256},
        "gemma-2-9b, window": _LLAMA | {"heads": 16, "d": 256, "sq": 8192, "window": 4096},
    },
    "alibi_attention": {
        "small": _SMALL,
        "bloom-7b": {"b": 1, "heads": 32, "sq": 2048, "d": 128, "causal": True, "dtype": "bf16"},
    },
    "document_attention": {
        "small": _SMALL | {"documents": 5},
        "llama-3-8b, packed": _LLAMA | {"sq": 8192, "documents": 8},
    },
    "dropout_attention": {
        "small": _SMALL,
        "gpt-2": {"b": 8, "heads": 12, "sq": 1024, "d": 64, "causal": True, "dtype": "bf16"},
        "llama-3-8b": _LLAMA,
    },
}


class Heads(NamedTuple):
    """Queries, keys and values of an attention, and their axes; `group` is that of GQA, or none."""

    q: Tile
    k: Tile
    v: Tile
    outer: tuple[Axis, ...]
    group: tuple[Axis, ...]
    queries: Axis
    keys: Axis
    depth: Axis
    columns: Axis

    @property
    def result(self) -> tuple[Axis, ...]:
        return (*self.outer, *self.group, self.queries, self.columns)


def sharing(g: Graph, heads: int, kv_heads: int) -> tuple[int, int]:
    """How many heads keys have (0: as many), and how many of the queries share one of them."""
    kv_heads = kv_heads or heads
    if kv_heads < 1 or heads % kv_heads:
        raise UsageError(f"{g.name}: heads={heads} is no multiple of kv_heads={kv_heads}")
    return kv_heads, heads // kv_heads


def heads_of(
    g: Graph, b: int, heads: int, sq: int, d: int, sk: int, dv: int, kv_heads: int, dtype: str
) -> Heads:
    """Declares Q (b, heads, sq, d), K (b, kv_heads, sk, d) and V; 0 stands for sq, d, heads.

    With fewer kv_heads, Q is (b, kv_heads, group, sq, d), the same bytes.
    """
    kv_heads, shared = sharing(g, heads, kv_heads)
    outer = g.axes(b=b, hk=kv_heads)
    group = g.axes(g=shared) if shared > 1 else ()
    queries, keys, depth, columns = g.axes(sq=sq, sk=sk or sq, d=d, dv=dv or d)
    q = g.input("Q", (*outer, *group, queries, depth), dtype)
    k = g.input("K", (*outer, keys, depth), dtype)
    v = g.input("V", (*outer, keys, columns), dtype)
    return Heads(q, k, v, outer, group, queries, keys, depth, columns)


def masked(
    g: Graph, scores: Tile, queries: Axis, keys: Axis, causal: bool, window: int = 0
) -> Tile:
    """Scores with -inf at the keys that a query may not see; queries end where keys end."""
    if (causal or window) and queries.extent > keys.extent:
        numbers = f"sq={queries.extent} > sk={keys.extent}"
        raise UsageError(f"{g.name}: {numbers}: a masked query would see no key")
    if window < 0:
        raise UsageError(f"{g.name}: window={window}; it is a number of keys, 0 for all")
    ahead = keys.extent - queries.extent
    if causal:
        scores = where(g.iota(keys) <= queries + ahead, scores, -math.inf)
    if window:
        scores = where(g.iota(keys) > queries + (ahead - window), scores, -math.inf)
    return scores


def _numbered(g: Graph, axes: tuple[Axis, ...]) -> Tile:
    """The number of a point of `axes` in their order, such as that of a row among all rows."""
    row = axes[0] + 0
    for axis in axes[1:]:
        row = row * axis.extent + axis
    return g.coordinate(row)


def attended(scores: Tile, v: Tile, over: Axis | tuple[Axis, ...], dtype: str) -> Tile:
    """Values weighed by the softmax of scores, whose weights are rounded to `dtype`: those of e4m3
    relative to 256, so that one of 2^-14 of the largest is not 0."""
    top = reduce("max", scores, over=over)
    p = exp(scores - (top - math.log(256) if dtype == "e4m3" else top))
    return contract(cast(p, dtype), v, over=over) / reduce("sum", p, over=over)


@operator
def attention(
    g: Graph, b: int, heads: int, sq: int, d: int, sk: int = 0, dv: int = 0, kv_heads: int = 0,
    causal: bool = False, window: int = 0, dtype: str = "f32", scale: float = 0.0, out: str = "",
) -> None:  # fmt: skip
    """O = softmax(Q K^T * scale) V for every head; Q is (b, heads, sq, d), K (b, heads, sk, d).

    With fewer kv_heads, Q is (b, kv_heads, group, sq, d), the same bytes. `window` keys up to and
    including its own are seen by a query (0: all). sk, dv, kv_heads, scale, out default to sq, d,
    heads, 1/sqrt(d), dtype.
    """
    h = heads_of(g, b, heads, sq, d, sk, dv, kv_heads, dtype)
    scores = contract(h.q, h.k, over=h.depth) * (scale or 1 / math.sqrt(d))
    scores = masked(g, scores, h.queries, h.keys, causal, window)
    g.output("O", attended(scores, h.v, h.keys, dtype), out or dtype, h.result)


@operator
def attention_lse(
    g: Graph, b: int, heads: int, sq: int, d: int, sk: int = 0, kv_heads: int = 0,
    causal: bool = False, dtype: str = "f32",
) -> None:  # fmt: skip
    """O = softmax(S) V and L = log(sum(exp(S))) for S = Q K^T / sqrt(d), as a backward pass needs.

    Shapes as of `attention`; L is f32, one for each row of O.
    """
    h = heads_of(g, b, heads, sq, d, sk, 0, kv_heads, dtype)
    scores = contract(h.q, h.k, over=h.depth) * (1 / math.sqrt(d))
    scores = masked(g, scores, h.queries, h.keys, causal)
    top = reduce("max", scores, over=h.keys)
    p = exp(scores - top)
    total = reduce("sum", p, over=h.keys)
    g.output("O", contract(cast(p, dtype), h.v, over=h.keys) / total, dtype, h.result)
    g.output("L", log(total) + top, "f32", h.result[:-1])


@operator
def attention_backward(
    g: Graph, b: int, heads: int, sq: int, d: int, sk: int = 0, kv_heads: int = 0,
    causal: bool = False, dtype: str = "f32",
) -> None:  # fmt: skip
    """dV = P^T dO, dQ = dS K, dK = dS^T Q for P = exp(S - L), dS = P * (dO V^T - rowsum(dO * O)).

    S and L are as in `attention_lse`, whose O and L are inputs beside dO; dS is divided by sqrt(d).
    With fewer kv_heads, dK and dV are sums over the heads of a group.
    """
    h = heads_of(g, b, heads, sq, d, sk, d, kv_heads, dtype)
    scale, columns, seen = 1 / math.sqrt(d), h.columns, normal(0.1, math.log(h.keys.extent) + 1)
    o, do = (g.input(name, h.result, dtype) for name in ("O", "dO"))
    lse = g.input("L", h.result[:-1], "f32", values=seen)
    scores = contract(h.q, h.k, over=h.depth) * scale
    p = exp(masked(g, scores, h.queries, h.keys, causal) - lse)
    delta = reduce("sum", do * o, over=columns)
    ds = cast(p * (contract(do, h.v, over=columns) - delta) * scale, dtype)
    rows = (*h.group, h.queries)
    g.output("dQ", contract(ds, h.k, over=h.keys), dtype, (*h.outer, *rows, h.depth))
    g.output("dK", contract(ds, h.q, over=rows), dtype, (*h.outer, h.keys, h.depth))
    g.output("dV", contract(cast(p, dtype), do, over=rows), dtype, (*h.outer, h.keys, columns))


@operator
def sink_attention(
    g: Graph, b: int, heads: int, sq: int, d: int, sk: int = 0, kv_heads: int = 0,
    causal: bool = True, window: int = 0, dtype: str = "f32",
) -> None:  # fmt: skip
    """O = exp(S) V / (rowsum(exp(S)) + exp(sink)), S = Q K^T / sqrt(d): a sink takes a share.

    Shapes as of `attention`; sink is f32, one number for each head.
    """
    h = heads_of(g, b, heads, sq, d, sk, 0, kv_heads, dtype)
    sink = g.input("sink", (h.outer[1], *h.group), "f32")
    scores = contract(h.q, h.k, over=h.depth) * (1 / math.sqrt(d))
    scores = masked(g, scores, h.queries, h.keys, causal, window)
    top = reduce("max", scores, over=h.keys)
    p = exp(scores - top)
    total = reduce("sum", p, over=h.keys) + exp(sink - top)
    g.output("O", contract(cast(p, dtype), h.v, over=h.keys) / total, dtype, h.result)


@operator
def softcap_attention(
    g: Graph, b: int, heads: int, sq: int, d: int, sk: int = 0, kv_heads: int = 0,
    causal: bool = True, window: int = 0, cap: float = 50.0, dtype: str = "f32",
) -> None:  # fmt: skip
    """O = softmax(cap * tanh(Q K^T / sqrt(d) / cap)) V: scores stay between -cap and cap.

    Shapes as of `attention`.
    """
    if cap <= 0:
        raise UsageError(f"{g.name}: cap={cap}; scores stay below it, so it is above 0")
    h = heads_of(g, b, heads, sq, d, sk, 0, kv_heads, dtype)
    scores = tanh(contract(h.q, h.k, over=h.depth) * (1 / math.sqrt(d) / cap)) * cap
    scores = masked(g, scores, h.queries, h.keys, causal, window)
    g.output("O", attended(scores, h.v, h.keys, dtype), dtype, h.result)


@operator
def alibi_attention(
    g: Graph, b: int, heads: int, sq: int, d: int, sk: int = 0, kv_heads: int = 0,
    causal: bool = True, dtype: str = "f32",
) -> None:  # fmt: skip
    """O = softmax(Q K^T / sqrt(d) - slope * distance) V: far keys count less (ALiBi).

    slope is f32, one number for each head; the distance of query and key is |i - j|, queries ending
    where keys end. Shapes as of `attention`.
    """
    h = heads_of(g, b, heads, sq, d, sk, 0, kv_heads, dtype)
    slope = g.input("slope", (h.outer[1], *h.group), "f32", values=normal(0.02, 0.1))
    ahead = h.keys.extent - h.queries.extent
    distance = absolute(g.iota(h.keys) - (h.queries + ahead))
    scores = contract(h.q, h.k, over=h.depth) * (1 / math.sqrt(d)) - cast(distance, "f32") * slope
    scores = masked(g, scores, h.queries, h.keys, causal)
    g.output("O", attended(scores, h.v, h.keys, dtype), dtype, h.result)


@operator
def document_attention(
    g: Graph, b: int, heads: int, sq: int, d: int, documents: int, kv_heads: int = 0,
    causal: bool = True, dtype: str = "f32",
) -> None:  # fmt: skip
    """O = softmax(Q K^T / sqrt(d) where document[i] = document[j]) V: packed sequences.

    document is (b, sq) of i32; a token sees its own document alone. Shapes as of `attention`.
    """
    h = heads_of(g, b, heads, sq, d, 0, 0, kv_heads, dtype)
    document = g.tensor("document", (b, sq), "i32", values=ascending(0, documents - 1))
    same = document[h.outer[0], h.queries] == document[h.outer[0], h.keys]
    scores = contract(h.q, h.k, over=h.depth) * (1 / math.sqrt(d))
    scores = where(same, masked(g, scores, h.queries, h.keys, causal), -math.inf)
    g.output("O", attended(scores, h.v, h.keys, dtype), dtype, h.result)


@operator
def dropout_attention(
    g: Graph, b: int, heads: int, sq: int, d: int, sk: int = 0, kv_heads: int = 0,
    causal: bool = False, rate: float = 0.1, seed: int = 0, dtype: str = "f32",
) -> None:  # fmt: skip
    """O = (P / (1 - rate) where u >= rate, else 0) V for P = softmax(Q K^T / sqrt(d)).

    Shapes as of `attention`. u, between 0 and 1, is the upper 24 bits of word (key mod 4) of Philox
    4x32-10 at the counter (key div 4, (batch * heads + head) * sq + query) under the key `seed`:
    the same everywhere, so that a backward pass makes it again.
    """
    if not 0 <= rate < 1:
        raise UsageError(f"{g.name}: rate={rate}; it is at least 0 and below 1")
    h = heads_of(g, b, heads, sq, d, sk, 0, kv_heads, dtype)
    scores = contract(h.q, h.k, over=h.depth) * (1 / math.sqrt(d))
    scores = masked(g, scores, h.queries, h.keys, causal)
    p = exp(scores - reduce("max", scores, over=h.keys))
    u = philox_uniform(g.iota(h.keys), _numbered(g, h.result[:-1]), seed)
    kept = cast(where(u >= rate, p, 0.0), dtype)
    total = reduce("sum", p, over=h.keys) * (1 - rate)
    g.output("O", contract(kept, h.v, over=h.keys) / total, dtype, h.result)
