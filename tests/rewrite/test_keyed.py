"""An argmax is the maximum of one number that holds a value and its place."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, argmax, argmin, cast, contract, exp, reduce, top
from ir.ops.fold import Fold
from ir.ops.reduce import Reduce
from ir.ops.top import Top
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite.forms import forms_of
from ir.rewrite.keyed import MOST_RANKS, rewritten
from ir.rewrite.work import Rates

RATES = Rates({"bf16": 9e14}, other=6e13, bytes=4e12)
NAN, INF = float("nan"), float("inf")
DRAWN = {
    "zeros": (0.0, -0.0),
    "ties": (0.0, -0.0, 1.0, -1.0, 2.0),
    "specials": (NAN, -NAN, 1.0, INF, -INF),
    "small": (-1e-40, 1e-40, -5.0, -INF, 1e-30),
}


def _rows(dtype: str, kind: str) -> Program:
    g = Graph("rows")
    a, b = g.axes(a=40, b=23)
    v = g.input("V", (a, b), dtype)
    g.output("I", (argmax if kind == "max" else argmin)(v, b), "i32", (a,))
    g.output("M", reduce(kind, v, over=b), dtype, (a,))
    return g.program()


def _same(program: Program, values: np.ndarray) -> Program:
    found = rewritten(program)
    assert found is not None
    wanted, had = evaluate(program, {"V": values}), evaluate(found[1], {"V": values})
    for name in wanted:
        floats = wanted[name].dtype.kind == "f"
        assert np.array_equal(wanted[name], had[name], equal_nan=floats), name
    return found[1]


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("drawn", DRAWN)
def test_floats_give_the_same_places_and_values(kind: str, drawn: str) -> None:
    rng = np.random.default_rng(len(drawn))
    values = rng.choice(np.array(DRAWN[drawn], np.float32), (40, 23))
    made = _same(_rows("f32", kind), values)
    reduces = [node for node in made.nodes if isinstance(node.op, Reduce)]
    assert [node.dtype for node in reduces] == ["i64"]
    assert not any(isinstance(node.op, Fold) for node in made.nodes)


@pytest.mark.parametrize("kind", ["max", "min"])
def test_whole_numbers_give_the_same_places_and_values(kind: str) -> None:
    rng = np.random.default_rng(7)
    _same(_rows("i32", kind), rng.integers(-3, 3, (40, 23)).astype(np.int32))
    ends = rng.choice(np.array([-(2**31), 2**31 - 1, 0], np.int32), (40, 23))
    _same(_rows("i32", kind), ends)


def _firsts(dtype: str, count: int, least: bool) -> Program:
    g = Graph("firsts")
    a, b, k = g.axes(a=40, b=23, k=count)
    values, places = top(g.input("V", (a, b), dtype), b, k, least=least)
    g.output("T", values, dtype, (a, k))
    g.output("I", places, "i32", (a, k))
    return g.program()


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize("count", [1, 2, MOST_RANKS])
@pytest.mark.parametrize("drawn", DRAWN)
def test_the_first_few_of_an_order_are_maxima(drawn: str, count: int, least: bool) -> None:
    rng = np.random.default_rng(count)
    values = rng.choice(np.array(DRAWN[drawn], np.float32), (40, 23))
    made = _same(_firsts("f32", count, least), values)
    assert sum(isinstance(node.op, Reduce) for node in made.nodes) == count
    assert not any(isinstance(node.op, Top) for node in made.nodes)
    ends = rng.choice(np.array([-(2**31), 2**31 - 1, 0], np.int32), (40, 23))
    _same(_firsts("i32", count, least), ends)


def test_many_of_an_order_stay_one() -> None:
    assert rewritten(_firsts("f32", MOST_RANKS + 1, False)) is None


def test_the_choice_of_experts_is_offered_in_one_kernel() -> None:
    g = Graph("experts")
    t, e, k = g.axes(t=16384, e=256, k=8)
    score = exp(g.input("X", (t, e), "f32"))
    values, places = top(score / reduce("sum", score, over=e), e, k)
    g.output("w", values / reduce("sum", values, over=k), "f32", (t, k))
    g.output("i", places, "i32", (t, k))
    names = [form.name for form in forms_of(g.program(), RATES).offered]
    assert any(name.startswith("keyed") for name in names), names


@pytest.mark.parametrize("dtype", ["f64", "i64"])
def test_numbers_as_long_as_the_key_are_left_alone(dtype: str) -> None:
    assert rewritten(_rows(dtype, "max")) is None


def test_a_maximum_that_more_is_made_of_stays_one() -> None:
    g = Graph("sampled")
    a, b = g.axes(a=3, b=8)
    v = g.input("V", (a, b), "f32")
    top = reduce("max", v, over=b)
    g.output("P", reduce("sum", exp(v - top), over=b), "f32", (a,))
    g.output("I", argmax(v, b), "i32", (a,))
    found = rewritten(g.program())
    assert found is not None
    kinds = [(n.op.kind, n.dtype) for n in found[1].nodes if isinstance(n.op, Reduce)]
    assert ("max", "f32") in kinds
    assert ("max", "i64") in kinds


def test_it_is_offered_where_products_would_go_through_memory() -> None:
    g = Graph("nearest")
    m, n, d = g.axes(m=65536, n=1024, d=64)
    x, c = g.input("X", (m, d), "bf16"), g.input("C", (n, d), "bf16")
    own = reduce("sum", cast(c, "f32") * cast(c, "f32"), over=d)
    g.output("I", argmin(own - contract(x, c, over=d) * 2.0, n), "i32", (m,))
    names = [form.name for form in forms_of(g.program(), RATES).offered]
    assert any(name.startswith("keyed") for name in names), names
