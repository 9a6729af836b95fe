"""Reductions, by numpy's."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs

_KINDS: dict[str, Callable[..., Array]] = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "mean": np.mean,
    "variance": np.var,
    "norm": lambda x, axis: np.sqrt(np.square(x).sum(axis=axis)),
}


def _along(kind: str, axis: int) -> Callable[..., Array]:
    def reference(x: Inputs, **_: object) -> Array:
        return np.asarray(_KINDS[kind](x["X"], axis=axis))

    return reference


def _statistics(x: Inputs, **_: object) -> Mapping[str, Array]:
    return {"mean": np.mean(x["X"], axis=1), "variance": np.var(x["X"], axis=1)}


def _norm(x: Inputs, order: int = 2, **_: object) -> Array:
    return np.asarray(np.linalg.norm(x["X"], ord=order or np.inf, axis=1))


def _reduction(x: Inputs, kind: str = "sum", over: str = "c", **_: object) -> Array:
    return np.asarray(_KINDS[kind](x["X"], axis=tuple("abc".index(name) for name in over)))


_MATRIX = {"m": 13, "n": 70}
_TENSOR = {"a": 5, "b": 6, "c": 17}
CASES = (
    Case("row_sum", _MATRIX | {"dtype": "i8"}, _along("sum", 1)),
    Case("row_max", _MATRIX, _along("max", 1)),
    Case("column_sum", _MATRIX | {"dtype": "bf16"}, _along("sum", 0)),
    Case("column_max", _MATRIX, _along("max", 0)),
    Case("row_statistics", _MATRIX, _statistics),
    Case("row_norm", _MATRIX, _norm),
    Case("row_norm", _MATRIX | {"order": 0}, _norm),
    Case("reduction", _TENSOR | {"over": "ac"}, _reduction),
    Case("reduction", _TENSOR | {"over": "b", "kind": "prod"}, _reduction),
    Case("reduction", _TENSOR | {"over": "ab", "kind": "max", "dtype": "i32"}, _reduction),
    Case("reduction", _TENSOR | {"over": "bc", "kind": "min", "dtype": "bf16"}, _reduction),
    Case("reduction", _TENSOR | {"over": "abc", "kind": "mean"}, _reduction),
    Case("reduction", _TENSOR | {"over": "ac", "kind": "variance"}, _reduction),
    Case("reduction", _TENSOR | {"over": "abc", "kind": "norm"}, _reduction),
)
