"""Softmaxes over several sets: each set relative to its own extreme, brought together behind it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ir import Graph, cast, contract, exp, lengths, log, maximum, minimum, reduce, where
from ir.dtypes import from_float
from ir.inputs import random_inputs
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite.forms import forms_of
from ir.rewrite.rebased import NAME, read_again, rewritten
from ir.rewrite.work import Rates
from ir.tiles import Tile
from tests.cuda.run import needs_compiler
from tests.judging import bounds_of
from tests.targets.formed import form_problems

RATES = Rates({"bf16": 1e15}, 6e13, 4.8e12)


def attention(sets: int = 2, *, sink: bool = False, stored: bool = False) -> Program:
    """Queries and several sets of keys, the first of lengths that may be 0, in one softmax."""
    g = Graph("several")
    b, q, d, e = g.axes(b=3, q=20, d=16, e=24)
    x = g.input("Q", (b, q, d), "bf16")
    scores, most, keys = list[Tile](), list[Tile](), list[Any]()
    for number in range(sets):
        k = g.axis(f"k{number}", 24 + 8 * number)
        s = contract(x, g.input(f"K{number}", (b, k, d), "bf16"), over=d) * 0.25
        if not number:
            s = where(g.iota(k) < g.input("n", (b,), "i32", values=lengths(24, 0)), s, -np.inf)
        scores, most, keys = [*scores, s], [*most, reduce("max", s, over=k)], [*keys, k]
    joint = most[0]
    for other in most[1:]:
        joint = maximum(joint, other)
    joint = maximum(joint, g.input("sink", (b,), "f32")) if sink else joint
    total, out = g.constant(0.0, "f32"), g.constant(0.0, "f32")
    for number, (s, k) in enumerate(zip(scores, keys, strict=True)):
        p = exp(s - joint)
        v = g.input(f"V{number}", (b, k, e), "bf16")
        total, out = total + reduce("sum", p, over=k), out + contract(cast(p, "bf16"), v, over=k)
        if stored:
            g.output(f"P{number}", p)
    g.output("O", out / total, "bf16")
    g.output("L", joint + log(total), "f32")
    return g.program()


def problems_of(program: Program, form: Program, inputs: dict[str, NDArray[Any]]) -> list[str]:
    wanted, had = bounds_of(program, inputs), evaluate(form, inputs)
    dtypes = {spec.name: spec.dtype for spec in program.outputs}
    judged = ((b, from_float(had[name], dtypes[name])) for name, b in wanted.items())
    return [v.detail for b, array in judged if not (v := b.judge(array)).right]


@pytest.mark.parametrize(("sets", "sink"), [(2, False), (3, False), (2, True)])
def test_they_say_the_same(sets: int, sink: bool) -> None:
    program = attention(sets, sink=sink)
    found = rewritten(program)
    assert found is not None
    inputs = random_inputs(program, np.random.default_rng(2))
    inputs["n"] = np.array([0, 1, 24], np.int32)  # of a sample no key of the first set is there
    assert problems_of(program, found[1], inputs) == []
    assert np.isfinite(evaluate(found[1], inputs)["L"]).all()
    assert rewritten(found[1]) is None


def softmax(change: Any) -> bool:
    """Whether exponentials of rows relative to the largest of two tensors are made otherwise."""
    g = Graph("changed")
    i, j, k = g.axes(i=6, j=8, k=5)
    x, y = g.input("X", (i, j), "f32"), g.input("Y", (i, k), "f32")
    joint = maximum(reduce("max", x, over=j), reduce("max", y, over=k))
    p, q = exp(x - joint), exp(y - joint)
    g.output("O", change(p, q, x - joint, (i, j, k)))
    return rewritten(g.program()) is not None


def test_what_changes_otherwise_stays() -> None:
    def total(p: Tile, over: Any) -> Tile:
        return reduce("sum", p, over=over)

    assert softmax(lambda p, q, s, a: total(p, a[1]) + total(q, a[2]))
    assert softmax(lambda p, q, s, a: total(p * p, a[1]) + total(q, a[2]))
    assert not softmax(lambda p, q, s, a: total(p, a[1]) + p + total(q, a[2]))  # stored
    assert not softmax(lambda p, q, s, a: total(p * s, a[1]) + total(q, a[2]))
    assert not softmax(lambda p, q, s, a: total(p * q, (a[1], a[2])))  # of both sets at once
    assert not softmax(lambda p, q, s, a: total(p, (a[0], a[1])) + total(q, (a[0], a[2])))
    assert not softmax(lambda p, q, s, a: total(minimum(p, 0.5), a[1]) + total(q, a[2]))
    assert rewritten(attention(stored=True)) is None
    assert rewritten(attention(1, sink=True)) is None  # a number beside one set is no other set


def test_scores_that_wait_for_others_are_work() -> None:
    program = attention()
    found = rewritten(program)
    assert found is not None
    assert read_again(program) == 2 * 4 * 3 * 20 * (24 + 32)
    assert read_again(found[1]) == 0
    assert read_again(attention(1, sink=True)) == 0
    forms = forms_of(program, RATES)
    assert NAME in [form.steps[-1].rule for form in forms.offered[1:]]


@needs_compiler
def test_kernels_of_it_are_right() -> None:
    program = attention(sink=True)
    found = rewritten(program)
    assert found is not None
    assert form_problems(program, found[1], "usual") == []
