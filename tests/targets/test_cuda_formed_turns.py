"""Groups that form operands in registers take turns: one forms, the other multiplies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ir.inputs import random_inputs
from ir.kernel.tile_kernel import GIVE, TAKE, Sync, TileKernel, walk
from ir.kernel.turns import DONE, FREE, ISSUED
from ir.schedule import Schedule
from ir.space import Space
from ir.targets.cuda.bodies.tensor_order import TURNS
from ir.targets.cuda.build.listings import listings_of
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, UNSEEN, built
from tests.targets.test_cuda_emulated import problems

PROGRAM = built(f"{UNSEEN}:packed_int4", {"m": 256, "n": 96, "k": 256})


def space(**pins: Any) -> Space:
    found = BACKEND.space(PROGRAM, HARDWARE).pin(engine="wgmma_rs")
    return found.pin({f"wgmma_rs.{name}": value for name, value in pins.items()})


def schedules(count: int, **pins: Any) -> list[Schedule]:
    chosen = space(consumers=2, **pins)
    return [chosen.schedule(row) for row in chosen.sample(np.random.default_rng(3), count)]


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("turns", [ISSUED, DONE])
@pytest.mark.parametrize("partition", ["rows", "columns"])
@draws(1, 3)
@pytest.mark.alike(2)
def test_groups_in_turn_mean_the_program(turns: str, partition: str, count: int) -> None:
    inputs = random_inputs(PROGRAM, np.random.default_rng(0))
    wanted = bounds_of(PROGRAM, inputs)
    for number, schedule in enumerate(schedules(count, turns=turns, partition=partition)):
        kernel = BACKEND.lower(PROGRAM, schedule, HARDWARE)
        for mode in ((0, 15), (6, 9), (3, 12))[number]:
            assert not problems(PROGRAM, kernel, inputs, wanted, mode), schedule


@pytest.mark.parametrize("turns", [ISSUED, DONE])
def test_a_block_takes_its_turn_once(turns: str) -> None:
    """Ahead of its first products, and passes it when the last are issued, or have ended."""
    (schedule,) = schedules(1, turns=turns, order="straight", partition="rows")
    (listing,) = listings_of(PROGRAM, schedule, HARDWARE)
    kernel = TileKernel.parse(dict(listing.passes)["synchronise"])
    lines = [str(one) for one in walk(kernel.role("consumers").body)]
    assert (lines.count(f"sync {TAKE}"), lines.count(f"sync {GIVE}")) == (1, 1)
    assert lines.count(f"sync {GIVE} first") == 1
    take, give = lines.index(f"sync {TAKE}"), lines.index(f"sync {GIVE}")
    assert lines[take + 1 : take + 3] == ["sync fence", "do multiply piece 0"]
    assert lines[give - 1] == ("sync commit" if turns == ISSUED else "sync await")
    assert Sync(TAKE) in [*walk(kernel.body)]


def test_turns_are_refused_where_nobody_shares() -> None:
    chosen = schedules(1, turns=ISSUED, partition="rows")[0].as_dict()
    names = {name.removeprefix("wgmma_rs."): name for name in chosen}
    for changed in ({"partition": "whole"}, {"consumers": 1}):
        values = chosen | {names[name]: value for name, value in changed.items()}
        refused = space().refusal(Schedule.of("cuda", values))
        assert refused is not None
    free = chosen | {names[TURNS]: FREE, names["partition"]: "whole"}
    refused = space().refusal(Schedule.of("cuda", free))
    assert refused is None or "turns" not in str(refused).partition(":")[0]


@pytest.mark.parametrize("name", ["mamba2_chunk_state", "hadamard"])
@draws(50, 120)
def test_every_legal_schedule_has_a_kernel(name: str, count: int) -> None:
    """Raw tiles along several dimensions have lines that each of them fills."""
    extents = {
        "mamba2_chunk_state": {"b": 1, "t": 512, "heads": 2, "p": 64, "n": 64, "chunk": 128},
        "hadamard": {"m": 256, "n": 256},
    }  # fmt: skip
    program = built(name, {**extents[name], "dtype": "bf16"})
    chosen = BACKEND.space(program, HARDWARE)
    if "engine" in chosen.names and "wgmma_rs" in chosen.decision("engine").domain:
        chosen = chosen.pin(engine="wgmma_rs")
    for row in chosen.sample(np.random.default_rng(2), count):
        BACKEND.lower(program, chosen.schedule(row), HARDWARE)
