"""Sparse products: as dense ones with matrices filled from their lists of tiles."""

from __future__ import annotations

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs


def _blocked(x: Inputs, m: int, n: int, k: int, block: int, **_: object) -> Array:
    left = np.zeros((m // block, block, k // block, block))
    for row, columns in enumerate(x["column"]):
        for place, column in enumerate(columns):
            left[row, :, column] += x["A"][row, place]
    return (left.reshape(m, k) @ x["B"].reshape(k, n)).reshape(-1, block, n)


def _bsr(x: Inputs, m: int, n: int, k: int, block: int, longest: int, **_: object) -> Array:
    left = np.zeros((m // block, block, k // block, block))
    for row in range(m // block):
        first, last = x["pointer"][row], x["pointer"][row + 1]
        for place in range(first, min(last, first + longest)):
            left[row, :, x["column"][place]] += x["A"][place]
    return (left.reshape(m, k) @ x["B"].reshape(k, n)).reshape(-1, block, n)


def _sampled(x: Inputs, m: int, n: int, k: int, block: int, **_: object) -> Array:
    whole = x["A"].reshape(m, k) @ x["B"].reshape(n, k).T
    tiles = whole.reshape(m // block, block, n // block, block).swapaxes(1, 2)
    return tiles[x["row"], x["column"]]


def _tile_wise(x: Inputs, m: int, n: int, k: int, block: int, **_: object) -> Array:
    right = np.zeros((k, n // block, block))
    for column, rows in enumerate(x["row"]):
        np.add.at(right[:, column], rows, x["B"][column])
    return (x["A"] @ right.reshape(k, n)).reshape(m, -1, block)


_SIZES = {"m": 24, "n": 19, "k": 48, "block": 8}
_WIDE = {"m": 64, "n": 72, "k": 128, "block": 32, "dtype": "bf16"}
CASES = (
    Case("blocked_sparse_matmul", _SIZES | {"tiles": 3}, _blocked),
    Case("blocked_sparse_matmul", _WIDE | {"tiles": 2}, _blocked),
    Case("bsr_matmul", _SIZES | {"tiles": 10, "longest": 6}, _bsr),
    Case("bsr_matmul", _WIDE | {"tiles": 5, "longest": 3}, _bsr),
    Case("sampled_matmul", {"m": 24, "n": 40, "k": 13, "tiles": 7, "block": 8}, _sampled),
    Case("tile_wise_matmul", {"m": 9, "n": 24, "k": 40, "kept": 11, "block": 8}, _tile_wise),
    Case("tile_wise_matmul", {"m": 33, "n": 64, "k": 96, "kept": 48, "block": 32,
                              "dtype": "bf16"}, _tile_wise),
)  # fmt: skip
