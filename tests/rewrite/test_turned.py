"""Operands of products in the order in which what is reduced lies along rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ir import Graph, contract, exp, log, maximum, reduce
from ir.axes import Axis
from ir.inputs import random_inputs
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite.turned import turned
from ir.targets.cuda.space.tensor import TensorKernel
from ir.tiles import Tile
from tests.cuda.run import needs_compiler
from tests.targets.cuda_cases import HARDWARE
from tests.targets.formed import form_problems

Body = Callable[[Graph, Tile, Axis, Axis], None]


def product(body: Body, m: int = 128, n: int = 64) -> Program:
    g = Graph("product")
    i, j, k = g.axes(m=m, n=n, k=32)
    body(g, contract(g.input("X", (i, k), "bf16"), g.input("W", (j, k), "bf16"), over=k), i, j)
    return g.program()


def summed(g: Graph, y: Tile, i: Axis, j: Axis) -> None:
    g.output("S", reduce("sum", exp(y * 0.25), over=i), "f32", (j,))


def spread(g: Graph, y: Tile, i: Axis, j: Axis) -> None:
    most = reduce("max", y, over=i)
    g.output("S", most + log(reduce("sum", exp(y - most), over=i)), "f32", (j,))


def along(g: Graph, y: Tile, i: Axis, j: Axis) -> None:
    g.output("S", reduce("max", y, over=j), "f32", (i,))


def both(g: Graph, y: Tile, i: Axis, j: Axis) -> None:
    g.output("S", reduce("max", y, over=j), "f32", (i,))
    g.output("T", reduce("max", y, over=i), "f32", (j,))


def neither(g: Graph, y: Tile, i: Axis, j: Axis) -> None:
    g.output("Y", maximum(y, 0.0), "f32", (i, j))


@pytest.mark.parametrize("body", [summed, spread])
def test_what_is_reduced_across_the_rows_turns_the_operands(body: Body) -> None:
    program = product(body)
    made = turned(program)
    (node,) = (node for node in made.nodes if node.op.name == "contract")
    assert {*made.nodes[node.args[0]].axes} == {"n", "k"}
    assert turned(made) == made
    inputs = random_inputs(program, np.random.default_rng(5))
    wanted, had = evaluate(program, inputs), evaluate(made, inputs)
    np.testing.assert_allclose(had["S"], wanted["S"], rtol=1e-12)
    TensorKernel(made, "", HARDWARE)  # which the other order is refused


@pytest.mark.parametrize("body", [along, both, neither])
def test_others_stay(body: Body) -> None:
    program = product(body)
    assert turned(program) == program


@pytest.mark.parametrize(("h", "stays"), [(64, True), (512, False)])
def test_a_few_heads_stay_partial_sums(h: int, stays: bool) -> None:
    g = Graph("heads")
    t, s, hh, d = g.axes(t=64, s=128, h=h, d=32)
    z = contract(g.input("Q", (t, hh, d), "bf16"), g.input("K", (s, d), "bf16"), over=d)
    g.output("I", reduce("sum", z * g.input("w", (t, hh), "f32"), over=hh), "f32", (t, s))
    assert (turned(g.program()) == g.program()) is stays


@needs_compiler
@pytest.mark.parametrize("body", [summed, spread])
def test_kernels_of_it_are_right(body: Body) -> None:
    program = product(body)
    assert not form_problems(program, turned(program), "usual")
