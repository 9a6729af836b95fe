"""Softmax of scores between known ends needs no largest one: the same shares and logarithms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ir import Graph, cast, contract, exp, log, maximum, reduce, sigmoid, tanh, where
from ir.dtypes import from_float
from ir.inputs import random_inputs
from ir.ops.reduce import Reduce
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite.forms import forms_of
from ir.rewrite.unshifted import NAME, rewritten
from ir.rewrite.work import Rates
from ir.tiles import Tile
from tests.cuda.run import needs_compiler
from tests.judging import bounds_of
from tests.targets.formed import form_problems

Made = Callable[[Graph, Tile], Tile]


def softmax(score: Made, *, f16: bool = False, causal: bool = True) -> Program:
    """Attention by scores of what is multiplied, weights, and the logarithm of their sum."""
    g = Graph("scored")
    q, k, d, e = g.axes(q=40, k=48, d=16, e=24)
    dtype = "f16" if f16 else "bf16"
    x, y = g.input("Q", (q, d), dtype), g.input("K", (k, d), dtype)
    s = score(g, contract(x, y, over=d))
    if causal:
        s = where(g.iota(k) <= g.iota(q) + 8, s, -np.inf)
    most = reduce("max", s, over=k)
    p = exp(s - most)
    total = reduce("sum", p, over=k)
    g.output("O", contract(cast(p, dtype), g.input("V", (k, e), dtype), over=k) / total, dtype)
    g.output("P", p / total, "f32")
    g.output("L", log(total) + most, "f32")
    return g.program()


TAKEN: dict[str, Made] = {
    "tangents": lambda _, s: tanh(s * 0.1) * 50.0,
    "shares": lambda _, s: sigmoid(s) * -3.0,
    "bytes": lambda _, s: cast(cast(s, "i8"), "f32") * 0.25 + 20.0,
    "apart": lambda _, s: sigmoid(s) * 100.0,  # about 50, which is taken from each
}


@pytest.mark.parametrize("name", TAKEN)
def test_shares_are_the_same_without_the_largest(name: str) -> None:
    program = softmax(TAKEN[name])
    found = rewritten(program)
    assert found is not None
    node = program.nodes[found[0]]
    assert isinstance(node.op, Reduce)
    assert not any(isinstance(n.op, Reduce) and n.op.kind == "max" for n in found[1].nodes)
    inputs = random_inputs(program, np.random.default_rng(3))
    wanted, had = bounds_of(program, inputs), evaluate(found[1], inputs)
    dtypes = {spec.name: spec.dtype for spec in program.outputs}

    def stored(name: str) -> NDArray[Any]:
        return from_float(had[name], dtypes[name])

    assert [v.detail for n, b in wanted.items() if not (v := b.judge(stored(n))).right] == []


LEFT: dict[str, Program] = {
    "unknown ends": softmax(lambda _, s: s * 0.1),
    "ends too far": softmax(lambda _, s: tanh(s) * 61.0 + 61.0 * sigmoid(s)),
    "f16 has no such numbers": softmax(lambda _, s: tanh(s) * 50.0, f16=True),
    "a finite largest": softmax(lambda _, s: maximum(s, 0.0)),
}


@pytest.mark.parametrize("name", LEFT)
def test_others_are_left(name: str) -> None:
    assert rewritten(LEFT[name]) is None


def test_f16_has_weights_that_are_near_to_each_other() -> None:
    assert rewritten(softmax(lambda _, s: tanh(s) * 3.0, f16=True)) is not None


def changed(change: Callable[[Tile, Tile, Tile, Callable[[Tile], Tile]], Tile]) -> bool:
    """Whether an output of scores, their largest, their exponentials and sums is written
    otherwise."""
    g = Graph("changed")
    i, j = g.axes(i=6, j=8)
    s = tanh(g.input("X", (i, j), "f32"))
    most = reduce("max", s, over=j)
    p = exp(s - most)
    g.output("O", change(s, most, p, lambda value: reduce("sum", value, over=j)))
    return rewritten(g.program()) is not None


def test_what_is_stored_has_to_be_as_it_was() -> None:
    assert changed(lambda s, m, p, total: p / total(p))
    assert changed(lambda s, m, p, total: p * p / total(p * p))
    assert changed(lambda s, m, p, total: log(total(p)) + m)
    assert changed(lambda s, m, p, total: (s - m) - log(total(p)))
    assert changed(lambda s, m, p, total: total(p * s) / total(p))
    assert not changed(lambda s, m, p, total: p)
    assert not changed(lambda s, m, p, total: m + 0.0 * s)
    assert not changed(lambda s, m, p, total: p / (total(p) + 1.0))
    assert not changed(lambda s, m, p, total: p / (total(p) * total(p)))
    assert not changed(lambda s, m, p, total: where(s == m, p, 0.0) / total(p))
    assert not changed(lambda s, m, p, total: log(total(p)) - m)


def test_amounts_that_differ_are_not_summed() -> None:
    """A row's largest score is no other's: sums of several rows' exponentials have none."""
    g = Graph("rows")
    i, j = g.axes(i=6, j=8)
    s = tanh(g.input("X", (i, j), "f32"))
    p = exp(s - reduce("max", s, over=j))
    g.output("O", reduce("sum", p, over=i) / reduce("sum", p, over=(i, j)))
    assert rewritten(g.program()) is None


def test_it_is_offered_with_fewer_operations_of_operands() -> None:
    forms = forms_of(softmax(TAKEN["tangents"]), Rates({"bf16": 1e15}, 6e13, 4.8e12))
    assert NAME in [form.steps[-1].rule for form in forms.offered[1:]]


@needs_compiler
@pytest.mark.parametrize("name", ["tangents", "apart"])
def test_kernels_of_it_are_right(name: str) -> None:
    program = softmax(TAKEN[name])
    found = rewritten(program)
    assert found is not None
    assert form_problems(program, found[1], "usual") == []
