"""Drawn kernels mean their program when the CPU emulates them, in adversarial orders."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from explorer.check import Bounds
from ir.dtypes import numpy_dtype
from ir.inputs import random_inputs
from ir.kernel import Kernel
from ir.ops.base import Array
from ir.program import Program
from tests.emulator.emulate import MODES, compiler, emulate
from tests.few import few
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, NAMES, SMALL, built, drawn

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
QUICK = (0, 6, 9, 15)  # eager, late, mixed completion, both thread orders


def arrays_of(kernel: Kernel, inputs: dict[str, Array]) -> dict[str, Array]:
    """Inputs that must not be written, and outputs full of what no kernel writes."""
    found: dict[str, Array] = {}
    for argument in kernel.arguments:
        if argument.role == "input":
            found[argument.name] = np.array(inputs[argument.name], order="C")
            found[argument.name].flags.writeable = False
        elif argument.role == "output":
            found[argument.name] = np.full(argument.shape, 0x5A, numpy_dtype(argument.dtype))
    return found


def problems(
    program: Program, kernel: Kernel, inputs: dict[str, Array], wanted: dict[str, Bounds], mode: int
) -> list[str]:
    arrays = arrays_of(kernel, inputs)
    run = emulate(kernel.text("cuda"), kernel.text("launch"), arrays, mode=MODES[mode], limit=30)
    found = list(run.faults)
    for name, bounds in wanted.items():
        found += [v.detail for v in (bounds.judge(arrays[name]),) if not v.right]
    return found


DEFAULT = (0, 3, 5, 6, 8, 9, 13, 18, 20, 21)  # the corpus has more like the others


@pytest.mark.parametrize("number", few(range(len(SMALL)), DEFAULT, NAMES))
@pytest.mark.alike(2)
def test_drawn_kernels_mean_their_program(number: int) -> None:
    name, arguments = SMALL[number]
    program: Program = built(name, arguments)
    inputs = random_inputs(program, np.random.default_rng(number))
    wanted = bounds_of(program, inputs)
    for turn, schedule in enumerate(drawn(program, number, 1, 2, "wgmma")):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        for mode in (QUICK[turn % 4], QUICK[(turn + 1) % 4]):
            assert not problems(program, kernel, inputs, wanted, mode), schedule.to_json()


_CHOICES: tuple[dict[str, Any], ...] = (
    {"cluster": "2x1"}, {"cluster": "1x2"}, {"cluster": "2x2"}, {"partition": "columns"},
    {"partition": "whole"}, {"swap": True}, {"split": "k:2"},
    {"split": "k:2", "merge": "last"}, {"split": "k:2", "merge": "last", "partition": "whole"},
    {"split": "k:2", "merge": "last", "cluster": "2x1"}, {"merge": "last", "swap": True},
    {"consumers": 3},
    {"epilogue": "direct"}, {"wait": 0}, {"raster": "hilbert"}, {"stream": "rows"},
    {"stream": "columns", "cluster": "2x1"}, {"early": False, "promotion": 128},
    {"raster": "columns4"},
)  # fmt: skip


@pytest.mark.parametrize(
    "pins", few(_CHOICES, (0, 2, 3, 4, 5, 7, 8, 9, 11, 12, 14, 16, 17)), ids=str
)
@pytest.mark.alike(2)
def test_every_choice_of_a_product(pins: dict[str, Any]) -> None:
    depth = 1024 if any("split" in name for name in pins) else 512  # a short sum is not split
    program = built("matmul", {"m": 200, "n": 264, "k": depth, "dtype": "bf16", "tb": True})
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE).pin(pins)
    for row in space.sample(np.random.default_rng(2), 1):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        for mode in QUICK[::2]:
            assert not problems(program, kernel, inputs, wanted, mode), space.schedule(
                row
            ).to_json()


@pytest.mark.parametrize(("line", "words"), [
    ("tw_grid_wait();", "tw_tma_load_2d: tw_grid_wait has to come first"),
    ("tw_grid_wait();", "tw_grid_launch: tw_grid_wait has to come first"),
])  # fmt: skip
def test_a_kernel_that_does_not_wait_for_the_one_before_is_caught(line: str, words: str) -> None:
    program = built("matmul", {"m": 64, "n": 64, "k": 64, "dtype": "bf16"})
    space = BACKEND.space(program, HARDWARE).pin(early=True)
    row = space.seed_rows(np.random.default_rng(0))[0]
    kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
    inputs = random_inputs(program, np.random.default_rng(0))
    head, mark, body = kernel.text("cuda").rpartition("//@ kernel\n")
    broken = f"{head}{mark}{body.replace(line, '')}"
    run = emulate(broken, kernel.text("launch"), arrays_of(kernel, inputs), limit=30)
    assert words in " ".join(run.faults)
    arrays = arrays_of(kernel, inputs)
    assert not emulate(kernel.text("cuda"), kernel.text("launch"), arrays, limit=30).faults


def test_the_last_block_to_arrive_leaves_the_count_clean() -> None:
    """A second run on the same workspace is right again, in whatever order the blocks came."""
    program = built("matmul", {"m": 130, "n": 72, "k": 2048, "dtype": "bf16", "tb": True})
    inputs = random_inputs(program, np.random.default_rng(3))
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE).pin(split="k:4", merge="last")
    kernel = BACKEND.lower(program, space.schedule(space.seed_rows(np.random.default_rng(0))[0]),
                           HARDWARE)  # fmt: skip
    plan = json.loads(kernel.text("launch"))
    ((offset, count),) = plan["clean"]
    workspace = np.full(plan["workspace_bytes"], 0xFF, np.uint8)
    workspace[offset : offset + count] = 0
    results = []
    for mode in QUICK:
        arrays = {**arrays_of(kernel, inputs), "workspace": workspace}
        run = emulate(kernel.text("cuda"), plan, arrays, mode=MODES[mode], limit=30)
        assert not run.faults
        assert not workspace[offset : offset + count].any()
        results.append(arrays["C"].copy())
        assert wanted["C"].judge(arrays["C"]).right
    assert all((result == results[0]).all() for result in results)
