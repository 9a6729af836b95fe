"""Values that are equal but for the names of their axes are computed once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, philox_uniform, reduce
from ir.inputs import random_inputs
from ir.program import Program
from ir.targets.cuda.space.residences import SUMS, pieces_of
from ir.tiles import Tile
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, drawn
from tests.targets.test_cuda_few_tiles import covariance
from tests.targets.test_meaning_of_numbers import run_emulated


def pairs(left: Callable[..., Tile], right: Callable[..., Tile], names: str = "ab") -> Program:
    """Of sums along the rows of two tiles, and a product between them."""
    g = Graph("pairs")
    i, j, k = g.axes(i=64, j=64, k=96)
    tensors = [g.tensor(name, (64, 96), "bf16") for name in dict.fromkeys(names)]
    x, y = tensors[0][i, k], tensors[-1][j, k]
    sums = [reduce("sum", made(cast(t, "f32")), over=k) for made, t in ((left, x), (right, y))]
    both = contract(x, y, over=k)
    g.output("D", sums[0] + sums[1] - both, "f32", (i, j))
    return g.program()


def square(x: Tile) -> Tile:
    return x * x


def sums_of(program: Program) -> int:
    """Kernels in front of the product's."""
    return len(pieces_of(program, SUMS)) - 1


def test_twins_are_one() -> None:
    assert sums_of(pairs(square, square, "aa")) == 1
    assert sums_of(covariance(4096, 64)) == 1


@pytest.mark.parametrize(
    "program",
    [
        pairs(square, square, "ab"),  # of two tensors
        pairs(square, lambda x: x * 3.0, "aa"),
        pairs(square, lambda x: x * x * 1.0001, "aa"),
        pairs(square, exp, "aa"),
        pairs(square, square, "ij"),  # tensors with names of axes
    ],
    ids=["tensors", "functions", "constants", "other", "names"],
)
def test_what_differs_in_anything_else_is_not(program: Program) -> None:
    assert sums_of(program) == 2


def test_axes_may_be_named_as_what_is_done_along_them() -> None:
    """Sums along `sum` are not the largest along `max`."""
    g = Graph("named")
    i, j, one, other = g.axes(i=64, j=64, sum=96, max=96)
    x = g.tensor("X", (64, 96), "bf16")
    sums = reduce("sum", cast(x[i, one], "f32"), over=one)
    most = reduce("max", cast(x[j, other], "f32"), over=other)
    g.output("D", sums + most - contract(x[i, one], x[j, one], over=one), "f32", (i, j))
    assert sums_of(g.program()) == 2


def test_numbers_that_are_drawn_by_their_places_are_not() -> None:
    g = Graph("drawn")
    i, j, k = g.axes(i=64, j=64, k=96)
    x = g.tensor("X", (64, 96), "bf16")
    shares = [philox_uniform(g.coordinate(place), seed=1) for place in (i * 96 + k, j * 97 + k)]
    sums = [
        reduce("sum", share * cast(x[a, k], "f32"), over=k)
        for share, a in zip(shares, (i, j), strict=True)
    ]
    g.output("D", sums[0] + sums[1] - contract(x[i, k], x[j, k], over=k), "f32", (i, j))
    assert sums_of(g.program()) == 2


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate with")
@pytest.mark.parametrize("program", [pairs(square, square, "aa"), covariance(192, 32)])
@draws(1, 3)
def test_both_sides_read_the_first_ones(program: Program, count: int) -> None:
    inputs = random_inputs(program, np.random.default_rng(3))
    wanted = bounds_of(program, inputs)
    for schedule in drawn(program, 2, count, count):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        found = run_emulated(kernel, inputs)
        assert [v.detail for n, b in wanted.items() if not (v := b.judge(found[n])).right] == []
