"""Outputs over fewer axes beside others, and products that meet a larger one."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, reduce
from ir.inputs import random_inputs
from ir.program import Program
from ir.targets.cuda.build.cut import has_products
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.space.mma import MmaKernel
from ir.targets.cuda.space.tensor import TensorKernel
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built
from tests.targets.test_cuda_emulated import problems


def _low_rank(m: int = 200, n: int = 264, k: int = 320, r: int = 16) -> Program:
    """X W + (X A) B."""
    g = Graph("low_rank")
    i, j, s, t = g.axes(m=m, n=n, k=k, r=r)
    x = g.input("X", (i, s), "bf16")
    narrow = cast(contract(x, g.input("A", (t, s), "bf16"), over=s), "bf16")
    wide = contract(x, g.input("W", (j, s), "bf16"), over=s)
    both = wide + contract(narrow, g.input("B", (j, t), "bf16"), over=t) * 2.0
    g.output("Y", cast(both, "bf16"))
    return g.program()


def _two_parts() -> Program:
    """Attention whose scores are a sum of products over different axes."""
    g = Graph("two_parts")
    b, q, k, d, r, v = g.axes(b=2, q=72, k=264, d=128, r=64, v=64)
    scores = contract(g.input("Q", (b, q, d), "bf16"), g.input("K", (b, k, d), "bf16"), over=d)
    turned = contract(g.input("R", (b, q, r), "bf16"), g.input("T", (b, k, r), "bf16"), over=r)
    total = (scores + turned) * 0.1
    weights = exp(total - reduce("max", total, over=k))
    sums = contract(cast(weights, "bf16"), g.input("V", (b, k, v), "bf16"), over=k)
    g.output("O", cast(sums / reduce("sum", weights, over=k), "bf16"))
    return g.program()


LSE = {"b": 1, "heads": 2, "sq": 136, "sk": 200, "d": 64, "dtype": "bf16"}


def test_the_largest_product_keeps_its_units() -> None:
    program = _low_rank(4096, 4096, 4096)
    for engine, kind in (("wgmma", TensorKernel), ("mma", MmaKernel)):
        kernels = kernels_of(program, HARDWARE, engine)
        assert all(isinstance(kernel, kind) for kernel in kernels)
        assert [store.tensor for _, store in kernels[-1].program.stores()] == ["Y"]


def test_no_product_is_left_to_plain_units() -> None:
    kernels = kernels_of(_two_parts(), HARDWARE, "wgmma")
    plain = [kernel for kernel in kernels if not isinstance(kernel, TensorKernel)]
    assert not any(has_products(kernel.program) for kernel in plain)


def test_rows_of_an_output_beside_it_are_no_kernel_of_their_own() -> None:
    (kernel,) = kernels_of(built("attention_lse", LSE), HARDWARE, "wgmma")
    assert {store.tensor for _, store in kernel.program.stores()} == {"O", "L"}


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize(
    "program", [_low_rank(), _two_parts(), built("attention_lse", LSE)], ids=lambda p: p.name
)
@draws(2, 4)
@pytest.mark.alike(2)
def test_they_mean_the_program(program: Program, count: int) -> None:
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE)
    if "engine" in space.names:
        space = space.pin({"engine": "wgmma"})
    for turn, row in enumerate(space.sample(np.random.default_rng(2), count)):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        found = problems(program, kernel, inputs, wanted, (0, 15, 6, 9)[turn])
        assert not found, space.schedule(row).to_json()
