"""Consumers that take whole tiles in turn: one's epilogue beside the other's products."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ir.inputs import random_inputs
from ir.kernel import Kernel
from ir.program import Program
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built
from tests.targets.test_cuda_emulated import problems

PINS: dict[str, Any] = {
    "engine": "wgmma", "partition": "whole", "consumers": 2, "stages": 2, "tile.m": 64,
    "tile.n": 64, "tile.k": 64, "processors": 132, "cluster": "1x1", "wait": 1, "swap": False,
    "epilogue": "tma", "split": "none",
}  # fmt: skip


def lowered(m: int, n: int, k: int) -> tuple[Program, Kernel]:
    program = built("matmul_bias_act", {"m": m, "n": n, "k": k, "dtype": "bf16", "tb": True})
    known = BACKEND.space(program, HARDWARE).names
    space = BACKEND.space(program, HARDWARE).pin({k: v for k, v in PINS.items() if k in known})
    row = space.sample(np.random.default_rng(0), 1)[0]
    return program, BACKEND.lower(program, space.schedule(row), HARDWARE)


def test_the_turn_passes_while_the_last_products_run() -> None:
    text = lowered(64, 64 * 300, 320)[1].text("cuda")
    products = text.rindex("tw_wgmma_commit")
    assert products < text.index("tw_group_arrive(9") < text.index("tw_wgmma_wait<0>", products)


def test_residuals_share_sectors_with_the_next_load() -> None:
    """Four threads read 16 of the 32 bytes that L2 hands out: the rest has to stay in L1."""
    text = lowered(64, 64 * 300, 320)[1].text("cuda")
    assert "tw_load_4(residual_data_at" in text
    assert "_stream(" not in text


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
def test_who_does_not_wait_for_its_turn_is_found_out() -> None:
    program, kernel = lowered(64, 64 * 132 * 3, 320)
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    for mode in (0, 5):
        assert not problems(program, kernel, inputs, wanted, mode)
    text = kernel.text("cuda")
    broken = text.replace("tw_group_sync(9 + member, 256);", "").replace("if (more) {", "if (0) {")
    assert broken != text
    changed = replace(kernel, texts=(("cuda", broken), *kernel.texts[1:]))
    assert any(problems(program, changed, inputs, wanted, mode) for mode in (0, 5, 10, 15))


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("order", ["straight", "outer:1"])
def test_sums_whose_extreme_did_not_move_are_left(order: str) -> None:
    """The same bits as of those that are always scaled; keys grow, so that some blocks move it."""
    arguments = {"b": 1, "heads": 2, "sq": 130, "sk": 400, "d": 64, "dtype": "bf16"}
    program = built("attention", arguments)
    inputs = dict(random_inputs(program, np.random.default_rng(0)))
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE)
    name = next(one for one in space.names if one.endswith("rescale"))
    chosen = space.pin({name: "moved", name.replace("rescale", "order"): order})
    for row in chosen.sample(np.random.default_rng(1), 2):
        schedule = chosen.schedule(row)
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        assert "moved |= " in kernel.text("cuda")
        always = type(schedule).of("cuda", {**schedule.as_dict(), name: "always"})
        unsaid = type(schedule).of(
            "cuda", {key: value for key, value in always.as_dict().items() if key != name}
        )
        assert "moved" not in BACKEND.lower(program, unsaid, HARDWARE).text("cuda")
        for mode in (0, 6, 9, 15):
            assert not problems(program, kernel, inputs, wanted, mode)
