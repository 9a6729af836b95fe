"""Attention over caches and packed sequences: lengths, pages and lists are read from tensors."""

from __future__ import annotations

import math

from ir import Graph, UsageError, contract, operator, where
from ir.operators.attention import attended, masked, sharing
from ir.values import ascending, indices, lengths

_MLA: dict[str, object] = {"heads": 128, "dtype": "bf16"}

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "decode_attention": {
        "small": {"b": 3, "heads": 6, "kv_heads": 2, "d": 24, "sk": 67},
        "llama-3-8b": {"b": 32, "heads": 32, "kv_heads": 8, "d": 128, "sk": 4096, "dtype": "bf16"},
        "llama-3-70b": {"b": 8, "heads": 64, "kv_heads": 8, "d": 128, "sk": 8192, "dtype": "bf16"},
        "starcoder, one head of keys": {
            "b": 32, "heads": 48, "kv_heads": 1, "d": 128, "sk": 4096, "dtype": "bf16"},
    },
    "paged_attention": {
        "small": {"b": 3, "heads": 4, "kv_heads": 2, "d": 24, "pages": 5, "page": 9, "slots": 17},
        "llama-3-70b, pages of 16": {
            "b": 8, "heads": 64, "kv_heads": 8, "d": 128, "pages": 512, "page": 16, "slots": 4096,
            "dtype": "bf16"},
        "llama-3-8b, pages of 64": {
            "b": 32, "heads": 32, "kv_heads": 8, "d": 128, "pages": 64, "page": 64, "slots": 2048,
            "dtype": "bf16"},
    },
    "ragged_attention": {
        "small": {"blocks": 4, "rows": 7, "heads": 2, "d": 24, "sequences": 3, "longest": 21,
                  "tokens": 50},
        "llama-3-8b, 8192 tokens": {
            "blocks": 64, "rows": 128, "heads": 32, "kv_heads": 8, "d": 128, "sequences": 8,
            "longest": 4096, "tokens": 8192, "dtype": "bf16"},
    },
    "block_sparse_attention": {
        "small": {"b": 1, "heads": 2, "sq": 30, "sk": 45, "d": 24, "rows": 10, "keys": 9,
                  "listed": 3},
        "tilelang": {"b": 1, "heads": 64, "sq": 8192, "sk": 8192, "d": 128, "rows": 128,
                     "keys": 128, "listed": 32, "dtype": "bf16"},
    },
    "mla_prefill": {
        "small": {"b": 1, "heads": 3, "sq": 29, "d": 16, "rope": 8},
        "deepseek-v3": _MLA | {"b": 1, "sq": 4096},
    },
    "mla_decode": {
        "small": {"b": 2, "heads": 5, "sk": 43, "latent": 32, "rope": 8},
        "deepseek-v3, 128 sequences": _MLA | {"b": 128, "sk": 4096},
        "deepseek-v3, 8 ways": _MLA | {"b": 128, "heads": 16, "sk": 4096},
        "deepseek-v3, two tokens": _MLA | {"b": 64, "sk": 8192, "sq": 2},
    },
}  # fmt: skip


def _check_queries(g: Graph, sq: int, sk: int) -> None:
    if sq > sk:
        raise UsageError(f"{g.name}: sq={sq} > sk={sk} keys: a masked query would see none")


@operator
def decode_attention(
    g: Graph, b: int, heads: int, d: int, sk: int, kv_heads: int = 0, dtype: str = "f32"
) -> None:
    """O = softmax(q K^T / sqrt(d)) V over the first length[b] keys: one query for each sequence.

    Q is (b, kv_heads, group, d), K and V are (b, kv_heads, sk, d), length is (b) of i32.
    """
    kv_heads, shared = sharing(g, heads, kv_heads)
    bb, hk, group, keys, depth, columns = g.axes(b=b, hk=kv_heads, g=shared, sk=sk, d=d, dv=d)
    q = g.input("Q", (bb, hk, group, depth), dtype)
    k, v = g.input("K", (bb, hk, keys, depth), dtype), g.input("V", (bb, hk, keys, columns), dtype)
    length = g.input("length", (bb,), "i32", values=lengths(sk, 1))
    scores = contract(q, k, over=depth) * (1 / math.sqrt(d))
    scores = where(g.iota(keys) < length, scores, -math.inf)
    g.output("O", attended(scores, v, keys, dtype), dtype, (bb, hk, group, columns))


