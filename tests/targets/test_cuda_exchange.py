"""Parts of a sum that meet in the shared memory of a cluster."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from ir import Graph, cast, contract, gelu, operator
from ir.inputs import random_inputs
from ir.kernel import Kernel
from ir.program import Program
from ir.schedule import Schedule
from ir.targets.cuda.build.program_text import MARK
from tests.emulator.emulate import MODES, compiler, emulate
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, built
from tests.targets.test_cuda_emulated import QUICK, arrays_of, problems
from tests.targets.test_cuda_merging import FEW, SMALL_TILES

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")
FEW_ROWS: dict[str, Any] = {"m": 100, "n": 264, "k": 2048, "dtype": "bf16", "tb": True}
EXCHANGE: dict[str, Any] = {"split": "k:2", "merge": "cluster", "processors": 0}
CASES: tuple[dict[str, Any], ...] = (
    {"split": "k:4"},
    {"split": "k:4", "stages": 3, "wait": 1, "registers": "40/232"},
    {"tile.m": 128, "tile.n": 128, "consumers": 2, "registers": "40/232"},
    {"cluster": "1x2"},
    {"cluster": "2x2", "split": "k:2"},
    {"cluster": "2x1", "split": "k:4", "processors": 16, "epilogue_slots": 2},
    {"processors": 16, "epilogue": "direct"},
    {"swap": True, "split": "k:4", "tile.m": 32, "tile.k": 128},
    {"source": "registers", "split": "k:4", "processors": 18},
)


def lowered(program: Program, **changed: Any) -> Kernel:
    space = BACKEND.space(program, FEW)
    schedule = Schedule.of("cuda", {**SMALL_TILES, **EXCHANGE, **changed})
    assert space.refusal(schedule) is None
    return BACKEND.lower(program, schedule, FEW)


@needs_compiler
@pytest.mark.parametrize("changed", CASES, ids=str)
@pytest.mark.alike(2)
def test_sums_are_right_whatever_comes_first(changed: dict[str, Any]) -> None:
    """Tiles that end inside the matrix, one or several to a block, in clusters of 2 to 8."""
    program = built("matmul", FEW_ROWS)
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    kernel = lowered(program, **changed)
    for mode in QUICK:
        assert not problems(program, kernel, inputs, wanted, mode), mode


@operator
def two_products(g: Graph, m: int, n: int, k: int) -> None:
    """Two products of one operand, a bias along the columns, and outputs of two widths."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    a = g.input("A", (rows, depth), "bf16")
    left, right = (g.input(name, (columns, depth), "bf16") for name in ("B", "D"))
    bias = g.input("bias", (columns,), "f32")
    one, other = (contract(a, b, over=depth, acc="f32") for b in (left, right))
    g.output("C", gelu(one + bias) * other, "bf16")
    g.output("E", one + bias, "f32")


@operator
def scaled_product(g: Graph, m: int, n: int, k: int) -> None:
    """Weights of one byte with a scale for each row."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    a, w = g.input("A", (rows, depth), "bf16"), g.input("W", (columns, depth), "i8")
    scale = g.input("scale", (columns,), "f32")
    weights = cast(cast(w, "f32") * scale, "bf16")
    g.output("C", contract(a, weights, over=depth), "bf16")


@needs_compiler
@pytest.mark.parametrize(
    ("program", "pins"),
    [
        (two_products.build(m=72, n=136, k=1024), {"engine": "wgmma"}),
        (scaled_product.build(m=32, n=136, k=1024), {"engine": "wgmma_rs"}),
        (built("matmul", {**FEW_ROWS, "dtype": "i8", "out": "i32"}), {"engine": "wgmma"}),
    ],
    ids=("two products", "computed", "integers"),
)
@draws(1, 3)
def test_drawn_schedules_of_other_programs(
    program: Program, pins: dict[str, Any], count: int
) -> None:
    """What comes behind the sums reads columns of the block's own."""
    prefix = "wgmma_rs." if pins["engine"] == "wgmma_rs" else ""
    space = BACKEND.space(program, FEW).pin({**pins, f"{prefix}merge": "cluster"})
    rows = [space.schedule(row) for row in space.sample(np.random.default_rng(5), 12)]
    drawn = [one for one in rows if one[f"{prefix}split"] != "none"]
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    assert len(drawn) > 2
    for number, schedule in enumerate(drawn[:count]):
        kernel = BACKEND.lower(program, schedule, FEW)
        assert "tw_load_cluster_16" in kernel.text("cuda")
        assert not problems(program, kernel, inputs, wanted, QUICK[number]), schedule.to_json()


