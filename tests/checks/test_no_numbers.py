"""NaNs of narrow floats are told by their bits."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.check import are_nan, widen
from ir.dtypes import numpy_dtype


@pytest.mark.parametrize("dtype", ["bf16", "f16", "e4m3", "e5m2", "e8m0"])
def test_every_pattern_of_a_narrow_float_is_told(dtype: str) -> None:
    storage = numpy_dtype(dtype)
    every = np.arange(1 << 8 * storage.itemsize, dtype=f"u{storage.itemsize}")
    flat = every.view(storage)
    found = are_nan(flat, dtype)
    with np.errstate(invalid="ignore"):
        assert found.tolist() == np.isnan(widen(flat, dtype)).tolist()
    assert found.any()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_wide_floats_are_told_as_ever(dtype: str) -> None:
    flat = np.array([0.0, np.inf, -np.inf, np.nan, 1.5], dtype=numpy_dtype(dtype))
    assert are_nan(flat, dtype).tolist() == [False, False, False, True, False]
