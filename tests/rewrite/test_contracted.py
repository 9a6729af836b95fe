"""Sums of products as contractions: which sums are, and that they are worth the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ir import Graph, cast, exp, recur, reduce, where
from ir.inputs import random_inputs
from ir.ops.reduce import Contract, Reduce
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite.contracted import rewritten
from ir.rewrite.forms import forms_of
from ir.rewrite.work import Rates
from ir.tiles import Tile
from tests.cuda.run import needs_compiler
from tests.targets.formed import form_problems

RATES = Rates({"bf16": 1e15, "i8": 2e15}, other=3e13, bytes=4e12)
Body = Callable[[Tile, Tile, Tile, Tile], Tile]


def summed(body: Body, dtype: str = "f32", over: str = "k") -> Program:
    """A sum over k of a(m, k), b(n, k), s(k) and t(m)."""
    g = Graph("summed")
    axes = dict(zip("mnk", g.axes(m=24, n=40, k=48), strict=True))
    a, b = g.input("A", (axes["m"], axes["k"]), dtype), g.input("B", (axes["n"], axes["k"]), dtype)
    s, t = g.input("s", (axes["k"],), "f32"), g.input("t", (axes["m"],), "f32")
    factors = (a, b, s, t) if dtype == "i8" else (cast(a, "f32"), cast(b, "f32"), s, t)
    y = reduce("sum", body(*factors), over=tuple(axes[one] for one in over))
    g.output("Y", y, y.dtype)
    return g.program()


BODIES: dict[str, Body] = {
    "two": lambda a, b, s, t: a * b,
    "scale": lambda a, b, s, t: a * b * s,
    "quotient": lambda a, b, s, t: a * s / (s * s + 1) * b,
    "sign": lambda a, b, s, t: -(a * -(s * b)) * -s,
    "behind": lambda a, b, s, t: t * a * b / (1 + t * t),
    "made": lambda a, b, s, t: exp(a * t) * (b + s),
    "twice": lambda a, b, s, t: a * b * a,
    "thrice": lambda a, b, s, t: (s * a) * (b * s) / s * a * s,
    "turned": lambda a, b, s, t: where(s > 0.0, -(a * b), a * b),
    "turned back": lambda a, b, s, t: b * where(s > 0.0, a, -a),
    "masked": lambda a, b, s, t: where(s > 0.0, a * b, 0.0) * s,
    "rows masked": lambda a, b, s, t: where((s > 0.0) & (t < 0.5), a * b, 0.0),
    "signs": lambda a, b, s, t: where(b > 0.0, -a, a),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_sum_of_products_is_one_contraction(name: str) -> None:
    program = summed(BODIES[name])
    found = rewritten(program)
    assert found is not None
    assert [type(node.op) for node in found[1].nodes if isinstance(node.op, Contract | Reduce)] == [
        Contract
    ]
    inputs = random_inputs(program, np.random.default_rng(3))
    for key, array in evaluate(program, inputs).items():
        np.testing.assert_allclose(evaluate(found[1], inputs)[key], array, rtol=1e-9, atol=1e-9)


def test_whole_numbers_are_exact() -> None:
    program = summed(lambda a, b, s, t: cast(a, "i32") * cast(b, "i32"), "i8")
    found = rewritten(program)
    assert found is not None
    inputs = random_inputs(program, np.random.default_rng(3))
    assert np.array_equal(evaluate(program, inputs)["Y"], evaluate(found[1], inputs)["Y"])


@pytest.mark.parametrize(
    "body",
    [
        lambda a, b, s, t: a * a,
        lambda a, b, s, t: a * s,
        lambda a, b, s, t: exp(a * b),
        lambda a, b, s, t: (a - b) * (a - b),
        lambda a, b, s, t: 1 / (a * b),
        lambda a, b, s, t: cast(cast(a * b, "bf16"), "f32") * s,
    ],
    ids=["square", "vector", "function", "difference", "divisor", "rounded"],
)
def test_others_stay_sums(body: Body) -> None:
    assert rewritten(summed(body)) is None


@pytest.mark.parametrize("quotient", [False, True])
def test_a_mask_goes_on_hiding_what_may_be_infinite(quotient: bool) -> None:
    g = Graph("masked")
    m, n, k = g.axes(m=32, n=8, k=16)
    s = where(g.input("s", (k,), "f32") > 0.0, g.input("u", (k,), "f32"), 0.0)
    x, w = g.input("X", (m, k), "f32"), g.input("W", (k, n), "f32")
    value = x / s * w if quotient else exp(s * 1e3) * w * x
    g.output("Y", reduce("sum", where((s > 0.0) & (x > 0.0), value, 0.0), over=k), "f32")
    program = g.program()
    found = rewritten(program)
    inputs = random_inputs(program, np.random.default_rng(3))
    inputs["s"][::2] = -1.0
    wanted = evaluate(program, inputs)["Y"]
    assert found is None or np.isfinite(evaluate(found[1], inputs)["Y"][np.isfinite(wanted)]).all()


def test_factors_go_where_there_is_least_to_multiply() -> None:
    """A factor of the sum's axis alone is one of the smaller side's; another stays behind it."""
    found = rewritten(summed(lambda a, b, s, t: b * s * a * t))
    assert found is not None
    node = next(node for node in found[1].nodes if isinstance(node.op, Contract))
    sides = [found[1].nodes[arg] for arg in node.args]
    made = [side for side in sides if side.op.name == "map"]
    assert [side.axes for side in made] == [("m", "k")] or made[0].axes == ("k", "m")


@pytest.mark.parametrize("alone", [False, True])
def test_sums_of_products_with_a_state_are_reads_of_it(alone: bool) -> None:
    g = Graph("steps")
    t, b, i, j = g.axes(t=3, b=8, i=8, j=8)
    h = g.state(t, (b, j), 1.0)
    given = h * h if alone else h * g.input("W", (i, j), "f32")
    new = reduce("sum", given, over=j)
    g.output("Y", recur(h, h * 0.5 + new if alone else new.at(i=j)), "f32", (b, j))
    found = rewritten(g.program())
    assert (found is None) == alone
    assert found is None or any(isinstance(node.op, Contract) for node in found[1].nodes)


def test_attention_written_in_sums_is_what_it_is_in_contractions() -> None:
    """Scores and weighed values as sums: both products are tensor cores' on paper."""
    g = Graph("attention")
    i, j, d, e = g.axes(i=256, j=256, d=64, e=64)
    q, k, v = (g.input(n, axes, "bf16") for n, axes in
               (("Q", (i, d)), ("K", (j, d)), ("V", (j, e))))  # fmt: skip
    s = reduce("sum", cast(q, "f32") * k, over=d)
    p = exp(s - reduce("max", s, over=j))
    o = reduce("sum", cast(p, "bf16") * cast(v, "f32"), over=j)
    g.output("O", o / reduce("sum", p, over=j), "bf16", (i, e))
    best = min(forms_of(g.program(), RATES).offered, key=lambda form: form.work.seconds)
    products = [node for node in best.program.nodes if isinstance(node.op, Contract)]
    assert len(products) == 2
    assert {best.program.nodes[arg].dtype for one in products for arg in one.args} == {"bf16"}


def test_a_difference_of_products_is_two_contractions() -> None:
    def narrow(x: Tile) -> Tile:
        return cast(cast(exp(x), "bf16"), "f32")

    program = summed(lambda a, b, s, t: a * b - narrow(a) * narrow(b), "bf16")
    best = min(forms_of(program, RATES).offered, key=lambda form: form.work.seconds)
    assert sum(isinstance(node.op, Contract) for node in best.program.nodes) == 2
    assert not any(isinstance(node.op, Reduce) for node in best.program.nodes)
    assert best.cancels


@needs_compiler
@pytest.mark.parametrize("name", ["scale", "behind"])
def test_kernels_of_it_are_right(name: str) -> None:
    program = summed(BODIES[name], "bf16")
    found = rewritten(program)
    assert found is not None
    assert not form_problems(program, found[1], "usual")