@needs_compiler
def test_every_run_gives_the_same_bits() -> None:
    program = built("matmul", {**FEW_ROWS, "m": 64, "k": 4096, "out": "f32"})
    inputs = random_inputs(program, np.random.default_rng(3))
    kernel = lowered(program, split="k:8", processors=8)
    results = []
    for mode in (0, 6, 9, 15):
        arrays = arrays_of(kernel, inputs)
        run = emulate(kernel.text("cuda"), kernel.text("launch"), arrays, mode=MODES[mode])
        assert not run.faults
        results.append(arrays["C"].copy())
    assert all((result == results[0]).all() for result in results)


BUGS: dict[str, tuple[dict[str, Any], str]] = {
    # changes of the schedule, what is taken out (a pattern)
    "sums are read before they are there": ({}, r"tw_barrier_await\([^^]*?, exchange_phase\);"),
    "the next tile's are left before all have read": (
        {"processors": 8}, r"tw_barrier_await\([^^]*?, exchange_phase \^ 1\);",
    ),
    "they are left where another group multiplies": (
        {"tile.m": 128, "consumers": 2, "registers": "40/232", "stages": 3},
        r"tw_group_sync\(1, 256\);(?=\s+tw_barrier_await)",
    ),
    "a block ends before all have read": ({"stages": 3}, r"tw_cluster_sync\(\);(?=\s+\}\s*$)"),
    "a phase is not counted": ({"processors": 8}, r"exchange_phase \^= 1;"),
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("name", BUGS)
@pytest.mark.alike(2)
def test_a_seeded_mistake_is_caught(name: str) -> None:
    changed, taken = BUGS[name]
    program = built("matmul", FEW_ROWS)
    inputs = random_inputs(program, np.random.default_rng(3))
    bounds = bounds_of(program, inputs)["C"]
    kernel = lowered(program, **changed)
    head, mark, body = kernel.text("cuda").rpartition(MARK)
    edited, count = re.subn(taken, "", body)
    assert count == 1
    for text, right in ((edited, False), (body, True)):
        found = []
        for mode in (0, 6, 9, 15):
            arrays = arrays_of(kernel, inputs)
            run = emulate(
                f"{head}{mark}{text}", kernel.text("launch"), arrays, mode=MODES[mode], limit=30
            )
            found.append(not run.faults and bounds.judge(arrays["C"]).right)
        assert all(found) == right


@pytest.mark.parametrize(
    "changed",
    [
        {"split": "k:4", "cluster": "2x2"},
        {"split": "k:3", "tile.n": 64},
        {"split": "k:4", "tile.n": 48},
        {"tile.n": 128, "consumers": 2, "partition": "columns"},
        {"consumers": 2, "partition": "whole"},
    ],
    ids=str,
)
def test_what_a_cluster_cannot_exchange_is_refused(changed: dict[str, Any]) -> None:
    space = BACKEND.space(built("matmul", {**FEW_ROWS, "k": 3072}), FEW)
    refusal = space.refusal(Schedule.of("cuda", {**SMALL_TILES, **EXCHANGE, **changed}))
    assert refusal is not None
    assert refusal.constraint == "exchange"


def test_sums_lie_over_the_rings_where_a_block_has_one_tile() -> None:
    program = built("matmul", FEW_ROWS)
    shared = []
    for processors in (0, 18):
        plan = json.loads(lowered(program, processors=processors).text("launch"))
        shared.append(plan["kernels"][0]["shared"])
        assert plan["workspace_bytes"] == 0
    assert shared[1] - shared[0] == 4 * 64 * 64 // 2
