"""Selections: by sorting whole rows in Python."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs


def _first(x: Inputs, best: float) -> Array:
    return np.array([min(range(len(row)), key=lambda i: (best * row[i], i)) for row in x["X"]])


def _argmax(x: Inputs, **_: object) -> Array:
    return _first(x, -1)


def _argmin(x: Inputs, **_: object) -> Array:
    return _first(x, 1)


def _ordered(rows: Array, k: int, least: bool) -> tuple[Array, Array]:
    sign = 1 if least else -1
    order = [sorted(range(len(row)), key=lambda i: (sign * row[i], i))[:k] for row in rows]
    index = np.array(order)
    return np.take_along_axis(rows, index, 1), index


def _top(x: Inputs, k: int, least: bool = False, **_: object) -> Mapping[str, Array]:
    return dict(zip(("Y", "index"), _ordered(x["X"], k, least), strict=True))


def _sorted(x: Inputs, n: int, **_: object) -> Mapping[str, Array]:
    return dict(zip(("Y", "index"), _ordered(x["X"], n, True), strict=True))


def _mask(x: Inputs, k: int, **_: object) -> Array:
    kept = np.stack([np.where(row >= sorted(row)[-k], row, 0) for row in x["P"]])
    return np.asarray(kept / kept.sum(1, keepdims=True))


def _nearest(x: Inputs, k: int, **_: object) -> Mapping[str, Array]:
    squares = np.array([[((a - b) ** 2).sum() for b in x["y"]] for a in x["x"]])
    return dict(zip(("square", "index"), _ordered(squares, k, True), strict=True))


_SMALL = {"m": 7, "n": 53}
_POINTS = {"n": 17, "m": 31, "d": 5, "k": 3}
CASES = (
    Case("argmax", _SMALL, _argmax),
    Case("argmax", {"m": 3, "n": 200, "dtype": "i8"}, _argmax),
    Case("argmin", _SMALL | {"dtype": "bf16"}, _argmin),
    Case("top_k", _SMALL | {"k": 5}, _top),
    Case("top_k", {"m": 3, "n": 200, "k": 31, "least": True, "dtype": "i8"}, _top),
    Case("top_k", {"m": 2, "n": 1, "k": 1}, _top),
    Case("sort_rows", {"m": 5, "n": 29, "dtype": "bf16"}, _sorted),
    Case("top_k_mask", _SMALL | {"k": 5}, _mask),
    Case("nearest", _POINTS, _nearest),
    Case("nearest", _POINTS | {"expand": True}, _nearest),
)
