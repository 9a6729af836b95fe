"""Transforms: Fourier's by numpy's, Hadamard's by the recursive matrix."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs


def _fft(x: Inputs, n: int, **_: object) -> Mapping[str, Array]:
    found = np.fft.fft((x["X_re"] + 1j * x["X_im"]).reshape(-1, 1, n))
    return {"Y_re": found.real, "Y_im": found.imag}


def _hadamard(x: Inputs, n: int, **_: object) -> Array:
    matrix = np.ones((1, 1))
    while len(matrix) < n:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return np.asarray(x["X"] @ matrix / np.sqrt(n))


CASES = (
    Case("fft", {"m": 3, "n": 16}, _fft),
    Case("fft", {"m": 2, "n": 1}, _fft),
    Case("hadamard_steps", {"m": 5, "n": 32}, _hadamard),
    Case("hadamard_steps", {"m": 1, "n": 8, "dtype": "bf16"}, _hadamard),
)
