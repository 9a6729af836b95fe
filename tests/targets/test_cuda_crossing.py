"""How sums on mma.sync cross to those who write lines: every word once, and where it is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir import Graph, contract, operator, relu
from ir.inputs import random_inputs
from ir.layout.addresses import address
from ir.layout.expressions import constant, evaluated
from ir.layout.layout import Layout
from ir.program import Program
from ir.schedule import Schedule
from ir.targets.cuda.layouts.crossing import PART, Crossing, crossing
from ir.targets.cuda.layouts.lanes import operand
from ir.targets.cuda.layouts.placed import Step, ThreadValues
from ir.targets.cuda.layouts.written import written
from ir.targets.cuda.rows.hardware import known_hardware
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, built, space_of
from tests.targets.test_cuda_emulated import QUICK, problems

SUMS = operand("mma.m16n8k16.bf16", "c")
A100 = known_hardware("a100")
Warps = tuple[int, int, int]


def held(rows: int, columns: int, warps: Warps) -> ThreadValues:
    """Where the accumulators of a tile are, as kernels have them."""
    own = Step(0, warps[0], rows // warps[0]), Step(1, warps[1], columns // warps[1])
    blocks = Step(1, columns // warps[1] // 8, 8), Step(0, rows // warps[0] // 16, 16)
    part = Step(PART, warps[2], 1)
    return ThreadValues((*SUMS.threads, *own, part), (*SUMS.values, *blocks))


def crossed(rows: int, columns: int, warps: Warps, vector: int, along_rows: bool) -> Crossing:
    threads = 32 * int(np.prod(warps))
    first, second = (rows, columns) if along_rows else (columns, rows)
    vector = min(vector, first, max(1, rows * columns // threads))
    lines = written("bf16", first, second, threads, vector)
    lines = lines if along_rows else lines.turned
    lines = ThreadValues(lines.threads, (*lines.values, Step(PART, warps[2], 1)))
    return crossing(held(rows, columns, warps), lines, (rows, columns, warps[2]))


@given(
    st.sampled_from([16, 32, 64, 128]), st.sampled_from([8, 16, 64, 128]),
    st.tuples(*[st.sampled_from([1, 2, 4])] * 3), st.sampled_from([4, 8]), st.booleans(),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_every_sum_is_put_where_it_is_read(
    rows: int, columns: int, warps: Warps, vector: int, along_rows: bool
) -> None:
    """Each accumulator is stored once, at the word that its row, column and part have."""
    if rows % (16 * warps[0]) or columns % (8 * warps[1]) or np.prod(warps) > 16:
        return
    shape, sums = (rows, columns, warps[2]), held(rows, columns, warps)
    found = crossed(rows, columns, warps, vector, along_rows)
    points = Layout.parse(sums.text(shape))
    threads = np.arange(points.mode(0).size)
    at = np.full(int(np.prod(shape)), -1)
    words, stores = (mode.size for mode in found.words.modes)
    for store in range(stores):
        starts = np.array([found.memory(found.first((int(t), store))) for t in threads])
        assert not (starts % words).any()
        for word in range(words):
            value = found.words((word, store))
            point = points.mode(0).at(threads) + points.mode(1)(value)
            assert (at[point] == -1).all()
            at[point] = starts + word
    assert np.array_equal(np.sort(at), np.arange(at.size))
    assert np.array_equal(at, found.memory.offsets())


@pytest.mark.parametrize("along_rows", [False, True])
def test_a_load_brings_neighbours(along_rows: bool) -> None:
    axis = 0 if along_rows else 1
    found = crossed(64, 64, (2, 2, 2), 8, along_rows)
    loads = found.loads(axis, 8)
    assert sorted(number for load in loads for number in load) == list(range(8))
    assert {len(load) for load in loads} == {4}
    for load in loads:
        places = [[0, 0, 0] for _ in load]
        for place, number in zip(places, load, strict=True):
            place[axis] = number
        at = [found.memory(tuple(place)) for place in places]
        assert at == [at[0] + word for word in range(4)]
        assert at[0] % 4 == 0
    assert all(len(load) == 1 for load in found.loads(1 - axis, 8))


def test_small_tiles_that_lanes_would_exchange_go_line_by_line() -> None:
    found = crossed(32, 8, (2, 1, 1), 4, False)
    assert str(found.memory) == "(32,8,1):(8,1,256)"
    assert found.words.mode(0).size == 1
    assert found.loads(1, 4) == ((0, 1, 2, 3),)
    place = address(found.memory, constant(3), constant(2), constant(0))
    assert int(evaluated(place)) == 26


CASES: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("matmul", {"m": 96, "n": 128, "k": 192, "dtype": "bf16"}, {"warps.depth": 1}),
    ("matmul", {"m": 72, "n": 40, "k": 256, "dtype": "f16", "tb": True}, {"warps.depth": 4}),
    ("matmul", {"m": 40, "n": 136, "k": 128, "dtype": "bf16"}, {"swap": True}),
    ("matmul", {"m": 48, "n": 90, "k": 130, "dtype": "u8"}, {}),
    ("matmul", {"m": 40, "n": 72, "k": 64, "dtype": "tf32"}, {"swap": True}),
    ("gated_mlp", {"m": 64, "n": 72, "k": 64, "dtype": "bf16", "tb": True}, {"warps.depth": 2}),
    ("matmul_bias_act", {"m": 66, "n": 72, "k": 64, "dtype": "bf16"}, {}),
    ("matmul", {"m": 32, "n": 8, "k": 64, "dtype": "bf16"},
     {"tile.m": 32, "tile.n": 8, "warps.rows": 2, "warps.columns": 1, "warps.depth": 1}),
)  # fmt: skip


@operator
def told_twice(g: Graph, m: int, n: int, k: int) -> None:
    """A product, and what is left of it above zero, turned and wider."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    a, b = g.input("A", (rows, depth), "bf16"), g.input("B", (depth, columns), "bf16")
    product = contract(a, b, over=depth)
    g.output("C", product, "bf16")
    g.output("D", relu(product), "f32", dims=(columns, rows))


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("number", range(len(CASES)))
@pytest.mark.alike(2)
def test_staged_outputs_mean_their_program(number: int) -> None:
    name, arguments, pins = CASES[number]
    means_the_same(built(name, arguments), number, pins)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
def test_another_output_finds_the_sums_too() -> None:
    means_the_same(told_twice.build(m=48, n=72, k=64), 0, {})


def means_the_same(program: Program, number: int, pins: dict[str, Any]) -> None:
    inputs = random_inputs(program, np.random.default_rng(number))
    wanted = bounds_of(program, inputs)
    own = {"epilogue": "staged", **pins}
    space = space_of(program, "mma", A100).pin({f"mma.{k}": v for k, v in own.items()})
    for row in space.sample(np.random.default_rng(number), 2):
        schedule: Schedule = space.schedule(row)
        kernel = BACKEND.lower(program, schedule, A100)
        for mode in QUICK[::2]:
            assert not problems(program, kernel, inputs, wanted, mode), schedule.to_json()
