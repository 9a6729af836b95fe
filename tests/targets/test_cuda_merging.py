"""Blocks that share a sum: every way in which they meet, on a card that has few processors."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ir.inputs import random_inputs
from ir.kernel import Kernel
from ir.ops.base import Array
from ir.program import Program
from ir.registry import load_operator
from ir.schedule import Schedule
from ir.targets.cuda.build.program_text import MARK
from tests.emulator.emulate import MODES, compiler, emulate
from tests.few import by_turns
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built
from tests.targets.test_cuda_emulated import QUICK, arrays_of, problems

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")
FEW = replace(HARDWARE, facts=(*((n, v) for n, v in HARDWARE.facts if n != "sms"), ("sms", 18)))
PLAIN: dict[str, Any] = {"m": 200, "n": 264, "k": 2048, "dtype": "bf16", "tb": True}
SMALL_TILES: dict[str, Any] = {
    "tile.m": 64, "tile.n": 64, "tile.k": 64, "consumers": 1, "partition": "rows", "stages": 2,
    "wait": 0, "registers": "none", "cluster": "1x1", "raster": "rows", "swap": False,
    "promotion": 256, "stream": "none", "epilogue": "tma", "epilogue_slots": 1, "early": True,
}  # fmt: skip

SHARED: tuple[dict[str, Any], ...] = (
    {"split": "k:4"},
    {"split": "k:2", "cluster": "1x2"},
    {"split": "k:4", "consumers": 2, "partition": "whole"},
    {"split": "k:2", "epilogue": "direct", "processors": 0},
)


def lowered(program: Program, **changed: Any) -> Kernel:
    schedule = Schedule.of("cuda", {**SMALL_TILES, "processors": 18, **changed})
    assert BACKEND.space(program, FEW).refusal(schedule) is None
    return BACKEND.lower(program, schedule, FEW)


@needs_compiler
@pytest.mark.parametrize(
    ("merge", "arguments"), by_turns(["last", "atomics", "turnstile"], [{}, {"out": "f32"}])
)
@pytest.mark.alike(2)
def test_sums_are_right_whatever_comes_first(merge: str, arguments: dict[str, Any]) -> None:
    """20 tiles in 2 to 4 parts on 18 processors: more than one wave, some with holes."""
    program = built("matmul", PLAIN | arguments)
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    for number, changed in enumerate(SHARED):
        kernel = lowered(program, merge=merge, **changed)
        for mode in (QUICK[number], 15):
            assert not problems(program, kernel, inputs, wanted, mode), (changed, mode)


def fresh_workspace(plan: dict[str, Any]) -> Array:
    workspace = np.full(plan["workspace_bytes"], 0xFF, np.uint8)
    for start, size in plan["clean"]:
        workspace[start : start + size] = 0
    return workspace


@needs_compiler
@pytest.mark.parametrize(
    ("merge", "out"), by_turns(["last", "atomics", "turnstile"], ["bf16", "f32"])
)
def test_a_second_run_finds_the_counts_clean(merge: str, out: str) -> None:
    """And gives the same bits, but for atomics."""
    program = built("matmul", PLAIN | {"out": out})
    inputs = random_inputs(program, np.random.default_rng(3))
    bounds = bounds_of(program, inputs)
    kernel = lowered(program, split="k:4", merge=merge)
    plan = json.loads(kernel.text("launch"))
    workspace = fresh_workspace(plan)
    results = []
    for mode in QUICK:
        arrays = {**arrays_of(kernel, inputs), "workspace": workspace}
        run = emulate(kernel.text("cuda"), plan, arrays, mode=MODES[mode], limit=30)
        assert not run.faults
        assert not any(workspace[start : start + size].any() for start, size in plan["clean"])
        results.append(arrays["C"].copy())
        assert bounds["C"].judge(arrays["C"]).right
    if merge != "atomics":
        assert all((result == results[0]).all() for result in results)


EARLY_COUNT = r"tw_group_sync\(1, 128\);(\s+if \(thread == 0\) \*.* tw_count)"
BUGS: dict[str, tuple[dict[str, Any], str, str]] = {
    # changes of the schedule, what is edited (a pattern), its replacement
    "nobody waits for its turn": ({"merge": "turnstile"}, r"if \(thread == 0\) tw_await\(.*", ""),
    "a turn is passed on before all have stored": (
        {"merge": "turnstile"},
        r"tw_group_sync\(1, 128\);(\s+if \(thread == 0\) tw_publish)", r"\1",
    ),
    "a block counts itself before all have added": (
        {"merge": "atomics"}, EARLY_COUNT, r"\1",
    ),
    "sums are left for the next run": (
        {"merge": "atomics"}, r"tw_store_16\(.*tw_vec16\{\{0, 0, 0, 0\}\}\);", "",
    ),
    "a block adds what others have not counted": (
        {"merge": "last"}, EARLY_COUNT, r"\1",
    ),
    "the count is left for the next run": (
        {"merge": "last"}, r"if \(thread == 0\) part_arrivals.*", "",
    ),
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("name", BUGS)
@pytest.mark.alike(2)
def test_a_seeded_mistake_is_caught(name: str) -> None:
    changed, old, new = BUGS[name]
    program = built("matmul", PLAIN)
    inputs = random_inputs(program, np.random.default_rng(3))
    bounds = bounds_of(program, inputs)["C"]
    kernel = lowered(program, split="k:4", **changed)
    head, mark, body = kernel.text("cuda").rpartition(MARK)
    edited, count = re.subn(old, new, body)
    assert count
    plan = json.loads(kernel.text("launch"))
    for text, right in ((edited, False), (body, True)):
        workspace, found = fresh_workspace(plan), []
        for mode in (6, 15, 0, 9):  # blocks side by side first, while the workspace is poison
            arrays = {**arrays_of(kernel, inputs), "workspace": workspace}
            run = emulate(f"{head}{mark}{text}", plan, arrays, mode=MODES[mode], limit=30)
            found.append(not run.faults and bounds.judge(arrays["C"]).right)
        assert all(found) == right


@needs_compiler
def test_waves_that_cut_a_tile_would_wait_for_blocks_that_are_not_launched() -> None:
    """Which is why a turnstile's grid is a multiple of the parts."""
    program = built("matmul", PLAIN)
    inputs = random_inputs(program, np.random.default_rng(3))
    kernel = lowered(program, split="k:4", merge="turnstile")
    plan = json.loads(kernel.text("launch"))
    assert plan["kernels"][0]["grid"] == [16, 1, 1]
    plan["kernels"][0]["grid"] = [18, 1, 1]
    run = emulate(kernel.text("cuda"), plan, arrays_of(kernel, inputs), mode=MODES[0], limit=30)
    assert "in tw_await: " in " ".join(run.faults)
    assert "no block that runs goes on" in " ".join(run.faults)


