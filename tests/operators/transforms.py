"""Transforms: Hadamard's by its recursive matrix, Fourier's by numpy's."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs


def _hadamard(x: Inputs, n: int, **_: object) -> Array:
    matrix = np.ones((1, 1))
    while len(matrix) < n:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    rows = x["X"].reshape(-1, n)
    return np.asarray((rows @ matrix / np.sqrt(n)).reshape(x["X"].shape))


def _dft(x: Inputs, **_: object) -> Mapping[str, Array]:
    value = np.fft.fft(x["X_re"] + 1j * x["X_im"])
    return {"Y_re": value.real, "Y_im": value.imag}


CASES = (
    Case("hadamard", {"m": 5, "n": 64}, _hadamard),
    Case("hadamard", {"m": 3, "n": 32, "dtype": "bf16"}, _hadamard),
    Case("dft", {"m": 5, "n": 30}, _dft),
)
