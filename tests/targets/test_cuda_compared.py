"""What is compared with its own extreme is computed once, however kernels are cut."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, argmax, contract, reduce, where
from ir.inputs import random_inputs
from ir.program import Program
from ir.targets.cuda.build.cut import stored_at
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.build.program_text import lower_all
from ir.targets.cuda.space.engines import residence_space, routes_of
from ir.targets.cuda.space.residences import residences
from tests.cuda.run import needs_compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems

FEW = 8  # processors, so that small programs have parts for all of them


def places(along: str, m: int = 160, n: int = 128, k: int = 64) -> Program:
    """Where the largest of a product's rows or columns is, as it is computed."""
    g = Graph("places")
    i, j, kk = g.axes(m=m, n=n, k=k)
    y = contract(g.input("X", (i, kk), "bf16"), g.input("W", (j, kk), "bf16"), over=kk)
    axis = i if along == "m" else j
    largest = reduce("max", y, over=axis)
    place = where(y == largest, g.iota(axis), 2**31 - 1)
    g.output("at", reduce("min", place, over=axis), "i32")
    return g.program()


def counted(m: int = 24, n: int = 512) -> Program:
    """How many of a row are as large as its largest, of numbers that are computed."""
    g = Graph("counted")
    i, j = g.axes(m=m, n=n)
    y = g.input("X", (i, j), "f32") * g.input("s", (j,), "f32") + g.input("b", (j,), "f32")
    same = where(y == reduce("max", y, over=j), 1.0, 0.0)
    g.output("count", reduce("sum", same, over=j), "f32")
    return g.program()


def products(program: Program, stored: set[int]) -> list[int]:
    """How many products each of the kernels has."""
    parts = stored_at(program, stored)
    return [sum(node.op.name == "contract" for node in part.nodes) for part in parts]


def test_the_extreme_takes_what_it_is_of_with_it() -> None:
    program = places("m")
    sums = [p for p, node in enumerate(program.nodes) if node.op.name in ("contract", "reduce")]
    product, largest, place = sums
    assert products(program, {largest}) == [1, 0, 0]  # the product, its largest, the place
    assert products(program, {product}) == [1, 0]
    assert products(program, {place}) == [1]


def test_what_is_read_as_it_is_stays_there() -> None:
    g = Graph("read")
    i, j = g.axes(i=8, j=16)
    x = g.input("X", (i, j), "f32")
    largest = reduce("max", x, over=j)
    g.output("at", reduce("min", where(x == largest, g.iota(j), 99), over=j), "i32")
    program = g.program()
    (first, _) = (p for p, node in enumerate(program.nodes) if node.op.name == "reduce")
    assert len(stored_at(program, {first})) == 2


@pytest.mark.parametrize("program", [places("m"), places("n")])
def test_no_kernel_computes_it_again(program: Program) -> None:
    for residence in residences(program, FEW):
        for route in routes_of(program, HARDWARE, residence):
            kernels = kernels_of(program, HARDWARE, route.engine, residence)
            made = [sum(n.op.name == "contract" for n in one.program.nodes) for one in kernels]
            apart = any("eq" in str(n.op) for one in kernels[1:] for n in one.program.nodes)
            assert not apart or sum(made) == 1, residence


@needs_compiler
@pytest.mark.parametrize("program", [places("m"), places("n"), counted()])
def test_it_is_found_by_every_route(program: Program) -> None:
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    for residence in residences(program, FEW):
        space = residence_space(program, HARDWARE, None, residence)
        for route in routes_of(program, HARDWARE, residence):
            pins = {} if route.alone else {"engine": route.engine}
            own = space.pin(pins)
            for row in own.sample(np.random.default_rng(2), 2):
                values = route.own(own.schedule(row).as_dict())
                kernel = lower_all(program, values, HARDWARE, route.engine, residence)
                assert not problems(program, kernel, inputs, wanted, 0), residence


@needs_compiler
def test_places_of_a_product_are_found_in_every_form() -> None:
    g = Graph("argmax")
    m, n, k = g.axes(m=160, n=128, k=64)
    y = contract(g.input("X", (m, k), "bf16"), g.input("W", (n, k), "bf16"), over=k)
    g.output("at", argmax(y, m), "i32", (n,))
    program = g.program()
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted, space = bounds_of(program, inputs), BACKEND.space(program, HARDWARE)
    for row in space.sample(np.random.default_rng(4), 12):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        assert not problems(program, kernel, inputs, wanted, 0)
