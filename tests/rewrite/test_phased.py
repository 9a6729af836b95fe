"""Sums of which terms count at a residue of coordinates, phase by phase."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ir import Graph, cast, contract, reduce, where
from ir.inputs import random_inputs
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite import phased
from tests.cuda.run import needs_compiler
from tests.targets.formed import form_problems


def gradient(step: int, taps: int, before: int, mask: str = "mod", n: int = 8) -> Program:
    """The gradient by the input of a strided convolution of rows: dY(n / step, k), W(taps, c)."""
    g = Graph("gradient")
    y, c, k, r = g.axes(y=n, c=16, k=8, r=taps)
    dy = g.tensor("dY", (n // step, 8), "bf16", fill=0)
    w = g.input("W", (k, r, c), "bf16")
    place = g.iota(y) + before - g.iota(r)
    if mask == "bits":
        some = (place & (step - 1)) == 0
    elif mask == "multiple":
        some = place // step * step == place
    else:
        some = place % step == 0
    term = where(some, dy[place // step, k], 0.0)
    g.output("dX", contract(cast(term, "bf16"), w, over=(r, k)), "f32", (y, c))
    return g.program()


def squared(step: int, taps: int) -> Program:
    """The same of two coordinates, a plane of one channel, in plain sums."""
    g = Graph("squared")
    y, x, r, s = g.axes(y=2 * step, x=3 * step, r=taps, s=taps)
    dy = g.tensor("dY", (2, 3), "f32", fill=0)
    w = g.input("W", (r, s), "f32")
    p, q = g.iota(y) + 1 - g.iota(r), g.iota(x) + 1 - g.iota(s)
    some = (p % step == 0) & (q % step == 0)
    g.output("dX", reduce("sum", where(some, dy[p // step, q // step] * w, 0.0), over=(r, s)),
             "f32", (y, x))  # fmt: skip
    return g.program()


def same(program: Program, made: Program) -> None:
    inputs = random_inputs(program, np.random.default_rng(5))
    wanted, had = evaluate(program, inputs), evaluate(made, inputs)
    for name in wanted:
        shape = wanted[name].shape
        np.testing.assert_allclose(had[name].reshape(shape), wanted[name], rtol=1e-12, atol=1e-12)


GRADIENTS = [(2, 3, 1), (2, 4, 1), (2, 5, 2), (2, 2, 0), (3, 3, 1), (3, 5, 2), (4, 7, 3), (4, 2, 0)]


@pytest.mark.parametrize("mask", ["mod", "bits", "multiple"])
@pytest.mark.parametrize(("step", "taps", "before"), GRADIENTS)
def test_each_phase_meets_its_own_taps(step: int, taps: int, before: int, mask: str) -> None:
    mask = "mod" if mask == "bits" and step & (step - 1) else mask
    found = phased.rewritten(program := gradient(step, taps, before, mask, 12))
    assert found is not None
    same(program, found[1])
    assert all(node.op.name in ("load", "cast", "contract", "store") for node in found[1].nodes)
    assert found[1].flops < program.flops


@pytest.mark.parametrize(("step", "taps"), [(2, 3), (3, 4), (4, 4)])
def test_two_coordinates_have_phases_of_their_own(step: int, taps: int) -> None:
    found = phased.rewritten(program := squared(step, taps))
    assert found is not None
    same(program, found[1])
    assert {"y_part", "y_in", "x_part", "x_in"} <= set(found[1].axes)


def odd(make: Callable[[Graph], None]) -> Program:
    g = Graph("odd")
    make(g)
    return g.program()


def no_digit(g: Graph) -> None:
    y, r = g.axes(y=9, r=3)  # an odd number of points
    place = g.iota(y) + 1 - g.iota(r)
    v = where(place % 2 == 0, g.input("X", (y, r), "f32"), 0.0)
    g.output("Y", reduce("sum", v, over=r), "f32", (y,))


def another_sum(g: Graph) -> None:
    y, r = g.axes(y=8, r=3)
    x, place = g.input("X", (y, r), "f32"), g.iota(y) + 1 - g.iota(r)
    g.output("Y", reduce("sum", where(place % 2 == 0, x, 0.0), over=r), "f32", (y,))
    g.output("Z", reduce("sum", x, over=r), "f32", (y,))  # of all of its points


def otherwise(g: Graph) -> None:
    y, r = g.axes(y=8, r=3)
    x, place = g.input("X", (y, r), "f32"), g.iota(y) + 1 - g.iota(r)
    g.output("Y", reduce("sum", where(place % 2 == 0, x, 1.0), over=r), "f32", (y,))


@pytest.mark.parametrize("make", [no_digit, another_sum, otherwise])
def test_others_stay(make: Callable[[Graph], None]) -> None:
    assert phased.rewritten(odd(make)) is None


@needs_compiler
@pytest.mark.parametrize("program", [gradient(2, 3, 1, n=32), gradient(3, 5, 2, n=36)])
def test_kernels_of_it_are_right(program: Program) -> None:
    found = phased.rewritten(program)
    assert found is not None
    assert not form_problems(program, found[1], "usual")
