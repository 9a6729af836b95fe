"""Which outputs one kernel holds."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.strategies.opening import estimates
from ir import Graph, exp, reduce
from ir.inputs import random_inputs
from ir.program import Program
from ir.targets.cuda.build.cut import FMA, cut_program
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, drawn
from tests.targets.test_meaning_of_numbers import run_emulated


def sums(extents: tuple[int, int, int], shared: bool = False) -> Program:
    """Two sums over axes of their own, and an output without one; if `shared`, a third sum is over
    both of the axes."""
    g = Graph("sums")
    b, n, m = g.axes(b=extents[0], n=extents[1], m=extents[2])
    x, y = g.input("X", (b, n), "f32"), g.input("Y", (b, m), "f32")
    g.output("P", reduce("sum", x, over=n), "f32", (b,))
    g.output("Q", reduce("sum", y, over=m), "f32", (b,))
    g.output("E", exp(g.input("Z", (b,), "f32")), "f32", (b,))
    if shared:
        g.output("R", reduce("sum", x * y, over=(n, m)), "f32", (b,))
    return g.program()


def outputs(program: Program) -> list[set[str]]:
    """Of each kernel."""
    parts = cut_program(program, engine=FMA)
    return [{spec.name for spec in part.tensors if spec.role == "output"} for part in parts]


def test_sums_along_unlike_axes_have_kernels_of_their_own() -> None:
    assert outputs(sums((8, 64, 96))) == [{"P", "E"}, {"Q"}]


def test_those_that_a_sum_along_both_joins_have_one() -> None:
    assert outputs(sums((8, 64, 96), shared=True)) == [{"P", "Q", "E", "R"}]


def test_long_ones_begin_near_what_they_take() -> None:
    """A block had threads for both axes, so that each sum was walked by few of them."""
    space = BACKEND.space(sums((8, 8192, 8192)), HARDWARE)
    rows = space.seed_matrix[space.legal(space.seed_matrix)]
    assert estimates(space, rows).min() < 3.0


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate with")
@pytest.mark.parametrize("shared", [False, True])
def test_all_are_right(shared: bool) -> None:
    program = sums((3, 70, 33), shared)
    inputs = random_inputs(program, np.random.default_rng(3))
    wanted = bounds_of(program, inputs)
    for schedule in drawn(program, 2, 2, 4):
        found = run_emulated(BACKEND.lower(program, schedule, HARDWARE), inputs)
        assert [v.detail for n, b in wanted.items() if not (v := b.judge(found[n])).right] == []
