"""Rewrites of sums keep the types that their terms are computed in: whole numbers, truth values,
what saturates, what is no number."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, cast, contract, maximum, minimum, recur, reduce, tanh, where
from ir.axes import Axis
from ir.dtypes import compute_dtype
from ir.inputs import random_inputs
from ir.ops.reduce import Contract, Reduce
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite import accumulated, contracted, prefixed, selected
from ir.rewrite.forms import rewritten
from ir.rewrite.narrowing import unwidened
from ir.rewrite.spans import spans_of
from ir.tiles import Tile, apply

T, V, K = Axis("t", 6), Axis("v", 8), Axis("k", 8)


class Scene:
    """Inputs over axes t, v, k by names that begin with them, and the program of a value."""

    def __init__(self) -> None:
        self.g = Graph("scene")
        self.g.axes(t=6, v=8, k=8)

    def of(self, axes: str, dtype: str) -> Tile:
        dims = tuple({"t": T, "v": V, "k": K}[name] for name in axes)
        return self.g.input(f"{axes}_{dtype}", dims, dtype)

    def made(self, value: Tile) -> Program:
        self.g.output("Y", value, value.dtype)
        return self.g.program()


def same(one: Program, other: Program, seed: int = 0) -> None:
    inputs = random_inputs(one, np.random.default_rng(seed))
    np.testing.assert_allclose(
        evaluate(other, inputs)["Y"], evaluate(one, inputs)["Y"], rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("kinds", [("i8", "i8"), ("u8", "i32"), ("bf16", "i8")])
def test_whole_factors_of_a_float_sum(kinds: tuple[str, str]) -> None:
    s = Scene()
    program = s.made(reduce("sum", s.of("tk", kinds[0]) * 0.5 * s.of("vk", kinds[1]), over=K))
    found = contracted.rewritten(program)
    assert found is not None
    same(program, found[1])
    same(program, unwidened(found[1]))


def test_truth_values_as_factors() -> None:
    s = Scene()
    x, w = s.of("tk", "f32") > 0, s.of("vk", "f32") > 0
    program = s.made(reduce("sum", cast(x, "f32") * s.of("t", "f32") * w, over=K))
    found = contracted.rewritten(program)
    assert found is not None
    same(program, found[1])


def test_factors_are_multiplied_in_the_type_of_the_sum() -> None:
    s = Scene()
    left = s.of("tk", "i32") * s.of("vk", "f32")
    program = s.made(reduce("sum", left * (cast(s.of("tk", "i8"), "i32") * s.of("vk", "bf16")), K))
    found = contracted.rewritten(program)
    assert found is not None
    products = [n for n in found[1].nodes if n.op.name == "map"]
    assert {n.dtype for n in products} == {"f32"}
    same(program, found[1])


@pytest.mark.parametrize("counted", [False, True])
def test_a_place_is_a_whole_number(counted: bool) -> None:
    s = Scene()
    here = s.g.iota(V) == s.of("t", "f32")
    term = where(here, 1.0 if counted else s.of("v", "f32"), 0.0)
    assert selected.rewritten(s.made(reduce("sum", term, over=V))) is None


def test_a_line_of_infinity_is_none() -> None:
    s = Scene()
    met = cast(s.g.iota(K), "f32") <= cast(s.g.iota(V), "f32") + float("inf")
    program = s.made(reduce("sum", where(met, s.of("tk", "f32"), 0.0), over=K))
    assert prefixed.rewritten(program) is None
    assert selected.rewritten(program) is None


@pytest.mark.parametrize(("state", "term"), [("f32", "i8"), ("f32", "i32"), ("i64", "i32"),
                                             ("f64", "f32"), ("f32", "bool")])  # fmt: skip
def test_what_steps_add_is_added_up_in_the_type_of_the_state(state: str, term: str) -> None:
    g = Graph("steps")
    g.axes(t=6, v=8)
    x = g.input("X", (T, V), "f32") > 0 if term == "bool" else g.input("X", (T, V), term)
    s = g.state(T, (V,), g.input("S", (V,), state))
    g.output("Y", recur(s, s + x), state)
    program = g.program()
    found = accumulated.rewritten(program)
    assert found is not None
    (total,) = (node for node in found[1].nodes if isinstance(node.op, Reduce))
    assert total.dtype == compute_dtype(state)
    same(program, found[1])


def test_rules_sum_truth_values_as_numbers() -> None:
    s = Scene()
    product = s.of("tk", "f32") * s.of("vk", "f32")
    program = s.made(reduce("sum", product - (s.of("tvk", "bf16") > 0), over=K))
    made = [one for step, _, one in rewritten(program) if step.rule.endswith("-apart")]
    assert made
    for one in made:
        same(program, one)
    s = Scene()
    program = s.made(contract(s.of("tk", "f32") > 0, s.of("t", "f32"), over=K))
    for _, _, one in rewritten(program):
        same(program, one)


def test_a_guarded_term_is_of_its_own_type() -> None:
    """`where(c, x, 0.0)` of whole numbers is a float, which saturates where it is cast."""
    g = Graph("guarded")
    g.axes(t=6, v=8)
    place, x = g.input("p", (T,), "i32"), g.input("X", (V,), "i32") * 37
    term = cast(where(g.iota(V) == place % 8, x, 0.0), "i8")
    g.output("Y", reduce("sum", cast(term, "i32"), over=V), "i32")
    program = g.program()
    found = selected.rewritten(program)
    if found is not None:
        same(program, found[1])


def test_a_number_among_conditions_stays() -> None:
    g = Graph("numbers")
    g.axes(t=6, v=8)
    met = apply("and", g.iota(V) == g.input("p", (T,), "i32") % 8, g.input("X", (T,), "i32") > 0)
    g.output("Y", reduce("sum", cast(met, "i32"), over=V), "i32")
    program = g.program()
    found = selected.rewritten(program)
    assert found is not None
    same(program, found[1])


def test_spans_of_what_is_no_number_or_true() -> None:
    s = Scene()
    near = minimum(maximum(s.of("t", "f32"), 0.25), 0.5)
    program = s.made(cast(cast(near, "bool"), "i32") * 200 + cast(tanh(near) + 200.0, "i32"))
    spans = dict(zip((n.dtype for n in program.nodes), spans_of(program), strict=True))
    assert (spans["bool"].least, spans["bool"].most) == (0, 1)
    whole = [
        span
        for node, span in zip(program.nodes, spans_of(program), strict=True)
        if node.op.name == "cast" and node.dtype == "i32"
    ]
    assert whole[0].most == 1
    assert whole[1].least == 0
    assert whole[1].most >= 200


def test_a_scale_of_one_sign_is_not_negated_in_its_type() -> None:
    s = Scene()
    a, b = -cast(s.of("tk", "e8m0"), "f32"), cast(s.of("vk", "e8m0"), "f32")
    made = unwidened(s.made(contract(a, b, over=K)))
    (node,) = (node for node in made.nodes if isinstance(node.op, Contract))
    assert [made.nodes[arg].dtype for arg in node.args] == ["f32", "f32"]


def test_long_powers_are_looked_at_once() -> None:
    s = Scene()
    y = s.of("tk", "f32")
    for _ in range(40):
        y = y * y
    program = s.made(reduce("sum", y * s.of("vk", "f32"), over=K))
    for one in (contracted, selected, prefixed):
        one.rewritten(program)
