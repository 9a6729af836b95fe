"""The polynomials behind the functions are as exact as their comments say."""

from __future__ import annotations

import numpy as np
import pytest

from ir.targets.cpu import mathlib


@pytest.mark.parametrize(
    ("series", "bound"),
    [(mathlib.EXP2, 8e-8), (mathlib.EXP2_F16, 2.7e-6), (mathlib.EXP2_BF16, 7.6e-5)],
)
def test_fractions_of_two(series: tuple[float, ...], bound: float) -> None:
    f = np.linspace(0, 1, 4097, endpoint=False)
    error = np.abs(np.polynomial.polynomial.polyval(f, series) / np.exp2(f) - 1)
    assert bound / 1.2 < error.max() < bound


def test_narrow_series_stay_below_half_a_last_place() -> None:
    """By at least a factor of eight: storing the result rounds off far more."""
    for dtype, bits in (("bf16", 8), ("f16", 11)):
        f = np.linspace(0, 1, 4097)
        value = np.polynomial.polynomial.polyval(f, mathlib.EXP2_FOR[dtype])
        assert np.abs(value / np.exp2(f) - 1).max() < 2.0**-bits / 2 / 8
