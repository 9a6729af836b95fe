"""Peers of programs that the library does not have: as compositions, and their products alone."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from .plan import Arguments, Plan, Tensors, peer
from .products import ACTIVATIONS

Tensor = torch.Tensor


@peer("rms_linear")
def rms_linear(x: Tensors, a: Arguments) -> Iterator[Plan]:
    def function(t: Tensor, w: Tensor, *gamma: Tensor) -> Tensor:
        return F.rms_norm(t, t.shape[-1:], *gamma, eps=1e-6) @ w.mT

    given = tuple(x[name] for name in ("X", "W", "gamma") if name in x)
    yield Plan("torch rms_norm, matmul", function, given, fused=True)
    alone = (x["X"], x["W"])
    yield Plan("the product alone", lambda t, w: t @ w.mT, alone, checked=False, part=True)


@peer("indexer")
def indexer(x: Tensors, a: Arguments) -> Iterator[Plan]:
    def function(q: Tensor, k: Tensor, w: Tensor) -> Tensor:
        """Eight heads at a time."""
        found = torch.zeros(len(q), len(k), device=q.device)
        for first in range(0, q.shape[1], 8):
            some = slice(first, first + 8)
            scores = torch.einsum("ihd,jd->ihj", q[:, some], k).relu().float()
            found += torch.einsum("ihj,ih->ij", scores, w[:, some])
        return found

    yield Plan("torch, 8 heads at a time", function, (x["Q"], x["K"], x["w"]))


@peer("small_mlp")
def small_mlp(x: Tensors, a: Arguments) -> Iterator[Plan]:
    def plain(t: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
        return ACTIVATIONS[a.activation](t @ w1.mT) @ w2.mT

    def gated(t: Tensor, both: Tensor, w2: Tensor) -> Tensor:
        gate, up = (t @ both.mT).chunk(2, -1)
        return (F.silu(gate) * up) @ w2.mT

    def alone(t: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
        return (t @ w1.mT) @ w2.mT

    gating = a.activation == "swiglu"
    first = torch.cat([x["W1"], x["W3"]]) if gating else x["W1"]
    given = (x["X"], first, x["W2"])
    yield Plan("torch, two products", gated if gating else plain, given, fused=True)
    given = (x["X"], x["W1"], x["W2"])
    yield Plan("two products alone", alone, given, checked=False, part=True)


@peer("quadratic_retention")
def quadratic_retention(x: Tensors, a: Arguments) -> Plan:
    def function(q: Tensor, k: Tensor, v: Tensor, rate: Tensor) -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        step = torch.arange(a.t, device=q.device)
        apart = (step[:, None] - step).float()
        weight = (apart * rate[:, None, None]).exp().tril() * a.d**-0.5
        return (((q @ k.mT).float() * weight).to(v.dtype) @ v).transpose(1, 2)

    return Plan("torch, quadratic", function, (x["Q"], x["K"], x["V"], x["rate"]), fused=True)
