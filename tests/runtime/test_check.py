"""Bounds around the oracle's values, poison, sampling of large outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from explorer.check import Bounds, poison, tolerance
from explorer.expectation import (
    ExpectationMaker,
    reduction_length,
    references,
    roundings,
    sample_axes,
)
from ir import Graph, absolute, cast, contract, load_operator, operator, reduce, relu, where
from ir.dtypes import DTYPES, from_float, numpy_dtype
from ir.inputs import random_inputs
from ir.ops.base import Rounding
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


@operator
def two_products(g: Graph, m: int, n: int, k: int) -> None:
    """Rounded to bf16 on the way, stored as f32."""
    rows, hidden, depth, out = g.axes(m=m, n=n, k=k, o=k)
    x, w = g.input("X", (rows, depth), "bf16"), g.input("W", (depth, hidden), "bf16")
    h = relu(contract(x, w, over=depth))
    g.output("Y", contract(cast(h, "bf16"), g.input("U", (hidden, out), "bf16"), over=hidden))


@operator
def quantised(g: Graph, m: int, n: int) -> None:
    """Rows as i8 with a scale for each, and which elements are positive."""
    rows, columns = g.axes(m=m, n=n)
    x = g.input("X", (rows, columns), "f32")
    scaled = x / (reduce("max", absolute(x), columns) / 127.0)
    g.output("Q", cast(scaled + where(x >= 0.0, 0.5, -0.5), "i8"))
    g.output("P", cast(where(x >= 0.0, 1.0, 0.0), "i8"))


def test_what_a_program_rounds_on_its_way_is_admitted_and_no_more() -> None:
    program = two_products.build(m=40, n=200, k=30)
    inputs = random_inputs(program, np.random.default_rng(0))
    exact, rounded = (found["Y"] for found in references(program, inputs))
    output = rounded.astype(np.float32)
    assert not Bounds.around(exact, "f32", 200, None).judge(output).right
    bounds = Bounds.around(exact, "f32", 200, None, [rounded])
    assert bounds.judge(output).right
    assert bounds.judge(exact.astype(np.float32)).right
    output[7, 9] += 0.02 * bounds.scale
    assert "1 of 1200 elements wrong, first at [7, 9]" in bounds.judge(output).detail


def test_truncation_beside_a_whole_number_may_go_either_way() -> None:
    program = quantised.build(m=64, n=1000)
    inputs = random_inputs(program, np.random.default_rng(0))
    exact, *moved = references(program, inputs)
    of_q, of_p = (
        Bounds.around(exact[name], "i8", 1000, None, [found[name] for found in moved])
        for name in "QP"
    )
    loose = of_q.low != of_q.high
    assert 0 < loose.sum() < 0.01 * loose.size
    assert (of_p.low == of_p.high).all()  # whole numbers are exact
    for bound in (of_q.low, of_q.high):
        assert of_q.judge(bound).right
    assert not of_q.judge((of_q.high + loose).astype(np.int8)).right
    assert not of_q.judge(np.where(loose, of_q.low, of_q.low - 1).astype(np.int8)).right


def test_roundings_are_those_that_others_than_outputs_see() -> None:
    def of(name: str, **arguments: object) -> tuple[Rounding, ...]:
        return roundings(load_operator(name).build(**arguments))

    assert of("matmul", m=8, n=8, k=8, dtype="bf16") == ()
    assert of("softmax", m=8, n=8) == ()
    assert of("matmul", m=8, n=8, k=8, dtype="tf32") == (Rounding(),)
    assert of("attention", b=1, heads=1, sq=8, d=8, dtype="bf16") == (Rounding(),)
    down, up = roundings(quantised.build(m=4, n=16))
    assert down.shift == -up.shift == pytest.approx(-8e-6)


def test_an_expectation_knows_the_roundings(tmp_path: Path) -> None:
    program = quantised.build(m=64, n=1000)
    made = ExpectationMaker(program, 1, str(tmp_path)).make()
    bounds = made.bounds(1, made.outputs[0])
    assert (bounds.low < bounds.high).any()


def test_a_scalar_has_bounds() -> None:
    bounds = Bounds.around(np.asarray(-np.inf), "f32", 4, None)
    assert bounds.judge(np.asarray(-np.inf, np.float32)).right
    assert not bounds.judge(np.asarray(0.0, np.float32)).right


def test_bounds_end_where_the_type_does() -> None:
    """What is near the largest number may be infinite, or, in e4m3, that number."""
    for dtype, near, found in (("f16", 65500.0, np.inf), ("e4m3", 448.0, 448.0)):
        bounds = Bounds.around(np.array([near, 1.0, np.nan]), dtype, 1, None)
        assert bounds.judge(from_float(np.array([found, 1.0, np.nan]), dtype)).right
        assert not bounds.judge(from_float(np.array([found, 1.0, 1.0]), dtype)).right
        assert not bounds.judge(from_float(np.array([1.0, 1.0, np.nan]), dtype)).right
    scalar = Bounds.around(np.asarray(2.0), "f32", 1, None)
    assert scalar.judge(np.asarray(2.0, np.float32)).right
