"""Folds of long rows as the oracle evaluates them: states at once, in groups, drawn in part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ir.ops.merging
import ir.oracle
from explorer.afforded import HOST
from explorer.expectation import Recipe
from ir import Graph, evaluate, fold, scan
from ir.inputs import drawn_inputs
from ir.ops.merging import Merger
from ir.oracle import answers, sampled
from ir.program import Program
from ir.roundoff import ErrorModel
from tests.far import far_numpy


def _moments(a: Sequence[Any], b: Sequence[Any]) -> tuple[Any, Any, Any]:
    count, apart = a[0] + b[0], b[1] - a[1]
    mean = a[1] + apart * (b[0] / count)
    return count, mean, a[2] + b[2] + apart * apart * (a[0] * b[0] / count)


def _welford(n: int, outputs: int = 2, scale: float = 0.0) -> Program:
    g = Graph("welford")
    (i,) = g.axes(n=n)
    x = g.input("X", (i,), "f32")
    x = x * scale if scale else x
    count, mean, squares = fold(_moments, (g.constant(1.0, "f32"), x, g.constant(0.0, "f32")), i)
    for name, tile in (("M", mean), ("V", squares / count), ("N", count))[:outputs]:
        g.output(name, tile)
    return g.program()


@pytest.fixture
def merges(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many points each merge of arrays had."""
    found, merged = list[int](), Merger.merged

    def counted(self: Merger, left: Any, right: Any) -> Any:
        found.append(left[0].array.shape[0])
        return merged(self, left, right)

    monkeypatch.setattr(Merger, "merged", counted)
    return found


def test_all_states_of_a_fold_are_evaluated_at_once(merges: list[int]) -> None:
    counts = []
    for outputs in (1, 3):
        program = _welford(1000, outputs)
        inputs = drawn_inputs(program, 0)
        evaluate(program, inputs)
        answers(program, inputs, ErrorModel())
        counts.append(len(merges))
        merges.clear()
    assert counts == [2 * 10, 2 * 10]


def test_outputs_of_one_fold_are_not_evaluated_apart(merges: list[int]) -> None:
    program = _welford(1 << 14)
    answers(program, drawn_inputs(program, 0), ErrorModel(), room=1 << 10)
    assert len(merges) == 14


def test_what_has_no_axis_to_sample_is_not_evaluated_again_for_a_probe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, whole = list[str](), answers

    def counted(*args: Any, **more: Any) -> Any:
        calls.append("")
        return whole(*args, **more)

    monkeypatch.setattr(ir.oracle, "answers", counted)
    Recipe(_welford(1 << 14), 1).expected(0, HOST)
    assert len(calls) == 1


@settings(deadline=None, max_examples=12)
@given(st.integers(1 << 12, 3 << 12), st.booleans(), st.sampled_from([np, far_numpy]))
def test_prefixes_of_long_rows_are_in_order(n: int, backward: bool, xp: Any) -> None:
    """Affine maps do not commute."""
    g = Graph("maps")
    (i,) = g.axes(n=n)
    pair = (g.input("A", (i,), "i32"), g.input("B", (i,), "i32"))

    def after(p: Any, q: Any) -> Any:
        return p[0] * q[0], p[1] * q[0] + q[1]

    for name, tile in zip("UV", scan(after, pair, i, backward=backward), strict=True):
        g.output(name, tile)
    rng = np.random.default_rng(n)
    a = rng.choice(np.array([-1, 1], np.int32), n)
    b = rng.integers(-9, 9, n, dtype=np.int32)
    program = g.program()
    inputs = {name: xp.asarray(array) for name, array in zip("AB", (a, b), strict=True)}
    found = answers(program, inputs, ErrorModel(), xp=xp)
    turn = slice(None, None, -1 if backward else 1)
    state, expected = 0, []
    for scale, shift in zip(a[turn], b[turn], strict=True):
        state = int(scale) * state + int(shift)
        expected.append(state)
    values: dict[str, Any] = {name: answer.value for name, answer in found.items()}
    if xp is far_numpy:
        values = {name: array.get() for name, array in values.items()}
    np.testing.assert_array_equal(values["U"][turn], np.cumprod(a[turn]))
    np.testing.assert_array_equal(values["V"][turn], expected)


