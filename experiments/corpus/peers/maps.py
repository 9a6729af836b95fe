"""Maps of tensors, quantisation and steps of optimisers: compositions, and torch's own steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F

from .plan import Arguments, Plan, Tensors, peer

Tensor = torch.Tensor
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu, "gelu_tanh": partial(F.gelu, approximate="tanh"), "silu": F.silu,
    "relu": F.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
}  # fmt: skip
_LARGEST = {"i8": 127.0, "e4m3": 448.0}
_TYPES = {
    "i8": torch.int8, "e4m3": torch.float8_e4m3fn, "bf16": torch.bfloat16, "f16": torch.float16,
    "f32": torch.float32,
}  # fmt: skip


def several(function: Callable[..., object], x: Tensors, names: str) -> Plan:
    """A composition on inputs by name."""
    tensors = tuple(x[name] for name in names.split())
    return Plan("torch, several ops", function, tensors, fused=True)  # type: ignore[arg-type]


@peer("activation")
def activation(x: Tensors, a: Arguments) -> Plan:
    return Plan(f"torch {a.kind}", FUNCTIONS[a.kind], (x["X"],))


@peer("glu")
def glu(x: Tensors, a: Arguments) -> Plan:
    return several(lambda t: FUNCTIONS[a.gate](t[:, 0]) * t[:, 1], x, "X")


@peer("glu_backward")
def glu_backward(x: Tensors, a: Arguments) -> Plan:
    def function(p: Tensor, q: Tensor, dy: Tensor) -> dict[str, Tensor]:
        kind = p.dtype
        p, q, dy = p.float(), q.float(), dy.float()
        s = torch.sigmoid(p)
        return {"dA": (dy * q * s * (1 + p * (1 - s))).to(kind), "dB": (dy * p * s).to(kind)}

    return several(function, x, "A B dY")


@peer("bias_residual")
def bias_residual(x: Tensors, a: Arguments) -> Plan:
    return several(lambda t, bias, r: t + bias + r, x, "X bias R")


@peer("dropout")
def dropout(x: Tensors, a: Arguments) -> Plan:
    """With a mask that is given; torch's own draws one."""
    return several(lambda t, mask: t * mask * (1 / (1 - a.rate)), x, "X mask")


@peer("rope")
def rope(x: Tensors, a: Arguments) -> Plan:
    def function(t: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        dim = 3 if a.interleaved else 2
        first, second = t.unbind(dim)
        cos, sin = cos[:, None], sin[:, None]
        pair = (first * cos - second * sin, second * cos + first * sin)
        return torch.stack(pair, dim).to(t.dtype)

    return several(function, x, "X cos sin")


# --- quantisation ---------------------------------------------------------------------------------


def narrowed(value: Tensor, dims: int | tuple[int, ...] | None, out: str) -> dict[str, Tensor]:
    """`Y` in steps of `scale`, the largest along `dims` being the largest of the type."""
    size = value.abs()
    largest = size.amax() if dims is None else size.amax(dims, keepdim=True)
    scale = largest / _LARGEST[out]
    steps = value / scale
    whole = steps.round() if out == "i8" else steps
    return {"Y": whole.to(_TYPES[out]), "scale": scale}


_DIMS: dict[str, int | tuple[int, ...] | None] = {
    "tensor": None, "rows": 1, "blocks": 2, "squares": (1, 3),
}  # fmt: skip


def _quantised(kind: str) -> Callable[[Tensors, Arguments], Plan]:
    def make(x: Tensors, a: Arguments) -> Plan:
        return several(lambda t: narrowed(t.float(), _DIMS[kind], a.out), x, "X")

    return make


for _kind in _DIMS:
    peer(f"quantise_{_kind}")(_quantised(_kind))


@peer("dequantise_rows", "dequantise_blocks", "dequantise_squares")
def dequantised(x: Tensors, a: Arguments) -> Plan:
    def function(t: Tensor, scale: Tensor) -> Tensor:
        wide = scale[..., None] if t.ndim < 4 else scale[:, None, :, None]
        return (t.float() * wide).to(_TYPES[a.out])

    return several(function, x, "X scale")


@peer("quantise_stochastic")
def stochastic(x: Tensors, a: Arguments) -> Plan:
    """Numbers of torch's own generator, so that the results are others."""

    def function(t: Tensor) -> dict[str, Tensor]:
        wide = t.float()
        scale = wide.abs().amax(1) / 127
        whole = torch.floor(wide / scale[:, None] + torch.rand_like(wide)).clamp(-127, 127)
        return {"Q": whole.to(torch.int8), "scale": scale}

    return Plan("torch, several ops", function, (x["X"],), fused=True, checked=False)


# --- optimisers: the operators write new tensors, torch's own steps over theirs ------------------


def _adamw_plain(a: Arguments) -> Callable[..., dict[str, Tensor]]:
    def function(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> dict[str, Tensor]:
        kind = p.dtype
        p, g, m, v = (t.float() for t in (p, g, m, v))
        first, second = m + (1 - a.beta1) * (g - m), v + (1 - a.beta2) * (g * g - v)
        root = (second / (1 - a.beta2**a.step)).sqrt() + a.eps
        step = first / (1 - a.beta1**a.step) / root
        p = p * (1 - a.rate * a.decay) - a.rate * step
        return {"P1": p.to(kind), "M1": first, "V1": second}

    return function


@peer("adamw")
def adamw(x: Tensors, a: Arguments) -> Iterator[Plan]:
    yield several(_adamw_plain(a), x, "P G M V")
    if x["P"].dtype != x["M"].dtype:
        return

    def function(p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: Tensor) -> dict[str, Tensor]:
        torch._fused_adamw_([p], [g], [m], [v], [], [step], lr=a.rate, beta1=a.beta1,
                            beta2=a.beta2, weight_decay=a.decay, eps=a.eps, amsgrad=False,
                            maximize=False)  # fmt: skip
        return {"P1": p, "M1": m, "V1": v}

    own = (x["P"].clone(), x["G"], x["M"].clone(), x["V"].clone())
    step = torch.full((), float(a.step), device=x["P"].device)
    yield Plan("torch's fused AdamW, in place", function, (*own, step))


@peer("sgd")
def sgd(x: Tensors, a: Arguments) -> Plan:
    def function(p: Tensor, m: Tensor, g: Tensor) -> dict[str, Tensor]:
        moment = a.momentum * m.float() + (g.float() + a.decay * p.float())
        return {"P1": (p.float() - a.rate * moment).to(p.dtype), "M1": moment}

    return several(function, x, "P M G")
