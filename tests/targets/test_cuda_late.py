"""What an epilogue asks for ahead of its columns, on wgmma and mma.sync."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from ir.inputs import random_inputs
from ir.ops.load import Load
from ir.program import Program
from ir.schedule import Schedule
from ir.space import Space
from ir.targets.cuda.build.late import AHEAD, NAME, late_loads
from tests.cuda.run import needs_compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built
from tests.targets.test_cuda_emulated import problems

HERE = {"dtype": "bf16", "tb": True}
EPILOGUE = built("matmul_bias_act", {**HERE, "m": 130, "n": 136, "k": 128})
NARROW = built("matmul_bias_act", {**HERE, "m": 20, "n": 264, "k": 96})
SCAN = built("mamba2_chunk_scan", {
    "b": 1, "t": 192, "heads": 4, "p": 16, "n": 32, "groups": 2, "chunk": 96, "dtype": "f16",
})  # fmt: skip
PLAIN = built("matmul", {**HERE, "m": 128, "n": 128, "k": 128})


def choices(space: Space, engine: str) -> list[str]:
    """The names of the decision in the routes of an engine."""
    found = [name for name in space.names if name.split(".")[-1] == NAME]
    return [name for name in found if engine == "wgmma" or engine in name.split(".")]


def routed(program: Program, engine: str) -> Space:
    """The space of the route through as few kernels as there are, by an engine."""
    space = BACKEND.space(program, HARDWARE)
    wanted = {"residence": "usual", "engine": engine}
    return space.pin({name: value for name, value in wanted.items() if name in space.names})


def asking(program: Program, engine: str, ahead: int, count: int) -> list[Schedule]:
    """Schedules of an engine whose epilogues ask so many columns ahead."""
    space = routed(program, engine)
    name = next(name for name in choices(space, engine) if "stored" not in name)
    here = space.pin({name: ahead})
    return [here.schedule(row) for row in here.sample(np.random.default_rng(ahead), count)]


def test_it_is_a_choice_where_stores_read() -> None:
    assert choices(BACKEND.space(EPILOGUE, HARDWARE), "wgmma")
    assert choices(BACKEND.space(EPILOGUE, HARDWARE), "mma")
    assert not choices(BACKEND.space(PLAIN, HARDWARE), "wgmma")


def test_what_a_product_reads_is_not_late() -> None:
    (store,) = (position for position, _ in EPILOGUE.stores())
    ops = [EPILOGUE.nodes[position].op for position in late_loads(EPILOGUE, store)]
    tensors = {op.tensor for op in ops if isinstance(op, Load)}
    factors = {
        spec.name for spec in EPILOGUE.tensors if len(spec.shape) == 2 and spec.role == "input"
    }
    assert tensors
    assert len(factors - tensors) == 2


@pytest.mark.parametrize("engine", ["wgmma", "mma"])
def test_loads_stand_before_the_columns_that_use_them(engine: str) -> None:
    (schedule,) = asking(EPILOGUE, engine, 2, 1)
    text = BACKEND.lower(EPILOGUE, schedule, HARDWARE).text("cuda")
    assert re.search(r"_ahead\[\w+\]\[[^;]*\] = [^;]*tw_load_\d+", text)
    assert re.search(r"if \([^;{]* \+ [12] < \d+\)", text)


def test_old_schedules_ask_when_they_need_it() -> None:
    space = BACKEND.space(EPILOGUE, HARDWARE)
    values = dict(space.schedule(space.seed_matrix[0]).values)
    left = {name: value for name, value in values.items() if name.split(".")[-1] != NAME}
    old = Schedule.from_json(json.dumps({"target": "cuda", "values": left}))
    assert "_ahead[" not in BACKEND.lower(EPILOGUE, old, HARDWARE).text("cuda")


@needs_compiler
@pytest.mark.parametrize("engine", ["wgmma", "mma"])
@pytest.mark.parametrize("ahead", AHEAD[1:])
@pytest.mark.alike(2)
@draws(1, 4)
def test_epilogues_that_ask_ahead_mean_the_program(engine: str, ahead: int, count: int) -> None:
    for program in (EPILOGUE, NARROW):
        inputs = random_inputs(program, np.random.default_rng(1))
        wanted = bounds_of(program, inputs)
        for number, schedule in enumerate(asking(program, engine, ahead, count)):
            kernel = BACKEND.lower(program, schedule, HARDWARE)
            assert not problems(program, kernel, inputs, wanted, (0, 6)[number % 2])


@needs_compiler
@pytest.mark.parametrize("blocks", [1, 3, 4])
def test_computed_operands_under_masks_mean_the_program(blocks: int) -> None:
    """A causal sum: blocks that no mask touches are a loop of their own; short tiles share a
    processor."""
    inputs = random_inputs(SCAN, np.random.default_rng(1))
    wanted = bounds_of(SCAN, inputs)
    space = routed(SCAN, "wgmma_rs")
    name = next(name for name in space.names if name.startswith("wgmma_rs.resident"))
    here = space.pin({name: blocks})
    for row in here.sample(np.random.default_rng(blocks), 2):
        kernel = BACKEND.lower(SCAN, here.schedule(row), HARDWARE)
        assert re.search(r"const i32 until(_\d+)? = ", kernel.text("cuda"))
        assert not problems(SCAN, kernel, inputs, wanted, 0)
