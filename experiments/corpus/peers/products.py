"""Products: cuBLAS's through torch, narrow ones by its scaled products, grouped, of tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from .plan import Arguments, Plan, Tensors, peer

Tensor = torch.Tensor
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu, "relu": F.relu, "silu": F.silu, "none": lambda t: t,
}  # fmt: skip
_STEP = 16  # to whose multiples torch wants the extents of narrow products


def _out(t: Tensor, a: Arguments) -> Tensor:
    return t.float() if getattr(a, "out", "") == "f32" else t


@peer("matmul")
def matmul(x: Tensors, a: Arguments) -> Iterator[Plan]:
    left = x["A"].mT if a.ta else x["A"]
    right = x["B"].mT if a.tb else x["B"]
    if not left.is_floating_point():
        if left.ndim == 2:
            yield Plan("torch._int_mm", lambda p, q: torch._int_mm(p, q), (left, right))
        return
    yield Plan("torch matmul", lambda p, q: _out(p @ q, a), (left, right))


@peer("matmul_bias_act")
def bias_act(x: Tensors, a: Arguments) -> Iterator[Plan]:
    left = x["A"].mT if a.ta else x["A"]
    right = x["B"].mT if a.tb else x["B"]
    rest = (x["residual"],) if a.residual else ()

    def function(p: Tensor, q: Tensor, bias: Tensor, *rest: Tensor) -> Tensor:
        found = ACTIVATIONS[a.activation](torch.addmm(bias, p, q))
        return _out(found + rest[0] if rest else found, a)

    yield Plan("torch addmm, several ops", function, (left, right, x["bias"], *rest), fused=True)


@peer("gated_mlp")
def gated(x: Tensors, a: Arguments) -> Iterator[Plan]:
    def apart(t: Tensor, w1: Tensor, w3: Tensor) -> Tensor:
        return _out(F.silu(t @ w1) * (t @ w3), a)

    def together(t: Tensor, w: Tensor) -> Tensor:
        gate, up = (t @ w).chunk(2, -1)
        return _out(F.silu(gate) * up, a)

    w1, w3 = (x[name].mT if a.tb else x[name] for name in ("W1", "W3"))
    yield Plan("torch, two products", apart, (x["X"], w1, w3), fused=True)
    both = torch.cat([x["W1"], x["W3"]], 0).mT if a.tb else torch.cat([w1, w3], 1)
    yield Plan("torch, one product with both", together, (x["X"], both), fused=True)


@peer("lora_matmul")
def lora(x: Tensors, a: Arguments) -> Iterator[Plan]:
    def function(t: Tensor, w: Tensor, down: Tensor, up: Tensor) -> Tensor:
        return torch.addmm(t @ w, t @ down, up, alpha=a.scale)

    yield Plan("torch, three products", function, tuple(x[n] for n in ("X", "W", "A", "B")))
    yield Plan("X W alone", lambda t, w: t @ w, (x["X"], x["W"]), checked=False, part=True)


@peer("mlp")
def mlp(x: Tensors, a: Arguments) -> Plan:
    def function(t: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
        return torch.addmm(b2, ACTIVATIONS[a.activation](torch.addmm(b1, t, w1)), w2)

    tensors = tuple(x[name] for name in ("X", "W1", "b1", "W2", "b2"))
    return Plan("torch, two products", function, tensors, fused=True)


@peer("whole_gated_mlp")
def whole_gated(x: Tensors, a: Arguments) -> Plan:
    def function(t: Tensor, both: Tensor, w2: Tensor) -> Tensor:
        gate, up = (t @ both).chunk(2, -1)
        return (ACTIVATIONS[a.activation](gate) * up) @ w2

    both = torch.cat([x["W1"], x["W3"]], 1)
    return Plan("torch, two products", function, (x["X"], both, x["W2"]), fused=True)


# --- narrow ---------------------------------------------------------------------------------------


def _fits(*extents: int) -> bool:
    return all(extent % _STEP == 0 for extent in extents)


def _wide(t: Tensor, scale: Tensor, kind: torch.dtype) -> Tensor:
    return (t.float() * scale).to(kind)


@peer("scaled_matmul")
def scaled(x: Tensors, a: Arguments) -> Iterator[Plan]:
    act, kind = ACTIVATIONS[a.activation], torch.bfloat16 if a.out == "bf16" else torch.float32

    def narrow(p: Tensor, q: Tensor, sp: Tensor, sq: Tensor) -> Tensor:
        return act(torch._scaled_mm(p, q.mT, sp, sq, out_dtype=kind))

    def wide(p: Tensor, q: Tensor, sp: Tensor, sq: Tensor) -> Tensor:
        return act((p.float() @ q.float().mT) * (sp * sq)).to(kind)

    tensors = tuple(x[name] for name in ("A", "B", "scale_a", "scale_b"))
    if _fits(a.n, a.k) and x["A"].is_cuda and x["A"].is_floating_point():
        yield Plan("torch._scaled_mm", narrow, tensors)
    else:
        yield Plan("torch, widened", wide, tensors)


@peer("row_scaled_matmul")
def row_scaled(x: Tensors, a: Arguments) -> Iterator[Plan]:
    kind = torch.bfloat16 if a.out == "bf16" else torch.float32

    def narrow(p: Tensor, q: Tensor, sp: Tensor, sq: Tensor) -> Tensor:
        return torch._scaled_mm(p, q.mT, sp[:, None], sq[None], out_dtype=kind)

    def wide(p: Tensor, q: Tensor, sp: Tensor, sq: Tensor) -> Tensor:
        return ((p.float() @ q.float().mT) * sp[:, None] * sq).to(kind)

    tensors = tuple(x[name] for name in ("A", "B", "scale_a", "scale_b"))
    if _fits(a.n, a.k) and x["A"].is_cuda and kind == torch.bfloat16:
        yield Plan("torch._scaled_mm, scales of rows", narrow, tensors)
    else:
        yield Plan("torch, widened", wide, tensors)


@peer("block_scaled_matmul")
def block_scaled(x: Tensors, a: Arguments) -> Iterator[Plan]:
    p, q = x["A"].reshape(a.m, a.k), x["B"].reshape(a.n, a.k)
    kind = torch.bfloat16 if a.out == "bf16" else torch.float32

    def narrow(p: Tensor, q: Tensor, sp: Tensor, sq: Tensor) -> Tensor:
        return torch._scaled_mm(p, q.mT, sp, sq.mT, out_dtype=kind)

    def widened(p: Tensor, q: Tensor, sp: Tensor, sq: Tensor) -> Tensor:
        left = p.float().unflatten(1, (-1, a.block)) * sp[..., None]
        parts = (-1, a.block)
        right = q.float().unflatten(1, parts).unflatten(0, parts) * sq[:, None, :, None]
        half = torch.bfloat16 if p.is_cuda else torch.float32
        product = left.flatten(1).to(half) @ right.flatten(0, 1).flatten(1).to(half).mT
        return product.to(kind)

    if p.is_cuda and a.block == 128 and kind == torch.bfloat16:
        by_columns = x["scale_a"].mT.contiguous().mT
        count = x["scale_b"].shape[1]  # rows of scales begin at multiples of 16 bytes
        padded = F.pad(x["scale_b"], (0, -count % 4))[:, :count]
        tensors = (p, q, by_columns, padded)
        yield Plan("torch._scaled_mm, scales of blocks", narrow, tensors)
    yield Plan("torch, widened to bf16", widened, (p, q, x["scale_a"], x["scale_b"]))


@peer("w4a16_matmul")
def w4a16(x: Tensors, a: Arguments) -> Iterator[Plan]:
    """Weights widened on the way by a fused composition, or once: a plain product in bf16."""
    given = x["A"].reshape(a.m, a.k)

    def weights(w: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
        pairs = torch.stack([w & 15, w >> 4], -1).reshape(a.n, -1, a.group).to(scale.dtype)
        shift = 8 if zero is None else (zero & 15).to(scale.dtype)[..., None]
        return ((pairs - shift) * scale[..., None]).reshape(a.n, a.k)

    def function(t: Tensor, w: Tensor, scale: Tensor, *zero: Tensor) -> Tensor:
        return t @ weights(w, scale, zero[0] if zero else None).mT

    zero = (x["zero"],) if "zero" in x else ()
    yield Plan("torch, weights widened", function, (given, x["W"], x["scale"], *zero), fused=True)
    wide = weights(x["W"], x["scale"], zero[0] if zero else None)
    yield Plan("torch matmul of wide weights", lambda t, w: t @ w.mT, (given, wide))


@peer("w8a16_matmul")
def w8a16(x: Tensors, a: Arguments) -> Iterator[Plan]:
    def function(t: Tensor, w: Tensor, scale: Tensor) -> Tensor:
        return ((t @ w.to(t.dtype).mT).float() * scale).to(t.dtype)

    yield Plan("torch, weights widened", function, (x["A"], x["W"], x["scale"]), fused=True)
    wide = _wide(x["W"], x["scale"][:, None], x["A"].dtype)
    yield Plan("torch matmul of wide weights", lambda t, w: t @ w.mT, (x["A"], wide))


@peer("w8a8_matmul")
def w8a8(x: Tensors, a: Arguments) -> Plan:
    def function(t: Tensor, w: Tensor, scale: Tensor) -> Tensor:
        wide = t.float()
        step = wide.abs().amax(1, keepdim=True) / 127
        whole = torch.round(wide / step).to(torch.int8)
        return (torch._int_mm(whole, w.mT).float() * step * scale).to(t.dtype)

    def floats(t: Tensor, w: Tensor, scale: Tensor) -> Tensor:
        wide = t.float()
        step = wide.abs().amax(1, keepdim=True) / 127
        return ((torch.round(wide / step) @ w.float().mT) * step * scale).to(t.dtype)

    tensors = (x["A"], x["W"], x["scale"])
    if x["A"].is_cuda and (a.m <= _STEP or not _fits(a.n, a.k)):
        return Plan("torch, widened", floats, tensors, fused=True)
    return Plan("torch._int_mm, several ops", function, tensors, fused=True)


# --- grouped --------------------------------------------------------------------------------------


@peer("grouped_matmul")
def grouped(x: Tensors, a: Arguments) -> Plan:
    return Plan("torch bmm", lambda p, w: torch.bmm(p, w.mT), (x["A"], x["W"]))


def ends_of(group: Tensor, groups: int, rows: int = 1) -> Tensor:
    """Where the rows of each group end, for groups that rise."""
    counts = torch.bincount(group, minlength=groups) * rows
    return counts.cumsum(0).to(torch.int32)


def product_of_groups(p: Tensor, w: Tensor, ends: Tensor) -> Tensor:
    """Rows with the matrices (n, k) of their groups; by torch's own where it has it."""
    if p.is_cuda and p.dtype == torch.bfloat16:
        return torch._grouped_mm(p, w.mT, offs=ends)
    parts = torch.tensor_split(p, ends[:-1].cpu().long())
    return torch.cat([part @ one.mT for part, one in zip(parts, w, strict=True)])


