"""Attention: torch's own in its backends, and flex_attention for what they do not have."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from .plan import Arguments, Plan, Tensors, peer

Tensor = torch.Tensor
_BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}  # fmt: skip


def flat(q: Tensor) -> Tensor:
    """Queries (b, kv_heads, group, s, d) as (b, heads, s, d)."""
    return q.flatten(1, 2) if q.ndim == 5 else q


def sdpa(tensors: tuple[Tensor, ...], **how: Any) -> Iterator[Plan]:
    """torch's attention with each of its backends, of which a CPU has one; a fourth is a mask."""

    def call(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, mask, **how)

    if not tensors[0].is_cuda:
        yield Plan("torch SDPA", call, tensors)
        return

    def with_backend(backend: SDPBackend) -> Callable[..., Tensor]:
        def function(*given: Tensor) -> Tensor:
            with sdpa_kernel(backend):
                return call(*given)

        return function

    for name, backend in _BACKENDS.items():
        yield Plan(f"torch SDPA ({name})", with_backend(backend), tensors)


def causal_mask(sq: int, sk: int, device: torch.device, window: int = 0) -> Tensor:
    """What each query sees: the last one all keys, but no more than a window."""
    last = torch.arange(sq, device=device)[:, None] + (sk - sq)
    keys = torch.arange(sk, device=device)[None]
    return (keys <= last) & (keys > last - window) if window else keys <= last


def _window_mask(sq: int, sk: int, a: Arguments, device: torch.device) -> Tensor | None:
    """A mask where `is_causal` does not say it."""
    window = getattr(a, "window", 0)
    if not window and (not a.causal or sq == sk):
        return None
    mask = causal_mask(sq, sk, device, window)
    if window and not a.causal:
        keys = torch.arange(sk, device=device)[None]
        mask = mask | (keys > torch.arange(sq, device=device)[:, None] + (sk - sq))
    return mask


@peer("attention")
def attention(x: Tensors, a: Arguments) -> Iterator[Plan]:
    q = flat(x["Q"])
    mask = _window_mask(q.shape[-2], x["K"].shape[-2], a, q.device)
    tensors = (q, x["K"], x["V"]) if mask is None else (q, x["K"], x["V"], mask)
    how: dict[str, Any] = {"enable_gqa": q.shape[1] != x["K"].shape[1]}
    how |= {"is_causal": a.causal and mask is None, "scale": a.scale or None}
    return sdpa(tensors, **how)


