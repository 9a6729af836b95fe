"""Stencils, by grids that are shifted whole."""

from __future__ import annotations

import itertools

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs


def _shifted(x: Array, shifts: tuple[int, ...]) -> Array:
    """x[i + shift], 0 where that is outside."""
    wide = np.pad(x, 1)
    cut = tuple(slice(1 + s, 1 + s + n) for s, n in zip(shifts, x.shape, strict=True))
    return wide[cut]


def _star(x: Inputs, rate: float) -> Array:
    grid = x["X"]
    result = grid * (1 - 2 * grid.ndim * rate)
    for dim, step in itertools.product(range(grid.ndim), (-1, 1)):
        shifts = tuple(step if d == dim else 0 for d in range(grid.ndim))
        result = result + rate * _shifted(grid, shifts)
    return np.asarray(result)


def _line(x: Inputs, rate: float = 0.25, **_: object) -> Array:
    return _star(x, rate)


def _plane(x: Inputs, rate: float = 0.125, **_: object) -> Array:
    return _star(x, rate)


def _space(x: Inputs, rate: float = 0.1, **_: object) -> Array:
    return _star(x, rate)


def _box(x: Inputs, **_: object) -> Array:
    places = itertools.product((-1, 0, 1), repeat=2)
    parts = [_shifted(x["X"], (i, j)) * ((2 - abs(i)) * (2 - abs(j)) / 16) for i, j in places]
    return np.asarray(np.sum(parts, axis=0))


CASES = (
    Case("stencil_1d", {"n": 131}, _line),
    Case("stencil_2d", {"m": 13, "n": 37}, _plane),
    Case("stencil_2d", {"m": 1, "n": 19, "rate": 0.2, "dtype": "bf16"}, _plane),
    Case("stencil_2d_box", {"m": 13, "n": 37}, _box),
    Case("stencil_3d", {"d": 5, "m": 7, "n": 19}, _space),
)
