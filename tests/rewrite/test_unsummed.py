"""Stored axes apart from summed ones: the same numbers, of which a few may be had."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from explorer.afforded import Means, output_axes
from explorer.expectation import Recipe
from ir import Graph, absolute, cast, maximum, reduce
from ir.inputs import random_inputs
from ir.oracle import evaluate
from ir.program import Program
from ir.registry import load_operator
from ir.rewrite.unsummed import unsummed


def by_the_largest() -> Program:
    """Numbers over the largest of all, which is an output too, and beside sums of rows."""
    g = Graph("by_the_largest")
    m, n = g.axes(m=60, n=40)
    x = g.input("X", (m, n), "f32")
    most = maximum(reduce("max", reduce("max", absolute(x), over=n), over=m), 1e-6)
    share = x / reduce("sum", absolute(x), over=n)
    g.output("Y", cast(x / most, "bf16"), "bf16", (m, n))
    g.output("most", most, "f32", ())
    g.output("S", share + cast(g.iota(n), "f32"), "f32", (n, m))
    return g.program()


def normal() -> Program:
    return load_operator("batchnorm").build(n=70, c=6)


def square() -> Program:
    """Gram matrix of rows, of which the rows' own norms are one factor each."""
    g = Graph("square")
    i, k = g.axes(i=12, k=5)
    x = g.input("X", (i, k), "f32")
    g.output("Y", x / reduce("sum", x * x, over=k) + reduce("max", x, over=i), "f32", (i, k))
    return g.program()


PROGRAMS = (by_the_largest, normal, square)


@pytest.mark.parametrize("make", PROGRAMS)
def test_the_same_numbers(make: Callable[[], Program]) -> None:
    program = make()
    other = unsummed(program)
    stored = {axis for _, store in program.stores() for axis in store.axes}
    assert len(output_axes(other)) == len(stored) > len(output_axes(program))
    inputs = random_inputs(program, np.random.default_rng(0))
    found = evaluate(other, inputs)
    for name, values in evaluate(program, inputs).items():
        np.testing.assert_allclose(found[name], values, rtol=1e-13)


@pytest.mark.parametrize("make", PROGRAMS)
def test_a_sample_has_the_bounds_of_the_whole(make: Callable[[], Program]) -> None:
    recipe = Recipe(make(), 3)
    whole = recipe.expected(0, Means(1e12, 1e12, 1 << 30, 1 << 20)).bounds
    part = recipe.expected(0, Means(1e12, 150, 1 << 30, 1 << 20, fewest=4)).bounds
    assert any(bounds.picks is not None for bounds in part.values())
    for name, bounds in part.items():
        low, high = whole[name].low, whole[name].high
        if bounds.picks is not None:
            assert bounds.low.size < low.size
            low, high = low[bounds.picks], high[bounds.picks]
        np.testing.assert_allclose(bounds.low, low, rtol=1e-6)
        np.testing.assert_allclose(bounds.high, high, rtol=1e-6)


def test_what_goes_in_order_stays() -> None:
    running = load_operator("scan").build(m=4, n=8)
    assert unsummed(running) is running
    product = load_operator("matmul").build(m=4, n=4, k=4)
    assert unsummed(product) is product
