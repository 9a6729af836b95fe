"""Operands of wgmma from registers: plain ones by choice, and those that are computed of loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.runtime import nvrtc
from ir.dtypes import from_float
from ir.errors import MissingTarget
from ir.inputs import random_inputs
from ir.program import Program
from ir.ranges import integer_range
from ir.schedule import Schedule
from ir.targets.cuda.build.cut import RS
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.space.tensor import RegisterKernel
from ir.targets.cuda.text.packed import HALVES
from tests.emulator.emulate import MODES, compiler, emulate
from tests.few import draws, few
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built
from tests.targets.test_cuda_emulated import arrays_of, problems

QUANTISED = str(Path(__file__).with_name("quantised.py"))
QUICK = (0, 6, 9, 15)
emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")


def has_nvrtc() -> bool:
    try:
        nvrtc.version()
    except MissingTarget:
        return False
    return True


def quantised(name: str, **arguments: Any) -> Program:
    return built(f"{QUANTISED}:{name}", arguments)


COMPUTED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("w4_grouped", {"m": 24, "n": 136, "groups": 4, "bytes": 64}),
    ("w4_grouped", {"m": 40, "n": 72, "groups": 6, "bytes": 16, "zero": True, "dtype": "f16"}),
    ("w4_flat", {"m": 17, "n": 200, "k": 96}),
    ("w8_rows", {"m": 33, "n": 130, "k": 208}),
    ("w8_rows", {"m": 24, "n": 208, "k": 72, "tb": False}),
    ("w8_rows", {"m": 24, "n": 72, "k": 96, "batch": 3}),
    ("w8_float", {"m": 72, "n": 136, "k": 192}),
    ("scaled_rows", {"m": 130, "n": 72, "k": 168}),
    ("normed_rows", {"m": 72, "n": 72, "k": 168}),
    ("relu_product", {"m": 130, "n": 72, "k": 136, "tb": True}),
    ("relu_product", {"m": 136, "n": 72, "k": 136, "ta": True}),
    ("masked_rows", {"m": 136, "n": 72, "k": 128}),
    ("gated_w8", {"m": 40, "n": 72, "k": 128}),
)
NAMES = [f"{n}-{name}" for n, (name, _) in enumerate(COMPUTED)]


@emulated
@pytest.mark.parametrize(
    "number", few(range(len(COMPUTED)), (0, 1, 2, 4, 5, 6, 8, 10, 11, 12), NAMES)
)
@pytest.mark.alike(2)
def test_computed_operands_mean_their_program(number: int) -> None:
    """A seed and drawn schedules, in orders that turn from one to the next."""
    name, arguments = COMPUTED[number]
    program = quantised(name, **arguments)
    space = BACKEND.space(program, HARDWARE).pin(engine=RS)
    rng = np.random.default_rng(number)
    inputs = random_inputs(program, rng)
    wanted = bounds_of(program, inputs)
    rows = [space.seed_rows(rng)[number % 3], *space.sample(rng, 1)]
    for turn, row in enumerate(rows):
        schedule = space.schedule(row)
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        mode = QUICK[(number + turn) % 4]
        assert not problems(program, kernel, inputs, wanted, mode), schedule.to_json()


PLAIN: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("matmul", {"m": 130, "n": 200, "k": 136, "dtype": "bf16", "tb": True}, {}),
    ("matmul", {"m": 200, "n": 72, "k": 256, "dtype": "f16", "ta": True}, {"wait": 0}),
    ("matmul", {"m": 200, "n": 264, "k": 256, "dtype": "bf16"}, {"partition": "columns"}),
    ("matmul", {"m": 200, "n": 264, "k": 256, "dtype": "bf16"}, {"swap": True}),
    ("matmul", {"m": 64, "n": 264, "k": 1024, "dtype": "bf16"}, {"split": "k:2", "merge": "last"}),
    ("gated_mlp", {"m": 64, "n": 136, "k": 128, "dtype": "bf16", "tb": True}, {}),
    ("conv2d", {"n": 2, "h": 14, "w": 14, "c": 32, "f": 48, "padding": 1, "dtype": "bf16"}, {}),
)


@emulated
@pytest.mark.parametrize(("name", "arguments", "pins"), PLAIN, ids=str)
@draws(1, 2)
@pytest.mark.alike(2)
def test_plain_operands_from_registers(
    name: str, arguments: dict[str, Any], pins: dict[str, Any], count: int
) -> None:
    program = built(name, arguments)
    space = BACKEND.space(program, HARDWARE).pin(source="registers", **pins)
    rng = np.random.default_rng(3)
    inputs = random_inputs(program, rng)
    wanted = bounds_of(program, inputs)
    for turn, row in enumerate(space.sample(rng, count)):
        schedule = space.schedule(row)
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        assert "_rs" in kernel.text("cuda")
        assert not problems(program, kernel, inputs, wanted, QUICK[turn]), schedule.to_json()


@emulated
@pytest.mark.parametrize(("line", "words"), [
    ("tw_wgmma_fence();", "no tw_wgmma_fence between writing the operand's registers"),
    ("tw_wgmma_wait<1>();", "registers of its operand were written before a tw_wgmma_wait"),
])  # fmt: skip
def test_what_is_forgotten_is_caught(line: str, words: str) -> None:
    """In every order of completion: a fence, and the wait before registers are written again."""
    program = quantised("w8_rows", m=64, n=64, k=256)
    space = BACKEND.space(program, HARDWARE).pin({"engine": RS, f"{RS}.order": "straight"})
    rows = (space.schedule(row) for row in space.seed_rows(np.random.default_rng(0)))
    kernels = (BACKEND.lower(program, schedule, HARDWARE) for schedule in rows)
    kernel = next(k for k in kernels if k.text("cuda").count("tw_wgmma_wait<1>();") > 2)
    inputs = random_inputs(program, np.random.default_rng(0))
    head, mark, body = kernel.text("cuda").rpartition("//@ kernel\n")
    first = body.index(line)
    once = body[: first + len(line)] + body[first + len(line) :].replace(line, "", 1)
    for mode in QUICK:
        run = emulate(f"{head}{mark}{once}", kernel.text("launch"), arrays_of(kernel, inputs),
                      mode=MODES[mode], limit=30)  # fmt: skip
        assert words in " ".join(run.faults)


@pytest.mark.parametrize("name", HALVES)
def test_bits_of_integers_are_those_of_halves(name: str) -> None:
    half = HALVES[name]
    values = np.arange(1, half.exact + 1)
    assert [half.bits(int(v)) for v in values] == from_float(values, name).view(np.uint16).tolist()


def test_ranges_of_unpacked_integers() -> None:
    """Bytes, nibbles, and nibbles less 8."""
    program = quantised("w4_flat", m=8, n=8, k=16)
    found = [integer_range(program, n) for n in range(len(program.nodes))]
    assert {(0, 255), (0, 15), (-8, 7)} <= set(found)


def test_a_computed_operand_saves_its_copy() -> None:
    """The kernels of each engine: copies and a product, or the product alone."""
    program = quantised("w4_grouped", m=64, n=4096, groups=32, bytes=64)
    kinds = {e: [k.kind for k in kernels_of(program, HARDWARE, e)] for e in ("wgmma", RS, "mma")}
    assert kinds == {"wgmma": ["block", "block", "tensor"], RS: ["tensor"], "mma": ["mma"]}
    (kernel,) = kernels_of(program, HARDWARE, RS)
    assert isinstance(kernel, RegisterKernel)
    assert kernel.roles.rows == ("n",)
    assert (kernel.roles.main_walk, kernel.roles.whole) == ("pair", ("half",))


@pytest.mark.parametrize(("name", "arguments"), [
    ("strided_product", {"m": 64, "n": 64, "k": 64}),  # no tensor map has its stride
    ("w8_rows", {"m": 64, "n": 64, "k": 200}),  # lines of 200 bytes
])  # fmt: skip
def test_what_tma_cannot_bring_is_copied_first(name: str, arguments: dict[str, Any]) -> None:
    program = quantised(name, **arguments)
    assert RS not in BACKEND.space(program, HARDWARE).decision("engine").domain


def test_schedules_from_before_the_choice_keep_their_meaning() -> None:
    program = built("matmul", {"m": 256, "n": 256, "k": 256, "dtype": "bf16", "tb": True})
    space = BACKEND.space(program, HARDWARE)
    whole = space.schedule(space.seed_rows(np.random.default_rng(0))[0]).as_dict()
    before = Schedule.of("cuda", {k: v for k, v in whole.items() if k != "source"})
    assert space.schedule(space.encode(before))["source"] == "shared"
    text = BACKEND.lower(program, before, HARDWARE).text("cuda")
    assert text == BACKEND.lower(program, Schedule.of("cuda", whole), HARDWARE).text("cuda")


def test_refusals_say_what_is_needed() -> None:
    program = built("matmul", {"m": 256, "n": 256, "k": 256, "dtype": "bf16", "tb": True})
    space = BACKEND.space(program, HARDWARE)
    values = space.schedule(space.seed_rows(np.random.default_rng(0))[0]).as_dict()
    short = Schedule.of("cuda", {**values, "source": "registers", "tile.k": 16})
    refusal = space.refusal(short)
    assert refusal is not None
    assert "blocks of 16 points; from registers, two steps of 16" in str(refusal)


LARGE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("w4_grouped", {"m": 64, "n": 4096, "groups": 32, "bytes": 64}),
    ("w8_rows", {"m": 256, "n": 4096, "k": 4096}),
    ("scaled_rows", {"m": 4096, "n": 4096, "k": 4096}),
)


@pytest.mark.skipif(not has_nvrtc(), reason="no NVRTC")
@pytest.mark.parametrize(("name", "arguments"), LARGE)
@pytest.mark.alike(2)
def test_seeds_neither_spill_nor_serialise(name: str, arguments: dict[str, Any]) -> None:
    program = quantised(name, **arguments)
    space = BACKEND.space(program, HARDWARE).pin(engine=RS)
    for row in space.seed_rows(np.random.default_rng(0))[:2]:
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        arch = json.loads(kernel.text("launch"))["arch"]
        _, found = nvrtc.compile_text(kernel.text("cuda"), arch, [])
        assert (found.spill_stores, found.spill_loads, found.serialised) == (0, 0, ())
