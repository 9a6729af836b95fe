"""Products with coded weights: widened on the way by a fused composition, or once beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from .plan import Arguments, Plan, Tensors, peer

Tensor = torch.Tensor
_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip
_FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
_STEP = 16  # to whose multiples torch wants the extents of narrow products


def _codes(octets: Tensor) -> Tensor:
    """Two codes of each byte, the low one first."""
    return torch.stack([octets & 15, octets >> 4], -1).flatten(-2)


def _widened(octets: Tensor, scale: Tensor, values: Tensor, kind: torch.dtype) -> Tensor:
    """Rows of numbers: those of codes (rows, groups, bytes) times the scales of their groups."""
    wide = values[_codes(octets).int()] * scale.float()[..., None]
    return wide.flatten(1).to(kind)


def _weights_only(x: Tensors, a: Arguments, table: tuple[float, ...]) -> Iterator[Plan]:
    given, values = x["A"].reshape(a.m, a.k), torch.tensor(table, device=x["A"].device)
    kind = given.dtype

    def function(t: Tensor, w: Tensor, scale: Tensor, values: Tensor) -> Tensor:
        return t @ _widened(w, scale, values, kind).mT

    tensors = (given, x["W"], x["scale"], values)
    yield Plan("torch, weights widened", function, tensors, fused=True)
    wide = _widened(x["W"], x["scale"], values, kind)
    yield Plan("torch matmul of wide weights", lambda t, w: t @ w.mT, (given, wide))


@peer("nf4_matmul")
def nf4(x: Tensors, a: Arguments) -> Iterator[Plan]:
    return _weights_only(x, a, _NF4)


@peer("mxfp4_matmul")
def mxfp4(x: Tensors, a: Arguments) -> Iterator[Plan]:
    return _weights_only(x, a, _FP4)


@peer("mx_matmul")
def mx(x: Tensors, a: Arguments) -> Iterator[Plan]:
    """Both widened: exact in bf16, of which fp4 and fp8 with powers of two are."""
    values = torch.tensor(_FP4, device=x["W"].device)
    half = torch.bfloat16 if x["W"].is_cuda else torch.float32
    kind = torch.bfloat16 if a.out == "bf16" else torch.float32

    def left(t: Tensor, scale: Tensor) -> Tensor:
        if a.dtype == "e2m1":
            return _widened(t, scale, values, half)
        return (t.float().flatten(2) * scale.float()[..., None]).flatten(1).to(half)

    def function(t: Tensor, w: Tensor, sa: Tensor, sw: Tensor) -> Tensor:
        return (left(t, sa) @ _widened(w, sw, values, half).mT).to(kind)

    def product(t: Tensor, w: Tensor) -> Tensor:
        return (t @ w.mT).to(kind)

    tensors = (x["A"], x["W"], x["scale_a"], x["scale_w"])
    yield Plan("torch, both widened", function, tensors, fused=True)
    wide = left(x["A"], x["scale_a"]), _widened(x["W"], x["scale_w"], values, half)
    yield Plan("torch matmul of wide operands", product, wide, part=True)


def _bits(octets: Tensor) -> Tensor:
    """Four weights of each byte, the lowest bits first: two's complement of two bits."""
    parts = torch.stack([octets << shift for shift in (6, 4, 2, 0)], -1)
    return parts.flatten(-2).view(torch.int8) >> 6


@peer("w2a8_matmul")
def w2a8(x: Tensors, a: Arguments) -> Iterator[Plan]:
    given = x["A"].reshape(a.m, a.k)
    kind = torch.bfloat16 if a.out == "bf16" else torch.float32

    def scaled(total: Tensor, sa: Tensor, sw: Tensor) -> Tensor:
        return (total.float() * sa[:, None] * sw).to(kind)

    def whole(t: Tensor, w: Tensor) -> Tensor:
        return torch._int_mm(t, w.mT)

    def floats(t: Tensor, w: Tensor) -> Tensor:
        return t.float() @ w.float().mT

    fits = a.m > _STEP and a.n % _STEP == 0 and a.k % _STEP == 0
    product: Callable[[Tensor, Tensor], Tensor] = whole if fits else floats
    name = "torch._int_mm" if fits else "torch, floats"

    def widened(t: Tensor, w: Tensor, sa: Tensor, sw: Tensor) -> Tensor:
        return scaled(product(t, _bits(w)), sa, sw)

    def before(t: Tensor, w: Tensor, sa: Tensor, sw: Tensor) -> Tensor:
        return scaled(product(t, w), sa, sw)

    scales = (x["scale_a"], x["scale_w"])
    yield Plan(f"{name}, weights widened", widened, (given, x["W"], *scales), fused=True)
    yield Plan(f"{name} of wide weights", before, (given, _bits(x["W"]), *scales), fused=True)
