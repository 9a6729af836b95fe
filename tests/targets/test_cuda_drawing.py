"""Tiles of unequal main loops that blocks draw: each once, whoever draws it, run after run."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from ir.inputs import random_inputs
from ir.program import Program
from ir.schedule import Schedule
from ir.space import Space
from ir.targets.cuda.grid.dealing import busiest
from ir.targets.cuda.grid.drawing import DYNAMIC, NAME, STATIC
from ir.targets.cuda.rows.hardware import known_hardware
from tests.cuda.run import needs_compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built
from tests.targets.test_cuda_dealing import _triangular as triangular
from tests.targets.test_cuda_emulated import problems

FEW = replace(HARDWARE, facts=tuple({**dict(HARDWARE.facts), "sms": 9}.items()))
SHAPE = {"b": 3, "heads": 2, "kv_heads": 1, "sq": 264, "d": 64, "dtype": "bf16"}
CAUSAL = built("attention", {**SHAPE, "causal": True})
NEAR = built("attention", {**SHAPE, "causal": True, "window": 70})


def drawn(space: Space, count: int) -> list[Schedule]:
    """Schedules whose tiles are drawn."""
    name = next(name for name in space.names if name.split(".")[-1] == NAME)
    here = space.pin({name: DYNAMIC})
    return [here.schedule(row) for row in here.sample(np.random.default_rng(2), count)]


def test_it_is_a_choice_where_tiles_are_unequal() -> None:
    assert NAME in BACKEND.space(CAUSAL, FEW).names
    assert NAME not in BACKEND.space(built("attention", SHAPE), FEW).names
    assert BACKEND.space(CAUSAL, known_hardware("a100")).decision(NAME).domain == (STATIC,)


def test_blocks_that_draw_stay_and_count_from_zero() -> None:
    space = BACKEND.space(CAUSAL, FEW)
    (schedule,) = drawn(space, 1)
    kernel = BACKEND.lower(CAUSAL, schedule, FEW)
    plan = json.loads(kernel.text("launch"))
    assert plan["kernels"][0]["grid"][0] <= 9
    assert [size for _, size in plan["clean"]] == [4]
    assert "tw_claim" in kernel.text("cuda")


def test_old_schedules_have_every_so_many_th_tile() -> None:
    space = BACKEND.space(CAUSAL, HARDWARE)
    values = dict(space.schedule(space.seed_matrix[0]).values)
    del values[NAME]
    old = Schedule.from_json(json.dumps({"target": "cuda", "values": values}))
    assert "tw_claim" not in BACKEND.lower(CAUSAL, old, HARDWARE).text("cuda")


@needs_compiler
@pytest.mark.parametrize("program", [CAUSAL, NEAR], ids=["causal", "window"])
@draws(2, 6)
def test_drawn_attention_means_the_program(program: Program, count: int) -> None:
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    for number, schedule in enumerate(drawn(BACKEND.space(program, FEW), count)):
        kernel = BACKEND.lower(program, schedule, FEW)
        assert not problems(program, kernel, inputs, wanted, (15, 0)[number % 2])


@needs_compiler
@pytest.mark.parametrize("upper", [False, True])
def test_drawn_products_mean_the_program(upper: bool) -> None:
    program = triangular(upper)
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    for number, schedule in enumerate(drawn(BACKEND.space(program, FEW), 2)):
        kernel = BACKEND.lower(program, schedule, FEW)
        assert not problems(program, kernel, inputs, wanted, (0, 6)[number])


def test_how_uneven_dealt_tiles_are() -> None:
    """As counted tile by tile."""
    for steps, others, batches, together, blocks in (
        (32, 1, 32, 16, 132), (8, 2, 5, 4, 7), (5, 1, 3, 0, 4), (1, 1, 1, 1, 9),
    ):  # fmt: skip
        lengths = list(range(steps, 0, -1)) if together else list(range(1, steps + 1))
        each = max(1, together)
        tiles: list[int] = []
        for first in range(0, batches, each):
            some = min(each, batches - first)
            tiles += [length for length in lengths for _ in range(some * others)]
        share = [sum(tiles[block::blocks]) for block in range(blocks)]
        found = busiest(steps, others, batches, together, blocks)
        assert found == pytest.approx(max(share) / (sum(lengths) / steps))
