"""Kernels on wgmma that ask for their first blocks while the kernel before still runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ir.inputs import random_inputs
from ir.schedule import Schedule
from ir.targets.cuda.build.program_text import MARK
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built
from tests.targets.test_cuda_emulated import QUICK, problems
from tests.targets.test_cuda_exchange import EXCHANGE, FEW_ROWS, lowered

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")
ALONE: dict[str, Any] = {"split": "none", "merge": "kernel"}
ASKING: dict[str, Any] = {"prefetch": 4}


@needs_compiler
@pytest.mark.parametrize(
    "changed",
    [
        ALONE,
        {**ALONE, "cluster": "1x2", "processors": 18, "raster": "columns4"},
        {**ALONE, "consumers": 2, "partition": "whole", "processors": 8},
        {**EXCHANGE, "cluster": "2x1"},
        {"split": "k:4", "merge": "last", "processors": 18, "tile.k": 256, "prefetch": 8},
    ],
    ids=str,
)
def test_sums_are_right(changed: dict[str, Any]) -> None:
    program = built("matmul", FEW_ROWS)
    inputs = random_inputs(program, np.random.default_rng(1))
    kernel = lowered(program, **{**ASKING, **changed})
    for mode in QUICK[:2]:
        assert not problems(program, kernel, inputs, bounds_of(program, inputs), mode)


def test_what_is_asked_for_is_what_is_copied_first() -> None:
    """This block's share of an operand that a cluster shares."""
    program = built("matmul", FEW_ROWS)
    text = lowered(program, **{**ALONE, **ASKING, "cluster": "1x2"}).text("cuda")
    body = text.rpartition(MARK)[2]
    asked = [line.strip() for line in body.splitlines() if "tw_tma_prefetch_2d" in line]
    assert asked == [
        "tw_tma_prefetch_2d(&A_map, k_at, m_first + (rank / 1) * 32);",
        "tw_tma_prefetch_2d(&B_map, k_at, n_first);",
    ]
    order = ["tw_tma_prefetch_2d", "tw_grid_wait", "tw_tma_load_2d"]
    assert sorted(order, key=body.index) == order


def test_kernels_that_start_in_their_turn_do_not_ask() -> None:
    space = BACKEND.space(built("matmul", FEW_ROWS), HARDWARE).pin({"engine": "wgmma"})
    asking = space.pin({"prefetch": 1})
    legal = asking.schedule(asking.sample(np.random.default_rng(2), 1)[0])
    assert legal["early"] is True
    refusal = space.refusal(Schedule.of("cuda", {**legal.as_dict(), "early": False}))
    assert refusal is not None
    assert refusal.constraint == "prefetch"


def test_attention_has_no_such_choice() -> None:
    """Its first tiles depend on more than one ring, and its tiles take long."""
    arguments = {"b": 1, "heads": 4, "sq": 512, "d": 64, "dtype": "bf16"}
    names = BACKEND.space(built("attention", arguments), HARDWARE).names
    assert "prefetch" not in names
