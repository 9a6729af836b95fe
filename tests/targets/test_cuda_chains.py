"""Steps over rows on CUDA, in one kernel: a block has rows to itself. Emulated and compiled."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from explorer.runtime import nvrtc
from ir.errors import MissingTarget
from ir.inputs import random_inputs
from ir.program import Program
from ir.registry import load_operator
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.space.residences import ROWS, residences
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.plain.test_plain_chains import smoothed
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")


def in_blocks(program: Program, threads: int) -> Any:
    """The kernel whose blocks have rows to themselves."""
    space = BACKEND.space(program, HARDWARE)
    name = next(name for name in space.names if name.endswith("threads"))
    pins = {"residence": ROWS, name: threads} if "residence" in space.names else {name: threads}
    row = space.pin(pins).sample(np.random.default_rng(0), 1)[0]
    return BACKEND.lower(program, space.schedule(row), HARDWARE)


CASES = [
    ("fft", {"m": 3, "n": 64}), ("fft", {"m": 1, "n": 16}),
    ("hadamard_steps", {"m": 5, "n": 32, "dtype": "bf16"}), ("hadamard_steps", {"m": 2, "n": 128}),
]  # fmt: skip


@needs_compiler
@pytest.mark.parametrize(("name", "extents"), CASES, ids=str)
@pytest.mark.alike(2)
def test_butterflies_in_blocks(name: str, extents: dict[str, Any]) -> None:
    program = load_operator(name).build(**extents)
    inputs = random_inputs(program, np.random.default_rng(1))
    bounds = bounds_of(program, inputs)
    for threads, mode in ((32, 0), (64, 15), (128, 9)):
        kernel = in_blocks(program, threads)
        assert len(json.loads(kernel.text("launch"))["kernels"]) == 1
        assert not problems(program, kernel, inputs, bounds, mode)


@needs_compiler
@pytest.mark.parametrize("other", ["", "early", "turned"])
def test_neighbours_in_blocks(other: str) -> None:
    program = smoothed(3, 37, 3, other)
    inputs = dict(random_inputs(program, np.random.default_rng(1)))
    inputs["x"][1, 5], inputs["x"][2, 36] = np.nan, np.inf
    bounds = bounds_of(program, inputs)
    assert ROWS in residences(program, 132)
    (first, *_) = kernels_of(program, HARDWARE, residence=ROWS)
    assert first.kind == "plain"
    kernel = in_blocks(program, 64)
    assert not problems(program, kernel, inputs, bounds, 15)


def test_what_is_read_in_another_row_is_a_kernel_behind() -> None:
    kernels = kernels_of(smoothed(3, 37, 3, "rows"), HARDWARE, residence=ROWS)
    assert [kernel.kind for kernel in kernels] == ["plain", "block"]


def test_the_first_schedule_is_one_kernel() -> None:
    for name, extents in (
        ("fft", {"m": 3000, "n": 512}),
        ("hadamard_steps", {"m": 8192, "n": 4096}),
    ):
        program = load_operator(name).build(**extents)
        space = BACKEND.space(program, HARDWARE)
        schedule = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
        assert schedule["residence"] == ROWS
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        (launch,) = json.loads(kernel.text("launch"))["kernels"]
        assert launch["shared"] <= 64 << 10
        assert not launch["grid"][0] < 132


@pytest.mark.parametrize(("name", "extents"), CASES, ids=str)
@pytest.mark.alike(2)
def test_steps_compile(name: str, extents: dict[str, Any]) -> None:
    try:
        nvrtc.version()
    except MissingTarget as missing:
        pytest.skip(str(missing))
    kernel = in_blocks(load_operator(name).build(**extents), 128)
    code, resources = nvrtc.compile_text(kernel.text("cuda"), "sm_90a", ())
    assert code
    assert resources.registers <= 128
