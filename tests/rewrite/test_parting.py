"""Axes in equal parts: the same numbers, and tensors that have a dimension for the parts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, reduce, where
from ir.errors import ProgramError, UsageError
from ir.folding import cumulative
from ir.inputs import random_inputs
from ir.ops.load import Load
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite.parting import cut, parted


def weighed() -> Program:
    """Rows weighed by what a softmax over six keys makes of them."""
    g = Graph("weighed")
    i, k, d, e = g.axes(i=3, k=6, d=4, e=8)
    q, keys = g.input("Q", (i, d), "f32"), g.input("K", (k, d), "f32")
    values = g.input("V", (k, e), "f32")
    scores = contract(q, keys, over=d)
    weights = exp(scores - reduce("max", scores, over=k))
    g.output("O", contract(weights, values, over=k) / reduce("sum", weights, over=k), "f32", (i, e))
    return g.program()


def counted() -> Program:
    """Coordinates, a mask and a tensor that is longer than the axis."""
    g = Graph("counted")
    i, k = g.axes(i=4, k=6)
    x, w = g.input("X", (i, k), "f32"), g.tensor("W", (9, 4), "f32")
    near = where(g.iota(k) < g.iota(i) + 2, x * w[k + 1, i], 0.0)
    g.output("Y", near + cast(g.iota(k), "f32"), "f32", (k, i))
    g.output("S", reduce("sum", near, over=k), "f32", (i,))
    return g.program()


def same(program: Program, made: Program) -> None:
    inputs = random_inputs(program, np.random.default_rng(0))
    shaped = {spec.name: inputs[spec.name].reshape(spec.shape) for spec in made.inputs}
    found = evaluate(made, shaped)
    for name, values in evaluate(program, inputs).items():
        np.testing.assert_allclose(found[name].reshape(values.shape), values, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "axis"),
    [(weighed, "i"), (weighed, "k"), (weighed, "d"), (weighed, "e"), (counted, "i"),
     (counted, "k")],
)  # fmt: skip
def test_both_digits_of_an_axis_are_the_axis(make: Callable[[], Program], axis: str) -> None:
    program = make()
    for parts in (n for n in range(1, 7) if program.axes[axis] % n == 0):
        made = cut(program, axis, parts)
        assert axis not in made.axes
        assert made.axes[f"{axis}_part"] == parts
        same(program, made)


def test_tensors_have_a_dimension_for_the_parts() -> None:
    made = cut(weighed(), "e", 2)
    shapes = {spec.name: spec.shape for spec in made.tensors}
    assert shapes == {"Q": (3, 4), "K": (6, 4), "V": (6, 2, 4), "O": (3, 2, 4)}
    longer = cut(counted(), "k", 3)
    assert {spec.name: spec.shape for spec in longer.tensors}["W"] == (9, 4)


@pytest.mark.parametrize("parts", [2, 3])
def test_results_of_parts_are_merged(parts: int) -> None:
    program = weighed()
    made = parted(program, "k", parts)
    same(program, made)
    loads = {op.tensor: op for node in made.nodes if isinstance(op := node.op, Load)}
    assert [len(index.terms) for index in loads["V"].index] == [1, 1, 1]


def test_what_takes_an_axis_whole_keeps_it() -> None:
    g = Graph("running")
    m, n = g.axes(m=3, n=4)
    g.output("Y", cumulative("sum", g.input("X", (m, n), "f32"), n), "f32", (m, n))
    with pytest.raises(ProgramError, match="takes n whole"):
        cut(g.program(), "n", 2)
    with pytest.raises(UsageError, match="stored"):
        parted(weighed(), "i", 3)


@pytest.mark.parametrize("whole", [False, True])
def test_a_cut_axis_that_a_tile_is_read_along(whole: bool) -> None:
    """Where it is, by both parts; anywhere else the axis stays whole."""
    g = Graph("shifted")
    i, k = g.axes(i=4, k=8)
    x = exp(g.input("X", (i, k), "f32"))
    g.output("Y", x * x.at(i=i - 1, k=3, fill=0) if whole else x * x.at(i=i - 1, fill=0))
    program = g.program()
    if whole:
        with pytest.raises(ProgramError, match="takes k whole"):
            cut(program, "k", 2)
        return
    inputs = random_inputs(program, np.random.default_rng(0))
    found = evaluate(cut(program, "k", 2), inputs)["Y"]
    np.testing.assert_array_equal(found.reshape(4, 8), evaluate(program, inputs)["Y"])
