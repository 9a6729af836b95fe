"""Recurrences that meet themselves can be checked: what is off is looked up by drawn roundings."""

from __future__ import annotations

import numpy as np

from explorer.afforded import HOST
from explorer.expectation import Recipe
from ir import Graph, exp, log, maximum, recur, reduce, relu, sigmoid, tanh
from ir.inputs import drawn_inputs
from ir.oracle import answers, evaluate, sampled
from ir.perturbed import BESIDE, NEARER, REACHES, RUNS, beside
from ir.program import Program
from ir.registry import load_operator
from ir.roundoff import ErrorModel
from ir.shifts import unfelt

STEPS = 300


def _gated(total: bool = False) -> Program:
    """States at all steps, or the sum of the last ones."""
    g = Graph("gated")
    t, b = g.axes(t=STEPS, b=24)
    x, y = (g.input(name, (t, b), "f32") for name in "xy")
    w, u = (g.input(name, (b,), "f32") for name in "wu")
    s = g.state(t, (b,))
    new = s + sigmoid(w * s + x) * (tanh(u * s + y) - s)
    last = recur(s, new)
    if total:
        g.output("S", reduce("sum", last, over=b), "f32", ())
    else:
        g.output("H", new, "f32", (t, b))
    return g.program()


def _in_f32(inputs: dict[str, np.ndarray]) -> np.ndarray:
    x, y, w, u = (inputs[name].astype(np.float32) for name in "xywu")
    h, one, found = np.zeros(24, np.float32), np.float32(1), []
    for t in range(STEPS):
        gate = one / (one + np.exp(-(w * h + x[t])))
        h = h + gate * (np.tanh(u * h + y[t]) - h)
        found.append(h)
    return np.stack(found)


def test_a_gated_recurrence_is_bounded_closely() -> None:
    expected = Recipe(_gated(), seed=3).expected(0, HOST)
    bounds = expected.bounds["H"]
    width = np.asarray(bounds.high - bounds.low)
    assert bounds.unbounded == 0
    assert np.median(width) < 1e-4 * bounds.scale
    assert width.max() < 1e-2 * bounds.scale
    right = _in_f32(dict(expected.inputs))
    assert not bounds.judge(right).detail
    assert bounds.judge(right * np.float32(1.001)).detail


def test_what_a_form_may_be_off_is_kept() -> None:
    """A kernel may compute an equal program that is off by more: no trial of the one as written
    takes that away."""
    g = Graph("sum")
    t, b = g.axes(t=STEPS, b=24)
    x, y = (g.input(name, (t, b), "f32") for name in "xy")
    g.input("w", (b,), "f32"), g.input("u", (b,), "f32")
    g.output("H", (x + 1e4 + y) - 1e4 - y, "f32", (t, b))
    bounds = Recipe(_gated(), 3, (), (g.program(),)).expected(0, HOST).bounds["H"]
    alone = Recipe(_gated(), 3).expected(0, HOST).bounds["H"]
    width, narrow = (np.median(one.high - one.low) for one in (bounds, alone))
    assert width > 10 * narrow


def test_a_number_made_of_all_is_bounded_too() -> None:
    expected = Recipe(_gated(total=True), seed=3).expected(0, HOST)
    found = np.float32(_in_f32(dict(expected.inputs))[-1].sum(dtype=np.float32))
    assert expected.bounds["S"].unbounded == 0
    assert not expected.bounds["S"].judge(np.asarray(found)).detail
    assert expected.bounds["S"].judge(np.asarray(found * np.float32(1.01))).detail


def test_what_is_drawn_is_the_same_each_time() -> None:
    program, model = _gated(), ErrorModel()
    inputs = drawn_inputs(program, 1)
    exact = {name: one.value for name, one in answers(program, inputs, model).items()}
    first, second = (sampled(program, inputs, model, exact)["H"] for _ in range(2))
    assert np.array_equal(first, second)
    assert (first[-1] > 0).all()