def grouped_name(p: Tensor) -> str:
    own = p.is_cuda and p.dtype == torch.bfloat16
    return "torch._grouped_mm" if own else "torch, a product for each group"


@peer("ragged_matmul", "ragged_block_matmul")
def ragged(x: Tensors, a: Arguments) -> Iterator[Plan]:
    rows = x["A"].shape[1] if x["A"].ndim == 3 else 1
    ends, flat = ends_of(x["group"], a.groups, rows), x["A"].reshape(-1, a.k)
    yield Plan(grouped_name(flat), product_of_groups, (flat, x["W"], ends), captured=flat.is_cuda)
    if rows == 1:

        def gathered(p: Tensor, w: Tensor, group: Tensor) -> Tensor:
            return torch.bmm(w[group], p[..., None])

        yield Plan("torch, matrices gathered", gathered, (x["A"], x["W"], x["group"].long()))


@peer("moe_gate_up")
def gate_up(x: Tensors, a: Arguments) -> Plan:
    ends, token = ends_of(x["expert"], a.experts, a.rows), x["token"].reshape(-1).long()
    both = torch.cat([x["W1"], x["W3"]], 1)

    def function(t: Tensor, token: Tensor, both: Tensor, ends: Tensor) -> Tensor:
        gate, up = product_of_groups(t[token], both, ends).chunk(2, -1)
        return F.silu(gate) * up

    name = f"gathered rows, {grouped_name(x['X'])}, silu"
    return Plan(name, function, (x["X"], token, both, ends), captured=both.is_cuda)


