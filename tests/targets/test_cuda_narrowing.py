"""Wide products in narrow parts on emulated tensor cores, judged as the programs they are of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, uniform
from ir.inputs import random_inputs
from ir.ops.load import Load
from ir.ops.reduce import Contract
from ir.program import Program
from ir.rewrite.narrowing import narrowed
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.space.tensor import TensorKernel
from tests.emulator.emulate import compiler
from tests.few import by_turns, draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built, drawn
from tests.targets.test_cuda_emulated import problems

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "two wide factors": ("matmul", {"m": 70, "n": 72, "k": 72}),
    "signs": ("hadamard", {"m": 20, "n": 64, "dtype": "bf16"}),
    "four products": ("dft", {"m": 24, "n": 40}),
    "beside sums": ("distances", {"n": 70, "m": 40, "d": 24, "kind": "expanded"}),
}


def scaled_rows() -> Program:
    """A narrow factor, and one that is wide for what scales it along the sum."""
    g = Graph("scaled_rows")
    c, j, d, e = g.axes(c=6, j=64, d=64, e=64)
    k, v = g.input("K", (c, j, d), "bf16"), g.input("V", (c, j, e), "bf16")
    wide = v * exp(g.input("fade", (c, j), "f32", uniform(-1, 0)))
    g.output("S", contract(cast(k, "f32"), wide, over=j), "f32", (c, d, e))
    return g.program()


def test_a_narrow_factor_stays_as_it_is() -> None:
    found = narrowed(scaled_rows())
    assert found is not None
    nodes = found.program.nodes
    (product,) = (node for node in nodes if isinstance(node.op, Contract))
    assert any(isinstance(nodes[arg].op, Load) for arg in product.args)


@draws(2, 8)
def test_parts_are_formed_in_registers(count: int) -> None:
    """The axis of parts is one that nothing is read along: it is walked around the sum."""
    program = scaled_rows()
    found = narrowed(program)
    assert found is not None
    (kernel,) = kernels_of(found.program, HARDWARE, "wgmma_rs")
    assert isinstance(kernel, TensorKernel)
    assert kernel.roles.walked == ("parts", "j")
    inputs = random_inputs(program, np.random.default_rng(3))
    wanted = bounds_of(program, inputs)
    for schedule in drawn(found.program, 6, 0, count, "wgmma_rs"):
        made = BACKEND.lower(found.program, schedule, HARDWARE)
        assert not problems(found.program, made, inputs, wanted, 0), schedule


@pytest.mark.parametrize(("name", "engine"), by_turns(CASES, ["wgmma", "mma"]))
@pytest.mark.alike(2)
def test_products_of_parts_are_as_exact_as_wide_ones(name: str, engine: str) -> None:
    program = built(*CASES[name])
    found = narrowed(program)
    assert found is not None
    inputs = random_inputs(program, np.random.default_rng(4))
    wanted = bounds_of(program, inputs)
    for schedule in drawn(found.program, 5, 1, 1, engine):
        kernel = BACKEND.lower(found.program, schedule, HARDWARE)
        assert not problems(found.program, kernel, inputs, wanted, 0), schedule
