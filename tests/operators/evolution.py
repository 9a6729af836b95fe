"""Grids: each cell in a loop, with a border around."""

from __future__ import annotations

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs


def _diffusion(x: Inputs, steps: int, rate: float = 0.125, **_: object) -> Array:
    grid = x["X"]
    for _step in range(steps):
        around = np.pad(grid, 1)
        grid = np.array([[
            around[i, j]
            + rate * (around[i - 1, j] + around[i + 1, j] + around[i, j - 1] + around[i, j + 1]
                      - 4 * around[i, j])
            for j in range(1, grid.shape[1] + 1)] for i in range(1, grid.shape[0] + 1)
        ])  # fmt: skip
    return np.asarray(grid)


def _waves(x: Inputs, steps: int, speed: float = 0.5, **_: object) -> Array:
    u = previous = x["U"]
    found = []
    for _step in range(steps):
        held = np.pad(u, 1)
        bend = np.array([held[i - 1] + held[i + 1] - 2 * held[i] for i in range(1, len(u) + 1)])
        u, previous = 2 * u - previous + speed**2 * bend, u
        found.append(u)
    return np.stack(found)


def _life(x: Inputs, steps: int, **_: object) -> Array:
    grid = x["X"]
    for _step in range(steps):
        held, after = np.pad(grid, 1), np.zeros_like(grid)
        for i, j in np.ndindex(*grid.shape):
            around = held[i : i + 3, j : j + 3].sum() - grid[i, j]
            after[i, j] = around == 3 or (around == 2 and grid[i, j])
        grid = after
    return grid


CASES = (
    Case("diffusion", {"m": 9, "n": 13, "steps": 4}, _diffusion),
    Case("diffusion", {"m": 1, "n": 5, "steps": 1, "dtype": "bf16"}, _diffusion),
    Case("waves", {"n": 37, "steps": 6}, _waves),
    Case("life", {"m": 9, "n": 13, "steps": 5}, _life),
)
