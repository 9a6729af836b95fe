"""Chains whose inner product sums several axes, not all of which both of its factors have."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, reduce
from ir.inputs import random_inputs
from ir.program import Program
from ir.rewrite.stated import stated
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.build.products import product_of, summed_order
from ir.targets.cuda.space.tensor import TensorKernel
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems


def attending(parts: int, d: int, left: str, right: str) -> Program:
    """Attention whose scores sum d and parts, where each side has the axes named, in that order."""
    g = Graph("attending")
    i, j, dd, e, p = g.axes(i=64, j=96, d=d, e=64, p=parts)
    named = {"d": dd, "p": p}
    q = g.input("Q", (i, *(named[axis] for axis in left)), "bf16")
    k = g.input("K", (j, *(named[axis] for axis in right)), "bf16")
    score = contract(q, k, over=(p, dd)) * (d * parts) ** -0.5
    weight = exp(score - reduce("max", score, over=j))
    o = contract(cast(weight, "bf16"), g.input("V", (j, e), "bf16"), over=j)
    g.output("O", o / reduce("sum", weight, over=j), "bf16", (i, e))
    return g.program()


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")
@pytest.mark.parametrize("sides", [("d", "pd"), ("pd", "d"), ("pd", "pd")], ids="-".join)
@draws(2, 4)
def test_what_one_factor_lacks_is_not_counted_in_its_tile(
    sides: tuple[str, str], count: int
) -> None:
    program = attending(3, 64, *sides)
    (kernel,) = kernels_of(program, HARDWARE, "wgmma")
    assert isinstance(kernel, TensorKernel)
    inputs = random_inputs(program, np.random.default_rng(1))
    bounds = bounds_of(program, inputs)
    space, rng = BACKEND.space(program, HARDWARE), np.random.default_rng(2)
    for number, row in enumerate(space.pin(engine="wgmma").sample(rng, count)):
        lowered = BACKEND.lower(program, space.schedule(row), HARDWARE)
        assert not problems(program, lowered, inputs, bounds, (0, 15, 6, 9)[number])


@pytest.mark.parametrize("sides", [("dp", "pd"), ("dp", "d")], ids="-".join)
def test_sums_whose_points_do_not_lie_together_are_kernels_apart(sides: tuple[str, str]) -> None:
    kernels = kernels_of(attending(4, 32, *sides), HARDWARE, "wgmma")
    assert len(kernels) > 1


def test_the_order_of_a_sum_is_that_of_the_factor_that_has_most_of_it() -> None:
    for sides in (("d", "pd"), ("pd", "d")):
        program = attending(3, 64, *sides)
        found = [product_of(program, n) for n in range(len(program.nodes))]
        inner = next(p for p in found if p is not None and "d" in p.over)
        assert summed_order(program, inner) == ("p", "d")


def test_scans_along_two_axes_are_states_along_one() -> None:
    """A step along either would hold a loop along the other, for what reads both."""
    from ir import cumulative

    g = Graph("both")
    i, j = g.axes(i=8, j=8)
    x = g.tensor("X", (8,), "f32")
    apart = cumulative("sum", x[i], i) - cumulative("sum", x[j], j)
    g.output("Y", apart, "f32", (i, j))
    program = g.program()
    text = str(stated(program))
    assert text.count("recur(") == 1
    assert text.count("fold(") == 1
