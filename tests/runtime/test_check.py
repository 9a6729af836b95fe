"""Bounds around the oracle's values, poison, sampling of large outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from explorer.check import Bounds, poison, tolerance
from explorer.expectation import ExpectationMaker, reduction_length, sample_axes
from ir.dtypes import DTYPES, from_float, numpy_dtype
from ir.registry import load_operator
from tests.runtime.fake_backend import PROGRAM

FLOATS = ("f64", "f32", "f16", "bf16")


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding_is_admitted_and_a_wrong_element_is_named(dtype: str) -> None:
    reference = np.random.default_rng(0).standard_normal((5, 7))
    bounds = Bounds.around(reference.copy(), dtype, 64, None)
    output = from_float(reference, dtype)
    assert bounds.judge(output).right
    output[3, 2] = from_float(reference[3, 2:3] + 0.3, dtype)[0]
    verdict = bounds.judge(output)
    assert "1 of 35 elements wrong, first at [3, 2]" in verdict.detail
    assert verdict.error > tolerance(dtype, 64)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_poison_is_never_right(dtype: str) -> None:
    output = np.zeros((4, 4), numpy_dtype(dtype))
    poison(output, dtype)
    verdict = Bounds.around(np.zeros((4, 4)), dtype, 1, None).judge(output)
    assert "16 never written" in verdict.detail


def test_integers_are_exact() -> None:
    reference = np.arange(12).reshape(3, 4)
    bounds = Bounds.around(reference, "i32", 4096, None)
    assert bounds.judge(reference.astype(np.int32)).right
    assert not bounds.judge((reference + (reference == 7)).astype(np.int32)).right


def test_expected_nan_and_infinity_are_right() -> None:
    reference = np.array([1.0, np.nan, np.inf, -np.inf])
    bounds = Bounds.around(reference.copy(), "f32", 1, None)
    assert bounds.judge(reference.astype(np.float32)).right
    assert not bounds.judge(np.array([1.0, 0.0, np.inf, -np.inf], np.float32)).right
    assert not bounds.judge(np.array([1.0, np.nan, 3e38, -np.inf], np.float32)).right


def test_sampled_output_is_judged_where_known_and_scanned_for_nan() -> None:
    whole = np.arange(64.0).reshape(8, 8)
    picks = ((0, 3, 7), (1, 7))
    bounds = Bounds.around(whole[np.ix_(*picks)], "f32", 1, picks)
    output = whole.astype(np.float32)
    assert bounds.judge(output).right
    output[5, 5] = np.nan
    assert "1 of 64 elements are NaN" in bounds.judge(output).detail
    output[3, 7] = 0
    assert "first at [3, 7]" in bounds.judge(output).detail


def test_small_programs_are_checked_whole_and_large_ones_by_strata() -> None:
    matmul = load_operator("matmul")
    rng = np.random.default_rng(0)
    assert sample_axes(matmul.build(m=64, n=64, k=64), rng) == {}
    large = matmul.build(m=4096, n=4096, k=4096)
    assert reduction_length(large) == 4096
    picked = sample_axes(large, rng)
    assert set(picked) == {"m", "n"}
    for indices in picked.values():
        assert {0, 1, 4094, 4095} <= set(indices.tolist())
        assert len(np.unique(indices // 64)) == 64
    assert len(picked["m"]) * len(picked["n"]) * 4096 * 2 < 1.5e10


def test_expectation_holds_two_sets(tmp_path: Path) -> None:
    made = ExpectationMaker(PROGRAM, 3, str(tmp_path)).make()
    for number in range(2):
        given = made.input(number, "A")
        bounds = made.bounds(number, made.outputs[0])
        assert bounds.judge((2 * given).astype(np.float32)).right
    assert not np.array_equal(made.input(0, "A"), made.input(1, "A"))
