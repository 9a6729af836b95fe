"""Rows and columns: norms, softmax, losses, reductions, scans, what is largest, sorting."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

from .maps import narrowed, several
from .plan import Arguments, Plan, Tensors, peer

Tensor = torch.Tensor


def _one(name: str, function: Callable[..., object], *tensors: Tensor) -> Plan:
    return Plan(f"torch {name}", function, tensors)  # type: ignore[arg-type]


@peer("softmax")
def softmax(x: Tensors, a: Arguments) -> Plan:
    return _one("softmax", lambda t: t.softmax(1), x["X"])


@peer("log_softmax")
def log_softmax(x: Tensors, a: Arguments) -> Plan:
    return _one("log_softmax", lambda t: t.log_softmax(1), x["X"])


@peer("layernorm")
def layernorm(x: Tensors, a: Arguments) -> Plan:
    tensors = (x["X"], x["gamma"], x["beta"])
    return _one("layer_norm", lambda t, g, b: F.layer_norm(t, g.shape, g, b, a.eps), *tensors)


def _twice(plan: Plan) -> Iterator[Plan]:
    """As it is, and as a composition that a compiler may do better."""
    yield plan
    yield Plan(plan.name, plan.function, plan.tensors, fused=True, only=True)


@peer("rmsnorm")
def rmsnorm(x: Tensors, a: Arguments) -> Iterator[Plan]:
    def function(t: Tensor, g: Tensor) -> Tensor:
        return F.rms_norm(t, g.shape, g, a.eps)

    return _twice(_one("rms_norm", function, x["X"], x["gamma"]))


@peer("residual_layernorm")
def residual_layernorm(x: Tensors, a: Arguments) -> Plan:
    def function(t: Tensor, r: Tensor, g: Tensor, b: Tensor) -> dict[str, Tensor]:
        total = t.float() + r.float()
        found = F.layer_norm(total, g.shape, g.float(), b.float(), a.eps)
        return {"S": total.to(t.dtype), "Y": found.to(t.dtype)}

    return several(function, x, "X R gamma beta")


def _rms(t: Tensor, g: Tensor, eps: float) -> Tensor:
    return t * torch.rsqrt((t * t).mean(1, keepdim=True) + eps) * g.float()


@peer("residual_rmsnorm")
def residual_rmsnorm(x: Tensors, a: Arguments) -> Plan:
    def function(t: Tensor, r: Tensor, g: Tensor) -> dict[str, Tensor]:
        total = t.float() + r.float()
        return {"S": total.to(t.dtype), "Y": _rms(total, g, a.eps).to(t.dtype)}

    return several(function, x, "X R gamma")


@peer("quantised_rmsnorm")
def quantised_rmsnorm(x: Tensors, a: Arguments) -> Plan:
    return several(lambda t, g: narrowed(_rms(t.float(), g, a.eps), 1, a.out), x, "X gamma")


@peer("groupnorm")
def groupnorm(x: Tensors, a: Arguments) -> Iterator[Plan]:
    """torch's own wants channels in front of places, as a view here; its strides suit nobody."""
    g, b = x["gamma"].reshape(-1), x["beta"].reshape(-1)

    def own(t: Tensor, g: Tensor, b: Tensor) -> Tensor:
        return F.group_norm(t.flatten(2).mT, a.groups, g, b, a.eps).mT

    def plain(t: Tensor, g: Tensor, b: Tensor) -> Tensor:
        wide = t.float()
        variance, mean = torch.var_mean(wide, (1, 3), correction=0, keepdim=True)
        found = (wide - mean) * torch.rsqrt(variance + a.eps)
        return (found * g.view(a.groups, -1).float() + b.view(a.groups, -1).float()).to(t.dtype)

    yield _one("group_norm", own, x["X"], g, b)
    yield Plan("torch, several ops", plain, (x["X"], g, b), fused=True)


def _statistics(dim: int) -> Callable[[Tensors, Arguments], Iterator[Plan]]:
    def function(t: Tensor) -> dict[str, Tensor]:
        variance, mean = torch.var_mean(t.float(), dim, correction=0)
        return {"mean": mean, "variance": variance}

    return lambda x, a: _twice(_one("var_mean", function, x["X"]))


