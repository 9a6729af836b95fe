"""Linear attention, delta rules and Mamba 2: chunk by chunk with products, as their papers do.

Products of operands in the operator's type, states and decays in f32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from .plan import Arguments, Plan, Tensors, peer

Tensor = torch.Tensor
_CHUNK = 64


def _chunk(t: int, most: int = _CHUNK) -> int:
    """The largest divisor that is no larger than a chunk."""
    return next(size for size in range(min(most, t), 0, -1) if t % size == 0)


def _heads_first(x: Tensor, chunk: int) -> Tensor:
    """(b, t, heads, ...) as (b, heads, chunks, chunk, ...)."""
    return x.unflatten(1, (-1, chunk)).movedim(3, 1)


def _passed(states: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """States before each chunk, and behind all: (b, h, c, d, e) with decays `total` (b, h, c)."""
    c = total.shape[-1]
    sums = torch.nn.functional.pad(total.cumsum(-1), (1, 0))
    apart = sums[..., :, None] - sums[..., None, 1:]  # from behind chunk j to before chunk i
    i, j = torch.arange(c + 1, device=total.device)[:, None], torch.arange(c, device=total.device)
    weight = torch.where(j < i, apart, -math.inf).exp()
    found = torch.einsum("bhij,bhjde->bhide", weight, states)
    return found[:, :, :-1], found[:, :, -1]


def _scalar(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, scale: float, chunk: int
) -> tuple[Tensor, Tensor]:
    """q, k (b, t, h, d), v (b, t, h, e), g (b, t, h): outputs (b, t, h, e), last states."""
    kind = v.dtype
    q, k, v, g = (_heads_first(x, chunk) for x in (q, k, v, g))
    a = g.float().cumsum(-1)
    causal = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).tril()
    weight = torch.where(causal, a[..., :, None] - a[..., None, :], -math.inf).exp()
    inside = ((q @ k.mT).float() * weight).to(kind) @ v
    rest = (a[..., -1:] - a).exp()[..., None]
    states = ((k.float() * rest).to(kind).mT @ v).float()
    before, last = _passed(states, a[..., -1])
    across = q @ before.to(kind)
    y = (inside.float() + across.float() * a.exp()[..., None]) * scale
    return y.movedim(1, 3).flatten(1, 2).to(kind), last


def _vector(q: Tensor, k: Tensor, v: Tensor, g: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """The same with a decay for each coordinate of keys, a chunk after the other."""
    scale, kind = 1 / math.sqrt(q.shape[-1]), v.dtype
    q, k, v, g = (_heads_first(x, chunk) for x in (q, k, v, g))
    a = g.float().cumsum(-2)
    turned, back = q.float() * a.exp(), k.float() * (-a).exp()
    causal = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).tril()
    inside = ((turned @ back.mT) * causal).to(kind) @ v
    states = (k.float() * (a[..., -1:, :] - a).exp()).mT @ v.float()
    total, state, before = a[..., -1, :].exp(), torch.zeros_like(states[:, :, 0]), []
    for c in range(total.shape[2]):
        before.append(state)
        state = state * total[:, :, c, :, None] + states[:, :, c]
    across = turned.to(kind) @ torch.stack(before, 2).to(kind)
    y = (inside + across) * scale
    return y.movedim(1, 3).flatten(1, 2), state


def _whole(x: Tensors, names: str) -> tuple[Tensor, ...]:
    """Inputs with one axis of time: (b, c, i, ...) of chunked operators as (b, t, ...)."""
    chunked = x["Q"].ndim == 5
    return tuple(x[n].flatten(1, 2) if chunked and n != "rate" else x[n] for n in names.split())


@peer("retention", "retention_chunked")
def retention(x: Tensors, a: Arguments) -> Plan:
    def function(q: Tensor, k: Tensor, v: Tensor, rate: Tensor) -> dict[str, Tensor]:
        gates = rate.expand(*q.shape[:2], -1)
        y, last = _scalar(q, k, v, gates, 1 / math.sqrt(a.d), _chunk(a.t))
        return {"O": y, "S": last}

    tensors = (*_whole(x, "Q K V"), x["rate"])
    return Plan("torch, by chunks", function, tensors, fused=True)


@peer("gla", "gla_chunked")
def gla(x: Tensors, a: Arguments) -> Plan:
    def function(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> dict[str, Tensor]:
        y, last = _vector(q, k, v, g, _chunk(a.t, 32))
        return {"O": y, "S": last}

    return Plan("torch, by chunks", function, _whole(x, "Q K V G"))


def _delta(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor | None, chunk: int
) -> dict[str, Tensor]:
    """Corrections of a chunk by a triangular solve, then states from chunk to chunk."""
    scale, kind = 1 / math.sqrt(q.shape[-1]), v.dtype
    gates = torch.zeros_like(beta) if g is None else g
    q, k, v, beta, gates = (_heads_first(x, chunk) for x in (q, k, v, beta, gates))
    a, kf = gates.float().cumsum(-1), k.float()
    causal = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).tril()
    weight = torch.where(causal, a[..., :, None] - a[..., None, :], -math.inf).exp()
    lower = ((k @ k.mT).float() * weight * beta[..., None]).tril(-1)
    right = torch.cat([v.float(), kf * a.exp()[..., None]], -1) * beta[..., None]
    solved = torch.linalg.solve_triangular(lower, right, upper=False, unitriangular=True)
    y, w = solved.split([v.shape[-1], k.shape[-1]], -1)
    scores, rest = (q @ k.mT).float() * weight, kf * (a[..., -1:] - a).exp()[..., None]
    moved, total = q.float() * a.exp()[..., None], a[..., -1].exp()
    state, out = torch.zeros_like(rest[:, :, 0].mT @ y[:, :, 0]), []
    for c in range(total.shape[2]):
        u = y[:, :, c] - w[:, :, c] @ state
        out.append(moved[:, :, c] @ state + scores[:, :, c] @ u)
        state = state * total[:, :, c, None, None] + rest[:, :, c].mT @ u
    found = torch.stack(out, 2) * scale
    return {"O": found.movedim(1, 3).flatten(1, 2).to(kind), "S": state}


@peer("delta_rule", "delta_rule_chunked", "gated_delta_net", "gated_delta_net_chunked")
def delta(x: Tensors, a: Arguments) -> Plan:
    names = "Q K V beta G" if "G" in x else "Q K V beta"

    def function(*given: Tensor) -> dict[str, Tensor]:
        q, k, v, beta, *g = given
        return _delta(q, k, v, beta, g[0] if g else None, _chunk(a.t))

    return Plan("torch, by chunks", function, _whole(x, names))


@peer("retention_decode", "gla_decode")
def decode(x: Tensors, a: Arguments) -> Plan:
    def function(q: Tensor, k: Tensor, v: Tensor, s: Tensor, g: Tensor) -> dict[str, Tensor]:
        gate = g.exp()[..., None] if g.ndim == 3 else g.exp()[:, None, None]
        after = s * gate + k.float()[..., :, None] * v.float()[..., None, :]
        out = (q.float()[..., None] * after).sum(-2) / math.sqrt(a.d)
        return {"O": out.to(v.dtype), "S_next": after}

    gates = x["G"] if "G" in x else x["rate"]
    tensors = (x["Q"], x["K"], x["V"], x["S"], gates)
    return Plan("torch, several ops", function, tensors, fused=True)


@peer("delta_rule_decode", "gated_delta_net_decode")
def delta_decode(x: Tensors, a: Arguments) -> Plan:
    def function(*given: Tensor) -> dict[str, Tensor]:
        q, k, v, s, beta, *g = given
        state = s * g[0].exp()[..., None, None] if g else s
        kf = k.float()
        wrong = v.float() - (kf[..., None] * state).sum(-2)
        after = state + kf[..., :, None] * (wrong * beta[..., None])[..., None, :]
        out = (q.float()[..., None] * after).sum(-2) / math.sqrt(a.d)
        return {"O": out.to(v.dtype), "S_next": after}

    tensors = tuple(x[name] for name in ("Q", "K", "V", "S", "beta", "G") if name in x)
    return Plan("torch, several ops", function, tensors, fused=True)


@peer("mamba2", "mamba2_chunked")
def mamba2(x: Tensors, a: Arguments) -> Plan:
    """x (b, t, groups, heads of a group, p), B and C (b, t, groups, n)."""
    chunked = x["x"].ndim == 6
    given, dt, left, right = (
        x[name].flatten(1, 2) if chunked else x[name] for name in ("x", "dt", "B", "C")
    )
    each = a.heads // a.groups

    def function(given: Tensor, dt: Tensor, left: Tensor, right: Tensor, rate: Tensor,
                 direct: Tensor) -> dict[str, Tensor]:  # fmt: skip
        flat, step = given.flatten(2, 3), dt.flatten(2, 3).float()
        k, q = (t.repeat_interleave(each, 2) for t in (left, right))
        v = (flat.float() * step[..., None]).to(flat.dtype)
        y, last = _scalar(q, k, v, step * rate.reshape(-1), 1.0, _chunk(a.t, 128))
        y = (y.float() + flat.float() * direct.reshape(-1, 1)).to(flat.dtype)
        return {"y": y, "last": last.mT}

    tensors = (given, dt, left, right, x["A"], x["D"])
    return Plan("torch, by chunks (SSD)", function, tensors, fused=True)


@peer("mamba2_chunk_state")
def chunk_state(x: Tensors, a: Arguments) -> Plan:
    def function(dt: Tensor, total: Tensor, given: Tensor, left: Tensor) -> Tensor:
        weight = ((total[..., -1:] - total).exp() * dt).permute(0, 3, 1, 2, 4)  # b c g h i
        moved = (given.permute(0, 1, 3, 4, 5, 2).float() * weight[..., None, :]).to(given.dtype)
        return (moved @ left.permute(0, 1, 3, 2, 4)[:, :, :, None]).float()

    tensors = (x["dt"], x["a"], x["x"], x["B"])
    return Plan("torch, several ops", function, tensors, fused=True)


@peer("mamba2_chunk_scan")
def chunk_scan(x: Tensors, a: Arguments) -> Plan:
    def function(dt: Tensor, total: Tensor, given: Tensor, cb: Tensor, c: Tensor, s: Tensor,
                 direct: Tensor) -> Tensor:  # fmt: skip
        kind = given.dtype
        total, dt = (t.permute(0, 3, 1, 2, 4) for t in (total, dt))  # b c g h i
        size = total.shape[-1]
        causal = torch.ones(size, size, dtype=torch.bool, device=given.device).tril()
        apart = torch.where(causal, total[..., :, None] - total[..., None, :], -math.inf)
        weight = (cb[:, :, :, None].float() * apart.exp() * dt[..., None, :]).to(kind)
        v = given.permute(0, 1, 3, 4, 2, 5)  # b c g h i p
        across = (c.permute(0, 1, 3, 2, 4)[:, :, :, None] @ s.to(kind).mT).float()
        y = (weight @ v).float() + across * total.exp()[..., None]
        y = y + v.float() * direct[..., None, None]
        return y.to(kind).permute(0, 1, 4, 2, 3, 5)

    tensors = tuple(x[name] for name in ("dt", "a", "x", "CB", "C", "S", "D"))
    return Plan("torch, several ops", function, tensors, fused=True)


@peer("mamba2_state_passing")
def passing(x: Tensors, a: Arguments) -> Iterator[Plan]:
    def loop(total: Tensor, s: Tensor) -> dict[str, Tensor]:
        gates = total.exp()[..., None, None]
        before = torch.empty_like(s)
        state = torch.zeros_like(s[:, 0])
        for c in range(s.shape[1]):
            before[:, c] = state
            state = torch.addcmul(s[:, c], gates[:, :, c], state)
        return {"before": before, "last": state}

    def product(total: Tensor, s: Tensor) -> dict[str, Tensor]:
        before, last = _passed(s.transpose(1, 2), total)
        return {"before": before.transpose(1, 2), "last": last}

    yield Plan("torch, chunk after chunk", loop, (x["a"], x["S"]))
    yield Plan("torch, a product with all decays", product, (x["a"], x["S"]))


@peer("mamba2_decode")
def mamba2_decode(x: Tensors, a: Arguments) -> Plan:
    def function(given: Tensor, dt: Tensor, b: Tensor, c: Tensor, s: Tensor, rate: Tensor,
                 direct: Tensor) -> dict[str, Tensor]:  # fmt: skip
        step, now = dt[..., None].float(), given.float()
        after = (dt * rate).exp()[..., None, None] * s
        after = after + (step * now)[..., None] * b.float()[:, :, None, None, :]
        y = (after * c.float()[:, :, None, None, :]).sum(-1) + direct[..., None] * now
        return {"y": y.to(given.dtype), "S_next": after}

    tensors = tuple(x[name] for name in ("x", "dt", "B", "C", "S", "A", "D"))
    return Plan("torch, several ops", function, tensors, fused=True)
