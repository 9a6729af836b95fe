"""Rows that indices name: embeddings, histograms, segments, scatters, routing of experts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

from .plan import Arguments, Plan, Tensors, peer
from .products import grouped_name, product_of_groups

Tensor = torch.Tensor


@peer("embedding")
def embedding(x: Tensors, a: Arguments) -> Plan:
    return Plan("torch embedding", F.embedding, (x["index"], x["table"]))


def _bags(mode: str) -> Callable[..., Tensor]:
    def function(index: Tensor, table: Tensor, *rest: Tensor) -> Tensor:
        offset, weight = (*rest, None, None)[:2]
        return F.embedding_bag(
            index, table, offset, mode=mode, per_sample_weights=weight,
            include_last_offset=offset is not None,
        )  # fmt: skip

    return function


@peer("embedding_bag")
def embedding_bag(x: Tensors, a: Arguments) -> Plan:
    return Plan("torch embedding_bag", _bags(a.mode), (x["index"], x["table"]))


@peer("padded_embedding_bag")
def padded_bag(x: Tensors, a: Arguments) -> Plan:
    """The lists packed beforehand."""
    kept = torch.arange(a.bag, device=x["index"].device) < x["length"][:, None]
    offset = F.pad(x["length"].long().clamp(max=a.bag).cumsum(0), (1, 0)).int()
    tensors = (x["index"][kept], x["table"], offset)
    return Plan("torch embedding_bag", _bags(a.mode), tensors)


@peer("ragged_embedding_bag")
def ragged_bag(x: Tensors, a: Arguments) -> Plan:
    """Bags cut to the longest beforehand."""
    counts = x["offset"].diff().long()
    bag = torch.repeat_interleave(torch.arange(a.m, device=counts.device), counts)
    first = int(x["offset"][0])
    place = torch.arange(len(bag), device=counts.device) + first
    kept = place - x["offset"].long()[bag] < a.longest
    offset = F.pad(counts.clamp(max=a.longest).cumsum(0), (1, 0)).int()
    tensors = (x["index"][place[kept]], x["table"], offset)
    return Plan("torch embedding_bag", _bags(a.mode), tensors)


@peer("embedding_backward")
def embedding_backward(x: Tensors, a: Arguments) -> Plan:
    def function(dy: Tensor, index: Tensor) -> Tensor:
        return torch.ops.aten.embedding_dense_backward(dy, index, a.rows, a.padding, False)

    return Plan("torch embedding's backward", function, (x["dY"], x["index"].long()))


@peer("histogram")
def histogram(x: Tensors, a: Arguments) -> Plan:
    """Rows side by side, so that one call counts all; what is outside has a bin of its own."""

    def function(t: Tensor) -> Tensor:
        t = t.long()
        inside = (t >= 0) & (t < a.bins)
        row = torch.arange(a.m, device=t.device)[:, None] * (a.bins + 1)
        flat = (torch.where(inside, t, a.bins) + row).reshape(-1)
        found = torch.zeros(a.m * (a.bins + 1), dtype=torch.int32, device=t.device)
        found.scatter_add_(0, flat, torch.ones_like(flat, dtype=torch.int32))
        return found.view(a.m, -1)[:, : a.bins]

    return Plan("torch scatter_add", function, (x["X"],), fused=True)


@peer("weighted_histogram")
def weighted(x: Tensors, a: Arguments) -> Iterator[Plan]:
    def function(t: Tensor, w: Tensor) -> Tensor:
        inside = (t >= 0) & (t < a.bins)
        found = torch.zeros(a.bins + 1, dtype=torch.float32, device=t.device)
        place = torch.where(inside, t, a.bins).long()
        return found.scatter_add_(0, place, w.float())[: a.bins]

    yield Plan("torch scatter_add", function, (x["X"], x["W"]), fused=True)

    def counted(t: Tensor, w: Tensor) -> Tensor:
        place = torch.where((t >= 0) & (t < a.bins), t, a.bins)
        return torch.bincount(place, w, a.bins + 1)[: a.bins].float()

    yield Plan("torch bincount", counted, (x["X"], x["W"]), captured=False)


@peer("histogram_edges")
def histogram_edges(x: Tensors, a: Arguments) -> Plan:
    def function(t: Tensor, edge: Tensor) -> Tensor:
        place = torch.bucketize(t, edge, right=True)  # 0 is below all, bins + 1 above
        found = torch.zeros(a.bins + 2, dtype=torch.int32, device=t.device)
        found.scatter_add_(0, place, torch.ones_like(place, dtype=torch.int32))
        return found[1:-1]

    return Plan("torch bucketize, scatter_add", function, (x["X"], x["edge"]))


def _segments(x: Tensors, a: Arguments, mean: bool) -> Iterator[Plan]:
    count = torch.bincount(x["segment"], minlength=a.segments)
    offset = F.pad(count.cumsum(0), (1, 0))

    def added(t: Tensor, segment: Tensor, count: Tensor) -> Tensor:
        zero = torch.zeros(a.segments, t.shape[1], dtype=t.dtype, device=t.device)
        found = zero.index_add_(0, segment, t)
        return found / count.clamp(min=1)[:, None] if mean else found

    def reduced(t: Tensor, offset: Tensor) -> Tensor:
        kind = "mean" if mean else "sum"
        return torch.segment_reduce(t, kind, offsets=offset, initial=0, unsafe=True)

    yield Plan("torch index_add", added, (x["X"].float(), x["segment"], count))
    if x["X"].dtype == torch.float32 and not mean:
        yield Plan("torch segment_reduce", reduced, (x["X"], offset))


peer("segment_sum")(lambda x, a: _segments(x, a, False))
peer("segment_mean")(lambda x, a: _segments(x, a, True))


@peer("scatter")
def scatter(x: Tensors, a: Arguments) -> Iterator[Plan]:
    """torch's reductions at places want an index for each element, or row."""
    kind = {"sum": "sum", "max": "amax", "min": "amin"}[a.kind]

    def function(base: Tensor, index: Tensor, t: Tensor) -> Tensor:
        if kind == "sum":
            return base.index_add(0, index, t)
        return base.index_reduce(0, index, t, kind)

    def elements(base: Tensor, index: Tensor, t: Tensor) -> Tensor:
        return base.scatter_reduce(0, index[:, None].expand_as(t), t, kind)

    tensors = (x["base"], x["index"].long(), x["X"])
    yield Plan("torch index_add" if kind == "sum" else "torch index_reduce", function, tensors)
    yield Plan("torch scatter_reduce", elements, tensors)