@operator
def paged_attention(
    g: Graph, b: int, heads: int, d: int, pages: int, page: int, slots: int, kv_heads: int = 0,
    sq: int = 1, dtype: str = "f32",
) -> None:  # fmt: skip
    """O = softmax(Q K^T / sqrt(d)) V for K[i] = pool_k[table[b, i / page], i mod page].

    Q is (b, kv_heads, group, sq, d); the pools are (slots, page, kv_heads, d), table is (b, pages)
    and length (b) of i32. The last of sq queries sees length[b] keys, each one before it one less.
    """
    kv_heads, shared = sharing(g, heads, kv_heads)
    _check_queries(g, sq, pages * page)
    bb, hk, group, queries = g.axes(b=b, hk=kv_heads, g=shared, sq=sq)
    p, o, depth, columns = g.axes(p=pages, o=page, d=d, dv=d)
    q = g.input("Q", (bb, hk, group, queries, depth), dtype)
    pool_k, pool_v = (
        g.tensor(name, (slots, page, kv_heads, d), dtype) for name in ("pool_k", "pool_v")
    )
    table = g.input("table", (bb, p), "i32", values=indices(slots))
    length = g.input("length", (bb,), "i32", values=lengths(pages * page, sq))
    scores = contract(q, pool_k[table, o, hk, depth], over=depth) * (1 / math.sqrt(d))
    seen = g.coordinate(p * page + o) <= length + (queries - sq)
    scores = where(seen, scores, -math.inf)
    result = attended(scores, pool_v[table, o, hk, columns], (p, o), dtype)
    g.output("O", result, dtype, (bb, hk, group, queries, columns))


@operator
def ragged_attention(
    g: Graph, blocks: int, rows: int, heads: int, d: int, sequences: int, longest: int,
    tokens: int, kv_heads: int = 0, dtype: str = "f32",
) -> None:  # fmt: skip
    """O = softmax(Q K^T / sqrt(d)) V, causal, within sequences of any length that lie packed.

    Sequence s has the keys first[s] .. first[s] + length[s] - 1 (at most `longest`) of K and V
    (tokens, kv_heads, d). Queries lie in blocks of rows of one sequence: Q is (blocks, rows,
    kv_heads, group, d); row r of block i is query place[i] + r of sequence[i].
    """
    kv_heads, shared = sharing(g, heads, kv_heads)
    block, row, hk, group = g.axes(i=blocks, r=rows, hk=kv_heads, g=shared)
    keys, depth, columns = g.axes(j=longest, d=d, dv=d)
    q = g.input("Q", (block, row, hk, group, depth), dtype)
    k, v = (g.tensor(name, (tokens, kv_heads, d), dtype, fill=0) for name in ("K", "V"))
    sequence = g.input("sequence", (block,), "i32", values=ascending(0, sequences - 1))
    place = g.input("place", (block,), "i32", values=indices(longest))
    first = g.tensor("first", (sequences,), "i32", values=indices(tokens))[sequence]
    length = g.tensor("length", (sequences,), "i32", values=lengths(longest, 1))[sequence]
    scores = contract(q, k[first + keys, hk, depth], over=depth) * (1 / math.sqrt(d))
    seen = (g.iota(keys) < length) & (g.iota(keys) <= place + row)
    scores = where(seen, scores, -math.inf)
    result = attended(scores, v[first + keys, hk, columns], keys, dtype)
    g.output("O", result, dtype, (block, row, hk, group, columns))


