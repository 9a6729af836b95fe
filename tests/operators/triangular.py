"""Solves and factors: by numpy's own, of matrices made whole from the triangle that counts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs


def _solve(x: Inputs, upper: bool = False, **_: object) -> Array:
    matrix = np.triu(x["L"]) if upper else np.tril(x["L"])
    return np.linalg.solve(matrix, x["B"])


def _inverse(x: Inputs, n: int, **_: object) -> Array:
    return np.asarray(np.linalg.inv(np.tril(x["L"], -1) + np.eye(n)))


def _cholesky(x: Inputs, **_: object) -> Array:
    lower = np.tril(x["A"])
    whole = lower + np.swapaxes(np.tril(x["A"], -1), -1, -2)
    return np.linalg.cholesky(whole)


def _power(x: Inputs, steps: int, **_: object) -> Mapping[str, Array]:
    v = x["first"]
    for _step in range(steps):
        image = x["A"] @ v
        v = image / np.linalg.norm(image)
    return {"v": v, "value": np.asarray(v @ x["A"] @ v)}


CASES = (
    Case("triangular_solve", {"batch": 3, "n": 7, "columns": 4}, _solve),
    Case("triangular_solve", {"batch": 2, "n": 5, "columns": 3, "upper": True}, _solve),
    Case("triangular_solve", {"batch": 1, "n": 1, "columns": 1}, _solve),
    Case("triangular_inverse", {"batch": 3, "n": 7}, _inverse),
    Case("cholesky", {"batch": 3, "n": 6}, _cholesky),
    Case("cholesky", {"batch": 1, "n": 1}, _cholesky),
    Case("power_iteration", {"n": 9, "steps": 5}, _power),
)
