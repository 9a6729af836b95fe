"""Cells on a card: products of a step on tensor cores, by blocks that share a batch."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from explorer.runtime import nvrtc
from ir.errors import MissingTarget
from ir.inputs import random_inputs
from ir.plain.build import plain_kernel
from ir.plain.panels import panel_axis
from ir.program import Program
from ir.schedule import Schedule
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.space.plain import PlainCudaKernel
from tests import cells
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems

TEAM: dict[str, Any] = {"threads": 64, "beside": 16, "team": 4, "mma": "16x8"}
PROGRAMS = [
    cells.gru(16, 6, 64),
    cells.lstm(16, 4, 32),
    cells.gru(24, 4, 48, "f16"),
    cells.rnn(16, 5, 40),
    cells.gru(24, 4, 48, "f32"),
    cells.rnn(16, 5, 40, "f32"),
]
NAMES = [f"{program.name}-{program.inputs[0].dtype}-{n}" for n, program in enumerate(PROGRAMS)]


def kernel_of(program: Program) -> PlainCudaKernel:
    (kernel,) = kernels_of(program, HARDWARE)
    assert isinstance(kernel, PlainCudaKernel)
    return kernel


def test_sequences_that_lie_apart_are_beside_each_other() -> None:
    program = cells.gru(64, 128, 512)
    axis = panel_axis(plain_kernel(program))
    assert axis is not None
    assert (axis.extent, axis.apart) == (64, True)
    kernel = kernel_of(program)
    assert kernel.whole.panels == (1, 8, 16, 32, 64)
    first = kernel.seeds()[0]
    assert first["team"] == 512 // 16  # a block for each tile of rows
    assert first["beside"] == 64
    assert first["mma"] != "none"


def test_products_of_f32_have_such_panels_too() -> None:
    axis = panel_axis(plain_kernel(cells.gru(64, 16, 64, "f32")))
    assert axis is not None
    assert axis.apart


def test_blocks_meet_once_a_step() -> None:
    """What a step reads of the state is there, rounded, when the one before is done."""
    program = cells.gru(64, 128, 512)
    schedule = Schedule.of("cuda", {**TEAM, "beside": 64, "team": 132, "alone": False})
    text = BACKEND.lower(program, schedule, HARDWARE).text("cuda")
    step = text[text.index("for (i64 i_t_1") : text.rindex("tw_await(")]
    assert step.count("tw_await(") == 1
    assert "tw_mma_m16n8k16_bf16(" in step
    assert step.count("for (i32 depth") == 1  # three products in one loop
    assert "__launch_bounds__(64, 1)" in text


@pytest.mark.parametrize(
    ("program", "operands"), [(cells.gru(64, 8, 512), 3), (cells.rnn(64, 8, 512), 1)]
)
def test_weights_stay_on_the_chip(program: Program, operands: int) -> None:
    """They are copied ahead of the first step, and no step reads them from memory."""
    values = {**TEAM, "beside": 64, "team": 32, "early": False}
    space = BACKEND.space(program, HARDWARE)
    values |= {"alone": False} if "alone" in space.names else {}
    kernel = BACKEND.lower(program, Schedule.of("cuda", values), HARDWARE)
    before, step = kernel.text("cuda").split("for (i64 i_t_1", 1)
    assert before.count("(u16*)(tw_shared_base() + ") == operands
    assert not re.search(r"\bW[zrn]?\[", step)
    (launch,) = json.loads(kernel.text("launch"))["kernels"]
    assert launch["shared"] == operands * 16 * (512 + 16) * 2


def test_weights_of_f32_stay_as_they_are_and_are_split_where_they_are_multiplied() -> None:
    program = cells.rnn(64, 8, 256, "f32")
    schedule = Schedule.of("cuda", {**TEAM, "beside": 64, "team": 16, "early": False})
    kernel = BACKEND.lower(program, schedule, HARDWARE)
    before, step = kernel.text("cuda").split("for (i64 i_t_1", 1)
    assert before.count("(f32*)(tw_shared_base() + ") == 1
    assert not re.search(r"\bW\[", step)
    assert step.count("tw_load_shared_16(") == 1
    (launch,) = json.loads(kernel.text("launch"))["kernels"]
    assert launch["shared"] == 16 * (256 + 16) * 4


def test_weights_that_have_no_room_are_read_at_every_step() -> None:
    program = cells.rnn(64, 8, 4096)
    schedule = Schedule.of("cuda", {**TEAM, "beside": 64, "team": 8, "threads": 256})
    text = BACKEND.lower(program, schedule, HARDWARE).text("cuda")
    assert "tw_shared_base()" not in text.split("TW_KERNEL")[-1]


def test_more_blocks_than_run_are_refused() -> None:
    program = cells.gru(64, 128, 2048)
    space = BACKEND.space(program, HARDWARE)
    many: dict[str, Any] = {**TEAM, "threads": 512, "team": 128, "early": False}
    refusal = space.refusal(Schedule.of("cuda", many))
    assert refusal is not None
    assert "run at a time" in str(refusal)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
@pytest.mark.parametrize("mode", [0, 9, 15])
def test_teams_with_products_are_right(program: Program, mode: int) -> None:
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    space, found = BACKEND.space(program, HARDWARE), 0
    for row in space.sample(np.random.default_rng(mode), 24):
        schedule = space.schedule(row)
        values = schedule.as_dict()
        if values["mma"] == "none" or values["beside"] == 1 or found == 4:
            continue
        kernel, found = BACKEND.lower(program, schedule, HARDWARE), found + 1
        assert problems(program, kernel, inputs, wanted, mode) == []
    assert found


def test_they_compile() -> None:
    try:
        nvrtc.version()
    except MissingTarget as missing:
        pytest.skip(str(missing))
    program = cells.gru(64, 128, 512)
    schedule = Schedule.of("cuda", {**TEAM, "beside": 64, "team": 132, "alone": False})
    text = BACKEND.lower(program, schedule, HARDWARE).text("cuda")
    _, resources = nvrtc.compile_text(text, "sm_90a")
    assert resources.spill_stores == 0
    assert resources.registers > 64