@operator
def block_sparse_attention(
    g: Graph, b: int, heads: int, sq: int, sk: int, d: int, rows: int, keys: int, listed: int,
    dtype: str = "f32",
) -> None:  # fmt: skip
    """O = softmax(Q K^T / sqrt(d)) V over listed blocks of keys, a list for each block of queries.

    Q is (b, heads, sq / rows, rows, d), K and V are (b, heads, sk / keys, keys, d); index is (b,
    heads, sq / rows, listed) of i32, of which the first count[b, h, i] hold.
    """
    if sq % rows or sk % keys:
        raise UsageError(f"{g.name}: sq={sq}, sk={sk}: no multiples of rows={rows}, keys={keys}")
    bb, h, i, r = g.axes(b=b, h=heads, i=sq // rows, r=rows)
    t, o, depth, columns = g.axes(t=listed, o=keys, d=d, dv=d)
    q = g.input("Q", (bb, h, i, r, depth), dtype)
    k, v = (g.tensor(name, (b, heads, sk // keys, keys, d), dtype) for name in ("K", "V"))
    index = g.input("index", (bb, h, i, t), "i32", values=indices(sk // keys))
    count = g.input("count", (bb, h, i), "i32", values=lengths(listed, 1))
    scores = contract(q, k[bb, h, index, o, depth], over=depth) * (1 / math.sqrt(d))
    scores = where(g.iota(t) < count, scores, -math.inf)
    result = attended(scores, v[bb, h, index, o, columns], (t, o), dtype)
    g.output("O", result, dtype, (bb, h, i, r, columns))


@operator
def mla_prefill(
    g: Graph, b: int, heads: int, sq: int, d: int = 128, rope: int = 64, sk: int = 0,
    dtype: str = "f32",
) -> None:  # fmt: skip
    """O = softmax((Q K^T + Q_rope K_rope^T) / sqrt(d + rope)) V, causal; all heads share K_rope.

    Q is (b, heads, sq, d), Q_rope (b, heads, sq, rope), K and V are (b, heads, sk, d), K_rope is
    (b, sk, rope): latent attention with keys and values unfolded.
    """
    bb, h, queries, keys = g.axes(b=b, h=heads, sq=sq, sk=sk or sq)
    depth, turned, columns = g.axes(d=d, e=rope, dv=d)
    q, q_rope = (g.input("Q", (bb, h, queries, depth), dtype),
                 g.input("Q_rope", (bb, h, queries, turned), dtype))  # fmt: skip
    k, k_rope = (g.input("K", (bb, h, keys, depth), dtype),
                 g.input("K_rope", (bb, keys, turned), dtype))  # fmt: skip
    products = contract(q, k, over=depth) + contract(q_rope, k_rope, over=turned)
    scores = masked(g, products * (1 / math.sqrt(d + rope)), queries, keys, True)
    v = g.input("V", (bb, h, keys, columns), dtype)
    g.output("O", attended(scores, v, keys, dtype), dtype, (bb, h, queries, columns))


@operator
def mla_decode(
    g: Graph, b: int, heads: int, sk: int, latent: int = 512, rope: int = 64, sq: int = 1,
    d: int = 128, dtype: str = "f32",
) -> None:  # fmt: skip
    """O = softmax((Q C^T + Q_rope R^T) / sqrt(d + rope)) C for a cache [C R] that all heads share.

    Latent attention, absorbed: Q is (b, sq, heads, latent), Q_rope (b, sq, heads, rope), cache (b,
    sk, latent + rope), length (b) of i32, O (b, sq, heads, latent). The last of sq queries sees
    length[b] keys, each one before it one less. d is that of the heads before they were absorbed.
    """
    _check_queries(g, sq, sk)
    bb, queries, h, keys = g.axes(b=b, sq=sq, h=heads, sk=sk)
    depth, turned, columns = g.axes(c=latent, e=rope, dv=latent)
    q = g.input("Q", (bb, queries, h, depth), dtype)
    q_rope = g.input("Q_rope", (bb, queries, h, turned), dtype)
    cache = g.tensor("cache", (b, sk, latent + rope), dtype)
    length = g.input("length", (bb,), "i32", values=lengths(sk, sq))
    products = contract(q, cache[bb, keys, depth], over=depth)
    products = products + contract(q_rope, cache[bb, keys, turned + latent], over=turned)
    seen = g.iota(keys) <= length + (queries - sq)
    scores = where(seen, products * (1 / math.sqrt(d + rope)), -math.inf)
    result = attended(scores, cache[bb, keys, columns], keys, dtype)
    g.output("O", result, dtype, (bb, queries, h, columns))
