"""Statistics of rows that other statistics of the same rows are made of, in one pass, on both
targets: entropies, extremes of what a running extreme moves, sums of what does not vary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ir import Graph, Tile, absolute, contract, evaluate, exp, get_backend, log, reduce
from ir.axes import Axis
from ir.inputs import random_inputs
from ir.program import Program
from ir.residence import residences, staged
from ir.rewrite.streaming import stream
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems
from tests.targets.test_meaning_of_numbers import run_cpu

Made = Callable[[Tile, Tile, Axis], Tile]


def entropy(z: Tile, y: Tile, n: Axis) -> Tile:
    """Of a softmax: its weights times their logarithms."""
    most = reduce("max", z, over=n)
    e = exp(z - most)
    total = reduce("sum", e, over=n)
    return log(total) - reduce("sum", e * (z - most), over=n) / total


def moved_extreme(z: Tile, y: Tile, n: Axis) -> Tile:
    """The largest of what another extreme is taken from."""
    return reduce("max", y - reduce("max", z, over=n), over=n)


def moved_least(z: Tile, y: Tile, n: Axis) -> Tile:
    return reduce("min", y + 2.0 * reduce("sum", z, over=n), over=n) * 0.1


def alike(z: Tile, y: Tile, n: Axis) -> Tile:
    """A sum of numbers of which one is the same for the whole row."""
    most = reduce("max", z, over=n)
    scaled = z / (1.0 + absolute(most))
    return reduce("sum", scaled - most - reduce("sum", scaled, over=n), over=n)


KINDS = (entropy, moved_extreme, moved_least, alike)


def program_of(made: Made, product: bool) -> Program:
    g = Graph(made.__name__)
    m, n, k = g.axes(m=6, n=40, k=8)
    z = g.input("Z", (m, n), "f32")
    if product:
        z = contract(g.input("X", (m, k), "f32"), g.input("W", (n, k), "f32"), over=k)
    y = z * g.input("V", (n,), "f32")
    row = made(z, y, n)
    g.output("R", row, "f32", (m,))
    g.output("Y", y / (1.0 + absolute(row)), "f32", (m, n))
    return g.program()


every_program = pytest.mark.parametrize("product", [False, True], ids=["read", "product"])
every_kind = pytest.mark.parametrize("made", KINDS)


@every_kind
@every_program
def test_one_pass_is_the_same_and_has_stages(made: Made, product: bool) -> None:
    program = program_of(made, product)
    inputs = random_inputs(program, np.random.default_rng(0))
    expected, found = evaluate(program, inputs), evaluate(stream(program), inputs)
    for name, array in expected.items():
        assert np.allclose(found[name], array, rtol=1e-9, atol=1e-9)
    assert all(staged(program, one).stages for one in residences(program))


@every_kind
@every_program
@draws(2, 8)
def test_cpu_kernels_are_right(made: Made, product: bool, count: int, tmp_path: Path) -> None:
    program = program_of(made, product)
    inputs = random_inputs(program, np.random.default_rng(0))
    backend = get_backend("cpu")
    hardware = backend.hardware(2)
    space = backend.space(program, hardware)
    wanted = bounds_of(program, inputs)
    for row in space.sample(np.random.default_rng(1), count):
        kernel = backend.lower(program, space.schedule(row), hardware)
        (outputs,) = run_cpu(kernel, [inputs], tmp_path)
        assert all(bounds.judge(outputs[name]).right for name, bounds in wanted.items())


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@every_kind
@every_program
@draws(6, 24)
def test_cuda_kernels_are_right(made: Made, product: bool, count: int) -> None:
    program = program_of(made, product)
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted, space = bounds_of(program, inputs), BACKEND.space(program, HARDWARE)
    for row in space.sample(np.random.default_rng(5), count):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        assert problems(program, kernel, inputs, wanted, 0) == []
