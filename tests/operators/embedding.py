"""Embeddings: each bag by itself."""

from __future__ import annotations

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs


def _bag(rows: Array, mode: str) -> Array:
    if mode == "sum" or len(rows) == 0:
        return np.asarray(rows.sum(0))
    return np.asarray(rows.mean(0))


def _embedding(x: Inputs, **_: object) -> Array:
    return x["table"][x["index"]]


def _bags(x: Inputs, mode: str = "sum", **_: object) -> Array:
    return np.stack([_bag(x["table"][places], mode) for places in x["index"]])


def _padded(x: Inputs, mode: str = "sum", **_: object) -> Array:
    pairs = zip(x["index"], x["length"], strict=True)
    return np.stack([_bag(x["table"][places[:size]], mode) for places, size in pairs])


def _ragged(x: Inputs, longest: int, mode: str = "sum", **_: object) -> Array:
    ends = zip(x["offset"][:-1], x["offset"][1:], strict=True)
    bags = [x["index"][first : min(last, first + longest)] for first, last in ends]
    return np.stack([_bag(x["table"][places], mode) for places in bags])


_TABLE = {"m": 9, "rows": 40, "d": 10}
CASES = (
    Case("embedding", {"m": 13, "rows": 40, "d": 10, "dtype": "bf16"}, _embedding),
    Case("embedding_bag", _TABLE | {"bag": 5}, _bags),
    Case("embedding_bag", _TABLE | {"bag": 5, "mode": "mean", "dtype": "bf16"}, _bags),
    Case("padded_embedding_bag", _TABLE | {"bag": 5, "mode": "mean"}, _padded),
    Case("ragged_embedding_bag", _TABLE | {"total": 31, "longest": 8}, _ragged),
    Case("ragged_embedding_bag", _TABLE | {"total": 31, "longest": 3, "mode": "mean"}, _ragged),
)
