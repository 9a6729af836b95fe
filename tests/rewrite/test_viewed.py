"""Dimensions that are read by two digits as two."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, reduce, where
from ir.inputs import random_inputs
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite.viewed import viewed
from tests.cuda.run import needs_compiler
from tests.targets.formed import kernel_problems


def phases(t: int = 32, step: int = 4, fill: float | None = None, ahead: int = 0) -> Program:
    """Attention among the points of one phase."""
    g = Graph("phases")
    s, i, j, d, e = g.axes(s=step, i=t // step, j=t // step, d=16, e=16)
    q, k, v = (g.tensor(name, (t, 16), "bf16", fill=fill) for name in "QKV")
    place = j * step + s + ahead * step
    z = contract(q[i * step + s, d], k[place, d], over=d) * 0.25
    z = where(g.iota(j) <= i, z, -math.inf)
    p = exp(z - reduce("max", z, over=j))
    o = contract(cast(p, "bf16"), v[place, e], over=j)
    g.output("O", o / reduce("sum", p, over=j), "f32", (i, s, e))
    return g.program()


def pairs() -> Program:
    """Products with every other row, and with the others."""
    g = Graph("pairs")
    m, n, k = g.axes(m=8, n=12, k=16)
    x, w = g.input("X", (m, k), "bf16"), g.tensor("W", (24, 16), "bf16")
    a, b = (contract(x, w[2 * n + c, k], over=k) for c in range(2))
    g.output("Y", a * b, "f32", (m, n))
    return g.program()


def packed_pairs() -> Program:
    """The same of weights of four bits, two to a byte."""
    g = Graph("packed_pairs")
    m, n, k = g.axes(m=8, n=12, k=16)
    x, w = g.input("X", (m, k), "bf16"), g.tensor("W", (24, 16), "i4")
    a, b = (contract(x, cast(w[2 * n + c, k], "bf16"), over=k) for c in range(2))
    g.output("Y", a * b, "f32", (m, n))
    return g.program()


def digits() -> Program:
    """Sums by two digits inside of a third."""
    g = Graph("digits")
    j, a, b = g.axes(j=3, a=2, b=4)
    g.output("Y", reduce("sum", g.tensor("X", (24,), "f32")[8 * j + 4 * a + b], over=j), "f32")
    return g.program()


def same(program: Program, made: Program) -> None:
    inputs = random_inputs(program, np.random.default_rng(5))
    wanted, had = evaluate(program, inputs), evaluate(made, inputs)
    for name in wanted:
        np.testing.assert_array_equal(had[name], wanted[name])


@pytest.mark.parametrize(
    ("program", "shapes"),
    [
        (phases(), {"Q": (8, 4, 16), "K": (8, 4, 16), "V": (8, 4, 16)}),
        (phases(fill=0.0, ahead=1), {"Q": (8, 4, 16), "K": (8, 4, 16), "V": (8, 4, 16)}),
        (pairs(), {"X": (8, 16), "W": (12, 2, 16)}),
        (packed_pairs(), {"X": (8, 16), "W": (12, 2, 8)}),
        (digits(), {"X": (3, 2, 4)}),
    ],
)
def test_digits_are_dimensions(program: Program, shapes: dict[str, tuple[int, ...]]) -> None:
    made = viewed(program)
    assert {spec.name: spec.shape for spec in made.inputs} == shapes
    same(program, made)


def blocks(g: Graph) -> None:
    u, i, j = g.axes(u=4, i=8, j=8)  # points of a block: one axis as they are
    x = g.tensor("X", (32,), "f32")
    g.output("Y", reduce("sum", x[u * 8 + j] * x[u * 8 + i], over=j), "f32")


def taps(g: Graph) -> None:
    i, s = g.axes(i=8, s=3)  # more than a step
    g.output("Y", reduce("sum", g.tensor("X", (18,), "f32")[2 * i + s], over=i), "f32", (s,))


def also_whole(g: Graph) -> None:
    j, s, t = g.axes(j=4, s=2, t=8)
    x = g.tensor("X", (8,), "f32")
    g.output("Y", reduce("sum", x[2 * j + s], over=j), "f32", (s,))
    g.output("Z", x[t] * 2.0, "f32", (t,))


@pytest.mark.parametrize("make", [blocks, taps, also_whole])
def test_others_stay(make: Callable[[Graph], None]) -> None:
    g = Graph("others")
    make(g)
    program = g.program()
    assert viewed(program) == program


@needs_compiler
@pytest.mark.parametrize(
    "program", [phases(64, 2), phases(64, 2, 0.0, 1), pairs(), packed_pairs(), digits()]
)
def test_kernels_of_it_are_right(program: Program) -> None:
    assert not kernel_problems(program)
