"""Folds on CUDA whose elements lie in a row, and what is loaded ahead: emulated and compiled."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from explorer.runtime import nvrtc
from ir import Graph, fold, scan
from ir.errors import MissingTarget
from ir.inputs import random_inputs
from ir.phases import phases_of
from ir.plain.build import plain_kernel, plain_kernels
from ir.plain.pieces import Ways
from ir.program import Program
from ir.registry import load_operator
from ir.schedule import Schedule
from ir.targets.cuda.plain.plain_ring import Ring, Tile
from ir.targets.cuda.plain.plain_step import PlainStep
from ir.targets.cuda.plain.plain_stream import Stream, streams_of
from tests.emulator.emulate import compiler
from tests.few import by_turns, few
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems
from tests.targets.test_cuda_phases import folded, ways

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")


def block(threads: int, run: int, ahead: int) -> dict[str, Any]:
    return {"fold": "block", "threads": threads, "run": run, "ahead": ahead}


def check(program: Program, *wanted: dict[str, Any], inputs: Any = None) -> None:
    inputs = random_inputs(program, np.random.default_rng(1)) if inputs is None else inputs
    bounds = bounds_of(program, inputs)
    for number, schedule in enumerate(ways(program, *wanted)):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        mode = (0, 15, 9)[number % 3]
        assert not problems(program, kernel, inputs, bounds, mode), schedule.to_json()


# --- what is in a row -----------------------------------------------------------------------------


def scanned(m: int, n: int, dtype: str, backward: bool = False) -> Program:
    g = Graph("scanned")
    i, j = g.axes(i=m, j=n)
    value = g.input("x", (i, j), dtype)
    merge = "or" if dtype == "bool" else "sum"
    g.output("y", scan(merge, value, j, backward=backward)[0], dtype, (i, j))
    return g.program()


@pytest.mark.parametrize(("n", "dtype", "unit"), [
    (512, "f32", 4), (510, "f32", 2), (511, "f32", 1), (512, "bf16", 8), (516, "bf16", 4),
    (1024, "i8", 16), (1000, "i8", 8), (512, "f64", 2), (97, "f64", 1),
])  # fmt: skip
@pytest.mark.parametrize("backward", [False, True])
def test_units_are_what_rows_are_multiples_of(
    n: int, dtype: str, unit: int, backward: bool
) -> None:
    kernel = plain_kernel(scanned(3, n, dtype, backward))
    step = PlainStep(kernel, HARDWARE)
    (streams,) = step.streams
    (read,), (write,) = streams.reads, streams.writes
    assert (read.array, write.array) == ("x", "y")
    assert read.unit == write.unit == unit
    assert read.step == write.step == (-1 if backward else 1)


def test_pieces_are_aligned_as_their_length_is() -> None:
    found = []
    for pieces in (8, 3):
        first, _, last = plain_kernels(scanned(1, 1056, "f32"), Ways(pieces=pieces))
        for kernel in (first, last):
            steps = PlainStep(kernel, HARDWARE)
            found.append([s.unit for streams in steps.streams for s in streams.reads])
    assert found == [[4], [4], [4], [4]]
    first, *_ = plain_kernels(scanned(1, 1062, "f32"), Ways(pieces=8))
    assert {s.unit for one in PlainStep(first, HARDWARE).streams for s in one.reads} == {1}


def test_what_moves_along_another_axis_is_no_row() -> None:
    g = Graph("columns")
    i, j = g.axes(i=300, j=40)
    g.output("y", fold("sum", g.input("x", (i, j), "f32"), i)[0], "f32", (j,))
    step = PlainStep(plain_kernel(g.program()), HARDWARE)
    (streams,) = step.streams
    assert [stream.step for stream in streams.reads] == [40]
    assert step.beside
    assert streams.beside().reads == ()


def test_what_is_gathered_or_stays_is_no_stream() -> None:
    g = Graph("gathered")
    i, j = g.axes(i=3, j=300)
    place = g.input("p", (j,), "i32")
    value = g.tensor("v", (40,), "f32")[place] * g.input("s", (i,), "f32")
    g.output("y", fold("sum", value, j)[0], "f32", (i,))
    kernel = plain_kernel(g.program())
    (found,) = (streams_of(kernel, one) for one in PlainStep(kernel, HARDWARE).folds)
    assert [stream.array for stream in found.reads] == ["p"]


def test_rings_have_words_of_their_own() -> None:
    kernel = plain_kernel(scanned(3, 512, "f32"))
    (streams,) = PlainStep(kernel, HARDWARE).streams
    tile = Tile(streams.reads[0], 8)
    assert (tile.word, tile.unit, tile.words, tile.lane_bytes) == (16, 16, 2, 48)
    ring = Ring(streams, 8, 2)
    assert ring.bytes == 3 * 32 * 48 + 32 * 48
    assert Ring(streams, 8, 0).bytes == 0
    narrow = Stream("x", "i8", streams.reads[0].place, streams.reads[0].first, 1, 16)
    assert not Tile(narrow, 2).waits


# --- emulated -------------------------------------------------------------------------------------

TYPES = ("f32", "bf16", "i8", "f64", "i64", "bool", "u8", "i32")


@needs_compiler
@pytest.mark.parametrize(("dtype", "backward"), by_turns(TYPES, [False, True]))
@pytest.mark.alike(2)
def test_elements_of_every_size(dtype: str, backward: bool) -> None:
    """By words to registers, and by way of shared memory; whole tiles and what is left."""
    for n in (608, 300):
        check(scanned(2, n, dtype, backward), block(32, 4, 1), block(64, 8, 0), block(32, 16, 2))


@needs_compiler
@pytest.mark.parametrize(
    ("n", "keep"), by_turns([1, 2, 65, 127, 130, 509, 1023, 1026], [False, True])
)
@pytest.mark.alike(2)
def test_rows_of_any_length(n: int, keep: bool) -> None:
    """What does not commute tells every order but that of the axis."""
    merge = "(b0, sub(add(a1, b1), mul(0, a0)))" if keep else "(a0, add(b1, mul(0, a1)))"
    program = folded(merge, (2, n), ("i32", "i32"), keep)
    if n <= 64:
        check(program, {"threads": 64})
    else:
        check(program, block(32, 2, 1), block(64, 1, 3), block(128, 8, 1), block(64, 4, 0),
              {"fold": "thread", "run": 8})  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("n", [640, 599])
def test_narrow_rows_that_no_unit_divides(n: int) -> None:
    """Elements of less than four bytes, which no asynchronous copy takes one by one."""
    program = folded("argmax", (3, n), ("bf16", "i32"), False)
    check(program, block(32, 8, 2), block(64, 16, 1), block(32, 2, 2))


@needs_compiler
@pytest.mark.parametrize(
    ("name", "n"),
    by_turns(["welford", "logsumexp", "logcumsumexp", "running_statistics"], [1024, 331]),
)
def test_operators_with_rows(name: str, n: int) -> None:
    program = load_operator(name).build(m=3, n=n)
    check(program, block(64, 8, 2), block(32, 16, 1), {"fold": "thread", "run": 4})


@needs_compiler
def test_infinities_and_nan_in_a_log_sum() -> None:
    program = load_operator("logsumexp").build(m=6, n=200)
    inputs = dict(random_inputs(program, np.random.default_rng(0)))
    x = inputs["X"]
    x[0, 7], x[1, 3], x[2, 190], x[3, 5] = -np.inf, np.inf, np.nan, 80.0
    x[4, :2] = np.inf
    check(program, block(32, 4, 1), {"fold": "thread", "run": 4}, inputs=inputs)


@needs_compiler
def test_columns_load_ahead_of_their_sums() -> None:
    program = load_operator("column_scan").build(m=131, n=70)
    thread = {"fold": "thread", "threads": 64}
    check(program, {**thread, "run": 8}, {**thread, "run": 16}, {**thread, "run": 1})
    program = load_operator("linear_recurrence").build(b=2, t=600, d=33)
    check(program, {**thread, "run": 8, "pieces": 8}, {**thread, "run": 4, "pieces": 1})


@needs_compiler
def test_many_rows_for_few_blocks() -> None:
    """A block goes from row to row: the next one's tiles do not overwrite what is still read."""
    program = folded("affine", (300, 96), ("f32", "f32"), True)
    small = replace(HARDWARE, facts=tuple((k, 1 if k == "sms" else v) for k, v in HARDWARE.facts))
    space = BACKEND.space(program, small)
    inputs = random_inputs(program, np.random.default_rng(1))
    bounds = bounds_of(program, inputs)
    for pins in (block(64, 1, 2), block(32, 2, 1)):
        row = space.pin(pins).sample(np.random.default_rng(0), 1)[0]
        kernel = BACKEND.lower(program, space.schedule(row), small)
        plan = json.loads(kernel.text("launch"))
        assert plan["kernels"][0]["grid"][0] == 32
        assert not problems(program, kernel, inputs, bounds, 15)


