"""Least and largest of float64 that are scattered, by whole numbers, as a device has them."""

import numpy as np
import pytest

from ir.ops.scatter import extremes


@pytest.mark.parametrize("kind", ["min", "max"])
def test_they_are_those_of_floats_to_the_last_digit(kind: str) -> None:
    rng = np.random.default_rng(0)
    value = rng.standard_normal(4096) * 2.0 ** rng.integers(-1060, 1000, 4096)
    value[rng.integers(0, 4096, 64)] = [np.inf, -np.inf, 0.0, -0.0] * 16
    place = rng.integers(0, 97, 4096)
    value[place == 5] = np.where(np.arange((place == 5).sum()) == 3, np.nan, value[place == 5])
    start = np.full(100, {"min": np.inf, "max": -np.inf}[kind])
    want, have = start.copy(), start.copy()
    with np.errstate(invalid="ignore"):
        {"min": np.minimum, "max": np.maximum}[kind].at(want, place, value)
    assert extremes(np, kind, have, (place,), value) is have
    np.testing.assert_array_equal(have, want)
    assert np.isnan(have[5])
    assert have[99] == start[99]
