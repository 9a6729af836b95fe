"""Maps, by numpy's functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs

_erf = np.vectorize(math.erf, otypes=[np.float64])
_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": lambda x: x / 2 * (1 + _erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


def _activation(x: Inputs, kind: str = "gelu", **_: object) -> Array:
    return _FUNCTIONS[kind](x["X"])


def _glu(x: Inputs, gate: str = "silu", **_: object) -> Array:
    left, right = x["X"].swapaxes(0, 1)
    return np.asarray(_FUNCTIONS[gate](left) * right)


def _glu_backward(x: Inputs, **_: object) -> Mapping[str, Array]:
    """By the derivative of a / (1 + exp(-a)) as a quotient."""
    a, bottom = x["A"], 1 + np.exp(-x["A"])
    slope = (bottom + a * np.exp(-a)) / bottom**2
    return {"dA": x["dY"] * x["B"] * slope, "dB": x["dY"] * a / bottom}


def _bias_residual(x: Inputs, **_: object) -> Array:
    return np.asarray(x["X"] + (x["R"] + x["bias"]))


def _dropout(x: Inputs, rate: float = 0.1, **_: object) -> Array:
    return np.asarray(x["X"] * x["mask"] / (1 - rate))


def _rope(x: Inputs, interleaved: bool = False, **_: object) -> Array:
    """As products of complex numbers."""
    first, second = np.moveaxis(x["X"], 3 if interleaved else 2, 0)
    turned = (first + 1j * second) * (x["cos"] + 1j * x["sin"])[:, None, :]
    return np.stack([turned.real, turned.imag], axis=3 if interleaved else 2)


_MATRIX = {"m": 7, "n": 65}
_HEADS = {"tokens": 9, "heads": 3, "d": 10}
CASES = (
    *(Case("activation", _MATRIX | {"kind": kind}, _activation) for kind in _FUNCTIONS),
    Case("glu", _MATRIX, _glu),
    Case("glu", _MATRIX | {"gate": "gelu", "dtype": "bf16"}, _glu),
    Case("glu_backward", _MATRIX, _glu_backward),
    Case("bias_residual", _MATRIX | {"dtype": "f16"}, _bias_residual),
    Case("dropout", _MATRIX, _dropout),
    Case("rope", _HEADS, _rope),
    Case("rope", _HEADS | {"interleaved": True, "dtype": "bf16"}, _rope),
)
