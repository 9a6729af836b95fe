"""Sums that begin with another product: adapters of low rank, what a chunk adds to its past."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ir import Graph, Program, cast, contract, exp, relu
from ir.inputs import random_inputs
from ir.stages import reduced_axes
from ir.targets.cuda.build.begins import begin_of
from ir.targets.cuda.build.cut import WGMMA, cut_program
from ir.targets.cuda.build.roles import find_roles
from ir.targets.cuda.plans.tensor_rings import HELD, rings_of
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems

Made = Callable[[], Program]


def adapted(rank: int = 16, depth: int = 320) -> Program:
    """X W + (X A) B / 2."""
    graph = Graph("adapted")
    m, n, k, r = graph.axes(m=130, n=136, k=depth, r=rank)
    x, w = graph.input("x", (m, k), "bf16"), graph.input("w", (k, n), "bf16")
    a, b = graph.input("a", (k, r), "bf16"), graph.input("b", (r, n), "bf16")
    low = contract(cast(contract(x, a, over=k), "bf16"), b, over=r)
    graph.output("y", contract(x, w, over=k) + low * 0.5, "bf16", (m, n))
    return graph.program()


def past(computed: bool = False) -> Program:
    """The past of a chunk, decayed row by row, and its own sum; weights as they are or computed."""
    graph = Graph("past")
    i, j, p, n = graph.axes(i=96, j=192, p=64, n=40)
    weight, x = graph.input("w", (i, j), "f16"), graph.input("x", (j, p), "f16")
    state, right = graph.input("s", (n, p), "f16"), graph.input("c", (i, n), "f16")
    decay = graph.input("d", (i,), "f32")
    own = cast(cast(weight, "f32") * exp(decay * -0.1), "f16") if computed else weight
    before = contract(right, state, over=n) * exp(decay)
    graph.output("y", relu(contract(own, x, over=j) + before), "f32", (i, p))
    return graph.program()


def alike() -> Program:
    """Two products with equally long sums: one of them begins the other."""
    graph = Graph("alike")
    m, n, k, q = graph.axes(m=70, n=72, k=64, q=64)
    x, w = graph.input("x", (m, k), "bf16"), graph.input("w", (n, k), "bf16")
    u, v = graph.input("u", (m, q), "bf16"), graph.input("v", (n, q), "bf16")
    graph.output("y", contract(x, w, over=k) + contract(u, v, over=q), "f32", (m, n))
    return graph.program()


PROGRAMS: dict[str, Made] = {
    "adapted": adapted, "wide adapter": lambda: adapted(200), "past": past,
    "of computed weights": lambda: past(True), "short": lambda: adapted(8, 64), "alike": alike,
}  # fmt: skip


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("name", PROGRAMS)
@draws(1, 3)
@pytest.mark.alike(2)
def test_sums_that_begin_with_a_product_are_right(name: str, count: int) -> None:
    program = PROGRAMS[name]()
    space = BACKEND.space(program, HARDWARE)
    named = space.decision("engine").domain if "engine" in space.names else ("wgmma",)
    engines = [engine for engine in map(str, named) if engine.startswith("wgmma")]
    assert engines
    inputs = random_inputs(program, np.random.default_rng(1))
    bounds = bounds_of(program, inputs)
    for engine in engines:
        some = space.pin({"engine": engine}) if "engine" in space.names else space
        rng = np.random.default_rng(len(name))
        for turn, row in enumerate((*some.seed_rows(rng)[:1], *some.sample(rng, count))):
            kernel = BACKEND.lower(program, some.schedule(row), HARDWARE)
            assert problems(program, kernel, inputs, bounds, (0, 15, 6, 9)[turn]) == []


def test_an_adapter_needs_one_kernel_beside_its_own() -> None:
    first, last = cut_program(adapted(), engine=WGMMA)
    assert [spec.shape for spec in first.outputs] == [(130, 16)]
    roles = find_roles(last, False)
    (begin,) = roles.begins
    assert roles.walked == ("k",)
    assert begin.product.over == ("r",)
    assert {*rings_of(last, roles)[HELD]} == {begin.product.a, begin.product.b}


@pytest.mark.parametrize(("rank", "longer"), [(8, "k"), (320, "k"), (321, None)])
def test_the_longer_sum_begins_with_the_shorter(rank: int, longer: str | None) -> None:
    program = adapted(rank)
    begins = {n: begin_of(program, n) for n in range(len(program.nodes))}
    found = [reduced_axes(program.nodes[n]) for n, begin in begins.items() if begin is not None]
    assert found == ([(longer,)] if longer else [])


def test_a_value_that_others_read_is_no_beginning() -> None:
    graph = Graph("read")
    m, n, k, r = graph.axes(m=64, n=64, k=256, r=16)
    tiles = {
        name: graph.input(name, axes, "bf16")
        for name, axes in {"x": (m, k), "w": (k, n), "u": (m, r), "b": (r, n)}.items()
    }
    low = contract(tiles["u"], tiles["b"], over=r)
    graph.output("y", contract(tiles["x"], tiles["w"], over=k) + low, "bf16", (m, n))
    graph.output("z", low, "bf16", (m, n))
    program = graph.program()
    assert not any(begin_of(program, position) for position in range(len(program.nodes)))


def test_parts_of_columns_begin_with_whole_panels() -> None:
    """Of the products that a sum begins with as well, whose operand may lie along the columns."""
    g = Graph("turned")
    i, j, d, e = g.axes(i=256, j=64, d=128, e=192)
    scores, values = g.input("P", (i, j), "bf16"), g.input("V", (j, e), "bf16")
    queries, state = g.input("Q", (i, d), "bf16"), g.input("S", (e, d), "bf16")
    sums = contract(scores, values, over=j) + contract(queries, state, over=d)
    g.output("O", sums, "bf16", (i, e))
    program = g.program()
    space = BACKEND.space(program, HARDWARE)
    for row in space.sample(np.random.default_rng(3), 80):
        BACKEND.lower(program, space.schedule(row), HARDWARE)
