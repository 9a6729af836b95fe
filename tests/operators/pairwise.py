"""Kernel-vector products, by the whole matrix of distances."""

from __future__ import annotations

import math

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs


def _apart(x: Inputs) -> Array:
    """The differences of all pairs of points."""
    return np.asarray(x["x"][:, None, :] - x["y"][None, :, :])


def _distance(x: Inputs) -> Array:
    return np.asarray(np.linalg.norm(_apart(x), axis=2))


def _gaussian(x: Inputs, d: int, s: float = 0.0, **_: object) -> Array:
    return np.exp(-(_distance(x) ** 2) / (2 * (s or math.sqrt(d)) ** 2)) @ x["v"]


def _laplacian(x: Inputs, d: int, s: float = 0.0, **_: object) -> Array:
    return np.exp(-_distance(x) / (s or math.sqrt(d))) @ x["v"]


def _matern(x: Inputs, d: int, s: float = 0.0, halves: int = 3, **_: object) -> Array:
    t = math.sqrt(halves) * _distance(x) / (s or math.sqrt(d))
    factor = 1 + t + (t**2 / 3 if halves == 5 else 0)
    return (factor * np.exp(-t)) @ x["v"]


def _distances(x: Inputs, kind: str = "euclidean", **_: object) -> Array:
    if kind == "manhattan":
        return np.asarray(np.abs(_apart(x)).sum(2))
    return _distance(x) ** (1 if kind == "euclidean" else 2)


_POINTS = {"n": 33, "m": 21, "d": 3}
_PAIRS = {"n": 17, "m": 21, "d": 5}
CASES = (
    Case("gaussian", _POINTS, _gaussian),
    Case("gaussian", {"n": 40, "d": 24, "expand": True}, _gaussian),
    Case("laplacian", _POINTS, _laplacian),
    Case("laplacian", {"n": 19, "d": 4, "s": 0.5}, _laplacian),
    Case("matern", _POINTS, _matern),
    Case("matern", _POINTS | {"halves": 5, "s": 1.5}, _matern),
    Case("distances", _PAIRS, _distances),
    Case("distances", _PAIRS | {"kind": "manhattan"}, _distances),
    Case("distances", _PAIRS | {"kind": "expanded", "d": 32}, _distances),
)