def test_a_turnstile_needs_room_for_all_parts_of_a_tile() -> None:
    program = built("matmul", PLAIN | {"k": 8192})
    space = BACKEND.space(program, FEW)
    values = {**SMALL_TILES, "processors": 18, "split": "k:8", "cluster": "2x2"}
    for merge, legal in (("turnstile", False), ("atomics", True), ("last", True)):
        schedule = Schedule.of("cuda", {**values, "merge": merge})
        refusal = space.refusal(schedule)
        assert (refusal is None) == legal
        if refusal is not None:
            assert "32 blocks wait for each other, 18 run at a time" in str(refusal)


def test_a_running_sum_takes_the_memory_of_one_part() -> None:
    parts, one = 4, 4 * 5 * 4 * 64 * 64
    for merge, sums in (("last", parts * one), ("atomics", one), ("turnstile", one)):
        kernel = lowered(built("matmul", PLAIN), split=f"k:{parts}", merge=merge)
        plan = json.loads(kernel.text("launch"))
        assert plan["workspace_bytes"] == sums + 256


def test_parts_whose_kernel_has_other_tiles_are_added_by_blocks_of_one() -> None:
    """Parts of codes with scales of groups: their product goes along another axis than the whole."""
    extents = {"m": 64, "n": 5760, "k": 2880}
    program = load_operator("mxfp4_matmul").build(**extents)
    space = BACKEND.space(program, HARDWARE).pin({"engine": "wgmma_rs", "wgmma_rs.split": "part:5"})
    for row in space.sample(np.random.default_rng(0), 4):
        schedule = space.schedule(row)
        assert schedule["wgmma_rs.merge"] != "kernel"
        BACKEND.lower(program, schedule, HARDWARE)
