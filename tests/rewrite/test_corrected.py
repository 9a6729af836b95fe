"""States that steps correct by what they read of them, by chunks: the same numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ir import Axis, Graph, Tile, cast, contract, exp, recur, sigmoid, where
from ir.oracle import evaluate, random_inputs
from ir.program import Program
from ir.registry import load_operator
from ir.rewrite.chunks import chunked
from ir.rewrite.forms import forms_of
from ir.rewrite.work import Rates
from ir.values import normal, uniform
from tests.rewrite.test_chunks import LONG, same


def stepped(
    step: Callable[[Graph, Tile, dict[str, Tile]], Tile], first: bool = False, reads: str = "after"
) -> Program:
    g = Graph("steps")
    b, t, k, v = g.axes(b=2, t=LONG, k=3, v=4)
    given = {
        "K": g.input("K", (b, t, k), "f64", normal(0.5)),
        "A": g.input("A", (b, t, k), "f64", normal(0.5)),
        "V": g.input("V", (b, t, v), "f64"),
        "beta": g.input("beta", (b, t), "f64", uniform(0, 1)),
        "gate": g.input("gate", (b, t), "f64", uniform(-1, 0)),
        "gates": g.input("gates", (b, t, k), "f64", uniform(-1, 0)),
        "wide": g.input("wide", (b, t, v), "f64", uniform(0, 1)),
    }
    start = g.input("S0", (b, k, v), "f64") if first else 0.0
    before = g.state(t, (b, k, v), start, "f64")
    after = step(g, before, given)
    read = {"after": after, "before": before}[reads]
    g.output("O", contract(g.input("Q", (b, t, k), "f64"), read, over=k), "f64", (b, t, v))
    g.output("S", recur(before, after), "f64", (b, k, v))
    return g.program()


def _delta(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    return s + x["K"] * ((x["V"] - contract(x["K"], s, over=Axis("k", 3))) * x["beta"])


def _expanded(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    read = contract(s, x["K"], over=Axis("k", 3))
    return s - x["beta"] * x["K"] * read + x["K"] * (x["beta"] * x["V"])


def _gated(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    return _delta(g, s * exp(x["gate"]), x)


def _before_the_gate(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    read = contract(x["K"], s, over=Axis("k", 3))
    return exp(x["gate"]) * s + x["K"] * ((x["V"] - read) * x["beta"])


def _of_keys(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    """A decay for each key, and others that are read than are written (as RWKV-7 has them)."""
    read = contract(x["A"], s, over=Axis("k", 3))
    return s * exp(x["gates"]) - read * (x["A"] * x["beta"]) + x["V"] * x["K"]


def _sigmoid(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    """A factor that is no exponential."""
    scaled = sigmoid(x["gate"]) * s
    return scaled + x["K"] * (x["V"] - contract(x["K"], scaled, over=Axis("k", 3)))


def _fixed(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    return _delta(g, 0.75 * s, x)


def _chosen(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    """Corrections that are divided, and turned round."""
    return s - x["K"] * (-(x["V"] / (x["beta"] + 1.0) - contract(x["K"], s, over=Axis("k", 3)) / 2))


def _twice(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    """Two products and no correction."""
    return s * exp(x["gate"]) + (x["K"] * x["V"] + x["A"] * x["wide"])


def _mixed(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    """A part of the state is kept."""
    part = exp(x["gate"])
    return s + x["K"] * x["V"] - (1.0 - part) * s


def _towards(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    part = 1.0 - exp(x["gate"])
    return s - part * (s - x["K"] * x["V"])


def _drawn_near(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    return s + sigmoid(x["gate"]) * (x["K"] * x["V"] - s)


def _scaled_whole(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    return (s + x["K"] * x["V"] / (1.0 + x["beta"])) * exp(x["gate"]) * 0.75


def _corrected_whole(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    return exp(x["gate"]) * _delta(g, s, x) / 2.0


def _two_corrections(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    """Both by what was there before the step."""
    reads = [contract(x[name], s, over=Axis("k", 3)) for name in "KA"]
    return s - x["K"] * reads[0] - x["A"] * reads[1] * x["beta"]


def _one_after_the_other(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    """Two Householder matrices a step, the second of what the first one leaves."""
    s = s * exp(x["gate"])
    for key, value in (("K", "V"), ("A", "wide")):
        error = x[value] - contract(x[key], s, over=Axis("k", 3))
        s = s + x[key] * (error * x["beta"])
    return s


def _three(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    """Three of them, and a product that is given, behind a decay of each key."""
    s = s * exp(x["gates"])
    for number, key in enumerate("KAK"):
        error = x["V"] - contract(x[key] / (number + 2.0), s, over=Axis("k", 3))
        s = s + x[key] * (error * x["beta"])
    return s + x["A"] * x["wide"]


def _decayed_between(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    """A decay in front of each correction, of all keys and of each."""
    for gate, key in (("gate", "K"), ("gates", "A")):
        s = s * exp(x[gate])
        s = s + x[key] * ((x["V"] - contract(x[key], s, over=Axis("k", 3))) * x["beta"])
    return s


def _decayed_behind(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    """The second one is of a state that has the first, and no decay yet."""
    s = s + x["K"] * ((x["V"] - contract(x["K"], s, over=Axis("k", 3))) * x["beta"])
    s = s - x["A"] * contract(x["A"], s, over=Axis("k", 3))
    return s * exp(x["gates"]) / 2.0


def _scaled_unlike(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    """What is read has the first product as it is, and the step has it scaled and turned round."""
    term = x["K"] * ((x["V"] - contract(x["K"], s, over=Axis("k", 3))) * x["beta"])
    error = x["wide"] - contract(x["A"], s + term * 0.5, over=Axis("k", 3))
    return s * exp(x["gate"]) - term / (1.0 + x["beta"]) + x["A"] * error * 0.25


def _given_first(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    """A pair is told before the state is corrected."""
    s = s * exp(x["gate"]) + x["K"] * x["V"]
    return s - x["A"] * (contract(x["A"], s, over=Axis("k", 3)) * x["beta"])


def _crossed(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    """Each correction is of both reads, one of them twice."""
    one, two = (contract(x[name], s, over=Axis("k", 3)) for name in "KA")
    return s + x["K"] * (x["V"] - one - 0.5 * two - 0.25 * one) + x["A"] * (two * 0.5 - one)


STEPS = (
    _two_corrections,
    _one_after_the_other,
    _three,
    _decayed_between,
    _decayed_behind,
    _scaled_unlike,
    _given_first,
    _crossed,
    _mixed,
    _towards,
    _drawn_near,
    _scaled_whole,
    _corrected_whole,
    _delta,
    _expanded,
    _gated,
    _before_the_gate,
    _of_keys,
    _sigmoid,
    _fixed,
    _chosen,
    _twice,
)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("reads", ["after", "before"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_steps(
    step: Callable[[Graph, Tile, dict[str, Tile]], Tile], reads: str, first: bool
) -> None:
    same(stepped(step, first, reads), rtol=1e-8)


@pytest.mark.parametrize("name", ["delta_rule", "gated_delta_net"])
def test_operators_that_correct(name: str) -> None:
    program = load_operator(name).build(b=1, t=LONG, heads=2, d=5, dv=6)
    forms = list(chunked(program))
    assert len(forms) == 1
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = evaluate(program, inputs)
    given = {spec.name: inputs[spec.name].reshape(spec.shape) for spec in forms[0][2].inputs}
    for key, values in evaluate(forms[0][2], given).items():
        close = np.abs(values.reshape(wanted[key].shape) - wanted[key]).max()
        assert close < 1e-5 * np.abs(wanted[key]).max()


def _squared(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    read = contract(x["K"], s, over=Axis("k", 3))
    return s + x["K"] * (x["V"] - read * read)


def _of_values(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    """Corrections of another size for each value: no one system."""
    return s + x["K"] * ((x["V"] - contract(x["K"], s, over=Axis("k", 3))) * x["wide"])


def _of_either_sign(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    return _delta(g, s * x["gate"], x)


def _rounded(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    """What is rounded on its way is no sum of what it is of."""
    read = cast(cast(contract(x["K"], s, over=Axis("k", 3)), "bf16"), "f64")
    return s + x["K"] * (x["V"] - read)


def _elsewhere(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    """Read as it is as well."""
    return _delta(g, s, x) + where(s > 0.0, s, 0.0)


REFUSED = (_squared, _of_values, _of_either_sign, _rounded, _elsewhere)


@pytest.mark.parametrize("step", REFUSED, ids=lambda step: step.__name__)
def test_steps_of_other_kinds_stay(
    step: Callable[[Graph, Tile, dict[str, Tile]], Tile],
) -> None:
    assert not list(chunked(stepped(step)))


def test_an_error_is_an_output_too() -> None:
    g = Graph("errors")
    t, k, v = g.axes(t=LONG, k=3, v=4)
    keys, values = g.input("K", (t, k), "f64", normal(0.5)), g.input("V", (t, v), "f64")
    before = g.state(t, (k, v), 0.0, "f64")
    error = values - contract(keys, before, over=k)
    g.output("E", error, "f64", (t, v))
    recur(before, before + keys * error)
    same(g.program(), rtol=1e-8)


def test_a_filter_that_learns_its_weights() -> None:
    """A state of keys alone (least mean squares; Widrow and Hoff, 1960)."""
    g = Graph("lms")
    b, t, k = g.axes(b=2, t=LONG, k=5)
    x, wanted = g.input("X", (b, t, k), "f64", normal(0.4)), g.input("Y", (b, t), "f64")
    before = g.state(t, (b, k), 0.0, "f64")
    error = wanted - contract(x, before, over=k)
    g.output("E", error, "f64", (b, t))
    g.output("W", recur(before, before + 0.5 * error * x), "f64", (b, k))
    same(g.program(), rtol=1e-8)


def _doubled(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    """As many products as there are ways through it."""
    found = _delta(g, s, x)
    for _ in range(40):
        found = found + found
    return found * 2.0**-40


def _read_often(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    found = contract(x["K"], s, over=Axis("k", 3))
    for _ in range(40):
        found = found * found + found
    return s + x["K"] * found


def _powers(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    factor = x["beta"]
    for _ in range(40):
        factor = factor * factor
    return s * exp(x["gate"]) + x["K"] * x["V"] * factor + x["A"] * x["wide"]


def _long(g: Graph, s: Tile, x: dict[str, Tile]) -> Tile:
    for number in range(1500):
        s = s + x["K"] * (x["V"] * float(number))
    return s


@pytest.mark.parametrize(
    "step", [_doubled, _read_often, _powers, _long], ids=lambda step: step.__name__
)
def test_steps_of_many_ways_are_given_up(
    step: Callable[[Graph, Tile, dict[str, Tile]], Tile],
) -> None:
    assert not list(chunked(stepped(step)))


def test_a_delta_rule_is_offered_by_chunks() -> None:
    rates = Rates({"f64": 1e11, "f32": 1e12, "bf16": 1e14}, 5e10, 1e12)
    program = load_operator("delta_rule").build(b=4, t=2048, heads=8, d=64, dtype="bf16")
    assert any(form.family for form in forms_of(program, rates).offered)
