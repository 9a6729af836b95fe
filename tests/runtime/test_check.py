"""Bounds around the oracle's answers, what they admit and refuse; poison, samples of outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.afforded import HOST, Means, sample_axes
from explorer.check import TURNS, Bounds, poison, widen
from explorer.errors import Uncheckable
from explorer.expectation import ExpectationMaker, Recipe
from ir import (
    Graph,
    absolute,
    cast,
    contract,
    exp,
    load_operator,
    log,
    operator,
    reduce,
    relu,
    sigmoid,
    uniform,
    where,
)
from ir.dtypes import WHOLE_BYTES, from_float, is_float, numpy_dtype, rounded, to_float
from ir.inputs import drawn_inputs
from ir.oracle import Answer, evaluate
from tests.judging import bounds_of, exactly
from tests.runtime.fake_backend import PROGRAM

FLOATS = ("f64", "f32", "tf32", "f16", "bf16", "e4m3", "e5m2")


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding_is_admitted_and_a_wrong_element_is_named(dtype: str) -> None:
    reference = np.random.default_rng(0).standard_normal((5, 7))
    bounds = exactly(reference, dtype)
    output = from_float(reference, dtype)
    assert bounds.judge(output).right
    output[3, 2] = from_float(reference[3, 2:3] + 0.3, dtype)[0]
    verdict = bounds.judge(output)
    assert "1 of 35 elements wrong, first at [3, 2]" in verdict.detail
    assert verdict.error > 0.05


@pytest.mark.parametrize("dtype", FLOATS)
def test_one_rounding_is_all_that_is_admitted(dtype: str) -> None:
    reference = np.random.default_rng(4).standard_normal(4000)
    reference = reference[np.abs(reference) > 0.02]  # normal numbers of e4m3
    bounds, right = exactly(reference, dtype), from_float(reference, dtype)
    assert bounds.judge(right).right
    value = widen(right, dtype).astype(np.float64)
    steps = {"f64": -51, "f32": -22, "tf32": -9, "f16": -9, "bf16": -6, "e4m3": -2, "e5m2": -1}
    step = 2.0 ** steps[dtype]
    other = from_float(value * (1 + step), dtype)
    assert f"{other.size} of {other.size} elements wrong" in bounds.judge(other).detail


@pytest.mark.parametrize("dtype", sorted(WHOLE_BYTES))
def test_poison_is_never_right(dtype: str) -> None:
    output = np.zeros((4, 4), numpy_dtype(dtype))
    poison(output, dtype)
    verdict = exactly(np.zeros((4, 4), bool if dtype == "bool" else float), dtype).judge(output)
    assert "16 never written" in verdict.detail


def test_integers_are_exact() -> None:
    reference = np.arange(12).reshape(3, 4)
    bounds = exactly(reference, "i32")
    assert bounds.judge(reference.astype(np.int32)).right
    assert not bounds.judge((reference + (reference == 7)).astype(np.int32)).right


def test_expected_nan_and_infinity_are_right() -> None:
    reference = np.array([1.0, np.nan, np.inf, -np.inf])
    bounds = exactly(reference, "f32")
    assert bounds.judge(reference.astype(np.float32)).right
    assert not bounds.judge(np.array([1.0, 0.0, np.inf, -np.inf], np.float32)).right
    assert not bounds.judge(np.array([1.0, np.nan, 3e38, -np.inf], np.float32)).right


def test_what_overflows_on_the_way_to_infinity_may_be_anything() -> None:
    """x / x of numbers whose squares are too large is 1 by the program, and NaN by a kernel."""
    value = np.array([np.inf, -np.inf, np.inf, 1.0])
    reach = np.array([np.inf, np.inf, 0.0, 0.0], np.float32)
    bounds = Bounds.around(Answer(value, reach), "f32")
    nan = np.float32(np.nan)
    assert bounds.judge(np.array([nan, np.inf, np.inf, 1.0], np.float32)).right
    assert bounds.judge(np.array([3.0, nan, np.inf, 1.0], np.float32)).right
    assert not bounds.judge(np.array([nan, nan, nan, 1.0], np.float32)).right
    assert not bounds.judge(np.array([nan, nan, -np.inf, 1.0], np.float32)).right


def test_whole_numbers_of_64_bits_may_be_far_off_and_end_where_these_do() -> None:
    most = np.iinfo(np.int64).max
    value = np.array([most, -most - 1, 1 << 60])
    bounds = Bounds.around(Answer(value, np.array([5.0, 5.0, 1e12])), "i64")
    assert bounds.judge(np.array([most, -most - 1, (1 << 60) + 10**11])).right
    assert bounds.judge(np.array([most - 5, -most + 4, (1 << 60) - 10**11])).right
    assert not bounds.judge(np.array([most - 6, -most - 1, 1 << 60])).right
    assert not bounds.judge(np.array([most, -most - 1, (1 << 60) + 10**13])).right


def test_numbers_between_two_others_do_not_lean() -> None:
    """All are 120, which e5m2 has as 128; the ends of what they may be are rounded themselves."""
    value = np.full(33, 120.0)
    bounds = Bounds.around(Answer(value, np.zeros(33, np.float32)), "e5m2")
    assert bounds.judge(from_float(np.full(33, 128.0), "e5m2")).right


def test_large_whole_numbers_are_rounded_where_floats_are_computed() -> None:
    g = Graph("large")
    (m,) = g.axes(m=4)
    x = g.input("X", (m,), "i64")
    g.output("Y", cast(where(x > 0, x, g.input("Z", (m,), "f32")), "i64"))
    inputs = {"X": np.array([2168703487, 3, -1, 1 << 40]), "Z": np.zeros(4, np.float32)}
    bounds = bounds_of(g.program(), inputs)["Y"]
    assert bounds.judge(np.array([2168703488, 3, 0, 1 << 40])).right
    assert not bounds.judge(np.array([2168703487 + 4096, 3, 0, 1 << 40])).right
    assert not bounds.judge(np.array([2168703488, 4, 0, 1 << 40])).right


def test_a_nan_may_be_written_where_anything_is_right() -> None:
    """e4m3 has one NaN, which is what outputs are poisoned with."""
    for dtype in ("e4m3", "f16"):
        bounds = Bounds.around(Answer(np.ones(3), np.full(3, np.inf, np.float32)), dtype)
        assert bounds.judge(from_float(np.array([np.nan, 2.0, -3.0]), dtype)).right


def test_what_may_be_flushed_to_zero_may_equal_it() -> None:
    g = Graph("flushed")
    (m,) = g.axes(m=3)
    x = g.input("X", (m,), "f32")
    small = sigmoid(x)
    g.output("Y", where(small == 0, x, small))
    inputs = {"X": np.array([-107.0, -20.0, 3.0], np.float32)}
    bounds = bounds_of(g.program(), inputs)["Y"]
    exact = 1 / (1 + np.exp(-inputs["X"].astype(np.float64)))
    for first in (-107.0, 0.0, exact[0]):
        assert bounds.judge(np.array([first, *exact[1:]], np.float32)).right
    assert not bounds.judge(np.array([-107.0, -20.0, exact[2]], np.float32)).right


def test_numbers_too_large_for_a_type_are_infinite_or_its_largest() -> None:
    assert exactly([1e5], "f16").judge(np.array([np.inf], np.float16)).right
    assert not exactly([1e5], "f16").judge(np.array([6e4], np.float16)).right
    assert exactly([1e5], "e4m3").judge(from_float(np.array([448.0]), "e4m3")).right


def test_sampled_output_is_judged_where_known_and_scanned_for_nan() -> None:
    whole = np.arange(64.0).reshape(8, 8)
    picks = np.ix_((0, 3, 7), (1, 7))
    bounds = exactly(whole[picks], "f32", picks)
    output = whole.astype(np.float32)
    assert bounds.judge(output).right
    output[5, 5] = np.nan
    assert "1 of 64 elements are NaN" in bounds.judge(output).detail
    output[3, 7] = 0
    assert "first at [3, 7]" in bounds.judge(output).detail


def test_small_programs_are_checked_whole_and_large_ones_by_strata() -> None:
    matmul = load_operator("matmul")
    rng = np.random.default_rng(0)
    assert sample_axes(matmul.build(m=64, n=64, k=64), rng, HOST) == {}
    large = matmul.build(m=4096, n=4096, k=4096)
    picked = sample_axes(large, rng, HOST)
    assert set(picked) == {"m", "n"}
    for indices in picked.values():
        assert {0, 1, 4094, 4095} <= set(indices.tolist())
        assert len(np.unique(indices // 64)) == 64
    assert len(picked["m"]) * len(picked["n"]) * 4096 * 2 < 1.5e10


def test_gathered_rows_are_work_too() -> None:
    """A bag of 32 rows each makes 268 million numbers before they are added up."""
    bags = load_operator("embedding_bag").build(m=65536, bag=32, rows=1000, d=128)
    picked = sample_axes(bags, np.random.default_rng(0), HOST)
    sampled = {**bags.axes, **{axis: len(points) for axis, points in picked.items()}}
    assert sampled["m"] * sampled["t"] * sampled["d"] < 1.5 * HOST.elements


def test_short_axes_are_sampled_where_each_point_is_much_work() -> None:
    """Sequences and heads are eight each, and each has 67 million products of its own."""
    words = {"b": 8, "heads": 64, "kv_heads": 8, "d": 128, "sk": 65536, "dtype": "bf16"}
    decode = load_operator("decode_attention").build(**words)
    picked = sample_axes(decode, np.random.default_rng(0), HOST)
    points = {axis: picked.get(axis, range(decode.axes[axis])) for axis in ("b", "hk", "g")}
    assert len(points["b"]) * len(points["hk"]) * len(points["g"]) < 512
    for axis, indices in points.items():
        assert {0, decode.axes[axis] - 1} <= {*map(int, indices)}


def test_work_far_beyond_the_means_keeps_a_point_of_an_axis() -> None:
    """Decays of pairs of points within chunks: a first trial waited for 60 times the means."""
    gla = load_operator("gla_chunked").build(b=2, t=8192, heads=4, d=64, chunk=64, dtype="bf16")
    picked = sample_axes(gla, np.random.default_rng(0), HOST)
    assert (len(picked["b"]), len(picked["h"])) == (1, 1)
    fewer = load_operator("gla_chunked").build(b=2, t=1024, heads=4, d=64, chunk=64, dtype="bf16")
    picked = sample_axes(fewer, np.random.default_rng(0), HOST)
    assert picked["h"].tolist() == [0, 3]


def test_a_sample_is_the_same_on_disk(tmp_path: Path) -> None:
    """The interval of a sampled element is that of the whole, on files as in memory."""
    program = load_operator("softmax").build(m=200, n=50)
    recipe = Recipe(program, 4)
    whole = recipe.expected(0, HOST).bounds["Y"]
    part = recipe.expected(0, Means(1e4, 1e12, 1 << 30, 1 << 20)).bounds["Y"]
    assert part.picks is not None
    assert part.low.size < whole.low.size
    np.testing.assert_allclose(part.low, whole.low[part.picks], rtol=1e-6)


def test_expectation_holds_two_sets(tmp_path: Path) -> None:
    made = ExpectationMaker(Recipe(PROGRAM, 3), str(tmp_path)).make()
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
    inputs = drawn_inputs(program, 0)
    exact, bounds = evaluate(program, inputs)["Y"], bounds_of(program, inputs)["Y"]
    x, w, u = (widen(inputs[name], "bf16").astype(np.float64) for name in "XWU")
    output = (rounded(np.maximum(x @ w, 0), "bf16") @ u).astype(np.float32)
    assert not exactly(exact, "f32").judge(output).right
    assert bounds.judge(output).right
    assert bounds.judge(exact.astype(np.float32)).right
    output[7, 9] *= 1.1
    assert "1 of 1200 elements wrong, first at [7, 9]" in bounds.judge(output).detail


def test_truncation_beside_a_whole_number_may_go_either_way() -> None:
    program = quantised.build(m=64, n=1000)
    bounds = bounds_of(program, drawn_inputs(program, 0))
    of_q, of_p = bounds["Q"], bounds["P"]
    loose = of_q.low != of_q.high
    assert 0 < loose.sum() < 0.01 * loose.size
    assert (of_p.low == of_p.high).all()  # whole numbers are exact
    for bound in (of_q.low, of_q.high):
        assert of_q.judge(bound).right
    assert not of_q.judge((of_q.high + loose).astype(np.int8)).right
    assert not of_q.judge(np.where(loose, of_q.low, of_q.low - 1).astype(np.int8)).right


def test_a_scalar_has_bounds() -> None:
    bounds = exactly(-np.inf, "f32")
    assert bounds.judge(np.asarray(-np.inf, np.float32)).right
    assert not bounds.judge(np.asarray(0.0, np.float32)).right


def test_bounds_end_where_the_type_does() -> None:
    """What is near the largest number may be infinite, or, in e4m3, that number."""
    for dtype, near, found in (("f16", 65510.0, np.inf), ("e4m3", 448.0, 448.0)):
        bounds = exactly(np.array([near, 1.0, np.nan]), dtype)
        assert bounds.judge(from_float(np.array([found, 1.0, np.nan]), dtype)).right
        assert not bounds.judge(from_float(np.array([found, 1.0, 1.0]), dtype)).right
        assert not bounds.judge(from_float(np.array([1.0, 1.0, np.nan]), dtype)).right
    scalar = exactly(np.asarray(2.0), "f32")
    assert scalar.judge(np.asarray(2.0, np.float32)).right


@operator
def exponentials(g: Graph, n: int, values: Any = None) -> None:
    """Y = log of exp(X)^2, which leaves f32 for large X."""
    axis = g.axis("n", n)
    x = g.input("X", (axis,), "f32", values=uniform(-1, 1) if values else uniform(60, 90))
    e = exp(x)
    g.output("Y", log(e * e))


def test_programs_that_cannot_be_checked_are_told_so_with_the_fix() -> None:
    with pytest.raises(Uncheckable, match=r"exponentials: 100% of Y may be anything.*values="):
        Recipe(exponentials.build(n=50), 0).expected(0, HOST)
    tame = Recipe(exponentials.build(n=50, values=1), 0).expected(0, HOST)
    assert tame.bounds["Y"].unbounded == 0


@operator
def residue(g: Graph, n: int, large: float) -> None:
    """Y = (X + large) - large: of X no more than the sum of both keeps."""
    axis = g.axis("n", n)
    x = g.input("X", (axis,), "f32", values=uniform(-1, 1))
    g.output("Y", (x + large) - large)


def test_an_interval_that_holds_all_usual_numbers_is_none() -> None:
    with pytest.raises(Uncheckable, match=r"residue: 100% of Y may be anything.*values="):
        Recipe(residue.build(n=50, large=3e7), 0).expected(0, HOST)
    kept = Recipe(residue.build(n=50, large=3e3), 0).expected(0, HOST)
    assert kept.bounds["Y"].unbounded == 0


@pytest.mark.parametrize("dtype", sorted(WHOLE_BYTES))
def test_what_combines_with_what_was_there_is_right_with_one_poison_at_most(dtype: str) -> None:
    exact = np.ones(8, bool if dtype == "bool" else float)
    bounds = exactly(exact, dtype)
    for combine in (np.fmax, np.fmin):
        rights = 0
        for turn in range(TURNS):
            output = np.zeros(8, numpy_dtype(dtype))
            poison(output, dtype, turn)
            if dtype == "bool":
                output = combine(output.view("u1"), 1).astype("u1").view(bool)
            elif is_float(dtype):
                there = np.asarray(to_float(output, dtype), np.float64)
                output = from_float(combine(there, 1.0), dtype)
            else:
                output = combine(output, 1).astype(output.dtype)
            rights += bounds.judge(output).right
        assert rights < TURNS


def test_a_mean_is_compared_as_the_type_holds_it() -> None:
    exact = np.random.default_rng(0).standard_normal(2000)
    bounds = Bounds.around(Answer(exact, np.abs(exact).astype(np.float32) / 40), "e4m3")
    assert bounds.judge(from_float(exact, "e4m3")).right
    assert "too large in the mean" in bounds.judge(from_float(exact * 1.015, "e4m3")).detail


def test_what_falls_to_either_side_of_a_step_may_fall_to_one() -> None:
    """Fours that are threes or fours, most of an output: no kernel that has fours leans."""
    exact = np.full(2000, 3.0)
    bounds = Bounds.around(Answer(exact, np.full(2000, 1.0, np.float32)), "f32")
    assert bounds.judge(np.full(2000, 4.0, np.float32)).right
    assert not bounds.judge(np.full(2000, 7.5, np.float32)).right