peer("batch_statistics")(_statistics(0))
peer("row_statistics", "welford")(_statistics(1))


@peer("batchnorm")
def batchnorm(x: Tensors, a: Arguments) -> Iterator[Plan]:
    def function(t: Tensor, g: Tensor, b: Tensor) -> Tensor:
        return F.batch_norm(t, None, None, g, b, training=True, eps=a.eps)

    def plain(t: Tensor, g: Tensor, b: Tensor) -> Tensor:
        wide = t.float()
        variance, mean = torch.var_mean(wide, 0, correction=0)
        found = (wide - mean) * torch.rsqrt(variance + a.eps) * g.float() + b.float()
        return found.to(t.dtype)

    tensors = (x["X"], x["gamma"], x["beta"])
    yield _one("batch_norm", function, *tensors)
    yield Plan("torch, several ops", plain, tensors, fused=True)


# --- losses ---------------------------------------------------------------------------------------


@peer("cross_entropy")
def cross_entropy(x: Tensors, a: Arguments) -> Plan:
    def function(t: Tensor, label: Tensor) -> Tensor:
        chosen = t.gather(1, label[:, None])[:, 0].float()
        return t.float().logsumexp(1) - chosen

    return Plan("torch, several ops", function, (x["X"], x["label"].long()), fused=True)


