"""Loops of states by plain kernels: matrices, stencils, several states, and steps drawn at random.

A run scalar by scalar refuses what threads of a group would trip over.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir import Graph, Tile, cast, contract, maximum, minimum, reduce, sqrt, tanh, where
from ir.axes import Axis
from ir.dtypes import to_float
from ir.errors import ProgramError
from ir.folding import argmax, cumulative, recur, scan, scatter, top
from ir.inputs import drawn_inputs
from ir.phases import phases_of
from ir.plain.build import plain_kernel
from ir.plain.code import GROUP, PlainKernel
from ir.plain.meaning import meaning
from ir.program import Program
from ir.registry import load_operator
from ir.values import indices, uniform
from tests.plain.judge import judge


def _places(kernel: PlainKernel) -> dict[str, int]:
    return {array.name: array.size for array in kernel.arrays if array.place != "tensor"}


def _delta_rule(b: int, t: int, k: int, v: int) -> Program:
    """S = S + beta k (v - k S), and o = q S of the new S."""
    g = Graph("delta_rule")
    b_, t_, k_, v_ = g.axes(b=b, t=t, k=k, v=v)
    keys, queries = g.input("K", (b_, t_, k_), "bf16"), g.input("Q", (b_, t_, k_), "bf16")
    values, beta = g.input("V", (b_, t_, v_), "bf16"), g.input("beta", (b_, t_), "f32")
    state = g.state(t_, (b_, k_, v_))
    error = values - contract(keys, state, k_)
    after = state + beta * keys * error
    final = recur(state, after)
    g.output("O", contract(queries, after, k_), "bf16", dims=(b_, t_, v_))
    g.output("S", final)
    return g.program()


def test_a_state_that_is_a_matrix() -> None:
    program = _delta_rule(2, 5, 3, 4)
    inputs = drawn_inputs(program, 1)
    found = judge(program, inputs)
    keys, queries, values = (to_float(inputs[name], "bf16") for name in "KQV")
    for b in range(2):
        state = np.zeros((3, 4))
        for t in range(5):
            key = keys[b, t]
            state = state + inputs["beta"][b, t] * np.outer(key, values[b, t] - key @ state)
            out = to_float(found["O"], "bf16")[b, t]
            np.testing.assert_allclose(out, queries[b, t] @ state, rtol=2**-7, atol=1e-2)
        np.testing.assert_allclose(found["S"][b], state, rtol=1e-4, atol=1e-4)


def test_columns_that_do_not_meet_are_points() -> None:
    kernel = plain_kernel(_delta_rule(2, 5, 3, 4))
    assert sorted(extent for _, extent in kernel.points) == [2, 4]
    assert kernel.cooperative
    assert sorted(_places(kernel).values()) == [1, 3, 3]  # an error, a state, and what it becomes


def test_many_points_with_little_to_share_have_threads_of_their_own() -> None:
    program = _delta_rule(512, 2, 2, 2)
    kernel = plain_kernel(program)
    assert not kernel.cooperative
    assert {array.place for array in kernel.arrays} == {"tensor", "thread"}
    judge(program)


def test_cholesky_reads_the_state_at_the_step() -> None:
    """Column after column, each taken out of what is left."""
    g = Graph("cholesky")
    b, t, r, c = g.axes(b=2, t=4, r=4, c=4)
    left = g.state(t, (b, r, c), g.input("A", (b, r, c), "f64"), "f64")
    pivot = left.at(c=t)
    column = where(g.iota(r) < t, 0.0, pivot / sqrt(pivot.at(r=t)))
    g.output("L", column, dims=(b, r, t))
    g.output("rest", recur(left, left - column * column.at(r=c)))
    x = np.random.default_rng(2).normal(size=(2, 4, 6))
    a = x @ x.transpose(0, 2, 1)
    found = judge(g.program(), {"A": a})
    np.testing.assert_allclose(found["L"], np.linalg.cholesky(a), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found["rest"], 0.0, atol=1e-9)


@pytest.mark.parametrize("fill", [0.0, 2.0])
def test_a_stencil_reads_its_neighbours(fill: float) -> None:
    g = Graph("heat")
    t, b, i = g.axes(t=6, b=2, i=5)
    u = g.state(t, (b, i), g.input("u", (b, i), "f32"))
    after = u + 0.25 * (u.at(i=i - 1, fill=fill) + u.at(i=i + 1, fill=fill) - 2.0 * u)
    g.output("o", recur(u, after))
    program = g.program()
    inputs = drawn_inputs(program, 0)
    found = judge(program, inputs)
    wanted = inputs["u"].astype(np.float64)
    for _ in range(6):
        wide = np.pad(wanted, ((0, 0), (1, 1)), constant_values=fill)
        wanted = wanted + 0.25 * (wide[:, :-2] + wide[:, 2:] - 2 * wanted)
    np.testing.assert_allclose(found["o"], wanted, rtol=1e-5, atol=1e-5)
    assert [*_places(plain_kernel(program)).values()] == [2 * 5]


def test_states_of_one_number_are_variables() -> None:
    """Oscillators: each state's step reads the other's old value."""
    g = Graph("oscillators")
    t, b = g.axes(t=7, b=3)
    x, y = g.state(t, (b,), g.input("x", (b,), "f32")), g.state(t, (b,), 1.0)
    rate = g.input("rate", (t,), "f32")
    g.output("xs", x + y, dims=(b, t))
    g.output("x_end", recur(x, x - rate * y) * 2.0, "bf16")
    g.output("y_end", recur(y, y + rate * x))
    kernel = plain_kernel(g.program())
    assert not kernel.cooperative
    assert not _places(kernel)
    judge(g.program())


def test_viterbi_folds_within_a_step() -> None:
    g = Graph("viterbi")
    b, t, s, r = g.axes(b=2, t=5, s=3, r=3)
    emitted, moves = g.input("emitted", (b, t, s), "f32"), g.input("moves", (r, s), "f32")
    score = g.state(t, (b, s))
    paths = score.at(s=r) + moves
    g.output("back", argmax(paths, r), dims=(b, t, s))
    g.output("score", recur(score, reduce("max", paths, r) + emitted))
    program = g.program()
    inputs = drawn_inputs(program, 4)
    found = meaning(plain_kernel(program), inputs)
    score_now = np.zeros((2, 3))
    for step in range(5):
        paths_now = score_now[:, :, None] + inputs["moves"]
        assert (found["back"][:, step] == paths_now.argmax(axis=1)).all()
        score_now = paths_now.max(axis=1) + inputs["emitted"][:, step]
    np.testing.assert_allclose(found["score"], score_now, rtol=1e-5)


def test_edit_distances_have_running_minima_within_a_step() -> None:
    g = Graph("edit")
    b, t, j = g.axes(b=3, t=5, j=8)
    x, y = g.tensor("x", (3, 5), "u8", values=indices(3)), g.tensor("y", (3, 7), "u8", fill=9)
    before = g.state(t, (b, j), g.iota(j))
    change = before.at(j=j - 1, fill=99) + where(x[b, t] == y[b, j - 1], g.constant(0, "i32"), 1)
    best = where(g.iota(j) == 0, g.iota(t) + 1, minimum(change, before + 1))
    g.output("d", recur(before, cumulative("min", best - g.iota(j), j) + g.iota(j)))
    program = g.program()
    inputs = drawn_inputs(program, 2)
    found = judge(program, inputs)
    for row, (one, two) in enumerate(zip(inputs["x"], inputs["y"], strict=True)):
        old = [*range(8)]
        for step, letter in enumerate(one):
            new = [step + 1]
            for place, other in enumerate(two):
                new.append(min(old[place] + (letter != other), old[place + 1] + 1, new[-1] + 1))
            old = new
        assert list(found["d"][row]) == old


def test_states_of_the_same_axes_change_at_once() -> None:
    """Two that read each other's old elements need no second arrays; a third one that reads
    neighbours does."""
    g = Graph("three")
    t, i = g.axes(t=3, i=4)
    x = g.state(t, (i,), g.input("x", (i,), "f32"))
    y, z = g.state(t, (i,), 1.0), g.state(t, (i,), 2.0)
    for name, end in {
        "x": recur(x, x + 0.5 * y),
        "y": recur(y, y - 0.5 * x),
        "z": recur(z, z.at(i=i - 1, fill=0.0) + x),
    }.items():
        g.output(f"o{name}", end)
    assert [*_places(plain_kernel(g.program())).values()] == [4, 4, 2 * 4]
    judge(g.program())


def test_a_state_along_an_axis_of_one_step_and_narrow_values() -> None:
    g = Graph("short")
    t, b, i = g.axes(t=1, b=1, i=3)
    s = g.state(t, (b, i), g.input("s", (b, i), "bf16"))
    x = g.input("x", (t, b, i), "i8")
    g.output("o", recur(s, cast(s + cast(x, "f32"), "bf16")), "bf16")
    g.output("before", s, "bf16")
    judge(g.program())


def test_what_needs_the_end_of_a_loop_is_behind_it() -> None:
    g = Graph("shares")
    t, i = g.axes(t=3, i=4)
    state = g.state(t, (i,), 1.0)
    after = state * 0.5 + g.input("x", (t, i), "f32")
    g.output("o", after * recur(state, after), dims=(t, i))
    g.output("p", after / reduce("sum", after, t), dims=(t, i))
    g.output("q", after - after.at(t=t - 1, fill=0.0), dims=(t, i))
    judge(g.program())


def test_states_of_which_only_the_steps_are_stored() -> None:
    """The second state is read by the first one alone."""
    g = Graph("histories")
    t, i = g.axes(t=4, i=3)
    one, two = g.state(t, (i,)), g.state(t, (i,), 1.0)
    after = one + two * g.input("x", (t, i), "f32")
    recur(one, after)
    recur(two, two.at(i=i - 1, fill=0.5) * 0.5)
    g.output("o", after)
    g.output("p", after.at(t=t - 1, fill=0.0) * 2.0)
    judge(g.program())


def test_a_step_that_needs_the_end_is_refused() -> None:
    g = Graph("circle")
    t, i = g.axes(t=3, i=4)
    one, two = g.state(t, (i,)), g.state(t, (i,))
    end = recur(one, one + 0.5 * two)
    g.output("o", recur(two, two + end))
    with pytest.raises(ProgramError, match="needs all steps to be done"):
        plain_kernel(g.program())


# --- steps at random ------------------------------------------------------------------------------


@st.composite
def loops(draw: st.DrawFn) -> Program:
    """One to three states, steps of two to five values made of them and of each other."""
    g = Graph("drawn")
    b, t, i, j = g.axes(
        b=draw(st.integers(1, 2)), t=draw(st.integers(1, 3)),
        i=draw(st.sampled_from((1, 3))), j=draw(st.sampled_from((1, 3))),
    )  # fmt: skip
    x = g.input("x", (t, i), "f64")
    shapes = st.sampled_from([(b,), (i,), (b, i), (i, j), (j, b, i), ()])
    states = [g.state(t, draw(shapes), draw(st.sampled_from((0.5, 1.0))), "f64")
              for _ in range(draw(st.integers(1, 3)))]  # fmt: skip
    made = list(states)
    for _ in range(draw(st.integers(2, 5))):
        made.append(_drawn(draw, made, x, (b, i, j), t))
    for number, state in enumerate(states):
        fitting = [tile for tile in made if set(tile.axes) <= set(state.axes)]
        step = tanh(draw(st.sampled_from(fitting)) + 0.25 * state)
        end = recur(state, step)
        if number == 0 or draw(st.booleans()):
            g.output(f"end{number}", end)
    for number, tile in enumerate(draw(st.lists(st.sampled_from(made), max_size=2, unique=True))):
        g.output(f"o{number}", tile)
    return g.program()


def _drawn(draw: st.DrawFn, made: list[Tile], x: Tile, axes: tuple[Axis, ...], t: Axis) -> Tile:
    """A value made of one or two of those that there are."""
    one, two = draw(st.sampled_from(made)), draw(st.sampled_from(made))
    have = [axis for axis in axes if axis.name in one.axes]
    kind = draw(
        st.sampled_from(
            ("map", "load", "shift", "turn", "sum", "max", "product", "step", "running", "parts")
        )
    )
    _b, i, j = axes
    if kind == "map" or not have:
        return 0.5 * one - two
    if kind == "load":
        return one * x
    axis = draw(st.sampled_from(have))
    if kind == "shift":
        return one.at({axis: axis + draw(st.sampled_from((-1, 1)))}, fill=0.25)
    if kind == "turn" and i.extent == j.extent and {"i", "j"} <= set(one.axes):
        return one.at(i=j, j=i)
    if kind == "step":
        return one.at({axis: t - 1}, fill=0.5)
    if kind == "running":
        return 0.3 * cumulative("sum", one, axis, backward=draw(st.booleans()))
    if kind == "parts" and set(two.axes) <= set(one.axes):
        largest, total = scan(lambda a, b: (maximum(a[0], b[0]), a[1] + b[1]), (one, two), axis)
        return 0.5 * largest - 0.2 * total if draw(st.booleans()) else 0.3 * total
    if kind == "product" and axis.name in two.axes:
        return 0.3 * contract(one, two, axis)
    return reduce("max" if kind == "max" else "sum", 0.3 * one, axis)


@settings(max_examples=45, deadline=None)
@given(loops(), st.integers(0, 5))
def test_steps_at_random(program: Program, seed: int) -> None:
    judge(program, seed=seed)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["top", "scatter", "two"])
def test_what_a_step_may_not_hold(kind: str) -> None:
    g = Graph("refused")
    t, u, i, r = g.axes(t=3, u=3, i=4, r=2)
    state = g.state(t, (i,))
    if kind == "top":
        step, wanted = state + reduce("sum", top(state, i, r)[0], r), "a top over i"
    elif kind == "scatter":
        step = state + reduce("sum", scatter("sum", state, {t: t, r: g.iota(i)}), r)
        wanted = "a scatter over t, r"
    else:
        other = g.state(u, (i,))
        step, wanted = state + recur(other, other + 1.0), "2 loops, along"
    g.output("o", recur(state, step))
    with pytest.raises(ProgramError, match=wanted):
        plain_kernel(g.program())


@pytest.mark.parametrize("kind", ["whole", "end", "history"])
def test_what_may_not_stand_behind_a_loop(kind: str) -> None:
    """Sums over steps or over points, which would find one point's values for all."""
    g = Graph("behind")
    t, i, j = g.axes(t=3, i=4, j=4)
    state = g.state(t, (i,))
    after = state + g.input("x", (t, i), "f32")
    end = recur(state, after)
    if kind == "whole":
        value, wanted = after * end, "map of what is inside the loop along t"
    elif kind == "end":
        value, wanted = reduce("sum", end * 2.0, i), "reduce over no axis behind recur"
    else:
        value, wanted = after.at(t=j, i=j, fill=0.0), "read of what is inside the loop along t"
    g.output("o", value)
    program = g.program()
    with pytest.raises(ProgramError, match=wanted):
        plain_kernel(program)
    judge(program)


