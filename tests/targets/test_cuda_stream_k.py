"""Tiles that clusters share as a stream of blocks, on a card that has few processors."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from ir.inputs import random_inputs
from ir.kernel import Kernel
from ir.program import Program
from ir.schedule import Schedule
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.build.program_text import MARK
from ir.targets.cuda.grid.stream_k import Stream
from ir.targets.cuda.space.tensor import TensorKernel
from tests.emulator.emulate import MODES, compiler, emulate
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built
from tests.targets.test_cuda_emulated import QUICK, arrays_of, problems
from tests.targets.test_cuda_merging import FEW, PLAIN, SMALL_TILES, fresh_workspace

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")
WHOLE_SUMS: dict[str, Any] = {"split": "none", "merge": "kernel"}
SHARED: tuple[dict[str, Any], ...] = (  # 20 tiles, or fewer of clusters
    {"stream_k": "rest"},
    {"stream_k": "wave", "cluster": "2x2"},
    {"stream_k": "all", "cluster": "2x1", "processors": 8},
    {"stream_k": "wave", "consumers": 2, "partition": "whole"},
    {"stream_k": "rest", "cluster": "1x2", "epilogue": "direct", "wait": 1},
    {"stream_k": "rest", "consumers": 2, "partition": "columns", "tile.n": 128},
)


def values(**changed: Any) -> dict[str, Any]:
    return {**SMALL_TILES, **WHOLE_SUMS, "processors": 18, **changed}


def lowered(program: Program, **changed: Any) -> Kernel:
    schedule = Schedule.of("cuda", values(**changed))
    assert BACKEND.space(program, FEW).refusal(schedule) is None
    return BACKEND.lower(program, schedule, FEW)


def plan_of(kernel: Kernel) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kernel.text("launch"))
    return found


@needs_compiler
@pytest.mark.parametrize("changed", SHARED, ids=str)
@pytest.mark.alike(2)
def test_sums_are_right_whatever_comes_first(changed: dict[str, Any]) -> None:
    program = built("matmul", PLAIN)
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    kernel = lowered(program, **changed)
    for mode in QUICK:
        assert not problems(program, kernel, inputs, wanted, mode), mode


EPILOGUES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("matmul_bias_act", {"m": 200, "n": 264, "k": 1024, "dtype": "bf16", "tb": True}),
    ("gated_mlp", {"m": 200, "n": 264, "k": 512, "dtype": "bf16", "tb": True}),
    ("matmul", {"m": 72, "n": 96, "k": 512, "dtype": "i8", "tb": True, "batch": 5}),
)


@needs_compiler
@pytest.mark.parametrize(("name", "arguments"), EPILOGUES)
def test_the_epilogue_follows_once_for_every_tile(name: str, arguments: dict[str, Any]) -> None:
    program = built(name, arguments)
    inputs = random_inputs(program, np.random.default_rng(2))
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, FEW).pin(stream_k="rest")
    (row,) = space.sample(np.random.default_rng(0), 1)
    kernel = BACKEND.lower(program, space.schedule(row), FEW)
    assert "tw_publish" in kernel.text("cuda")
    for mode in (6, 9):
        assert not problems(program, kernel, inputs, wanted, mode)


@needs_compiler
@pytest.mark.parametrize("changed", SHARED[:2], ids=str)
def test_a_second_run_finds_the_flags_clean_and_gives_the_same_bits(
    changed: dict[str, Any],
) -> None:
    program = built("matmul", PLAIN)
    inputs = random_inputs(program, np.random.default_rng(3))
    kernel = lowered(program, **changed)
    plan, results = plan_of(kernel), []
    workspace = fresh_workspace(plan)
    bounds = bounds_of(program, inputs)["C"]
    for mode in QUICK:
        arrays = {**arrays_of(kernel, inputs), "workspace": workspace}
        run = emulate(kernel.text("cuda"), plan, arrays, mode=MODES[mode], limit=30)
        assert not run.faults
        assert not any(workspace[start : start + size].any() for start, size in plan["clean"])
        assert bounds.judge(arrays["C"]).right
        results.append(arrays["C"].copy())
    assert all((result == results[0]).all() for result in results)


AWAIT = r"if \(thread == 0\) tw_await\(flag, 1\);"
RESET = r"if \(thread == 0\) \*flag = 0;"
BUGS: dict[str, tuple[str, str]] = {
    "nobody waits": (AWAIT, ""),
    "a flag is cleared before it is awaited": (
        rf"({AWAIT})(\s+tw_group_sync\(1, 128\);)\s+({RESET})", r"\3\n\1\2",
    ),
    "flags are left for the next run": (RESET, ""),
    "a piece is handed over before all have stored": (
        r"tw_group_sync\(1, 128\);(\s+if \(thread == 0\) tw_publish)", r"\1",
    ),
    "pieces are added before the barrier": (rf"({AWAIT})\s+tw_group_sync\(1, 128\);", r"\1"),
    "the last piece is forgotten": (r"i32 other = range \+ 1", "i32 other = range + 2"),
}  # fmt: skip
LAUNCHED = (r"range = \d+ - tw_", "range = tw_")  # ranges in the order of launch


def is_right(text: str, plan: dict[str, Any], program: Program, modes: tuple[int, ...]) -> bool:
    """Whether runs on one workspace, one after another, are right and leave the flags clean."""
    inputs = random_inputs(program, np.random.default_rng(3))
    bounds = bounds_of(program, inputs)["C"]
    kernel, workspace = lowered(program, stream_k="rest"), fresh_workspace(plan)
    ((start, size),) = plan["clean"]
    for mode in modes:
        arrays = {**arrays_of(kernel, inputs), "workspace": workspace}
        run = emulate(text, plan, arrays, mode=MODES[mode], limit=30)
        if run.faults or workspace[start : start + size].any():
            return False
        if not bounds.judge(arrays["C"]).right:
            return False
    return True


@needs_compiler
@pytest.mark.parametrize("name", BUGS)
@pytest.mark.alike(2)
def test_a_seeded_mistake_is_caught(name: str) -> None:
    """Clusters go on side by side, those first that have to wait."""
    program = built("matmul", PLAIN)
    kernel = lowered(program, stream_k="rest")
    head, mark, body = kernel.text("cuda").rpartition(MARK)
    waiting_first = re.sub(*LAUNCHED, body)
    edited, count = re.subn(*BUGS[name], waiting_first)
    assert count
    plan = plan_of(kernel)
    assert is_right(f"{head}{mark}{waiting_first}", plan, program, (6, 15))
    assert not is_right(f"{head}{mark}{edited}", plan, program, (6, 15))


@needs_compiler
def test_ranges_in_the_order_of_launch_could_wait_for_ever() -> None:
    """Where clusters run one after another; numbered the other way, nobody waits in vain."""
    program = built("matmul", PLAIN)
    kernel = lowered(program, stream_k="rest")
    inputs = random_inputs(program, np.random.default_rng(3))
    edited, count = re.subn(*LAUNCHED, kernel.text("cuda"))
    assert count == 2  # of the producer and of the consumers
    for text, faults in ((edited, True), (kernel.text("cuda"), False)):
        run = emulate(
            text, kernel.text("launch"), arrays_of(kernel, inputs), mode=MODES[0], limit=30
        )
        assert bool(run.faults) == faults
        assert not faults or "no block that runs goes on" in " ".join(run.faults)


@pytest.mark.parametrize(
    ("choice", "tiles", "blocks", "clusters", "run", "shared", "lanes"),
    [("rest", 20, 32, 18, 4, 2, 2), ("rest", 224, 64, 132, 4, 92, 4), ("wave", 7, 5, 3, 8, 4, 1),
     ("all", 20, 32, 8, 4, 20, 4)],
)  # fmt: skip
def test_ranges_are_even_and_cover_all_shared_blocks(
    choice: str, tiles: int, blocks: int, clusters: int, run: int, shared: int, lanes: int
) -> None:
    stream = Stream.of(choice, tiles, blocks, clusters, run)
    assert (stream.shared, stream.lanes) == (shared, lanes)
    ends = [eval(stream.begin(f"({n})")) for n in range(stream.ranges + 1)]
    sizes = np.diff(ends)
    assert (ends[0], ends[-1]) == (0, shared // lanes * blocks)
    assert sizes.max() - sizes.min() <= 1


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"processors": 0}, "every one of 20 tiles has blocks of its own"),
    ({"stream_k": "all"}, "20 tiles of 32 blocks for 18 clusters are 1 waves and 2 tiles"),
    ({"cluster": "2x1", "processors": 0}, "every one of 10 tiles"),
    ({"tile.m": 128, "tile.n": 160, "consumers": 2, "cluster": "1x2", "processors": 16,
      "stream_k": "wave"}, "2 tiles of 32 blocks for 8 clusters are 0 waves and 2 tiles"),
    ({"split": "k:4", "merge": "last"}, "split k:4"),
)  # fmt: skip


@pytest.mark.parametrize(("changed", "words"), REFUSED)
def test_what_cannot_be_shared_is_refused_in_words(changed: dict[str, Any], words: str) -> None:
    space = BACKEND.space(built("matmul", PLAIN), FEW)
    refusal = space.refusal(Schedule.of("cuda", values(**{"stream_k": "rest", **changed})))
    assert refusal is not None
    assert refusal.constraint.startswith("stream_k")
    assert words in str(refusal)


def test_sums_that_are_corrected_or_cut_short_are_not_shared() -> None:
    attention = built("attention", {"b": 1, "heads": 2, "sq": 256, "d": 64, "dtype": "bf16"})
    assert "stream_k" not in BACKEND.space(attention, HARDWARE).names
    assert "stream_k" in BACKEND.space(built("matmul", PLAIN), HARDWARE).names


def test_every_block_of_the_grid_has_room_for_one_piece() -> None:
    plan = plan_of(lowered(built("matmul", PLAIN), stream_k="rest"))
    (kernel,) = plan["kernels"]
    flags = 18 * 4
    assert kernel["grid"] == [18, 1, 1]
    assert plan["workspace_bytes"] == 18 * 4 * 64 * 64 + 256
    assert plan["clean"] == [[18 * 4 * 64 * 64, flags]]


def test_seeds_share_what_poor_waves_leave_over() -> None:
    def shared(**extents: int) -> int:
        (kernel,) = kernels_of(
            built("matmul", {**extents, "dtype": "bf16", "tb": True}), HARDWARE, "wgmma"
        )
        assert isinstance(kernel, TensorKernel)
        return sum(seed.get("stream_k", "none") != "none" for seed in kernel.seeds()[:40])

    assert shared(m=512, n=14336, k=4096) > 0
    assert shared(m=8192, n=8192, k=8192) == 0


def test_the_estimate_knows_that_a_poor_wave_is_filled() -> None:
    """200 tiles on 132 processors are a wave and a half."""
    program = built("matmul", {"m": 2560, "n": 2560, "k": 8192, "dtype": "bf16", "tb": True})
    space = BACKEND.space(program, HARDWARE)
    seed = space.schedule(space.seed_rows(np.random.default_rng(0))[0]).as_dict()
    assert (seed["tile.m"], seed["tile.n"]) == (128, 256)
    rows = [
        space.encode(Schedule.of("cuda", {**seed, "stream_k": way}))
        for way in ("none", "rest", "wave")
    ]
    assert space.features is not None
    names, found = space.features(space.columns(np.array(rows)))
    estimate = found[:, names.index("total.estimate")]
    assert estimate[0] > estimate[1:].max() + 0.2
