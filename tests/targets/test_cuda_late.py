"""What hides an epilogue: loads beside the products, and turns among consumers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from explorer.expectation import references
from ir.inputs import random_inputs
from ir.kernel import Kernel
from ir.program import Program
from ir.schedule import Schedule
from ir.space import Space
from ir.targets.cuda.emulate import compiler
from tests.targets.cuda_cases import BACKEND, HARDWARE, built
from tests.targets.test_cuda_emulated import problems

LAYER: dict[str, Any] = {"m": 200, "n": 264, "k": 192, "dtype": "bf16", "tb": True}
emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")


def lowered(program: Program, pins: dict[str, Any], number: int = 0) -> tuple[Schedule, Kernel]:
    space = BACKEND.space(program, HARDWARE).pin({"engine": "wgmma", **pins})
    row = space.sample(np.random.default_rng(number), 1)[0]
    schedule = space.schedule(row)
    return schedule, BACKEND.lower(program, schedule, HARDWARE)


def wide(program: Program) -> tuple[Space, dict[str, Any]]:
    """A space, and a tile of 128 x 256 for two groups whose epilogue's loads come first."""
    space = BACKEND.space(program, HARDWARE)
    for row in space.seed_rows(np.random.default_rng(0)):
        values = dict(space.schedule(row).as_dict())
        if (values["tile.m"], values["tile.n"], values["swap"]) == (128, 256, False):
            return space, values
    raise AssertionError("no seed of 128 x 256")


def test_only_epilogues_with_tensors_of_their_own_have_a_choice() -> None:
    assert "loads" in BACKEND.space(built("matmul_bias_act", LAYER), HARDWARE).names
    assert "loads" not in BACKEND.space(built("matmul", LAYER), HARDWARE).names
    assert "loads" not in BACKEND.space(built("gated_mlp", LAYER), HARDWARE).names


def test_seeds_load_first_where_registers_hold_it() -> None:
    program = built("matmul_bias_act", {**LAYER, "m": 4096, "n": 4096, "k": 4096})
    space, values = wide(program)
    assert values["loads"] == "first"
    whole = {**values, "partition": "whole", "tile.n": 192, "stages": 3}
    assert space.refusal(Schedule.of("cuda", {**whole, "loads": "needed"})) is None
    refusal = space.refusal(Schedule.of("cuda", whole))
    assert refusal is not None
    assert refusal.constraint == "accumulators"


@pytest.mark.parametrize("change", [{"swap": True}, {"epilogue": "direct", "epilogue_slots": 1}])
def test_loads_come_first_for_straight_panels_alone(change: dict[str, Any]) -> None:
    program = built("matmul_bias_act", {**LAYER, "m": 4096, "n": 4096, "k": 4096})
    space, values = wide(program)
    refusal = space.refusal(Schedule.of("cuda", {**values, "tile.n": 128, **change}))
    assert refusal is not None
    assert refusal.constraint == "loads"
    fine = {**values, "tile.n": 128, **change, "loads": "needed"}
    assert space.refusal(Schedule.of("cuda", fine)) is None


def test_a_schedule_from_before_means_loads_where_needed() -> None:
    program = built("matmul_bias_act", LAYER)
    space = BACKEND.space(program, HARDWARE)
    values = dict(space.schedule(space.seed_rows(np.random.default_rng(0))[0]).as_dict())
    del values["loads"]
    assert space.schedule(space.encode(Schedule.of("cuda", values)))["loads"] == "needed"


def test_residuals_are_asked_for_before_products_and_biases_a_panel_ahead() -> None:
    pins = {"loads": "first", "tile.n": 128, "tile.m": 128}
    _, kernel = lowered(built("matmul_bias_act", {**LAYER, "m": 256, "n": 256}), pins)
    text = kernel.text("cuda").split("//@ kernel")[-1]
    products = text.index("tw_wgmma_fence")
    assert text.rindex("tw_load_4(residual_at") < products
    assert text.index("tw_load_4(bias_at") < products < text.rindex("tw_load_4(bias_at")
    assert "tw_load_4_stream" not in text  # four threads share a sector with the next load


@emulated
@pytest.mark.parametrize(
    ("case", "pins"),
    [
        ({}, {"partition": "whole", "consumers": 2}),
        ({}, {"partition": "rows", "consumers": 2}),
        ({}, {"partition": "columns"}),
        ({"out": "f32"}, {}),
        ({"k": 1024, "m": 72}, {"split": "k:2", "merge": "last"}),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_epilogues_that_load_first_mean_their_program(
    case: dict[str, Any], pins: dict[str, Any]
) -> None:
    program = built("matmul_bias_act", {**LAYER, **case})
    inputs = random_inputs(program, np.random.default_rng(0))
    (wanted, *_) = references(program, inputs)
    for mode in (0, 15):
        schedule, kernel = lowered(program, {"loads": "first", **pins}, mode)
        assert not problems(program, kernel, inputs, wanted, mode), schedule.to_json()


@emulated
def test_who_does_not_wait_for_its_turn_is_found_out() -> None:
    """A consumer may multiply once the one before has issued its last products, not earlier."""
    pins = {"partition": "whole", "consumers": 2, "stages": 2, "tile.m": 64, "tile.n": 64}
    pins |= {"tile.k": 64, "processors": 132, "cluster": "1x1", "wait": 1, "swap": False}
    program = built("matmul_bias_act", {**LAYER, "m": 64, "n": 64 * 132 * 3, "k": 320})
    inputs = random_inputs(program, np.random.default_rng(0))
    (wanted, *_) = references(program, inputs)
    _, kernel = lowered(program, pins)
    modes = (0, 5, 10, 15)
    assert not any(problems(program, kernel, inputs, wanted, mode) for mode in modes[:2])
    text = kernel.text("cuda")
    broken = text.replace("tw_group_sync(9 + member, 256);", "").replace("if (more) {", "if (0) {")
    assert broken != text
    changed = Kernel(
        kernel.name, kernel.target, kernel.arguments,
        (("cuda", broken), *kernel.texts[1:]), kernel.entry, kernel.threads,
    )  # fmt: skip
    assert any(problems(program, changed, inputs, wanted, mode) for mode in modes)