def test_states_of_whole_numbers_are_as_narrow_as_what_they_hold() -> None:
    """Cells that are 0 or 1 are bytes, what counts three rows of any bytes is of two; a number that
    grows with every step is as wide as it was."""
    program = load_operator("life").build(m=6, n=7, steps=3)
    kernel = plain_kernel(program)
    found = {array.name: array.dtype for array in kernel.arrays if array.place == GROUP}
    assert sorted(found.values()) == ["i16", "i8"]
    judge(program)
    g = Graph("growing")
    t, i = g.axes(t=3, i=40)
    x = g.state(t, (i,), g.input("X", (i,), "i8"))
    g.output("Y", recur(x, x + x.at(i=i - 1, fill=0)), "i32", (i,))
    grown = plain_kernel(g.program())
    assert {array.dtype for array in grown.arrays if array.place == GROUP} == {"i32"}
    judge(g.program())


@pytest.mark.parametrize(("rows", "terms", "group"), [
    (3, 200, True), (3, 40, False), (2000, 200, False), (2000, 3000, True),
])  # fmt: skip
def test_long_sums_of_a_step_are_a_group_s(rows: int, terms: int, group: bool) -> None:
    """A threshold of each row, by halving: one number at a step, of a sum along the row."""
    program = halved(rows, terms)
    (phase,) = (phase for phase in phases_of(program) if phase.plain)
    assert plain_kernel(phase.program).cooperative is group
    if rows * terms < 1 << 16:
        judge(program)


def halved(rows: int, terms: int) -> Program:
    g = Graph("halved")
    t, b, n = g.axes(t=4, b=rows, n=terms)
    x = g.input("X", (b, n), "f32", values=uniform(0, 1))
    low, high = g.state(t, (b,), 0.0), g.state(t, (b,), 1.0)
    middle = 0.5 * (low + high)
    much = reduce("sum", where(x >= middle, x, 0.0), over=n) >= 0.3 * terms
    recur(high, where(much, high, middle))
    g.output("low", recur(low, where(much, middle, low)))
    return g.program()
