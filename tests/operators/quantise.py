"""Quantisation: scales by the largest, numbers to the nearest step."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs

_LARGEST = {"i8": 127, "e4m3": 448}


def narrowed(value: Array, dims: int | tuple[int, ...] | None, out: str) -> dict[str, Array]:
    """`Y` in steps of `scale`, the largest along `dims` being the largest of the type."""
    scale = np.max(np.abs(value), axis=dims, keepdims=True) / _LARGEST[out]
    steps = value / scale
    whole = np.rint(steps).astype(np.int64) if out == "i8" else steps
    return {"Y": whole, "scale": np.squeeze(scale, axis=dims)}


def _tensor(x: Inputs, out: str = "i8", **_: object) -> Mapping[str, Array]:
    return narrowed(x["X"], None, out)


def _rows(x: Inputs, out: str = "i8", **_: object) -> Mapping[str, Array]:
    return narrowed(x["X"], 1, out)


def _blocks(x: Inputs, out: str = "e4m3", **_: object) -> Mapping[str, Array]:
    return narrowed(x["X"], 2, out)


def _squares(x: Inputs, out: str = "e4m3", **_: object) -> Mapping[str, Array]:
    return narrowed(x["X"], (1, 3), out)


def _dequantised(x: Inputs, **_: object) -> Array:
    return np.asarray(np.einsum("mn,m->mn", x["X"], x["scale"]))


def _of_blocks(x: Inputs, block: int, n: int, **_: object) -> Array:
    wide = np.repeat(x["scale"], block, axis=1)
    return np.asarray((x["X"].reshape(-1, n) * wide).reshape(x["X"].shape))


def _of_squares(x: Inputs, block: int, n: int, **_: object) -> Array:
    wide = np.repeat(np.repeat(x["scale"], block, axis=0), block, axis=1)
    return np.asarray((x["X"].reshape(-1, n) * wide).reshape(x["X"].shape))


_ROWS = {"m": 7, "n": 65}
_BLOCKS = {"m": 5, "n": 96, "block": 32}
_SQUARES = {"m": 24, "n": 36, "block": 12}
CASES = (
    Case("quantise_tensor", _ROWS, _tensor),
    Case("quantise_rows", _ROWS, _rows),
    Case("quantise_rows", _ROWS | {"out": "e4m3", "dtype": "bf16"}, _rows),
    Case("quantise_blocks", _BLOCKS, _blocks),
    Case("quantise_blocks", _BLOCKS | {"out": "i8"}, _blocks),
    Case("quantise_squares", _SQUARES, _squares),
    Case("dequantise_rows", _ROWS, _dequantised),
    Case("dequantise_blocks", _BLOCKS, _of_blocks),
    Case("dequantise_squares", _SQUARES | {"out": "bf16"}, _of_squares),
)
