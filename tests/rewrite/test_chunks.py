"""Causal sums and decaying states by chunks: the same numbers, at linear work."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir import Axis, Graph, Tile, cast, contract, cumulative, exp, maximum, recur, reduce, where
from ir.ops.recur import Before
from ir.oracle import evaluate, random_inputs
from ir.program import Program
from ir.registry import load_operator
from ir.rewrite.chunks import CHUNKS, chunked, lengths
from ir.rewrite.forms import forms_of
from ir.rewrite.work import Rates
from ir.values import decay, indices

LONG = 2 * CHUNKS[0]


def same(program: Program, count: int = 1, rtol: float = 1e-9) -> None:
    """Every chunked form leaves what the program leaves."""
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = evaluate(program, inputs)
    found = list(chunked(program))
    assert len(found) == count
    for _, _, form in found:
        given = {spec.name: inputs[spec.name].reshape(spec.shape) for spec in form.inputs}
        for name, values in evaluate(form, given).items():
            np.testing.assert_allclose(
                values.reshape(wanted[name].shape), wanted[name], rtol=rtol, atol=rtol / 100
            )


Weight = Callable[[Graph, Axis, Axis, Tile], Tile]


def _seen(g: Graph, i: Axis, j: Axis, products: Tile) -> Tile:
    return where(g.iota(j) <= g.iota(i), products, 0.0)


def _rate(g: Graph, i: Axis, j: Axis, products: Tile) -> Tile:
    rate = g.input("rate", (), "f64", values=decay(0.1))
    apart = rate * cast(g.iota(i), "f64") - rate * cast(g.iota(j), "f64")
    return products * where(g.iota(j) <= i, exp(apart), 0.0)


def _distance(g: Graph, i: Axis, j: Axis, products: Tile) -> Tile:
    rate = g.input("rate", (), "f64", values=decay(0.1))
    apart = cast(maximum(g.iota(i) - j, 0), "f64")
    return products * where(g.iota(j) <= i, exp(rate * apart / 2.0), 0.0)


def _gates(g: Graph, i: Axis, j: Axis, products: Tile) -> Tile:
    total = cumulative("sum", g.input("gate", (i,), "f64", values=decay(0.1)), i)
    return products * exp(where(g.iota(j) <= i, total - total.at({i: j}), -math.inf))


def _both(g: Graph, i: Axis, j: Axis, products: Tile) -> Tile:
    rows, columns = g.input("r", (i,), "f64"), g.input("c", (j,), "f64")
    return where(g.iota(j) <= i, products * rows, 0.0) * columns


WEIGHTS: tuple[Weight, ...] = (_seen, _rate, _distance, _gates, _both)


@pytest.mark.parametrize("weight", WEIGHTS, ids=lambda weight: weight.__name__)
@settings(max_examples=8, deadline=None)
@given(st.sampled_from((LONG, 3 * CHUNKS[0])), st.booleans(), st.booleans())
def test_weighted_sums(weight: Weight, length: int, shared: bool, inner: bool) -> None:
    """With an inner product or without, over an axis that the values have too or have not."""
    g = Graph("causal")
    b, i, j, d = g.axes(b=2, i=length, j=length, d=3)
    e = d if shared else g.axis("e", 4)
    v = g.input("V", (b, j, e), "f64")
    q, k = g.input("Q", (b, i, d), "f64"), g.input("K", (b, j, d), "f64")
    products = contract(q, k, over=d) if inner else g.input("q", (b, i), "f64")
    weights = weight(g, i, j, products)
    g.output("O", contract(weights, v, over=j) * 0.5 + g.input("R", (i,), "f64"), "f64", (b, i, e))
    program = g.program()
    same(program, sum(length % chunk == 0 and length >= 2 * chunk for chunk in CHUNKS))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("retention", {"b": 2, "heads": 2, "d": 3, "dv": 4}),
        ("gla", {"b": 1, "heads": 2, "d": 3, "dv": 4}),
        ("mamba2", {"b": 2, "heads": 4, "p": 3, "n": 5, "groups": 2}),
    ],
)
def test_states_that_decay(name: str, words: dict[str, int]) -> None:
    """From the recurrence, with the state behind the last step."""
    same(load_operator(name).build(t=LONG, **words), 1)


GATES = ("", "t", "tk", "k", "tv")


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("both", [False, True])
def test_states_that_are_read_before_a_step(gate: str, both: bool) -> None:
    g = Graph("before")
    t, k, v = g.axes(t=LONG, k=3, v=4)
    axes = {"t": t, "k": k, "v": v}
    left, right = g.input("K", (t, k), "f64"), g.input("V", (t, v), "f64")
    before = g.state(t, (k, v), dtype="f64")
    kept = before
    if gate:
        rates = g.input("W", tuple(axes[name] for name in gate), "f64", values=decay(0.2))
        kept = before * exp(rates)
    after = kept + left * right
    g.output("O", contract(g.input("R", (t, k), "f64"), before, over=k), "f64")
    if both:
        g.output("P", contract(right, after, over=v), "f64")
    g.output("S", recur(before, after), "f64")
    same(g.program(), 1)


def test_a_bonus_for_the_step_itself_is_added_apart() -> None:
    """RWKV 6: what is read is the state before a step and a part of what the step adds."""
    g = Graph("bonus")
    b, t, k, v = g.axes(b=8, t=1024, k=64, v=64)
    r, key = g.input("R", (b, t, k), "f32"), g.input("K", (b, t, k), "f32")
    value, rate = g.input("V", (b, t, v), "f32"), g.input("W", (b, t, k), "f32", values=decay())
    state, bonus = g.state(t, (b, k, v)), g.input("u", (k,), "f32")
    g.output("O", contract(r, state + bonus * (key * value), over=k))
    g.output("S", recur(state, state * exp(rate) + key * value))
    offered = forms_of(g.program(), Rates({"f32": 1e14}, 3e13, 3e12)).offered
    assert any(form.family for form in offered)


def test_a_gate_that_forgets_everything() -> None:
    """What was before it leaves no trace, and no NaN."""
    program = load_operator("gla").build(b=1, t=LONG, heads=1, d=3, dv=4)
    inputs = random_inputs(program, np.random.default_rng(0))
    inputs["G"][0, [5, 31, 32, 40]] = -np.inf
    wanted = evaluate(program, inputs)
    ((_, _, form),) = chunked(program)
    given_ = {spec.name: inputs[spec.name].reshape(spec.shape) for spec in form.inputs}
    for name, values in evaluate(form, given_).items():
        assert np.isfinite(wanted[name]).all()
        np.testing.assert_allclose(
            values.reshape(wanted[name].shape), wanted[name], rtol=1e-6, atol=1e-9
        )


def causal(change: Callable[[Graph, Axis, Axis, Tile], Tile]) -> Program:
    g = Graph("other")
    i, j, d, e = g.axes(i=LONG, j=LONG, d=3, e=3)
    q, k, v = g.input("Q", (i, d), "f64"), g.input("K", (j, d), "f64"), g.input("V", (j, e), "f64")
    weights = change(g, i, j, contract(q, k, over=d))
    g.output("O", contract(weights, v, over=j), "f64", (i, e))
    return g.program()


@pytest.mark.parametrize(
    "change",
    [
        lambda g, i, j, p: where(g.iota(i) <= j, p, 0.0),  # what comes behind
        lambda g, i, j, p: where(g.iota(j) <= i + 1, p, 0.0),  # and the next
        lambda g, i, j, p: p,  # all
        lambda g, i, j, p: where(g.iota(j) <= i, exp(p), 0.0),  # no function of i times one of j
        lambda g, i, j, p: where(g.iota(j) <= i, p, 1.0),
        lambda g, i, j, p: where(g.iota(j) <= i, p / reduce("sum", exp(p), over=j), 0.0),
        lambda g, i, j, p: where(g.iota(j) <= i, p * p, 0.0),
        lambda g, i, j, p: p * exp(where(g.iota(j) <= i, cast(g.iota(i) * j, "f64"), -math.inf)),
        lambda g, i, j, p: where(g.iota(j) <= i, exp(1.0 / cast(g.iota(i) - j + 1, "f64")), 0.0),
    ],
)
def test_what_is_no_causal_sum_of_that_kind(
    change: Callable[[Graph, Axis, Axis, Tile], Tile],
) -> None:
    assert not list(chunked(causal(change)))


def test_a_state_that_begins_with_something_or_changes_otherwise() -> None:
    for first, turned in ((1.0, False), (0.0, True)):
        g = Graph("stepped")
        t, d, e = g.axes(t=LONG, d=3, e=4)
        q, k, v = (
            g.input("q", (t, d), "f64"),
            g.input("k", (t, d), "f64"),
            g.input("v", (t, e), "f64"),
        )
        state = g.state(t, (d, e), first, "f64")
        after = state * exp(g.input("g", (t,), "f64")) + k * v
        after = after * after if turned else after
        g.output("o", contract(q, after, over=d), "f64", (t, e))
        g.output("s", recur(state, after), "f64", (d, e))
        same(g.program(), 0 if turned else 1)


@pytest.mark.parametrize(
    ("extent", "wanted"),
    [(64, (32,)), (256, (32, 64, 128)), (1000, (50, 100)), (4097, (17,)), (62, ()), (1009, ())],
)
def test_lengths_divide_what_is_cut(extent: int, wanted: tuple[int, ...]) -> None:
    assert lengths(extent) == wanted


def test_sums_of_other_lengths_are_cut_too() -> None:
    same(load_operator("retention").build(t=75, b=1, heads=2, d=3, dv=4), 1)
    same(load_operator("gla").build(t=80, b=1, heads=2, d=3, dv=4), 2)


def test_quadratic_text_and_recurrence_are_offered_in_linear_work() -> None:
    rates = Rates({"f64": 1e11, "f32": 1e11}, 5e10, 1e10)
    quadratic = causal(_seen)
    long = {axis: 32 * extent if axis in "ij" else extent for axis, extent in quadratic.extents}
    g = Graph("long")
    i, j, d, e = g.axes(**long)
    q, k, v = g.input("Q", (i, d), "f32"), g.input("K", (j, d), "f32"), g.input("V", (j, e), "f32")
    g.output("O", contract(_seen(g, i, j, contract(q, k, over=d)), v, over=j), "f32", (i, e))
    program = g.program()
    offered = forms_of(program, rates).offered
    assert min(form.program.flops for form in offered) < program.flops / 8
    stepped = load_operator("retention").build(b=1, t=LONG, heads=2, d=16)
    assert any(node.op.name == Before.name for node in stepped.nodes)
    forms = forms_of(stepped, rates).offered[1:]
    assert forms
    assert all(node.op.name != Before.name for form in forms for node in form.program.nodes)


PRIME = 67  # steps: chunks divide one more than that, or five more


@pytest.mark.parametrize("name", ["retention", "gla", "delta_rule", "gated_delta_net", "mamba2"])
def test_steps_that_no_chunk_divides_follow_steps_that_change_nothing(name: str) -> None:
    sizes = {"p": 5, "n": 3} if name == "mamba2" else {"d": 5}
    same(load_operator(name).build(b=2, t=PRIME, heads=2, **sizes), 2)


Step = Callable[[Tile, Tile, Tile, Axis], Tile]


def _fading(s: Tile, k: Tile, v: Tile, time: Axis) -> Tile:
    """A step of zeros halves what there is, which is nothing yet."""
    return s * 0.5 + k * v


def _placed(s: Tile, k: Tile, v: Tile, time: Axis) -> Tile:
    """What is added tells the step."""
    return s * 0.9 + k * (v * cast(s.graph.iota(time), "f64"))


def _shifted(s: Tile, k: Tile, v: Tile, time: Axis) -> Tile:
    """A step of zeros adds something."""
    return s * 0.5 + (k + 1.0) * (v + 1.0)


def _unit(s: Tile, k: Tile, v: Tile, time: Axis) -> Tile:
    """Of zeros nothing is made that has the length 1."""
    return s * 0.5 + k / reduce("sum", k * k, over=Axis("d", 3)) * v


STEPS: tuple[tuple[Step, int], ...] = ((_fading, 2), (_placed, 2), (_shifted, 0), (_unit, 0))


@pytest.mark.parametrize(("step", "count"), STEPS)
def test_only_steps_that_change_nothing_stand_in_front(step: Step, count: int) -> None:
    g = Graph("fronted")
    time, d, e = g.axes(t=PRIME, d=3, e=4)
    k, v = g.input("K", (time, d), "f64"), g.input("V", (time, e), "f64")
    before = g.state(time, (d, e), g.constant(0.0, "f64"))
    after = step(before, k, v, time)
    g.output("O", contract(g.input("Q", (time, d), "f64"), after, over=d))
    g.output("S", recur(before, after))
    same(g.program(), count)


@pytest.mark.parametrize(("less", "count"), [(0, 2), (1, 0)])
def test_steps_in_front_look_up_nothing_outside(less: int, count: int) -> None:
    """Rows of a table that steps name by numbers from 0, or from 1."""
    g = Graph("named")
    time, d, e = g.axes(t=PRIME, d=3, e=4)
    name = g.input("name", (time,), "i32", values=indices(9))
    row = name - less if less else name
    k = g.tensor("table", (9, 3), "f64", fill=0.0 if less else None)[row, d]
    before = g.state(time, (d, e), g.constant(0.0, "f64"))
    after = before * 0.5 + k * g.input("V", (time, e), "f64")
    g.output("O", contract(g.input("Q", (time, d), "f64"), after, over=d))
    recur(before, after)
    same(g.program(), count)