# --- decisions ------------------------------------------------------------------------------------


def test_tiles_that_wait_are_a_blocks() -> None:
    space = BACKEND.space(load_operator("welford").build(m=4096, n=4096), HARDWARE)
    (rule,) = (one for one in space.constraints if one.name == "ahead")
    values: dict[str, Any] = {"fold": "thread", "ahead": 2, "run": 4, "threads": 64}
    assert "ahead=2 with fold=thread" in rule.explain(values)
    wide: dict[str, Any] = {"fold": "block", "ahead": 3, "run": 32, "threads": 512}
    assert "shared memory: 295,680 B needed" in rule.explain(wide)
    refusal = space.refusal(Schedule.of("cuda", {**wide, "early": True}))
    assert refusal is not None
    assert refusal.constraint == "ahead"


def test_a_schedule_of_before_has_no_tiles_ahead() -> None:
    space = BACKEND.space(load_operator("scan").build(m=4096, n=4096), HARDWARE)
    old: dict[str, Any] = {"fold": "block", "run": 4, "threads": 64, "early": True}
    assert space.schedule(space.encode(Schedule.of("cuda", old)))["ahead"] == 0


def test_first_schedules_are_of_rows_in_words_and_of_columns_by_threads() -> None:
    for name, wanted in (
        ("welford", {"fold": "block", "run": 16, "ahead": 2}),
        ("scan", {"fold": "block", "run": 8, "ahead": 1}),
        ("column_scan", {"fold": "thread", "run": 8, "pieces": 32}),
    ):
        space = BACKEND.space(load_operator(name).build(m=16384, n=8192), HARDWARE)
        first = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
        assert {key: first[key] for key in wanted} == wanted