# --- routing --------------------------------------------------------------------------------------


def _chosen(logits: Tensor, bias: Tensor | None, a: Arguments) -> tuple[Tensor, Tensor]:
    wide = logits.float()
    scores = wide.softmax(1) if a.scores == "softmax" else wide.sigmoid()
    ranking = scores if bias is None else scores + bias
    if a.groups > 1:
        parts = ranking.unflatten(1, (a.groups, -1))
        worth = parts.topk(min(2, parts.shape[-1]), -1)[0].sum(-1)
        best = worth.topk(a.kept, -1)[1]
        kept = torch.zeros_like(worth, dtype=torch.bool).scatter_(1, best, True)
        ranking = parts.masked_fill(~kept[..., None], -math.inf).flatten(1)
    expert = ranking.topk(a.chosen, -1)[1]
    weight = scores.gather(1, expert)
    if a.renormalise:
        weight = weight / weight.sum(-1, keepdim=True)
    return weight * a.scale, expert


@peer("moe_gate")
def moe_gate(x: Tensors, a: Arguments) -> Plan:
    def function(logits: Tensor, *bias: Tensor) -> dict[str, Tensor]:
        weight, expert = _chosen(logits, bias[0] if bias else None, a)
        return {"weight": weight, "expert": expert.int()}

    bias = (x["bias"],) if a.bias else ()
    return Plan("torch, several ops", function, (x["logits"], *bias), fused=True)


def _counts(expert: Tensor, experts: int) -> Tensor:
    found = torch.zeros(experts, dtype=torch.int32, device=expert.device)
    return found.scatter_add_(0, expert.long(), torch.ones_like(expert, dtype=torch.int32))


@peer("expert_histogram")
def expert_histogram(x: Tensors, a: Arguments) -> Plan:
    def function(expert: Tensor) -> dict[str, Tensor]:
        count = _counts(expert.reshape(-1), a.experts)
        return {"count": count, "offset": (count.cumsum(0) - count).int()}

    return Plan("torch scatter_add, cumsum", function, (x["expert"],), fused=True)


def _order(expert: Tensor) -> tuple[Tensor, Tensor]:
    """Slots in the order of their experts, and the place of each."""
    slot = expert.argsort(stable=True)
    place = torch.empty_like(slot)
    steps = torch.arange(len(slot), device=slot.device)
    return slot, place.scatter_(0, slot, steps)


@peer("moe_positions")
def moe_positions(x: Tensors, a: Arguments) -> Plan:
    def function(expert: Tensor) -> dict[str, Tensor]:
        slot, place = _order(expert)
        count = _counts(expert, a.experts)
        offset = (count.cumsum(0) - count).int()
        return {"position": place.int(), "offset": offset, "slot": slot.int()}

    return Plan("torch argsort, several ops", function, (x["expert"],))


@peer("moe_permute")
def moe_permute(x: Tensors, a: Arguments) -> Plan:
    def function(expert: Tensor, t: Tensor) -> dict[str, Tensor]:
        slot, place = _order(expert)
        return {"position": place.int(), "Y": t[slot // a.chosen]}

    return Plan("torch argsort, rows gathered", function, (x["expert"], x["X"]))


@peer("moe")
def moe(x: Tensors, a: Arguments) -> Plan:
    """The whole layer on grouped products, rows sorted by expert."""

    def function(logits: Tensor, t: Tensor, both: Tensor, w2: Tensor) -> Tensor:
        best, expert = logits.float().topk(a.chosen, 1)
        weight = best.softmax(1)
        slot, place = _order(expert.reshape(-1))
        ends = _counts(expert.reshape(-1), a.experts).cumsum(0).int()
        gate, up = product_of_groups(t[slot // a.chosen], both, ends).chunk(2, -1)
        y = product_of_groups(F.silu(gate) * up, w2, ends)[place].unflatten(0, (-1, a.chosen))
        return (y.float() * weight[..., None]).sum(1).to(t.dtype)

    both = torch.cat([x["W1"], x["W3"]], 1)
    name = f"torch, {grouped_name(x['X'])} twice"
    tensors = (x["logits"], x["X"], both, x["W2"])
    return Plan(name, function, tensors, captured=both.is_cuda)
