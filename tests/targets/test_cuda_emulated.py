"""Drawn kernels mean their program when the CPU emulates them, in adversarial orders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from explorer.check import Bounds
from explorer.expectation import reduction_length
from ir.dtypes import numpy_dtype
from ir.inputs import random_inputs
from ir.kernel import Kernel
from ir.ops.base import Array
from ir.oracle import evaluate
from ir.program import Program
from ir.targets.cuda.emulate import MODES, compiler, emulate
from tests.targets.cuda_cases import BACKEND, HARDWARE, NAMES, SMALL, built, drawn

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
QUICK = (0, 6, 9, 15)  # eager, late, mixed completion, both thread orders


def arrays_of(kernel: Kernel, inputs: dict[str, Array]) -> dict[str, Array]:
    """Inputs that must not be written, and outputs full of what no kernel writes."""
    found: dict[str, Array] = {}
    for argument in kernel.arguments:
        if argument.role == "input":
            found[argument.name] = np.array(inputs[argument.name], order="C")
            found[argument.name].flags.writeable = False
        elif argument.role == "output":
            found[argument.name] = np.full(argument.shape, 0x5A, numpy_dtype(argument.dtype))
    return found


def problems(
    program: Program, kernel: Kernel, inputs: dict[str, Array], wanted: dict[str, Array], mode: int
) -> list[str]:
    arrays = arrays_of(kernel, inputs)
    run = emulate(kernel.text("cuda"), kernel.text("launch"), arrays, mode=MODES[mode], limit=30)
    found = list(run.faults)
    length = reduction_length(program)
    for spec in program.outputs:
        bounds = Bounds.around(wanted[spec.name], spec.dtype, length, None)
        found += [v.detail for v in (bounds.judge(arrays[spec.name]),) if not v.right]
    return found


@pytest.mark.parametrize("number", range(len(SMALL)), ids=NAMES)
def test_drawn_kernels_mean_their_program(number: int) -> None:
    name, arguments = SMALL[number]
    program: Program = built(name, arguments)
    inputs = random_inputs(program, np.random.default_rng(number))
    wanted = evaluate(program, inputs)
    for turn, schedule in enumerate(drawn(program, number, 2, 3, "wgmma")):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        for mode in (QUICK[turn % 4], QUICK[(turn + 1) % 4]):
            assert not problems(program, kernel, inputs, wanted, mode), schedule.to_json()


_CHOICES: tuple[dict[str, Any], ...] = (
    {"cluster": "2x1"}, {"cluster": "1x2"}, {"cluster": "2x2"}, {"partition": "columns"},
    {"partition": "whole"}, {"swap": True}, {"split": "k:2"}, {"consumers": 3},
    {"epilogue": "direct"}, {"wait": 0}, {"raster": "hilbert"},
    {"raster": "columns4"},
)  # fmt: skip


@pytest.mark.parametrize("pins", _CHOICES, ids=str)
def test_every_choice_of_a_product(pins: dict[str, Any]) -> None:
    program = built("matmul", {"m": 200, "n": 264, "k": 1024, "dtype": "bf16", "tb": True})
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = evaluate(program, inputs)
    space = BACKEND.space(program, HARDWARE).pin(pins)
    for row in space.sample(np.random.default_rng(2), 3):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        for mode in QUICK[::2]:
            assert not problems(program, kernel, inputs, wanted, mode), space.schedule(
                row
            ).to_json()