def compiled(program: Program, pins: dict[str, Any]) -> Any:
    try:
        nvrtc.version()
    except MissingTarget as missing:
        pytest.skip(str(missing))
    (schedule,) = ways(program, pins)
    kernel = BACKEND.lower(program, schedule, HARDWARE)
    code, resources = nvrtc.compile_text(kernel.text("cuda"), "sm_90a", ())
    assert code
    return resources


@pytest.mark.parametrize(("name", "pins", "most"), [
    ("welford", block(128, 16, 2), 96), ("logsumexp", block(128, 32, 2), 96),
    ("running_statistics", block(256, 8, 1), 96), ("scan", block(256, 8, 1), 64),
    ("scan", block(256, 4, 0), 64), ("column_scan", {"fold": "thread", "run": 8}, 64),
])  # fmt: skip
@pytest.mark.alike(2)
def test_nothing_that_is_held_is_spilled(name: str, pins: dict[str, Any], most: int) -> None:
    resources = compiled(load_operator(name).build(m=16384, n=8192), pins)
    assert resources.stack <= 8  # of a division's call
    assert resources.registers <= most


@pytest.mark.parametrize("dtype", few(TYPES, (0, 1, 2, 4)))
@pytest.mark.alike(2)
def test_every_type_compiles(dtype: str) -> None:
    for pins in (block(64, 16, 2), block(64, 8, 0)):
        assert compiled(scanned(64, 4096, dtype, True), pins).stack == 0


# --- many values at once --------------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize(("dtype", "least"), by_turns(["f32", "f64"], [False, True]))
def test_sums_beside_an_extreme_take_all_of_a_lane(dtype: str, least: bool) -> None:
    most = "min(a0, b0)" if least else "max(a0, b0)"
    apart = [f"sub({most}, {s})" if least else f"sub({s}, {most})" for s in ("a0", "b0")]
    total = f"add(mul(a1, exp({apart[0]})), mul(exp({apart[1]}), b1))"
    program = folded(f"({most}, {total}, {total.replace('1', '2')})", (2, 700), (dtype,) * 3, False)
    schedules = ways(program, block(32, 8, 1), block(64, 4, 0), block(64, 1, 2))
    texts = [BACKEND.lower(program, one, HARDWARE).text("cuda") for one in schedules]
    assert ["all_1" in text for text in texts] == [True, True, False]
    check(program, block(32, 8, 1), block(64, 4, 0), block(64, 1, 2))


def test_pieces_of_columns_are_read_side_by_side() -> None:
    """Threads beside each other have columns beside each other, whatever is cut."""
    for name, extents in (
        ("column_scan", {"m": 2048, "n": 512}), ("linear_recurrence", {"b": 2, "t": 512, "d": 96}),
    ):  # fmt: skip
        program = load_operator(name).build(**extents)
        (phase,) = phases_of(program)
        for kernel in plain_kernels(phase.program, Ways(pieces=8)):
            assert kernel.points[-1][1] == extents.get("d", extents.get("n"))
            step = PlainStep(kernel, HARDWARE)
            assert step.beside or not step.folds
