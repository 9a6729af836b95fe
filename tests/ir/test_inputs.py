"""Random inputs: many numbers are drawn by threads, and are the same in every run."""

from __future__ import annotations

import numpy as np
import pytest

from ir import load_operator
from ir.dtypes import to_float
from ir.inputs import random_inputs


@pytest.mark.parametrize("dtype", ["f32", "bf16", "e4m3"])
def test_many_numbers_are_normal_and_the_same_again(dtype: str) -> None:
    program = load_operator("softmax").build(m=700, n=1500, dtype=dtype)
    (first,), (again,), (other,) = (
        random_inputs(program, np.random.default_rng(seed)).values() for seed in (5, 5, 6)
    )
    assert first.shape == (700, 1500)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    values = to_float(first, dtype).reshape(-1)
    assert abs(values.mean()) < 0.01
    assert abs(values.std() - 1) < 0.01
    if dtype == "f32":
        assert len(np.unique(values)) > 0.9 * values.size
