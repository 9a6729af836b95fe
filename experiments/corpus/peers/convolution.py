"""Convolutions: torch's, on tensors whose channels come last as the operators' do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from .plan import Arguments, Plan, Tensors, peer

Tensor = torch.Tensor


def _channels_second(t: Tensor) -> Tensor:
    """A view (n, c, *space) of (n, *space, c)."""
    return t.movedim(-1, 1)


def _weights(t: Tensor) -> Tensor:
    """(f, c, *taps) of (*taps, c, f), channels last in memory."""
    turned = t.movedim(-1, 0).movedim(-1, 1)
    form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(turned.ndim)
    return turned.contiguous(memory_format=form) if form else turned.contiguous()


def _plan(name: str, x: Tensor, w: Tensor, a: Arguments, **how: Any) -> Iterator[Plan]:
    wide = getattr(a, "out", "") or getattr(a, "dtype", "f32")
    if not x.is_floating_point() or wide == "f32":  # torch has none of whole numbers everywhere
        x, w = x.float(), w.float()
    call: Any = getattr(F, name)

    def function(x: Tensor, w: Tensor) -> Tensor:
        found: Tensor = call(x, w, None, **how).movedim(1, -1)
        return found

    yield Plan(f"torch {name}", function, (x, w))


@peer("conv1d")
def conv1d(x: Tensors, a: Arguments) -> Iterator[Plan]:
    how = {"stride": a.stride, "padding": a.padding, "dilation": a.dilation}
    yield from _plan("conv1d", _channels_second(x["X"]), _weights(x["W"]), a, **how)
    flat, w = x["X"].movedim(-1, 1)[:, :, None], _weights(x["W"][None])
    sizes = {name: (1 if name != "padding" else 0, value) for name, value in how.items()}
    for plan in _plan("conv2d", flat, w, a, **sizes):
        yield Plan("torch conv2d of one row, channels last", plan.function, plan.tensors)


@peer("conv2d")
def conv2d(x: Tensors, a: Arguments) -> Iterator[Plan]:
    how = {"stride": a.stride, "padding": a.padding, "dilation": a.dilation}
    return _plan("conv2d", _channels_second(x["X"]), _weights(x["W"]), a, **how)


@peer("conv3d")
def conv3d(x: Tensors, a: Arguments) -> Iterator[Plan]:
    how = {"stride": a.stride, "padding": a.padding, "dilation": a.dilation}
    last, w = _channels_second(x["X"]), _weights(x["W"])
    yield from _plan("conv3d", last, w, a, **how)
    for plan in _plan("conv3d", last.contiguous(), w.contiguous(), a, **how):
        yield Plan("torch conv3d, channels second", plan.function, plan.tensors)


@peer("depthwise_conv2d")
def depthwise(x: Tensors, a: Arguments) -> Iterator[Plan]:
    how = {"stride": a.stride, "padding": a.padding, "dilation": a.dilation, "groups": a.c}
    w = x["W"].permute(2, 0, 1)[:, None].contiguous(memory_format=torch.channels_last)
    return _plan("conv2d", _channels_second(x["X"]), w, a, **how)


@peer("grouped_conv2d")
def grouped(x: Tensors, a: Arguments) -> Iterator[Plan]:
    how = {"stride": a.stride, "padding": a.padding, "dilation": a.dilation, "groups": a.groups}
    given = _channels_second(x["X"].flatten(-2))
    w = x["W"].permute(0, 4, 3, 1, 2).flatten(0, 1).contiguous(memory_format=torch.channels_last)
    return _plan("conv2d", given, w, a, **how)


@peer("transposed_conv2d")
def transposed(x: Tensors, a: Arguments) -> Iterator[Plan]:
    """The operator has stride times the places; torch may need one more row."""
    h = x["X"].shape[1]
    missing = a.stride * h - ((h - 1) * a.stride - 2 * a.padding + a.taps)
    if missing >= a.stride:
        return
    weights = x["W"].permute(2, 3, 0, 1).contiguous(memory_format=torch.channels_last)
    how = {"stride": a.stride, "padding": a.padding, "output_padding": max(0, missing)}
    for plan in _plan("conv_transpose2d", _channels_second(x["X"]), weights, a, **how):
        function = plan.function

        def cut(x: Tensor, w: Tensor, function: Any = function) -> Tensor:
            found: Tensor = function(x, w)
            return found[:, : a.stride * h, : a.stride * x.shape[-1]]

        yield Plan(plan.name, cut, plan.tensors)


@peer("causal_conv1d")
def causal(x: Tensors, a: Arguments) -> Iterator[Plan]:
    def function(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        found = F.conv1d(x, w, bias, padding=a.taps - 1, groups=a.c)[..., : a.length]
        return F.silu(found) if a.activation else found

    def shifted(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        wide = F.pad(x, (a.taps - 1, 0))
        total = bias[:, None].float()
        for tap in range(a.taps):
            total = total + wide[..., tap : tap + a.length] * w[:, 0, tap, None].float()
        return (F.silu(total) if a.activation else total).to(x.dtype)

    tensors = (x["X"], x["W"][:, None].contiguous(), x["bias"])
    yield Plan("torch conv1d by channel, silu", function, tensors)
    yield Plan("torch, shifted sums", shifted, tensors, fused=True)
