"""Chains of products whose types differ are one kernel, and right."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, operator, reduce
from ir.inputs import random_inputs
from ir.targets.cuda.space.engines import routes_of
from ir.targets.cuda.space.tensor import TensorKernel
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems

TYPES = (("i8", "f16"), ("i8", "bf16"), ("u8", "f16"), ("e4m3", "bf16"), ("bf16", "f16"))


@operator
def chained(g: Graph, h: int, s: int, d: int, scores: str, values: str) -> None:
    """Attention with queries and keys of one type and values of another, scaled by rows."""
    hh, i, j, k, e = g.axes(h=h, i=s, j=s, k=d, e=d)
    q, keys = g.input("Q", (hh, i, k), scores), g.input("K", (hh, j, k), scores)
    v, scale = g.input("V", (hh, j, e), values), g.input("s", (hh, j), "f32")
    x = cast(contract(q, keys, over=k), "f32") * scale * 1e-3
    p = exp(x - reduce("max", x, over=j))
    o = contract(cast(p, values), v, over=j) / reduce("sum", p, over=j)
    g.output("O", o, "f16", (hh, i, e))


@pytest.mark.parametrize("types", TYPES)
def test_they_are_one_kernel_on_wgmma(types: tuple[str, str]) -> None:
    program = chained.build(h=8, s=4096, d=128, scores=types[0], values=types[1])
    routes = routes_of(program, HARDWARE)
    assert [route.engine for route in routes] == ["wgmma"]
    assert [type(kernel) for kernel in routes[0].kernels] == [TensorKernel]


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("types", TYPES)
@draws(1, 3)
@pytest.mark.alike(2)
def test_drawn_kernels_are_right(types: tuple[str, str], count: int) -> None:
    program = chained.build(h=1, s=80, d=32, scores=types[0], values=types[1])
    rng = np.random.default_rng(5)
    inputs, space = random_inputs(program, rng), BACKEND.space(program, HARDWARE)
    wanted = bounds_of(program, inputs)
    for number, row in enumerate(space.sample(rng, count)):
        schedule = space.schedule(row)
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        assert not problems(program, kernel, inputs, wanted, (15, 0, 6)[number]), schedule.to_json()
