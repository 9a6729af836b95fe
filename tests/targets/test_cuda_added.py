"""Products of a chain that are added up have the registers of one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ir import Graph, Tile, cast, contract, exp, reduce
from ir.inputs import random_inputs
from ir.program import Program
from ir.rewrite.narrowing import narrowed
from ir.targets.cuda.build.added import whole_of
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.space.engines import residence_space, routes_of
from ir.targets.cuda.space.residences import USUAL
from ir.targets.cuda.space.tensor import TensorKernel
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.formed import form_problems
from tests.targets.test_cuda_emulated import problems

Total = Callable[[list[Tile]], Tile]
TOTALS: dict[str, Total] = {
    "three": lambda one: one[0] + one[1] + one[2],
    "a tree": lambda one: (one[0] + one[1]) + (one[2] + one[3]),
    "scaled": lambda one: (one[0] + one[1]) * 0.5,
}
OTHERS: dict[str, Total] = {
    "a difference": lambda one: one[0] - one[1],
    "each by itself": lambda one: one[0] + one[1] * 0.5,
    "one twice": lambda one: (one[0] + one[1]) * one[0],
}


def chain(total: Total, online: bool = False) -> Program:
    """Sums of products of what is made of the same scores."""
    g = Graph("chain")
    i, j, d, e = g.axes(i=48, j=80, d=32, e=24)
    q, k = g.input("Q", (i, d), "bf16"), g.input("K", (j, d), "bf16")
    v, w = g.input("V", (j, e), "bf16"), g.input("W", (j, e), "bf16")
    scores = contract(q, k, over=d) * 0.1
    if online:
        scores = exp(scores - reduce("max", scores, over=j))
    products = [
        contract(cast(scores * (1.0 + n), "bf16"), w if n == 2 else v, over=j) for n in range(4)
    ]
    g.output("O", total(products), "f32")
    return g.program()


def outer(program: Program) -> tuple[TensorKernel, Program]:
    (kernel,) = kernels_of(program, HARDWARE, "wgmma")
    assert isinstance(kernel, TensorKernel)
    return kernel, kernel.program


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize("name", TOTALS)
@pytest.mark.alike(2)
def test_sums_of_several_products_are_one(name: str, online: bool) -> None:
    program = chain(TOTALS[name], online)
    kernel, own = outer(program)
    positions = tuple(product.position for product in kernel.roles.outer)
    assert len(positions) > 1
    assert whole_of(own, positions) is not None
    assert kernel.roles.sums == (kernel.roles.added,)
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    (route,) = [r for r in routes_of(program, HARDWARE) if r.engine == "wgmma"]
    space = residence_space(program, HARDWARE, None, USUAL)
    space = space if route.alone else space.pin({"engine": "wgmma"})
    for turn, row in enumerate(space.sample(np.random.default_rng(1), 3)):
        schedule = space.schedule(row)
        made = BACKEND.lower(program, schedule, HARDWARE)
        assert made.text("cuda").count("f32 acc_") == 2  # of scores, and of all the others
        found = problems(program, made, inputs, wanted, (0, 6, 15)[turn])
        assert not found, schedule.to_json()


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_weights_that_nobody_rounds_are_parts(dtype: str) -> None:
    """Three of them, times one, two or three of what they are multiplied with."""
    g = Graph("unrounded")
    i, j, d, e = g.axes(i=48, j=80, d=32, e=24)
    q, k = g.input("Q", (i, d), dtype), g.input("K", (j, d), dtype)
    scores = contract(q, k, over=d) * 0.1
    weights = exp(scores - reduce("max", scores, over=j))
    found = contract(weights, g.input("V", (j, e), dtype), over=j)
    g.output("O", found / reduce("sum", weights, over=j), dtype)
    program = g.program()
    made = narrowed(program, apart=True)
    assert made is not None
    own = [n for n in made.program.nodes if n.op.name == "contract" and n.axes == ("i", "e")]
    assert len(own) == {"bf16": 3, "f16": 5, "f32": 6}[dtype]
    residence = USUAL if dtype == "bf16" else "operands-stored"
    assert not form_problems(program, made.program, residence)


def softmaxes(alike: bool, same: bool) -> Program:
    """Two chains that are added up, the weights of each relative to its own largest score."""
    g = Graph("softmaxes")
    i, j, d, e = g.axes(i=48, j=80, d=32, e=24)
    q = g.input("Q", (i, d), "bf16")

    def weights(name: str) -> Tile:
        scores = contract(q, g.input(name, (j, d), "bf16"), over=d)
        return exp(scores - reduce("max", scores, over=j))

    one = weights("K")
    if same:
        other = one * 2.0
    elif alike:
        other = weights("L")
    else:
        other = contract(q, g.input("L", (j, d), "bf16"), over=d)
    products = [
        contract(cast(tile, "bf16"), g.input(name, (j, e), "bf16"), over=j)
        for name, tile in (("V", one), ("W", other))
    ]
    g.output("O", products[0] + products[1], "f32")
    return g.program()


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize(("alike", "same"), [(True, True), (True, False), (False, False)])
def test_sums_that_are_corrected_otherwise_are_apart(alike: bool, same: bool) -> None:
    program = softmaxes(alike, same)
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    for card in (HARDWARE, BACKEND.machine("rtx4090")):
        space = BACKEND.space(program, card)
        for row in space.seed_rows(np.random.default_rng(0))[:2]:
            schedule = space.schedule(row)
            kernel = BACKEND.lower(program, schedule, card)
            assert not problems(program, kernel, inputs, wanted, 0), schedule.to_json()


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_more_than_a_sum_has_registers_of_its_own(name: str) -> None:
    program = chain(OTHERS[name])
    kernel, _ = outer(program)
    assert kernel.roles.added is None
    assert len(kernel.roles.sums) == len(kernel.roles.outer)
