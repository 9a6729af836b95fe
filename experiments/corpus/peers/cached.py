"""Attention over caches, pages and packed sequences: with masks, what pages hold gathered."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .attention import causal_mask, sdpa
from .plan import Arguments, Plan, Tensors, peer

Tensor = torch.Tensor


@peer("decode_attention")
def decode(x: Tensors, a: Arguments) -> Iterator[Plan]:
    """The queries of a group as rows: one head for each head of keys."""
    keys = torch.arange(a.sk, device=x["Q"].device)
    mask = (keys < x["length"][:, None])[:, None, None, :].expand(-1, 1, x["Q"].shape[2], -1)
    return sdpa((x["Q"], x["K"], x["V"], mask.contiguous()))


@peer("paged_attention")
def paged(x: Tensors, a: Arguments) -> Iterator[Plan]:
    """Pages brought together, then attention with a mask."""
    b, kv, group, sq, d = x["Q"].shape
    length = a.pages * a.page
    last = x["length"][:, None] - (sq - 1 - torch.arange(sq, device=x["Q"].device))
    mask = torch.arange(length, device=x["Q"].device) < last[..., None]
    mask = mask[:, None, None].expand(b, 1, group, sq, length).reshape(b, 1, -1, length)
    q = x["Q"].reshape(b, kv, group * sq, d)

    def gathered(pool: Tensor, table: Tensor) -> Tensor:
        return pool[table].reshape(b, length, kv, d).transpose(1, 2)

    for plan in sdpa((q, q, q, mask)):

        def function(q: Tensor, k: Tensor, v: Tensor, table: Tensor, mask: Tensor,
                     attend: Callable[..., Any] = plan.function) -> Tensor:  # fmt: skip
            found: Tensor = attend(q, gathered(k, table), gathered(v, table), mask)
            return found

        tensors = (q, x["pool_k"], x["pool_v"], x["table"], mask)
        yield Plan(f"pages gathered, {plan.name}", function, tensors)


@peer("ragged_attention")
def ragged(x: Tensors, a: Arguments) -> Plan:
    """Keys of each block's sequence gathered up to the longest, then attention with a mask."""
    blocks, rows, kv, group, d = x["Q"].shape
    steps = torch.arange(a.longest, device=x["Q"].device)
    sequence = x["sequence"].long()
    index = x["first"][sequence][:, None] + steps
    place = x["place"][:, None] + torch.arange(rows, device=steps.device)
    mask = steps < x["length"][sequence][:, None, None]
    mask = (mask & (steps <= place[..., None])).repeat(1, group, 1)[:, None]
    inside = index < a.tokens
    index = index.clamp(max=a.tokens - 1)

    def gathered(t: Tensor, index: Tensor, inside: Tensor) -> Tensor:
        return (t[index] * inside[..., None, None]).transpose(1, 2)

    def function(
        q: Tensor, k: Tensor, v: Tensor, index: Tensor, inside: Tensor, mask: Tensor
    ) -> Tensor:
        q = q.permute(0, 2, 3, 1, 4).reshape(blocks, kv, group * rows, d)
        k, v = (gathered(t, index, inside) for t in (k, v))
        found = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
        return found.reshape(blocks, kv, group, rows, d).permute(0, 3, 1, 2, 4)

    tensors = (x["Q"], x["K"], x["V"], index, inside, mask)
    return Plan("keys gathered, torch SDPA", function, tensors)


@peer("block_sparse_attention")
def block_sparse(x: Tensors, a: Arguments) -> Iterator[Plan]:
    """Listed blocks gathered; a block may be listed more than once."""
    b, heads, parts, rows, d = x["Q"].shape
    listed = torch.arange(a.listed, device=x["Q"].device) < x["count"][..., None]
    mask = listed.repeat_interleave(a.keys, -1).reshape(b * heads * parts, 1, 1, -1)
    mask = mask.expand(-1, 1, rows, -1)
    index = x["index"].long()[..., None, None]
    q = x["Q"].reshape(b * heads * parts, 1, rows, d)

    def gathered(t: Tensor, index: Tensor) -> Tensor:
        wide = t[:, :, None].expand(-1, -1, parts, -1, -1, -1)
        found = wide.take_along_dim(index, 3)
        return found.reshape(b * heads * parts, 1, -1, d)

    def function(q: Tensor, k: Tensor, v: Tensor, index: Tensor, mask: Tensor) -> Tensor:
        k, v = gathered(k, index), gathered(v, index)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)

    yield Plan("blocks gathered, torch SDPA", function, (q, x["K"], x["V"], index, mask))


@peer("mla_prefill")
def mla_prefill(x: Tensors, a: Arguments) -> Iterator[Plan]:
    """Coordinates of both kinds side by side, as models that unfold their keys have them."""
    q = torch.cat([x["Q"], x["Q_rope"]], -1)
    shared = x["K_rope"][:, None].expand(-1, a.heads, -1, -1)
    k = torch.cat([x["K"], shared], -1)
    if q.shape[-2] != k.shape[-2]:
        mask = causal_mask(q.shape[-2], k.shape[-2], q.device)
        return sdpa((q, k, x["V"], mask))
    return sdpa((q, k, x["V"]), is_causal=True)


@peer("mla_decode")
def mla_decode(x: Tensors, a: Arguments) -> Iterator[Plan]:
    """Heads as rows: all share one head of keys."""
    b, sq, heads, latent = x["Q"].shape
    q = torch.cat([x["Q"], x["Q_rope"]], -1).reshape(b, 1, sq * heads, -1)
    keys = torch.arange(a.sk, device=q.device)
    last = x["length"][:, None] - (sq - 1 - torch.arange(sq, device=q.device))
    mask = (keys < last[..., None]).repeat_interleave(heads, 1)[:, None]
    scale = 1 / math.sqrt(a.d + a.rope)

    def products(q: Tensor, cache: Tensor, mask: Tensor) -> Tensor:
        scores = (q[:, 0] @ cache.mT).float() * scale
        weights = scores.masked_fill(~mask[:, 0], -math.inf).softmax(-1).to(cache.dtype)
        return weights @ cache[..., :latent]

    yield Plan("torch, scores in memory", products, (q, x["cache"], mask), fused=True)
    cache = x["cache"][:, None]
    yield from sdpa((q, cache, cache[..., :latent], mask), scale=scale)
