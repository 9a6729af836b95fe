"""Drawn programs are right on both targets; and a test for each that was not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from explorer.errors import Uncheckable
from explorer.measure import Measurer
from ir import Graph, cast, ceil, contract, cumulative, exp, reduce
from ir.inputs import random_inputs
from ir.program import Program
from ir.target import get_backend
from ir.targets.cuda.rows.hardware import known_hardware
from tests.emulator.emulate import compiler
from tests.few import few
from tests.judging import bounds_of
from tests.targets.drawn import RARER, drawn
from tests.targets.test_cuda_emulated import problems
from tests.targets.typed import typed

CPU, CUDA = get_backend("cpu"), get_backend("cuda")
CARDS = known_hardware("h200"), known_hardware("rtx4090")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate with")


@pytest.mark.parametrize("seed", few(range(60), range(0, 60, 10)))
def test_on_a_cpu(seed: int, code_cache: Path) -> None:
    program = drawn(seed)
    if program is not None:
        right_on_this_machine(program, code_cache, seed)


def right_on_this_machine(program: Program, cache: Path, seed: int = 0) -> None:
    hardware = CPU.hardware(1)
    space = CPU.space(program, hardware)
    schedules = [space.schedule(row) for row in space.sample(np.random.default_rng(seed), 3)]
    with Measurer(program, "cpu", hardware, cache_dir=cache) as measurer:
        try:
            found = list(measurer.measure(schedules))
        except Uncheckable:
            return
    assert [one.detail for one in found if not one.ok] == []


@pytest.mark.parametrize("seed", few(range(40), range(0, 40, 10)))
def test_rarer_ones_on_a_cpu(seed: int, code_cache: Path) -> None:
    program = drawn(seed, RARER)
    if program is not None:
        right_on_this_machine(program, code_cache, seed)


@needs_compiler
@pytest.mark.parametrize("seed", few(range(60), range(5, 60, 10)))
def test_on_cards(seed: int) -> None:
    program = drawn(seed)
    if program is not None:
        emulated(program, seed)


@needs_compiler
@pytest.mark.parametrize("seed", few(range(40), range(5, 40, 10)))
def test_rarer_ones_on_cards(seed: int) -> None:
    program = drawn(seed, RARER)
    if program is not None:
        emulated(program, seed)


def emulated(program: Program, seed: int) -> None:
    hardware = CARDS[seed % 2]
    inputs = random_inputs(program, np.random.default_rng(0))
    try:
        wanted = bounds_of(program, inputs)
    except Uncheckable:
        return
    space = CUDA.space(program, hardware)
    for row in space.sample(np.random.default_rng(seed), 2):
        kernel = CUDA.lower(program, space.schedule(row), hardware)
        assert problems(program, kernel, inputs, wanted, seed % 16) == []


@pytest.mark.parametrize("seed", few(range(40), range(0, 40, 10)))
def test_of_every_type_on_a_cpu(seed: int, code_cache: Path) -> None:
    program = typed(seed)
    if program is not None:
        right_on_this_machine(program, code_cache, seed)


@needs_compiler
@pytest.mark.parametrize("seed", few(range(40), range(5, 40, 10)))
def test_of_every_type_on_cards(seed: int) -> None:
    program = typed(seed)
    if program is not None:
        emulated(program, seed)


def test_shares_of_shares_along_another_axis(code_cache: Path) -> None:
    """Exponents of the inner ones vary along a loop inside of the one that they are made before."""
    g = Graph("shares")
    b, j, k = g.axes(b=2, j=64, k=64)
    x = g.input("X", (b, j, k), "f32")
    for axis in (j, b):
        e = exp(x - reduce("max", x, over=axis))
        x = e / reduce("sum", e, over=axis)
    g.output("Y", x, "bf16", (b, j, k))
    program = g.program()
    space = CPU.space(program, CPU.hardware(1)).pin(residence="passes")
    rng = np.random.default_rng(0)
    for row in space.sample(rng, 4):
        assert CPU.lower(program, space.schedule(row), CPU.hardware(1))
    right_on_this_machine(program, code_cache)


def test_a_running_sum_along_all_columns_of_a_product() -> None:
    """Nothing is left on that side for the product of its kernel: there is no such kernel."""
    g = Graph("running")
    i, j, k = g.axes(i=33, j=64, k=64)
    x, y = g.input("X", (j, k), "bf16"), g.input("Y", (i, k), "bf16")
    g.output("Z", cumulative("sum", contract(x, y, over=k), i), "f32", (j, i))
    emulated(g.program(), 0)


def test_seeds_of_chains_are_of_their_own_space() -> None:
    """A product whose least is stored beside it, where blocks cannot share its sums."""
    g = Graph("least")
    i, j, k = g.axes(i=33, j=16, k=16)
    x, y = g.input("X", (i, k), "bf16"), g.input("Y", (j, k), "bf16")
    z = contract(x, y, over=k)
    g.output("Z", ceil(z * 4.0), "f32", (i, j))
    g.output("L", reduce("min", z, over=j), "f32", (i,))
    emulated(g.program(), 1)


def test_an_operand_of_which_another_one_is_computed() -> None:
    """One copy of it lies as instructions read it, the other as threads do."""
    g = Graph("both")
    b, i, j, k = g.axes(b=2, i=64, j=64, k=64)
    x = g.input("X", (b, i, k), "bf16")
    shares = exp(cast(x, "f32") - reduce("max", cast(x, "f32"), over=b))
    shares = cast(shares / reduce("sum", shares, over=b), "bf16")
    for number, factor in enumerate((x, shares)):
        other = g.input(f"Y{number}", (b, j, k), "bf16")
        g.output(f"Z{number}", contract(factor, other, over=k), "f32", (b, i, j))
    emulated(g.program(), 0)
