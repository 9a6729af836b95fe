"""Sines and cosines of every size of argument, to the last bits or as coarse as outputs let be, and
logarithms, near 1 as well."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ir import Graph, contract, cos, log, sin
from ir.inputs import random_inputs
from ir.program import Program
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, drawn
from tests.targets.test_meaning_of_numbers import run_emulated

SIZES = (1e-30, 1e-3, 0.7, 1.6, 3.2, 60.0, 1e4, 9.9e4, 1.1e5, 1e7, 9e7, 3e9, 1e20, 3e38)
N = 256


def waves(dtype: str) -> Program:
    g = Graph("waves")
    s, i = g.axes(s=len(SIZES) + 1, i=N)
    x = g.input("X", (s, i), "f32")
    g.output("S", sin(x), dtype, (s, i))
    g.output("C", cos(x), dtype, (s, i))
    return g.program()


def arguments() -> NDArray[np.float32]:
    """Of every size, the nearest ones to multiples of pi/2 among them, and what is no number."""
    drawn = np.random.default_rng(0).uniform(-1, 1, (len(SIZES) + 1, N))
    found = drawn * np.array([*SIZES, 1.0])[:, None]
    found[-1] = np.arange(N) * (np.pi / 2) * np.where(np.arange(N) % 2, 1, -37)
    found[0, :4] = 0.0, np.inf, -np.inf, np.nan
    narrow: NDArray[np.float32] = found.astype(np.float32)
    return narrow


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate with")
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_waves_of_every_size(dtype: str) -> None:
    program, inputs = waves(dtype), {"X": arguments()}
    wanted = bounds_of(program, inputs)
    for schedule in drawn(program, 1, 1, 1):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        assert ("coarse" in kernel.text("cuda")) == (dtype != "f32")
        found = run_emulated(kernel, inputs)
        assert [v.detail for n, b in wanted.items() if not (v := b.judge(found[n])).right] == []
        if dtype == "f32":
            finite = np.isfinite(arguments())
            near = finite & (np.abs(arguments()) < 9.9e4)
            exact = np.sin(arguments()[near].astype(np.float64))
            assert np.abs(found["S"][near] - exact).max() < 2.0**-23
            assert np.abs(found["C"][finite]).max() <= 1
            assert np.isnan(found["C"][~finite]).all()


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate with")
def test_layers_of_sines() -> None:
    """A product of which the sine is taken, and what whole numbers are made of is not coarse."""
    g = Graph("layer")
    m, n, k = g.axes(m=64, n=64, k=32)
    x, w = g.input("X", (m, k), "bf16"), g.input("W", (n, k), "bf16")
    g.output("Y", sin(30.0 * contract(x, w, over=k)), "bf16", (m, n))
    program = g.program()
    inputs = random_inputs(program, np.random.default_rng(2))
    wanted = bounds_of(program, inputs)
    for schedule in drawn(program, 1, 1, 2):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        assert "tw_sin_coarse" in kernel.text("cuda")
        found = run_emulated(kernel, inputs)
        assert [v.detail for n, b in wanted.items() if not (v := b.judge(found[n])).right] == []


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate with")
def test_logarithms_of_every_size() -> None:
    """Relative to the logarithm itself where that is near 0, and never above it below 1."""
    g = Graph("logs")
    s, i = g.axes(s=5, i=N)
    g.output("L", log(g.input("X", (s, i), "f32")), "f32", (s, i))
    program, rng = g.program(), np.random.default_rng(1)
    x = np.empty((5, N), np.float32)
    x[0] = np.exp(rng.uniform(-87, 88, N))
    x[1] = 1.0 + (np.arange(N) - N // 2) * 2.0**-24
    x[2] = rng.uniform(0.5, 2.0, N)
    x[3] = np.float32(2.0 / 3.0) * (1.0 + np.arange(N) * 2.0**-22)
    x[4] = 2.0 ** rng.integers(-126, 128, N)
    x[0, :6] = 0.0, np.inf, -1.0, np.nan, 3.4e38, -np.inf
    wanted = bounds_of(program, {"X": x})
    for schedule in drawn(program, 1, 1, 3):
        found = run_emulated(BACKEND.lower(program, schedule, HARDWARE), {"X": x})
        assert [v.detail for n, b in wanted.items() if not (v := b.judge(found[n])).right] == []
        finite = np.isfinite(x) & (x > 0)
        exact = np.log(x[finite].astype(np.float64))
        assert (np.abs(found["L"][finite] - exact) <= 3e-7 * np.abs(exact)).all()
        assert (found["L"][x <= 1] <= 0).sum() == ((x <= 1) & (x >= 0)).sum()
