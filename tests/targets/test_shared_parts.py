"""Expressions that use their parts again and again: each is looked at once.

As trees they have 2^40 leaves, so what goes through one as through a tree does not come back.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from explorer.recipe import recipe_of
from ir import Graph, Tile, cast, contract, exp, get_backend, reduce, where
from ir.inputs import random_inputs
from ir.oracle import evaluate
from ir.program import Program
from ir.target import Backend
from tests.targets.cuda_cases import BACKEND, HARDWARE

STEPS = 40


def again(x: Tile) -> Tile:
    for _ in range(STEPS):
        x = (x + x * 0.5) * 0.6
    return x


def operand(g: Graph) -> Tile:
    m, k, n = g.axes(m=64, k=64, n=64)
    left, right = g.input("X", (m, k), "bf16"), g.input("W", (k, n), "bf16")
    return contract(again(cast(left, "f32")), cast(right, "f32"), over=k)


def epilogue(g: Graph) -> Tile:
    m, k, n = g.axes(m=64, k=64, n=64)
    return again(contract(g.input("X", (m, k), "bf16"), g.input("W", (k, n), "bf16"), over=k))


def folded(g: Graph) -> Tile:
    m, k = g.axes(m=64, k=64)
    x = again(g.input("X", (m, k), "f32"))
    return x * reduce("sum", x * x, over=k)


def scores(g: Graph) -> Tile:
    m, k, n = g.axes(m=64, k=64, n=64)
    a, b = g.input("A", (m, k), "bf16"), g.input("B", (n, k), "bf16")
    s = again(contract(a, b, over=k) * 0.01)
    p = exp(s - reduce("max", s, over=n))
    return reduce("sum", p * g.input("V", (n,), "f32"), over=n) / reduce("sum", p, over=n)


def masked(g: Graph) -> Tile:
    m, k = g.axes(m=64, k=64)
    x, c = g.input("X", (m, k), "f32"), g.iota(k)
    for _ in range(STEPS):
        c = where(c > 3, c + c, c) % 17
    return where(c < 5, x, x * 2.0)


def indexed(g: Graph) -> Tile:
    (i,) = g.axes(i=64)
    place = g.input("place", (i,), "i32")
    for _ in range(STEPS):
        place = (place + place) % 7
    return g.tensor("X", (8,), "f32")[place] * 2.0


@pytest.mark.parametrize("write", [operand, epilogue, folded, scores, masked, indexed])
@pytest.mark.alike(2)
def test_what_is_shared_is_looked_at_once(write: Callable[[Graph], Tile]) -> None:
    g = Graph(write.__name__)
    g.output("Y", write(g))
    program: Program = g.program()
    inputs = random_inputs(program, np.random.default_rng(0))
    assert np.isfinite(evaluate(program, inputs)["Y"]).all()
    cpu: Backend = get_backend("cpu")
    for backend, hardware in ((BACKEND, HARDWARE), (cpu, cpu.hardware(1))):
        assert recipe_of(program, 0, backend, hardware).program.outputs
        space = backend.space(program, hardware)
        rows = space.seed_rows(np.random.default_rng(0))[:2]
        assert all(backend.lower(program, space.schedule(row), hardware).texts for row in rows)