@peer("linear_cross_entropy")
def linear_cross_entropy(x: Tensors, a: Arguments) -> Plan:
    def function(t: Tensor, w: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy((t @ w.mT).float(), label, reduction="none")

    tensors = (x["X"], x["W"], x["label"].long())
    return Plan("torch matmul, cross_entropy", function, tensors, fused=True)


# --- reductions -----------------------------------------------------------------------------------


def _accumulated(t: Tensor) -> torch.dtype:
    return torch.float32 if t.is_floating_point() else torch.int32


def _reduced(t: Tensor, kind: str, dims: tuple[int, ...]) -> Tensor:
    if kind in ("max", "min"):
        return t.amax(dims) if kind == "max" else t.amin(dims)
    if kind == "sum":
        return t.sum(dims, dtype=_accumulated(t))
    if kind == "mean":
        return t.mean(dims, dtype=torch.float32)
    if kind == "variance":
        return t.float().var(dims, correction=0)
    if kind == "norm":
        return torch.linalg.vector_norm(t, 2, dims, dtype=torch.float32)
    for dim in sorted(dims, reverse=True):
        t = t.prod(dim, dtype=_accumulated(t))
    return t


def _along(kind: str, dim: int) -> Callable[[Tensors, Arguments], Iterator[Plan]]:
    return lambda x, a: _twice(_one(kind, lambda t: _reduced(t, kind, (dim,)), x["X"]))


for _name, _kind, _dim in (
    ("row_sum", "sum", 1), ("row_max", "max", 1),
    ("column_sum", "sum", 0), ("column_max", "max", 0),
):  # fmt: skip
    peer(_name)(_along(_kind, _dim))


@peer("row_norm")
def row_norm(x: Tensors, a: Arguments) -> Iterator[Plan]:
    order = a.order or math.inf
    norm = torch.linalg.vector_norm
    return _twice(_one("vector_norm", lambda t: norm(t, order, 1, dtype=torch.float32), x["X"]))


@peer("reduction")
def reduction(x: Tensors, a: Arguments) -> Iterator[Plan]:
    dims = tuple("abc".index(name) for name in a.over)
    return _twice(_one(a.kind, lambda t: _reduced(t, a.kind, dims), x["X"]))


# --- scans ----------------------------------------------------------------------------------------


def _scanned(t: Tensor, kind: str, dim: int) -> Tensor:
    if kind in ("max", "min"):
        return t.cummax(dim)[0] if kind == "max" else t.cummin(dim)[0]
    function = torch.cumsum if kind == "sum" else torch.cumprod
    return function(t, dim, dtype=_accumulated(t))


@peer("scan")
def scan(x: Tensors, a: Arguments) -> Plan:
    def function(t: Tensor) -> Tensor:
        t = t.flip(1) if a.backward else t
        found = _scanned(t, a.kind, 1)
        if a.exclusive:
            first = {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}[a.kind]
            found = F.pad(found[:, :-1], (1, 0), value=first)
        return found.flip(1) if a.backward else found

    name = {"sum": "cumsum", "prod": "cumprod"}.get(a.kind, f"cum{a.kind}")
    return _one(name, function, x["X"])


@peer("column_scan")
def column_scan(x: Tensors, a: Arguments) -> Plan:
    name = {"sum": "cumsum", "prod": "cumprod"}.get(a.kind, f"cum{a.kind}")
    return _one(name, lambda t: _scanned(t, a.kind, 0), x["X"])


@peer("linear_recurrence")
def linear_recurrence(x: Tensors, a: Arguments) -> Plan:
    """torch's associative scan of pairs, doubling."""

    def function(gate: Tensor, given: Tensor) -> Tensor:
        gate, h, step = gate.float(), given.float(), 1
        while step < a.t:
            h = torch.cat([h[:, :step], h[:, step:] + gate[:, step:] * h[:, :-step]], 1)
            gate = torch.cat([gate[:, :step], gate[:, step:] * gate[:, :-step]], 1)
            step *= 2
        return h.to(given.dtype)

    return Plan("torch, doubling", function, (x["a"], x["x"]), fused=True)


@peer("running_statistics")
def running_statistics(x: Tensors, a: Arguments) -> Plan:
    def function(t: Tensor) -> dict[str, Tensor]:
        first = t[:, :1].float()
        wide = t.float() - first  # so that little cancels
        count = torch.arange(1, a.n + 1, device=t.device)
        mean = wide.cumsum(1) / count
        variance = (wide * wide).cumsum(1) / count - mean * mean
        return {"mean": mean + first, "variance": variance}

    return several(function, x, "X")


@peer("logsumexp")
def logsumexp(x: Tensors, a: Arguments) -> Iterator[Plan]:
    return _twice(_one("logsumexp", lambda t: t.float().logsumexp(1), x["X"]))


@peer("logcumsumexp")
def logcumsumexp(x: Tensors, a: Arguments) -> Plan:
    return _one("logcumsumexp", lambda t: t.float().logcumsumexp(1), x["X"])


# --- what is largest ------------------------------------------------------------------------------


@peer("argmax")
def argmax(x: Tensors, a: Arguments) -> Iterator[Plan]:
    return _twice(_one("argmax", lambda t: t.argmax(1).int(), x["X"]))


@peer("argmin")
def argmin(x: Tensors, a: Arguments) -> Iterator[Plan]:
    return _twice(_one("argmin", lambda t: t.argmin(1).int(), x["X"]))


@peer("top_k")
def top_k(x: Tensors, a: Arguments) -> Plan:
    def function(t: Tensor) -> dict[str, Tensor]:
        values, index = t.topk(a.k, 1, largest=not a.least)
        return {"Y": values, "index": index.int()}

    return _one("topk", function, x["X"])


@peer("sort_rows")
def sort_rows(x: Tensors, a: Arguments) -> Plan:
    def function(t: Tensor) -> dict[str, Tensor]:
        values, index = t.sort(dim=1, stable=True)
        return {"Y": values, "index": index.int()}

    return _one("sort", function, x["X"])


@peer("top_k_mask")
def top_k_mask(x: Tensors, a: Arguments) -> Plan:
    def function(p: Tensor) -> Tensor:
        least = p.topk(a.k, 1)[0][:, -1:]
        kept = torch.where(p >= least, p, 0)
        return kept / kept.sum(1, keepdim=True)

    return several(function, x, "P")


@peer("nearest")
def nearest(x: Tensors, a: Arguments) -> Plan:
    def function(p: Tensor, q: Tensor) -> dict[str, Tensor]:
        squares = torch.cdist(p, q, compute_mode="donot_use_mm_for_euclid_dist").square()
        if a.expand:
            squares = torch.addmm((q * q).sum(1), p, q.mT, alpha=-2) + (p * p).sum(1, keepdim=True)
        values, index = squares.topk(a.k, 1, largest=False)
        return {"square": values, "index": index.int()}

    return Plan("torch distances, topk", function, (x["x"].float(), x["y"].float()))
