"""Operators against plain numpy, through the oracle; all of them are in tests/operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from ir import UsageError, evaluate, load_operator, parse, random_inputs
from ir.dtypes import to_float

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Array]

_erf = np.vectorize(math.erf)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": lambda x: x / 2 * (1 + _erf(x / math.sqrt(2))),
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x * _sigmoid(x),
    "none": lambda x: x,
}


def _matmul(x: Inputs, ta: bool = False, tb: bool = False, **_: object) -> Array:
    a = x["A"].swapaxes(-1, -2) if ta else x["A"]
    b = x["B"].swapaxes(-1, -2) if tb else x["B"]
    product: Array = np.matmul(a, b)
    return product


def _bias_act(x: Inputs, activation: str = "gelu", residual: bool = True, **options: Any) -> Array:
    result = _ACTIVATIONS[activation](_matmul(x, **options) + x["bias"])
    return result + x["residual"] if residual else result


def _gated(x: Inputs, tb: bool = False, **_: object) -> Array:
    first, third = (x[name].T if tb else x[name] for name in ("W1", "W3"))
    gate = x["X"] @ first
    product: Array = gate * _sigmoid(gate) * (x["X"] @ third)
    return product


def _softmax(x: Inputs, **_: object) -> Array:
    weights = np.exp(x["X"] - x["X"].max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def _layernorm(x: Inputs, eps: float = 1e-5, **_: object) -> Array:
    value = x["X"]
    centred = value - value.mean(-1, keepdims=True)
    scaled = centred / np.sqrt(value.var(-1, keepdims=True) + eps)
    return np.asarray(scaled * x["gamma"] + x["beta"])


def _rmsnorm(x: Inputs, eps: float = 1e-6, **_: object) -> Array:
    value = x["X"]
    return np.asarray(value / np.sqrt((value**2).mean(-1, keepdims=True) + eps) * x["gamma"])


def _attention(
    x: Inputs, causal: bool = False, window: int = 0, scale: float = 0.0, **_: object
) -> Array:
    q, k, v = x["Q"], x["K"], x["V"]
    if q.ndim == 5:
        k, v = k[:, :, None], v[:, :, None]
    sq, sk = q.shape[-2], k.shape[-2]
    scores = q @ k.swapaxes(-1, -2) * (scale or q.shape[-1] ** -0.5)
    query, key = np.arange(sq)[:, None] + sk - sq, np.arange(sk)[None]
    seen = (key <= query) | (not causal)
    seen = seen & ((key > query - window) | (window == 0))
    return _softmax({"X": np.where(seen, scores, -np.inf)}) @ v


def _gaussian(x: Inputs, s: float = 0.0, **_: object) -> Array:
    distance = ((x["x"][:, None] - x["y"][None]) ** 2).sum(-1)
    variance = s**2 or x["x"].shape[1]
    return np.asarray(np.exp(-distance / (2 * variance)) @ x["v"])


def _conv(x: Inputs, stride: int = 1, padding: int = 0, **_: object) -> Array:
    pad = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    image, weights = np.pad(x["X"], pad), x["W"]
    r, s = weights.shape[:2]
    rows = (image.shape[1] - r) // stride + 1
    columns = (image.shape[2] - s) // stride + 1
    result = np.zeros((image.shape[0], rows, columns, weights.shape[3]), weights.dtype)
    for p in range(rows):
        for q in range(columns):
            patch = image[:, p * stride : p * stride + r, q * stride : q * stride + s]
            result[:, p, q] = np.tensordot(patch, weights, 3)
    return result


def _scaled(x: dict[str, Array], activation: str = "none", **_: Any) -> Array:
    result: Array = x["A"] @ x["B"].T * x["scale_a"] * x["scale_b"]
    return np.maximum(result, 0) if activation == "relu" else result


_SMALL = {"m": 7, "n": 5, "k": 6}
_HEADS = {"b": 2, "heads": 4, "sq": 5, "d": 3}
CASES: list[tuple[str, Callable[..., Array], dict[str, Any]]] = [
    ("matmul", _matmul, _SMALL),
    ("matmul", _matmul, _SMALL | {"ta": True, "dtype": "bf16"}),
    ("matmul", _matmul, _SMALL | {"tb": True, "dtype": "bf16", "out": "f32"}),
    ("matmul", _matmul, _SMALL | {"ta": True, "tb": True, "batch": 3}),
    ("matmul", _matmul, _SMALL | {"dtype": "i8", "batch": 1}),
    ("matmul_bias_act", _bias_act, _SMALL),
    ("matmul_bias_act", _bias_act, _SMALL | {"activation": "relu", "residual": False, "tb": True}),
    ("matmul_bias_act", _bias_act, _SMALL | {"activation": "silu", "dtype": "bf16"}),
    ("matmul_bias_act", _bias_act, _SMALL | {"activation": "none"}),
    ("gated_mlp", _gated, _SMALL),
    ("gated_mlp", _gated, _SMALL | {"tb": True, "dtype": "bf16"}),
    ("scaled_matmul", _scaled, _SMALL),
    ("scaled_matmul", _scaled, _SMALL | {"dtype": "bf16", "out": "f32", "activation": "relu"}),
    ("softmax", _softmax, {"m": 4, "n": 9}),
    ("softmax", _softmax, {"m": 4, "n": 1, "dtype": "bf16"}),
    ("layernorm", _layernorm, {"m": 4, "n": 9}),
    ("rmsnorm", _rmsnorm, {"m": 4, "n": 9, "dtype": "bf16"}),
    ("row_sum", lambda x, **_: x["X"].sum(1), {"m": 4, "n": 9}),
    ("row_max", lambda x, **_: x["X"].max(1), {"m": 4, "n": 9}),
    ("column_sum", lambda x, **_: x["X"].sum(0), {"m": 4, "n": 9, "dtype": "i8"}),
    ("column_max", lambda x, **_: x["X"].max(0), {"m": 4, "n": 9}),
    ("attention", _attention, _HEADS),
    ("attention", _attention, _HEADS | {"sk": 8, "dv": 2, "causal": True, "dtype": "bf16"}),
    ("attention", _attention, _HEADS | {"kv_heads": 2, "causal": True, "window": 2}),
    ("attention", _attention, _HEADS | {"kv_heads": 1, "sk": 9, "window": 3, "scale": 0.25}),
    ("gaussian", _gaussian, {"n": 6, "d": 3}),
    ("gaussian", _gaussian, {"n": 6, "d": 3, "expand": True}),
    ("gaussian", _gaussian, {"n": 6, "d": 3, "m": 9, "s": 0.75}),
    ("conv2d", _conv, {"n": 2, "h": 5, "w": 6, "c": 3, "f": 4}),
    ("conv2d", _conv, {"n": 1, "h": 5, "w": 4, "c": 2, "f": 3, "padding": 1, "stride": 2}),
    ("conv2d", _conv, {"n": 1, "h": 4, "w": 4, "c": 2, "f": 3, "r": 1, "s": 2, "dtype": "i8"}),
]


@pytest.mark.parametrize(("name", "reference", "arguments"), CASES)
def test_the_oracle_agrees_with_plain_numpy(
    name: str, reference: Callable[..., Array], arguments: dict[str, Any]
) -> None:
    program = load_operator(name).build(**arguments)
    inputs = random_inputs(program, np.random.default_rng(7))
    dtypes = {spec.name: spec.dtype for spec in program.inputs}
    options = {key: value for key, value in arguments.items() if key not in _SMALL}
    wanted = reference({k: to_float(v, dtypes[k]) for k, v in inputs.items()}, **options)
    (found,) = evaluate(program, inputs).values()
    assert found.dtype == wanted.dtype
    assert found.shape == program.outputs[0].shape
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    assert parse(str(program)) == program


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("matmul_bias_act", _SMALL | {"activation": "gello"}, "activation='gello'"),
        ("attention", _HEADS | {"kv_heads": 3}, "heads=4 is no multiple of kv_heads=3"),
        ("attention", _HEADS | {"sk": 3, "causal": True}, "sq=5 > sk=3"),
        ("attention", _HEADS | {"window": -1}, "window=-1"),
        ("conv2d", {"n": 1, "h": 2, "w": 9, "c": 1, "f": 1}, "3x3 filter does not fit 2x9"),
        ("conv2d", {"n": 1, "h": 9, "w": 9, "c": 1, "f": 1, "stride": 0}, "stride=0"),
    ],
)
def test_impossible_arguments(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_operator(name).build(**arguments)
