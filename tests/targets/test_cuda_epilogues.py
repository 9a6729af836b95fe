"""What follows a product in its kernel: reductions over its rows and columns, lines of outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ir.inputs import random_inputs
from ir.targets.cuda.build.cut import cut_program
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, UNSEEN, built
from tests.targets.test_cuda_emulated import problems

NORM = (f"{UNSEEN}:norm_of_sum", {"m": 70, "n": 128, "k": 64})
CONV = (f"{UNSEEN}:channels_first", {"b": 2, "n": 40, "c": 16, "f": 24})
Case = tuple[str, dict[str, Any]]


@pytest.mark.parametrize(("case", "mark"), [(NORM, ""), (CONV, ".2")], ids=["norm", "conv"])
def test_legal_schedules_fit_and_lower(case: Case, mark: str) -> None:
    space = BACKEND.space(program := built(*case), HARDWARE).pin(engine="wgmma")
    for pins in ({}, {f"swap{mark}": True}, {f"epilogue{mark}": "tma"}):
        for row in space.pin(pins).sample(np.random.default_rng(0), 12):
            BACKEND.lower(program, space.schedule(row), HARDWARE)


def test_what_crosses_warps_is_counted_among_shared_memory() -> None:
    space = BACKEND.space(program := built(*NORM), HARDWARE)
    pinned = space.pin({"swap": True, "tile.n": 256, "tile.m": 128, "engine": "wgmma"})
    for row in pinned.sample(np.random.default_rng(0), 12):
        BACKEND.lower(program, space.schedule(row), HARDWARE)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize(
    ("case", "pins"),
    [
        (NORM, {"swap": True, "tile.n": 128, "epilogue": "tma", "partition": "whole"}),
        (NORM, {"swap": True, "tile.n": 128, "epilogue": "direct", "partition": "rows"}),
        (NORM, {"swap": False, "partition": "columns", "epilogue": "tma"}),
        (CONV, {"swap.2": False, "epilogue.2": "tma"}),
        (CONV, {"swap.2": True, "epilogue.2": "tma"}),
    ],
    ids=lambda value: str(value)[-60:],
)
@draws(1, 2)
def test_epilogues_mean_their_program(case: Case, pins: dict[str, Any], count: int) -> None:
    program = built(*case)
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE).pin(pins)
    for number, row in enumerate(space.sample(np.random.default_rng(1), count)):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        found = problems(program, kernel, inputs, wanted, (15, 0)[number])
        assert not found, space.schedule(row).to_json()


def test_a_tile_holds_what_results_are_combined_over() -> None:
    space = BACKEND.space(built(*NORM), HARDWARE).pin(engine="wgmma")
    rows = space.sample(np.random.default_rng(0), 24)
    assert min(int(space.schedule(row)["tile.n"]) for row in rows) >= 128
    assert len(space.seed_rows(np.random.default_rng(0))) >= 3
    whole = next(c for c in space.constraints if c.name == "whole")
    assert whole.needs == "a tile holds the axes that results are combined over"


@pytest.mark.parametrize(
    ("case", "kernels"),
    [
        (NORM, 1),
        ((f"{UNSEEN}:norm_of_sum", {"m": 70, "n": 512, "k": 64}), 2),
        ((f"{UNSEEN}:router", {"b": 8, "m": 64, "n": 64, "k": 64}), 2),
        (("attention", {"b": 1, "heads": 1, "sq": 64, "sk": 4096, "d": 64, "dtype": "bf16"}), 1),
    ],
    ids=["short", "long", "batch", "walked"],
)
def test_what_no_tile_holds_goes_through_memory(case: Case, kernels: int) -> None:
    assert len(cut_program(built(*case))) == kernels