def test_a_long_forward_algorithm_stays_bounded() -> None:
    g = Graph("hmm")
    b, t, i, j = g.axes(b=2, t=700, i=16, j=16)
    a, e = g.input("A", (i, j), "f32"), g.input("E", (b, t, j), "f32")
    s = g.state(t, (b, j))
    x = s.at(j=i) + a
    m = reduce("max", x, over=i)
    new = log(reduce("sum", exp(x - m), over=i)) + m + e
    recur(s, new)
    g.output("F", new, "f32", (b, t, j))
    program = g.program()
    answer = answers(program, drawn_inputs(program, 0), ErrorModel())["F"]
    size = np.sqrt(np.square(answer.value).mean())
    assert answer.reach.max() < 1e-3 * size


def test_maxima_of_two_numbers_are_unfelt_where_they_only_keep_others_small() -> None:
    g = Graph("three")
    (i,) = g.axes(i=4)
    a, b, c = (g.input(name, (i,), "f32") for name in "abc")
    inner = maximum(a, b)
    m = maximum(inner, c)
    g.output("L", m + log(exp(a - m) + exp(b - m) + exp(c - m)), "f32", (i,))
    assert unfelt(g.program()) == {m.position}
    h = Graph("clamped")
    (k,) = h.axes(k=4)
    h.output("Y", relu(h.input("x", (k,), "f32")), "f32", (k,))
    assert not unfelt(h.program())


def _one_by_one(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Welford's mean and variance of rows in f32, an element after the other."""
    mean, squares = np.zeros(len(x), np.float32), np.zeros(len(x), np.float32)
    for n, column in enumerate(x.T, start=1):
        apart = column - mean
        mean = mean + apart / np.float32(n)
        squares = squares + apart * (column - mean)
    return mean, squares / np.float32(x.shape[1])


def test_long_folds_are_bounded_closely() -> None:
    """Of merges that meet their own states, a tree of thirteen would add up what cancels."""
    program = load_operator("welford").build(m=12, n=8192)
    expected = Recipe(program, seed=3).expected(0, HOST)
    mean, variance = _one_by_one(expected.inputs["X"])
    for name, right in {"mean": mean, "variance": variance}.items():
        bounds = expected.bounds[name]
        assert bounds.unbounded == 0
        assert np.asarray(bounds.high - bounds.low).max() < 0.1 * bounds.scale
        assert not bounds.judge(right).detail
        assert bounds.judge(right + np.float32(0.1 * bounds.scale)).detail


def test_sums_that_are_scattered_are_bounded_as_other_sums_are() -> None:
    """By how roundings add up, not by the worst that they can: a million in sixteen places."""
    program = load_operator("weighted_histogram").build(n=1 << 20, bins=16)
    expected = Recipe(program, seed=3).expected(0, HOST)
    bounds = expected.bounds["H"]
    assert bounds.unbounded == 0
    assert np.asarray(bounds.high - bounds.low).max() < 0.1 * bounds.scale
    inputs = dict(expected.inputs)
    exact = evaluate(program, inputs)["H"]
    assert not bounds.judge(exact.astype(np.float32)).detail


def test_what_eight_runs_leave_close_by_chance_has_what_its_neighbours_have() -> None:
    """An element of fifteen million was so in eight runs, and a right kernel was refused by it."""
    runs = np.abs(np.random.default_rng(5).standard_normal((RUNS, 64, BESIDE)))
    runs[:, 3, 7] *= 0.144 / runs[:, 3, 7].max()  # one in thirty million, by deviations
    own = REACHES * runs.max(axis=0)
    found = beside(own)
    assert own[3, 7] < 2.4 / 2  # and was off by so many, of which a right kernel has twice its own
    assert found[3, 7] > 4.5 / 2
    others = np.delete(found - own, 3, axis=0)
    assert (others == 0).mean() > 0.99


def test_what_neighbours_may_be_off_is_theirs_alone() -> None:
    own = np.full((4, BESIDE), 1.0)
    own[1, 5], own[2, 7], own[3] = 1e-6, 0.0, np.inf
    own[3, :9] = 1.0
    found = beside(own)
    assert found[1, 5] == NEARER * 1e-6
    assert found[2, 7] == 0.0
    assert (found >= own).all()
    assert (found[3, :9] == 1.0).all()
    assert np.isinf(found[3, 9:]).all()
    assert beside(np.full(5, 2.0)).tolist() == [2.0] * 5
