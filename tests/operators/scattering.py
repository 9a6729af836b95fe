"""What is scattered: by loops over the elements."""

from __future__ import annotations

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs


def _histogram(x: Inputs, bins: int, **_: object) -> Array:
    return np.array([[(row == b).sum() for b in range(bins)] for row in x["X"]])


def _weighted(x: Inputs, bins: int, **_: object) -> Array:
    return np.array([x["W"][x["X"] == b].sum() for b in range(bins)])


def _edges(x: Inputs, bins: int, **_: object) -> Array:
    ends = zip(x["edge"][:-1], x["edge"][1:], strict=True)
    return np.array([((low <= x["X"]) & (x["X"] < high)).sum() for low, high in ends])


def _segments(x: Inputs, segments: int, **_: object) -> Array:
    return np.stack([x["X"][x["segment"] == s].sum(0) for s in range(segments)])


def _means(x: Inputs, segments: int, **_: object) -> Array:
    parts = [x["X"][x["segment"] == s] for s in range(segments)]
    return np.stack([part.mean(0) if len(part) else part.sum(0) for part in parts])


def _scatter(x: Inputs, kind: str = "sum", **_: object) -> Array:
    step = {"sum": np.add, "max": np.maximum, "min": np.minimum}[kind]
    found = x["base"].copy()
    for row, place in zip(x["X"], x["index"], strict=True):
        found[place] = step(found[place], row)
    return found


def _embedding(x: Inputs, rows: int, padding: int = -1, **_: object) -> Array:
    found = np.zeros((rows, x["dY"].shape[1]))
    for row, place in zip(x["dY"], x["index"], strict=True):
        found[place] += 0 if place == padding else row
    return found


_ROWS = {"m": 23, "rows": 11, "d": 6}
_SEGMENTS = {"m": 31, "segments": 9, "d": 6}
CASES = (
    Case("histogram", {"m": 3, "n": 101, "bins": 16}, _histogram),
    Case("histogram", {"m": 1, "n": 257, "bins": 256, "dtype": "u8"}, _histogram),
    Case("weighted_histogram", {"n": 101, "bins": 16}, _weighted),
    Case("histogram_edges", {"n": 101, "bins": 7}, _edges),
    Case("segment_sum", _SEGMENTS, _segments),
    Case("segment_sum", {"m": 5, "segments": 40, "d": 1, "dtype": "bf16"}, _segments),
    Case("segment_mean", _SEGMENTS, _means),
    Case("scatter", _ROWS, _scatter),
    Case("scatter", _ROWS | {"kind": "max", "dtype": "bf16"}, _scatter),
    Case("scatter", _ROWS | {"kind": "min", "dtype": "i32"}, _scatter),
    Case("embedding_backward", _ROWS, _embedding),
    Case("embedding_backward", _ROWS | {"padding": 3, "dtype": "bf16"}, _embedding),
)
