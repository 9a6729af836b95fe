"""Batches beside each other in one grid: further rows or columns, whichever operand they share."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ir import Graph, cast, contract
from ir.inputs import random_inputs
from ir.program import Program
from ir.targets.cuda.build.roles import find_roles
from ir.targets.cuda.grid.batching import along_rows, batches_decision, sharers
from tests.emulator.emulate import compiler
from tests.few import few
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built
from tests.targets.test_cuda_emulated import problems

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")
GROUPED = {"blocks": 7, "rows": 72, "n": 200, "k": 128, "groups": 3, "dtype": "bf16"}


def shared(first: bool, second: bool) -> Program:
    """Products of batches, one of whose factors may be the same for all."""
    g = Graph("shared")
    batch, i, j, k = g.axes(b=6, i=72, j=80, k=128)
    x = g.input("X", (i, k) if first else (batch, i, k), "bf16")
    w = g.input("W", (j, k) if second else (batch, j, k), "bf16")
    fed = contract(x, w, over=k)
    scale = g.input("scale", (batch,), "f32")
    g.output("Y", cast(fed * scale, "bf16"), "bf16", (batch, i, j))
    return g.program()


@needs_compiler
@pytest.mark.parametrize(
    "raster", few(["rows", "columns", "rows4", "columns4", "patch8x8"], (1, 2, 4))
)
@pytest.mark.alike(2)
def test_every_tile_of_every_batch_is_there(raster: str) -> None:
    program = built("ragged_block_matmul", GROUPED)
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE)
    pins = {"engine": "wgmma", "batches": "beside", "raster": raster}
    names = [name for name in pins if name in space.names]
    pinned = space.pin({name: pins[name] for name in names})
    for turn, row in enumerate(pinned.sample(np.random.default_rng(2), 3)):
        schedule = pinned.schedule(row)
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        found = problems(program, kernel, inputs, wanted, (0, 6, 9)[turn])
        assert not found, schedule.to_json()


def test_neighbouring_tiles_share_what_batches_share() -> None:
    """Batches are further lines of the side whose other operand they share."""
    program = built("ragged_block_matmul", GROUPED)
    roles = find_roles(program, False)
    assert sharers(program, roles) == 7 // 3
    assert along_rows(program, roles)
    assert not along_rows(program, find_roles(program, True))
    space = BACKEND.space(program, HARDWARE)
    pins = {"batches": "beside", "raster": "rows", "cluster": "1x1", "swap": False}
    pinned = space.pin(pins | ({"engine": "wgmma"} if "engine" in space.names else {}))
    row = pinned.sample(np.random.default_rng(0), 1)[0]
    text = BACKEND.lower(program, pinned.schedule(row), HARDWARE).text("cuda")
    (lines,) = {int(found) for found in re.findall(r"row = \w+ % (\d+)", text)}
    tiles = -(-72 // int(pinned.schedule(row).as_dict()["tile.m"]))
    assert lines == 7 * tiles


@pytest.mark.parametrize(("first", "second"), [(False, False), (False, True), (True, False)])
def test_a_factor_without_batches_makes_rows_of_them(first: bool, second: bool) -> None:
    """What all batches share is no batch of the product: there is nothing to choose."""
    program = shared(first, second)
    roles = find_roles(program, False)
    assert batches_decision("batches", "b", program, roles) is None