@peer("moe_down")
def down(x: Tensors, a: Arguments) -> Plan:
    ends, flat = ends_of(x["expert"], a.experts, a.rows), x["H"].reshape(-1, a.k)
    return Plan(grouped_name(flat), product_of_groups, (flat, x["W2"], ends), captured=flat.is_cuda)


@peer("moe_combine")
def combine(x: Tensors, a: Arguments) -> Plan:
    def function(row: Tensor, weight: Tensor, y: Tensor) -> Tensor:
        return (y[row].float() * weight[..., None]).sum(1).to(y.dtype)

    tensors = (x["row"], x["weight"], x["Y"])
    return Plan("torch, several ops", function, tensors, fused=True)


# --- lists of tiles -------------------------------------------------------------------------------


@peer("blocked_sparse_matmul")
def blocked(x: Tensors, a: Arguments) -> Iterator[Plan]:
    def gathered(column: Tensor, b: Tensor, tiles: Tensor) -> Tensor:
        wide = tiles.transpose(1, 2).flatten(2)
        return wide @ b[column].flatten(1, 2)

    yield Plan("torch, tiles gathered", gathered, (x["column"], x["B"], x["A"]))
    yield from _dense_or_bsr(x, a, _rows(x["column"]), x["column"].reshape(-1),
                             x["A"].reshape(-1, a.block, a.block))  # fmt: skip


