"""Normalisations, by numpy's own statistics."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs
from tests.operators.quantise import narrowed


def _softmax(x: Inputs, **_: object) -> Array:
    weights = np.exp(x["X"])
    return np.asarray(weights / weights.sum(1)[:, None])


def _log_softmax(x: Inputs, **_: object) -> Array:
    return np.asarray(np.log(_softmax(x)))


def _standard(x: Array, dims: int | tuple[int, ...], eps: float) -> Array:
    spread = np.sqrt(np.var(x, axis=dims, keepdims=True) + eps)
    return np.asarray((x - np.mean(x, axis=dims, keepdims=True)) / spread)


def _layernorm(x: Inputs, eps: float = 1e-5, **_: object) -> Array:
    return _standard(x["X"], 1, eps) * x["gamma"] + x["beta"]


def _rms(x: Array, gamma: Array, eps: float = 1e-6) -> Array:
    return np.asarray(x * gamma / np.sqrt(np.mean(np.square(x), 1)[:, None] + eps))


def _rmsnorm(x: Inputs, **_: object) -> Array:
    return _rms(x["X"], x["gamma"])


def _residual_layernorm(x: Inputs, **_: object) -> Mapping[str, Array]:
    total = x["X"] + x["R"]
    return {"S": total, "Y": _standard(total, 1, 1e-5) * x["gamma"] + x["beta"]}


def _residual_rmsnorm(x: Inputs, **_: object) -> Mapping[str, Array]:
    total = x["X"] + x["R"]
    return {"S": total, "Y": _rms(total, x["gamma"])}


def _quantised(x: Inputs, out: str = "i8", **_: object) -> Mapping[str, Array]:
    return narrowed(_rms(x["X"], x["gamma"]), 1, out)


def _groupnorm(x: Inputs, **_: object) -> Array:
    return _standard(x["X"], (1, 3), 1e-5) * x["gamma"] + x["beta"]


def _statistics(x: Inputs, **_: object) -> Mapping[str, Array]:
    return {"mean": np.mean(x["X"], 0), "variance": np.var(x["X"], 0)}


def _batchnorm(x: Inputs, **_: object) -> Array:
    return _standard(x["X"], 0, 1e-5) * x["gamma"] + x["beta"]


_ROWS = {"m": 7, "n": 65}
_HALF = {"m": 5, "n": 130, "dtype": "bf16"}
_COLUMNS = {"n": 50, "c": 9}
CASES = (
    Case("softmax", _ROWS, _softmax),
    Case("log_softmax", _ROWS, _log_softmax),
    Case("layernorm", _ROWS, _layernorm),
    Case("rmsnorm", _ROWS, _rmsnorm),
    Case("residual_layernorm", _ROWS, _residual_layernorm),
    Case("residual_rmsnorm", _ROWS, _residual_rmsnorm),
    Case("residual_rmsnorm", _HALF, _residual_rmsnorm),
    Case("quantised_rmsnorm", _ROWS, _quantised),
    Case("quantised_rmsnorm", _HALF | {"out": "e4m3"}, _quantised),
    Case("groupnorm", {"b": 2, "s": 21, "c": 12, "groups": 3}, _groupnorm),
    Case("batch_statistics", _COLUMNS, _statistics),
    Case("batchnorm", _COLUMNS, _batchnorm),
)