def _trials(program: Program, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    exact = {name: one.value for name, one in answers(program, inputs, ErrorModel()).items()}
    return sampled(program, inputs, ErrorModel(), exact)


@pytest.fixture
def long_rows(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Small blocks, so that short rows count as long ones; or all drawn in each run."""

    def chosen(long: bool) -> None:
        monkeypatch.setattr(ir.ops.merging, "_BLOCK", 1 << 12)
        monkeypatch.setattr(ir.ops.merging, "LONG", 1 << 14 if long else 1 << 40)

    return chosen


@pytest.mark.parametrize(("scale", "most"), [(0.0, 0.4), (0.7, 0.65)], ids=["inputs", "computed"])
def test_of_long_rows_a_part_is_drawn_that_says_as_much(
    long_rows: Callable[[bool], None], scale: float, most: float, merges: list[int]
) -> None:
    program = _welford(1 << 16, scale=scale)
    inputs, found, counts = drawn_inputs(program, 0), [], []
    for long in (False, True):
        long_rows(long)
        merges.clear()
        found.append(_trials(program, inputs))
        counts.append(sum(merges))
    whole, part = found
    assert 0.5 * whole["V"] < part["V"] <= 1.2 * whole["V"]
    assert 0.05 * whole["M"] < part["M"] <= 1.2 * whole["M"]  # whose large roundings are small
    assert counts[1] < most * counts[0]


@pytest.mark.parametrize("place", [0, 17 * 64 + 2, (1 << 16) - 4])
def test_what_is_in_doubt_in_few_places_of_a_long_row_is_seen(
    long_rows: Callable[[bool], None], place: int
) -> None:
    """A product on the way has no room in f32; some run draws it."""
    g = Graph("product")
    (i,) = g.axes(n=1 << 16)
    (total,) = fold(lambda a, b: (a[0] * b[0],), (g.input("X", (i,), "f32"),), i)
    g.output("Y", total)
    x = np.ones(1 << 16, np.float32)
    x[place : place + 4] = 1e30, 1e30, 1e-30, 1e-30
    long_rows(True)
    assert _trials(g.program(), {"X": x})["Y"] == np.inf


def _in_f32(x: np.ndarray, runs: int) -> tuple[np.float32, np.float32]:
    """Mean and variance in f32, runs of neighbours one by one and their states one by one."""
    one, none = np.float32(1.0), np.float32(0.0)
    state: Any = None
    for column in x.reshape(runs, -1).T:
        new = (np.full_like(column, one), column, np.zeros_like(column))
        state = new if state is None else _moments(state, new)
    whole: Any = None
    for part in zip(*state, strict=True):
        whole = part if whole is None else _moments(whole, part)
    count, mean, squares = whole
    assert none <= squares
    return mean, squares / count


def test_long_folds_are_bounded_closely() -> None:
    expected = Recipe(_welford(1 << 19), 4).expected(0, HOST)
    right = dict(zip("MV", _in_f32(expected.inputs["X"], 1 << 7), strict=True))
    for name, apart in {"M": 1e-4, "V": 2e-3}.items():
        bounds = expected.bounds[name]
        assert bounds.unbounded == 0
        assert float(bounds.high - bounds.low) < apart
        assert not bounds.judge(np.asarray(right[name])).detail
        assert bounds.judge(np.asarray(right[name] + np.float32(apart))).detail


@pytest.mark.parametrize("backward", [False, True])
def test_prefixes_are_bounded_by_what_is_before_them(backward: bool) -> None:
    """Means up to each point: those of few points are made by few roundings."""
    g = Graph("running")
    (i,) = g.axes(n=1 << 15)
    x = g.input("X", (i,), "f32")
    states = (g.constant(1.0, "f32"), x, g.constant(0.0, "f32"))
    g.output("M", scan(_moments, states, i, backward=backward)[1])
    expected = Recipe(g.program(), 4).expected(0, HOST)
    bounds, turn = expected.bounds["M"], slice(None, None, -1 if backward else 1)
    width = np.asarray(bounds.high - bounds.low)[turn]
    assert width[8:64].max() < 1e-4
    ordered = expected.inputs["X"][turn]
    counts = np.arange(1, len(ordered) + 1, dtype=np.float32)
    mean, found = np.float32(0.0), []
    for value, count in zip(ordered, counts, strict=True):
        mean = mean + (value - mean) / count
        found.append(mean)
    assert not bounds.judge(np.asarray(found, np.float32)[turn]).detail
