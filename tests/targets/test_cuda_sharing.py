"""What is reduced of a product that another one is made of has that one's kernel."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Axis, Graph, Tile, cast, contract, exp, reduce
from ir.inputs import random_inputs
from ir.program import Program
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.space.tensor import TensorKernel
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems


def features(heads: int = 1, n: int = 128, d: int = 64, f: int = 64) -> Program:
    """Attention by positive features of queries and keys, without a mask."""
    g = Graph("features")
    h, i, j, dd, e, ff = g.axes(h=heads, i=n, j=n, d=d, e=d, f=f)
    w = g.input("W", (ff, dd), "bf16")

    def positive(name: str, rows: Axis) -> Tile:
        x = g.input(name, (h, rows, dd), "bf16")
        length = reduce("sum", cast(x, "f32") * cast(x, "f32"), over=dd) * (0.5 * d**-0.5)
        return cast(exp(contract(x, w, over=dd) * d**-0.25 - length) * f**-0.5, "bf16")

    q, k = positive("Q", i), positive("K", j)
    sums = cast(contract(k, g.input("V", (h, j, e), "bf16"), over=j), "bf16")
    total = contract(cast(q, "f32"), reduce("sum", cast(k, "f32"), over=j), over=ff)
    g.output("O", contract(q, sums, over=ff) / total, "bf16", (h, i, e))
    return g.program()


def test_both_sums_over_keys_have_one_kernel_and_both_over_features_another() -> None:
    kernels = kernels_of(features(16, 4096, 64, 256), HARDWARE, "wgmma")
    assert [isinstance(kernel, TensorKernel) for kernel in kernels] == [False, False, True, True]
    assert [len(kernel.program.outputs) for kernel in kernels] == [1, 1, 2, 1]


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")
def test_such_kernels_mean_their_program() -> None:
    program = features(1, 320)
    inputs = random_inputs(program, np.random.default_rng(1))
    bounds = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE)
    rows = space.sample(np.random.default_rng(2), 4)
    for number, row in enumerate(rows):
        lowered = BACKEND.lower(program, space.schedule(row), HARDWARE)
        assert not problems(program, lowered, inputs, bounds, (0, 6, 9, 15)[number])
