"""Rings of different depth: right on the emulated card, and as large as the constraints count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ir.inputs import random_inputs
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.build.roles import find_roles
from ir.targets.cuda.plans.planning import make_plan
from ir.targets.cuda.space.tensor import TensorKernel
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built
from tests.targets.test_cuda_emulated import problems

FEW = replace(HARDWARE, facts=(*((n, v) for n, v in HARDWARE.facts if n != "sms"), ("sms", 9)))
ATTENTION: dict[str, Any] = {
    "b": 1, "heads": 4, "kv_heads": 2, "sq": 260, "d": 64, "dtype": "bf16", "causal": True,
}  # fmt: skip


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")
@pytest.mark.parametrize(
    "pins",
    [
        {"extra.Q": 1, "extra.V": 0}, {"extra.Q": 1, "extra.V": 1, "partition": "whole"},
        {"extra.Q": 0, "extra.V": -1, "stages": 2}, {"extra.Q": 1, "extra.V": 2},
    ],
    ids=str,
)  # fmt: skip
@draws(1, 2)
@pytest.mark.alike(2)
def test_attention_with_rings_of_different_depth(pins: dict[str, Any], count: int) -> None:
    """Several tiles for each block, which begin while the one before ends."""
    program = built("attention", ATTENTION)
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, FEW).pin(pins)
    for number, row in enumerate(space.sample(np.random.default_rng(2), count)):
        kernel = BACKEND.lower(program, space.schedule(row), FEW)
        for mode in (6, 15)[number::2]:
            assert not problems(program, kernel, inputs, wanted, mode), space.schedule(
                row
            ).to_json()


def test_only_programs_with_several_rings_are_asked() -> None:
    for name, arguments, wanted in (
        ("attention", ATTENTION, {"extra.Q", "extra.V"}),
        ("matmul", {"m": 512, "n": 512, "k": 512, "dtype": "bf16"}, set()),
        ("gated_mlp", {"m": 64, "n": 136, "k": 128, "dtype": "bf16"}, set()),
    ):
        names = BACKEND.space(built(name, arguments), HARDWARE).names
        assert {n for n in names if "extra." in n} == wanted


def test_a_schedule_from_before_the_choice_is_the_same_kernel() -> None:
    program = built("attention", ATTENTION)
    space = BACKEND.space(program, HARDWARE)
    schedule = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
    assert schedule["extra.Q"] == schedule["extra.V"] == 0
    old = replace(
        schedule, values=tuple(pair for pair in schedule.values if "extra." not in pair[0])
    )
    assert (space.encode(old) == space.encode(schedule)).all()
    texts = [BACKEND.lower(program, one, HARDWARE).text("cuda") for one in (old, schedule)]
    assert texts[0] == texts[1]


def test_an_operand_is_held_ahead_only_where_a_block_has_several_tiles() -> None:
    program = built("attention", ATTENTION)
    space = BACKEND.space(program, HARDWARE)
    row = space.seed_rows(np.random.default_rng(0))[0]
    values = {**space.schedule(row).as_dict(), "extra.Q": 1}
    refusal = space.refusal(space.schedule(row).of("cuda", values))
    assert refusal is not None
    assert refusal.constraint == "once"


def test_what_the_constraint_counts_is_what_the_kernel_has() -> None:
    """Bytes of rings and buffers, over drawn schedules."""
    program = built("attention", {**ATTENTION, "sq": 4096, "heads": 32, "kv_heads": 8})
    (kernel,) = kernels_of(program, HARDWARE)
    assert isinstance(kernel, TensorKernel)
    space = BACKEND.space(program, HARDWARE)
    matrix = space.sample(np.random.default_rng(4), 40)
    counted = kernel._bytes(space.columns(matrix))
    seen = set()
    for row, wanted in zip(matrix, counted, strict=True):
        schedule = space.schedule(row)
        roles = find_roles(kernel.streamed, bool(schedule["swap"]))
        plan = make_plan(kernel.streamed, roles, schedule.as_dict(), kernel.mark)
        assert plan.memory.offsets["barriers"] == wanted
        seen.add((schedule["extra.Q"], schedule["extra.V"]))
    assert len(seen) >= 5
