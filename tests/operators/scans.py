"""Scans: element by element, as their definitions say."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs

_STEP: dict[str, Callable[[float, float], float]] = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "max": max,
    "min": min,
}
_NOTHING = {"sum": 0, "prod": 1, "max": -np.inf, "min": np.inf}


def _row(row: Array, kind: str, exclusive: bool) -> list[float]:
    found, state = [], _NOTHING[kind]
    for element in row:
        before, state = state, _STEP[kind](state, element)
        found.append(before if exclusive else state)
    return found


def _scan(
    x: Inputs, kind: str = "sum", exclusive: bool = False, backward: bool = False, **_: object
) -> Array:
    rows = [row[::-1] if backward else row for row in x["X"]]
    found = np.array([_row(row, kind, exclusive) for row in rows])
    return found[:, ::-1] if backward else found


def _columns(x: Inputs, kind: str = "sum", **_: object) -> Array:
    return np.array([_row(column, kind, False) for column in x["X"].T]).T


def _recurrence(x: Inputs, **_: object) -> Array:
    h, found = np.zeros_like(x["x"][:, 0]), []
    for t in range(x["x"].shape[1]):
        h = x["a"][:, t] * h + x["x"][:, t]
        found.append(h)
    return np.stack(found, axis=1)


def _welford(x: Inputs, **_: object) -> Mapping[str, Array]:
    return {"mean": x["X"].mean(1), "variance": x["X"].var(1)}


def _running(x: Inputs, n: int, **_: object) -> Mapping[str, Array]:
    parts = [x["X"][:, : last + 1] for last in range(n)]
    mean, variance = ([f(part, axis=1) for part in parts] for f in (np.mean, np.var))
    return {"mean": np.stack(mean, 1), "variance": np.stack(variance, 1)}


def _logsumexp(x: Inputs, **_: object) -> Array:
    return np.asarray(np.log(np.exp(x["X"]).sum(1)))


def _logcumsumexp(x: Inputs, **_: object) -> Array:
    return np.asarray(np.log(np.exp(x["X"]).cumsum(1)))


_SMALL = {"m": 7, "n": 53}
CASES = (
    Case("scan", _SMALL, _scan),
    Case("scan", _SMALL | {"kind": "max", "backward": True, "dtype": "bf16"}, _scan),
    Case("scan", _SMALL | {"exclusive": True, "dtype": "i32"}, _scan),
    Case("scan", _SMALL | {"kind": "prod", "exclusive": True, "backward": True}, _scan),
    Case("scan", {"m": 1, "n": 1, "kind": "min"}, _scan),
    Case("column_scan", {"m": 31, "n": 9}, _columns),
    Case("column_scan", {"m": 31, "n": 9, "kind": "min", "dtype": "i8"}, _columns),
    Case("linear_recurrence", {"b": 2, "t": 37, "d": 5}, _recurrence),
    Case("linear_recurrence", {"b": 1, "t": 8, "d": 3, "dtype": "bf16"}, _recurrence),
    Case("welford", _SMALL, _welford),
    Case("running_statistics", {"m": 5, "n": 23}, _running, close=1e-8),
    Case("logsumexp", _SMALL, _logsumexp),
    Case("logcumsumexp", {"m": 5, "n": 23, "dtype": "bf16"}, _logcumsumexp),
)
