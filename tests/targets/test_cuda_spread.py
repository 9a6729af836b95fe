"""Rows that the blocks of a cluster share: right on the emulated machine, and refused elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from explorer.runtime import nvrtc
from ir import Graph, Program, cumulative, exp, log, maximum, reduce, rsqrt
from ir.errors import MissingTarget
from ir.inputs import random_inputs
from ir.schedule import Schedule
from ir.space import Space
from ir.targets.cuda.rows.hardware import known_hardware
from ir.targets.cuda.space.block_clusters import spread_axes
from tests.cuda.run import needs_compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import QUICK, problems


def softmax() -> Program:
    """Few long rows, of which the maximum has to be known before the sum."""
    g = Graph("softmax")
    m, n = g.axes(m=3, n=2500)
    x = g.input("rank", (m, n), "f32")  # what a kernel would call its block's number
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
@pytest.mark.alike(2)
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


def test_it_is_offered_where_there_are_clusters_and_long_sums() -> None:
    for card, there in (("h200", True), ("a100", False)):
        space = BACKEND.space(softmax(), known_hardware(card))
        assert any(name.startswith("spread") for name in space.names) == there
    g = Graph("short")
    m, n = g.axes(m=64, n=256)
    x = g.input("X", (m, n), "f32")
    g.output("Y", x / reduce("sum", x, over=n), "f32", (m, n))
    assert "spread" not in BACKEND.space(g.program(), HARDWARE).names


def test_an_axis_that_is_gone_through_in_order_stays_in_one_block() -> None:
    g = Graph("running")
    m, n = g.axes(m=4, n=4096)
    x = g.input("X", (m, n), "f32")
    g.output("Y", cumulative("sum", x, n) / reduce("sum", x, over=n), "f32", (m, n))
    assert spread_axes(g.program()) == ()
    assert spread_axes(softmax()) == ("n",)


def test_more_blocks_than_a_cluster_has_are_refused() -> None:
    space = spread(softmax())
    seeds = space.seed_matrix
    values = space.schedule(seeds[space.legal(seeds)][0]).as_dict()
    refusal = space.refusal(Schedule.of("cuda", {**values, "tile.n": 256, "own.n": 4}))
    assert refusal is not None
    assert refusal.constraint == "spread"


def test_the_blocks_of_a_cluster_read_each_other() -> None:
    space = spread(groups())
    seeds = space.seed_matrix
    schedule = space.schedule(seeds[space.legal(seeds)][0])
    kernel = BACKEND.lower(groups(), schedule, HARDWARE)
    (launch,) = json.loads(kernel.text("launch"))["kernels"]
    assert launch["cluster"][0] > 1
    assert launch["grid"][0] % launch["cluster"][0] == 0
    try:
        _, resources = nvrtc.compile_text(kernel.text("cuda"), "sm_90a")
    except MissingTarget as missing:
        pytest.skip(str(missing))
    assert not resources.spill_stores
