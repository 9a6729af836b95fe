"""Convolutions, one place of the filter after the other."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs


def _padded(x: Array, padding: int, dims: tuple[int, ...]) -> Array:
    return np.pad(x, [(padding, padding) if dim in dims else (0, 0) for dim in range(x.ndim)])


def _convolved(x: Array, w: Array, dims: int, stride: int = 1, padding: int = 0,
               dilation: int = 1) -> Array:  # fmt: skip
    """X (n, *space, c) by W (*taps, c, f): each tap's strided view of X times its matrix."""
    space = tuple(range(1, dims + 1))
    x = _padded(x, padding, space)
    places = [
        (x.shape[d] - dilation * (w.shape[d - 1] - 1) - 1) // stride + 1 for d in space
    ]  # fmt: skip
    total = np.zeros((x.shape[0], *places, w.shape[-1]), x.dtype)
    for taps in itertools.product(*(range(w.shape[d - 1]) for d in space)):
        cut = tuple(
            slice(tap * dilation, tap * dilation + stride * count, stride)
            for tap, count in zip(taps, places, strict=True)
        )
        total += x[(slice(None), *cut)][..., : w.shape[-2]] @ w[taps]
    return total


def _conv(dims: int) -> Any:
    def reference(x: Inputs, stride: int = 1, padding: int = 0, dilation: int = 1,
                  **_: object) -> Array:  # fmt: skip
        return _convolved(x["X"], x["W"], dims, stride, padding, dilation)

    return reference


def _depthwise(x: Inputs, stride: int = 1, padding: int = 0, dilation: int = 1,
               **_: object) -> Array:  # fmt: skip
    """As the full convolution with a filter that is diagonal in its channels."""
    channels = x["W"].shape[-1]
    diagonal = x["W"][..., None] * np.eye(channels, dtype=x["W"].dtype)
    return _convolved(x["X"], diagonal, 2, stride, padding, dilation)


def _grouped(x: Inputs, stride: int = 1, padding: int = 0, groups: int = 1, dilation: int = 1,
             **_: object) -> Array:  # fmt: skip
    parts = [
        _convolved(x["X"][..., group, :], x["W"][group], 2, stride, padding, dilation)
        for group in range(groups)
    ]
    return np.stack(parts, axis=-2)


def _transposed(x: Inputs, taps: int = 4, stride: int = 2, padding: int = 1, **_: object) -> Array:
    """Every place of X adds its multiple of the filter to what is below."""
    n, h, w, _ = x["X"].shape
    f = x["W"].shape[-1]
    margin = taps + padding + stride
    whole = np.zeros((n, stride * h + 2 * margin, stride * w + 2 * margin, f))
    for i, j in itertools.product(range(h), range(w)):
        top, left = stride * i - padding + margin, stride * j - padding + margin
        patch = np.einsum("nc,ijcf->nijf", x["X"][:, i, j], x["W"])
        whole[:, top : top + taps, left : left + taps] += patch
    cropped = whole[:, margin : margin + stride * h, margin : margin + stride * w]
    return cropped.reshape(n, h, stride, w, stride, f)


def _causal(x: Inputs, taps: int = 4, activation: bool = True, **_: object) -> Array:
    batch, channels, length = x["X"].shape
    total = np.zeros((batch, channels, length)) + x["bias"][None, :, None]
    for b, c in itertools.product(range(batch), range(channels)):
        total[b, c] += np.convolve(x["X"][b, c], x["W"][c, ::-1])[:length]
    return total / (1 + np.exp(-total)) if activation else total


_IMAGE = {"n": 1, "h": 11, "w": 9, "c": 6, "f": 10}
CASES = (
    Case("conv1d", {"n": 2, "length": 33, "c": 10, "f": 12, "stride": 2, "padding": 1}, _conv(1)),
    Case("conv2d", _IMAGE | {"padding": 1, "dilation": 2}, _conv(2)),
    Case("conv2d", _IMAGE | {"padding": 2, "dilation": 2, "stride": 2}, _conv(2)),
    Case("conv2d", _IMAGE | {"stride": 2, "dtype": "bf16", "out": "f32"}, _conv(2)),
    Case("conv2d", _IMAGE | {"r": 1, "s": 5, "padding": 2, "dtype": "i8"}, _conv(2)),
    Case("conv3d", {"n": 1, "t": 5, "h": 6, "w": 7, "c": 4, "f": 6, "padding": 1}, _conv(3)),
    Case("conv3d", {"n": 1, "t": 7, "h": 9, "w": 8, "c": 4, "f": 6, "padding": 2, "stride": 2,
                    "dilation": 2}, _conv(3)),
    Case("depthwise_conv2d", {"n": 2, "h": 10, "w": 9, "c": 13, "padding": 1, "stride": 2},
         _depthwise),
    Case("depthwise_conv2d", {"n": 1, "h": 10, "w": 9, "c": 7, "padding": 2, "stride": 2,
                              "dilation": 2}, _depthwise),
    Case("grouped_conv2d", {"n": 1, "h": 8, "w": 9, "c": 12, "f": 18, "groups": 3, "padding": 1},
         _grouped),
    Case("grouped_conv2d", {"n": 1, "h": 9, "w": 8, "c": 8, "f": 4, "groups": 2, "padding": 2,
                            "dilation": 2}, _grouped),
    Case("transposed_conv2d", {"n": 1, "h": 5, "w": 6, "c": 7, "f": 5}, _transposed),
    Case("transposed_conv2d", {"n": 2, "h": 4, "w": 3, "c": 5, "f": 3, "taps": 3, "stride": 3,
                               "padding": 2}, _transposed),
    Case("transposed_conv2d", {"n": 1, "h": 4, "w": 5, "c": 2, "f": 3, "taps": 3, "padding": 5},
         _transposed),
    Case("causal_conv1d", {"b": 2, "length": 37, "c": 11}, _causal),
    Case("causal_conv1d", {"b": 1, "length": 19, "c": 5, "taps": 3, "activation": False,
                           "dtype": "bf16"}, _causal),
)  # fmt: skip