def _repeated(q: Tensor, k: Tensor) -> Tensor:
    return k if q.shape[1] == k.shape[1] else k.repeat_interleave(q.shape[1] // k.shape[1], 1)


def _plain_lse(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> dict[str, Tensor]:
    scores = (q @ _repeated(q, k).mT).float() / math.sqrt(q.shape[-1])
    if causal:
        mask = causal_mask(q.shape[-2], k.shape[-2], q.device)
        scores = scores.masked_fill(~mask, -math.inf)
    weights = scores.softmax(-1).to(v.dtype)
    return {"O": weights @ _repeated(q, v), "L": scores.logsumexp(-1)}


@peer("attention_lse")
def attention_lse(x: Tensors, a: Arguments) -> Iterator[Plan]:
    q, k, v = flat(x["Q"]), x["K"], x["V"]
    if not q.is_cuda or q.shape[-2] != k.shape[-2]:
        yield Plan("torch, scores in memory", lambda *t: _plain_lse(*t, a.causal), (q, k, v))
        return

    def flash(q: Tensor, k: Tensor, v: Tensor) -> dict[str, Tensor]:
        found = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, a.causal)
        return {"O": found[0], "L": found[1]}

    def cudnn(q: Tensor, k: Tensor, v: Tensor) -> dict[str, Tensor]:
        found = torch.ops.aten._scaled_dot_product_cudnn_attention(
            q, k, v, None, True, 0.0, a.causal
        )
        return {"O": found[0], "L": found[1]}

    wide = (q, _repeated(q, k), _repeated(q, v))
    yield Plan("torch flash attention with its log-sum-exp", flash, wide)
    yield Plan("torch cuDNN attention with its log-sum-exp", cudnn, wide)


def _plain_backward(causal: bool) -> Callable[..., dict[str, Tensor]]:
    def function(q: Tensor, k: Tensor, v: Tensor, o: Tensor, do: Tensor, lse: Tensor) -> Any:
        kk, vv = _repeated(q, k), _repeated(q, v)
        scores = (q @ kk.mT).float() / math.sqrt(q.shape[-1])
        p = torch.exp(scores - lse[..., None])
        if causal:
            p = p * causal_mask(q.shape[-2], k.shape[-2], q.device)
        rest = (o.float() * do.float()).sum(-1, keepdim=True)
        ds = (p * ((do @ vv.mT).float() - rest) / math.sqrt(q.shape[-1])).to(q.dtype)
        dk = (ds.mT @ q).unflatten(1, (k.shape[1], -1)).sum(2)
        dv = (p.to(q.dtype).mT @ do).unflatten(1, (v.shape[1], -1)).sum(2)
        return {"dQ": ds @ kk, "dK": dk.reshape(k.shape), "dV": dv.reshape(v.shape)}

    return function


@peer("attention_backward")
def attention_backward(x: Tensors, a: Arguments) -> Iterator[Plan]:
    q, k, v, o, do = flat(x["Q"]), x["K"], x["V"], flat(x["O"]), flat(x["dO"])
    lse = x["L"].flatten(1, 2) if x["L"].ndim == 4 else x["L"]
    if not q.is_cuda or q.shape[-2] != k.shape[-2]:
        given = (q, k, v, o, do, lse)
        yield Plan("torch, scores in memory", _plain_backward(a.causal), given)
        return
    length, zero = q.shape[-2], torch.zeros((), dtype=torch.int64)
    group = q.shape[1] // k.shape[1]

    def flash(q: Tensor, kk: Tensor, vv: Tensor, o: Tensor, do: Tensor, lse: Tensor) -> Any:
        dq, dk, dv = torch.ops.aten._scaled_dot_product_flash_attention_backward(
            do, q, kk, vv, o, lse, None, None, length, length, 0.0, a.causal, zero, zero
        )
        dk, dv = (t.unflatten(1, (-1, group)).sum(2) for t in (dk, dv))
        return {"dQ": dq, "dK": dk, "dV": dv}

    wide = (q, _repeated(q, k), _repeated(q, v), o, do, lse)
    yield Plan("torch flash attention, backward", flash, wide)


def flex(
    q: Tensor, k: Tensor, v: Tensor, score: Any, mask: Any, name: str, *more: Tensor
) -> Iterator[Plan]:
    """flex_attention with a change of scores, and blocks of what is seen, known beforehand.

    `score(*more)` makes the change of scores of tensors that it depends on.
    """
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    sq, sk = q.shape[-2], k.shape[-2]
    blocks = None
    if mask is not None:
        blocks = create_block_mask(mask, q.shape[0], None, sq, sk, device=str(q.device))
    grouped = q.shape[1] != k.shape[1]

    def function(q: Tensor, k: Tensor, v: Tensor, *more: Tensor) -> Tensor:
        change = score(*more) if score is not None else None
        found = flex_attention(q, k, v, score_mod=change, block_mask=blocks, enable_gqa=grouped)
        assert isinstance(found, Tensor)
        return found

    yield Plan(f"torch flex_attention, {name}", function, (q, k, v, *more), fused=True)


def _causal(a: Arguments, sq: int, sk: int) -> Any:
    window = getattr(a, "window", 0)
    if not a.causal and not window:
        return None

    def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        found = j <= i + (sk - sq)
        return found & (j > i + (sk - sq) - window) if window else found

    return seen


@peer("softcap_attention")
def softcap(x: Tensors, a: Arguments) -> Iterator[Plan]:
    def score() -> Any:
        return lambda s, b, h, i, j: a.cap * torch.tanh(s / a.cap)

    q, k, v = flat(x["Q"]), x["K"], x["V"]
    return flex(q, k, v, score, _causal(a, q.shape[-2], k.shape[-2]), "soft cap")


@peer("alibi_attention")
def alibi(x: Tensors, a: Arguments) -> Iterator[Plan]:
    q, k, v = flat(x["Q"]), x["K"], x["V"]
    behind = k.shape[-2] - q.shape[-2]

    def score(slope: Tensor) -> Any:
        return lambda s, b, h, i, j: s - slope[h] * (i + behind - j).abs()

    mask = _causal(a, q.shape[-2], k.shape[-2])
    return flex(q, k, v, score, mask, "ALiBi", x["slope"].reshape(-1))


@peer("dropout_attention")
def dropout(x: Tensors, a: Arguments) -> Iterator[Plan]:
    """Numbers of torch's own generator, so that the results are others where any are dropped."""
    q, k, v = flat(x["Q"]), x["K"], x["V"]
    how: dict[str, Any] = {"enable_gqa": q.shape[1] != k.shape[1], "dropout_p": a.rate}
    mask = _window_mask(q.shape[-2], k.shape[-2], a, q.device)
    tensors = (q, k, v) if mask is None else (q, k, v, mask)
    for plan in sdpa(tensors, is_causal=a.causal and mask is None, **how):
        yield replace(plan, checked=a.rate == 0)


@peer("document_attention")
def documents(x: Tensors, a: Arguments) -> Iterator[Plan]:
    q, k, v, ids = flat(x["Q"]), x["K"], x["V"], x["document"]

    def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        same = ids[b, i] == ids[b, j]
        return same & (j <= i) if a.causal else same

    return flex(q, k, v, None, seen, "documents")


@peer("sink_attention")
def sinks(x: Tensors, a: Arguments) -> Iterator[Plan]:
    """A sink takes a share of what attention gives, by its log-sum-exp."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = flat(x["Q"]), x["K"], x["V"]
    mask, blocks = _causal(a, q.shape[-2], k.shape[-2]), None
    if mask is not None:
        sizes = (q.shape[0], None, q.shape[-2], k.shape[-2])
        blocks = create_block_mask(mask, *sizes, device=str(q.device))

    if not q.is_cuda:  # where flex_attention gives no log-sum-exp

        def plain(q: Tensor, k: Tensor, v: Tensor, sink: Tensor) -> Tensor:
            scores = (q @ _repeated(q, k).mT).float() / math.sqrt(q.shape[-1])
            seen = causal_mask(q.shape[-2], k.shape[-2], q.device, a.window)
            scores = scores.masked_fill(~seen, -math.inf) if a.causal else scores
            extra = sink.reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
            weights = torch.cat([scores, extra], -1).softmax(-1)[..., :-1]
            return weights.to(v.dtype) @ _repeated(q, v)

        yield Plan("torch, scores in memory", plain, (q, k, v, x["sink"]), fused=True)
        return

    def function(q: Tensor, k: Tensor, v: Tensor, sink: Tensor) -> Tensor:
        found, lse = flex_attention(
            q, k, v, block_mask=blocks, enable_gqa=q.shape[1] != k.shape[1], return_lse=True
        )
        share = torch.sigmoid(lse - sink.reshape(1, -1, 1))
        return (found * share[..., None]).to(q.dtype)

    tensors = (q, k, v, x["sink"])
    yield Plan("torch flex_attention, sinks by log-sum-exp", function, tensors, True, True)


def turned(x: Tensor, cos: Tensor, sin: Tensor, paired: bool) -> Tensor:
    """Pairs of coordinates turned; the pair's axis where it was."""
    if paired:
        first, second = x[..., 0::2], x[..., 1::2]
    else:
        first, second = x.chunk(2, -1)
    pair = (first * cos - second * sin, second * cos + first * sin)
    return torch.stack(pair, -1 if paired else -2).to(x.dtype)


@peer("rotary")
def rotary(x: Tensors, a: Arguments) -> Plan:
    def function(given: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return turned(given, cos, sin, a.paired)

    return Plan("torch, several ops", function, (x["X"], x["cos"], x["sin"]), fused=True)


@peer("rotary_attention")
def rotary_attention(x: Tensors, a: Arguments) -> Iterator[Plan]:
    q, k, v = flat(x["Q"]), x["K"], x["V"]
    how = {"is_causal": a.causal, "enable_gqa": q.shape[1] != k.shape[1]}

    def before(function: Callable[..., Any]) -> Callable[..., Any]:
        def whole(q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> Any:
            q, k = (turned(t, cos, sin, a.paired).reshape(t.shape) for t in (q, k))
            return function(q, k, v)

        return whole

    for plan in sdpa((q, k, v), **how):
        tensors = (q, k, v, x["cos"], x["sin"])
        yield Plan(f"rotation, {plan.name}", before(plan.function), tensors, fused=True)