def _rows(column: Tensor) -> Tensor:
    return torch.arange(len(column), device=column.device).repeat_interleave(column.shape[1])


def _dense_or_bsr(
    x: Tensors, a: Arguments, row: Tensor, column: Tensor, tiles: Tensor
) -> Iterator[Plan]:
    """The whole matrix, filled beforehand."""
    shape = (a.m // a.block, a.k // a.block, a.block, a.block)
    whole = torch.zeros(shape, dtype=torch.float32, device=tiles.device)
    whole.index_put_((row.long(), column.long()), tiles.float(), accumulate=True)
    dense = whole.transpose(1, 2).reshape(a.m, a.k).to(tiles.dtype)
    right = x["B"].reshape(a.k, a.n)
    yield Plan("torch matmul of the whole matrix", lambda p, q: p @ q, (dense, right))


@peer("bsr_matmul")
def bsr(x: Tensors, a: Arguments) -> Iterator[Plan]:
    counts = x["pointer"].diff().long()
    place = torch.arange(int(x["pointer"][-1]), device=counts.device)
    row = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    kept = place - x["pointer"].long()[row] < a.longest
    row, place = row[kept], place[kept]
    return _dense_or_bsr(x, a, row, x["column"][place], x["A"][place])


@peer("sampled_matmul")
def sampled(x: Tensors, a: Arguments) -> Plan:
    def function(row: Tensor, column: Tensor, p: Tensor, q: Tensor) -> Tensor:
        return torch.bmm(p[row], q[column].mT)

    tensors: Any = tuple(x[name] for name in ("row", "column", "A", "B"))
    return Plan("torch, tiles gathered", function, tensors)


@peer("tile_wise_matmul")
def tile_wise(x: Tensors, a: Arguments) -> Iterator[Plan]:
    def gathered(row: Tensor, p: Tensor, q: Tensor) -> Tensor:
        return torch.bmm(p.T[row].mT, q).transpose(0, 1)

    yield Plan("torch, columns gathered", gathered, (x["row"], x["A"], x["B"]))
    right = torch.zeros((x["B"].shape[0], a.k, a.block), device=x["A"].device)
    index = x["row"].long()[..., None].expand_as(x["B"])
    dense = right.scatter_add_(1, index, x["B"].float()).transpose(0, 1).reshape(a.k, -1)
    dense = dense.to(x["A"].dtype)
    yield Plan("torch matmul of the whole matrix", lambda p, q: p @ q, (x["A"], dense))
