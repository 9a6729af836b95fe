"""Rows that the blocks of a cluster share: right on the emulated machine, and refused elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ir import Graph, Program, exp, log, maximum, reduce, rsqrt
from ir.inputs import random_inputs
from ir.space import Space
from tests.cuda.run import needs_compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import QUICK, problems


def softmax() -> Program:
    """Few long rows, of which the maximum has to be known before the sum."""
    g = Graph("softmax")
    m, n = g.axes(m=3, n=2500)
    x = g.input("X", (m, n), "f32")
    e = exp(x - reduce("max", x, over=n))
    g.output("Y", e / reduce("sum", e, over=n), "f32", (m, n))
    return g.program()


def groups() -> Program:
    """Groups of neighbouring channels at many places, and their statistics."""
    g = Graph("groups")
    b, s, n, c = g.axes(b=2, s=520, n=6, c=10)
    x = g.input("X", (b, s, n, c), "bf16")
    mean = reduce("sum", x, over=(s, c)) * (1 / 5200)
    var = reduce("sum", (x - mean) * (x - mean), over=(s, c)) * (1 / 5200)
    g.output("Y", (x - mean) * rsqrt(var + 1e-5), "bf16", (b, s, n, c))
    g.output("M", mean, "f32", (b, n))
    return g.program()


def counted() -> Program:
    """Whole numbers, a constant that is summed, and a column beside the row."""
    g = Graph("counted")
    m, n = g.axes(m=4, n=1100)
    x = g.input("X", (m, n), "i32")
    most = reduce("max", x, over=n)
    g.output("D", most - x, "i32", (m, n))
    g.output("S", reduce("sum", maximum(x, 0), over=n), "i32", (m,))
    return g.program()


def columns() -> Program:
    """What is summed lies across the lanes: every thread has several results."""
    g = Graph("columns")
    n, c = g.axes(n=600, c=48)
    x = g.input("X", (n, c), "f32")
    total = log(reduce("sum", exp(x), over=n))
    g.output("Y", x - total, "f32", (n, c))
    return g.program()


PROGRAMS = (softmax, groups, counted, columns)


def spread(program: Program) -> Space:
    space = BACKEND.space(program, HARDWARE)
    one = next(one for one in space.decisions if one.name.split(".")[-1].startswith("spread"))
    return space.pin({one.name: one.domain[1]})


@needs_compiler
@pytest.mark.parametrize("build", PROGRAMS, ids=lambda build: build.__name__)
def test_drawn_kernels_mean_their_program(build: Callable[[], Program]) -> None:
    program = build()
    space = spread(program)
    rng = np.random.default_rng(7)
    seeds = space.seed_matrix
    seeds = seeds[space.legal(seeds)]
    assert len(seeds)
    chosen = [space.schedule(row) for row in (seeds[0], seeds[-1])]
    inputs = random_inputs(program, rng)
    wanted = bounds_of(program, inputs)
    for turn, schedule in enumerate([*chosen, *map(space.schedule, space.sample(rng, 3))]):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        assert "tw_load_cluster_4" in kernel.text("cuda")
        assert problems(program, kernel, inputs, wanted, QUICK[turn % 4]) == [], schedule.to_json()
