"""References of products with coded weights: codes are taken out of bytes one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs

_NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
]  # fmt: skip
_FP4 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]
_TERNARY = [0, 1, -2, -1]  # two's complement of two bits


def _decoded(octets: Array, values: Sequence[float], bits: int) -> Array:
    """Rows of numbers of the codes in rows of bytes."""
    rows = octets.reshape(len(octets), -1)
    each = 8 // bits
    found = np.empty((len(rows), rows.shape[1] * each))
    for place in range(each):
        found[:, place::each] = np.asarray(values)[rows // 2 ** (bits * place) % 2**bits]
    return found


def _spread(scale: Array, k: int) -> Array:
    return np.repeat(scale, k // scale.shape[1], axis=1)


def _nf4(x: Inputs, m: int, k: int, **_: Any) -> Array:
    """A table of f32, as weights in f32 have it."""
    table = [float(np.float32(value)) for value in _NF4]
    weights = _decoded(x["W"], table, 4) * _spread(x["scale"], k)
    return np.asarray(x["A"].reshape(m, k) @ weights.T)


def _mxfp4(x: Inputs, m: int, k: int, **_: Any) -> Array:
    return np.asarray(x["A"].reshape(m, k) @ (_decoded(x["W"], _FP4, 4) * _spread(x["scale"], k)).T)


def _mx(x: Inputs, m: int, k: int, dtype: str = "e4m3", **_: Any) -> Array:
    a = _decoded(x["A"], _FP4, 4) if dtype == "e2m1" else x["A"].reshape(m, k)
    w = _decoded(x["W"], _FP4, 4) * _spread(x["scale_w"], k)
    return np.asarray(a * _spread(x["scale_a"], k) @ w.T)


def _w2a8(x: Inputs, m: int, k: int, **_: Any) -> Array:
    whole = x["A"].reshape(m, k) @ _decoded(x["W"], _TERNARY, 2).astype(np.int64).T
    return np.asarray(whole * np.outer(x["scale_a"], x["scale_w"]))


_ODD: dict[str, Any] = {"m": 9, "n": 21, "k": 96}
CASES = (
    Case("nf4_matmul", _ODD | {"group": 16}, _nf4),
    Case("nf4_matmul", {"m": 32, "n": 24, "k": 128, "dtype": "f16"}, _nf4),
    Case("mxfp4_matmul", _ODD, _mxfp4),
    Case("mxfp4_matmul", {"m": 17, "n": 16, "k": 24, "group": 6, "dtype": "f32"}, _mxfp4),
    Case("mx_matmul", _ODD, _mx),
    Case("mx_matmul", _ODD | {"dtype": "e2m1", "out": "f32"}, _mx),
    Case("w2a8_matmul", {"m": 9, "n": 33, "k": 76}, _w2a8),
    Case("w2a8_matmul", {"m": 16, "n": 32, "k": 128, "out": "f32"}, _w2a8),
)
