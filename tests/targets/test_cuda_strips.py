"""Products whose operands are computed in registers: blocks that overlap, and what that asks."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.runtime import nvrtc
from explorer.runtime.nvdisasm import disassembler
from ir.inputs import random_inputs
from ir.kernel.strip import verify_strip
from ir.program import Program
from ir.rewrite.walking import walked
from ir.schedule import Schedule
from ir.space import Space
from ir.targets.cuda.bodies.tensor_order import NAME
from ir.targets.cuda.build.cut import RS
from ir.targets.cuda.build.roles import find_roles
from ir.targets.cuda.plans.planning import make_plan
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built
from tests.targets.disassembly import early_reads
from tests.targets.test_cuda_emulated import problems
from tests.targets.test_cuda_registers import has_nvrtc

QUANTISED = str(Path(__file__).with_name("quantised.py"))
ORDER = f"{RS}.{NAME}"
OVERLAPPED = "multiply:1"
emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")


def quantised(name: str, **arguments: Any) -> Program:
    return built(f"{QUANTISED}:{name}", arguments)


def overlapped(program: Program, **pins: Any) -> Space:
    more = {f"{RS}.{name}": value for name, value in pins.items()}
    return BACKEND.space(program, HARDWARE).pin({"engine": RS, ORDER: OVERLAPPED, **more})


def test_the_order_is_a_choice_that_old_schedules_made() -> None:
    program = quantised("w8_rows", m=64, n=256, k=512)
    space = BACKEND.space(program, HARDWARE)
    decision = space.decision(ORDER)
    assert decision.domain == ("straight", OVERLAPPED)
    assert "multiply of a block beside form of the next" in decision.why
    rows = space.pin({ORDER: "straight"}).seed_rows(np.random.default_rng(0))
    whole = space.schedule(rows[0]).as_dict()
    assert whole["engine"] == RS
    before = Schedule.of("cuda", {k: v for k, v in whole.items() if k != ORDER})
    assert space.schedule(space.encode(before)) == Schedule.of("cuda", whole)
    text = BACKEND.lower(program, before, HARDWARE).text("cuda")
    assert text == BACKEND.lower(program, Schedule.of("cuda", whole), HARDWARE).text("cuda")


def test_plain_products_have_none() -> None:
    program = built("matmul", {"m": 256, "n": 256, "k": 256, "dtype": "bf16", "tb": True})
    assert NAME not in BACKEND.space(program, HARDWARE).names


def test_strips_of_drawn_plans_mean_their_pieces() -> None:
    program = quantised("w4_grouped", m=64, n=256, groups=4, bytes=64)
    space = BACKEND.space(program, HARDWARE).pin(engine=RS)
    once = find_roles(program, False, True)
    streamed = walked(program, frozenset(once.walked))
    roles = find_roles(streamed, False, True)
    through = set()
    for row in space.sample(np.random.default_rng(2), 40):
        values = space.schedule(row).as_dict()
        named = {name.removeprefix(f"{RS}."): value for name, value in values.items()}
        strip = make_plan(streamed, roles, named, "").strip
        verify_strip(strip)
        assert str(strip) == values[ORDER]
        through.add(strip.through)
    assert through == {False, True}


def test_overlapped_blocks_need_more_registers() -> None:
    """Twice the words of two pieces: where they just fit, overlapped blocks do not."""
    program = quantised("w8_rows", m=4096, n=4096, k=4096)
    pins = {"engine": RS, ORDER: "straight", f"{RS}.turns": "free"}
    space = BACKEND.space(program, HARDWARE).pin(pins)
    free = BACKEND.space(program, HARDWARE)
    found = []
    for row in space.sample(np.random.default_rng(0), 200):
        values = {**space.schedule(row).as_dict(), ORDER: OVERLAPPED}
        refusal = free.refusal(Schedule.of("cuda", values))
        found += [refusal.constraint] if refusal is not None else []
    assert found
    assert set(found) == {f"{RS}.accumulators"}


CASES: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("w4_grouped", {"m": 24, "n": 136, "groups": 4, "bytes": 64}, {"partition": "whole"}),
    ("w8_rows", {"m": 200, "n": 200, "k": 336}, {"stages": 2}),
    ("gated_w8", {"m": 40, "n": 72, "k": 128}, {"read": "block"}),
    ("masked_rows", {"m": 136, "n": 72, "k": 128}, {}),
)


@emulated
@pytest.mark.parametrize(("name", "arguments", "pins"), CASES, ids=[name for name, _, _ in CASES])
@pytest.mark.alike(2)
def test_overlapped_blocks_mean_their_program(
    name: str, arguments: dict[str, Any], pins: dict[str, Any]
) -> None:
    program = quantised(name, **arguments)
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    space = overlapped(program, **pins)
    for turn, row in enumerate(space.sample(np.random.default_rng(4), 2)):
        schedule = space.schedule(row)
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        for mode in ((0, 9), (6, 15))[turn]:
            assert not problems(program, kernel, inputs, wanted, mode), schedule.to_json()


RELEASE = r"(tw_barrier_arrive\(smem \+ \d+ \+ 8 \* )\(outer_slot == 0 \?[^)]*\)"


@emulated
@pytest.mark.parametrize(("right", "wrong"), [
    (r"tw_wgmma_wait<1>\(\);(\s+if \(block > 0\))", r"tw_wgmma_wait<2>();\1"),
    (RELEASE, r"\1outer_slot"),
    (r"tw_wgmma_wait<0>\(\);", "tw_wgmma_wait<1>();"),
], ids=["release", "slot", "end"])  # fmt: skip
def test_what_is_too_lax_is_caught(right: str, wrong: str) -> None:
    """A wait ahead of a release or of the end, and a slot that is released a block too soon."""
    program = quantised("w8_rows", m=64, n=64, k=512)
    pins = {"consumers": 1, "stages": 2, "cluster": "1x1", "steps": 1, "tile.k": 128}
    space = overlapped(program, **pins)
    row = space.sample(np.random.default_rng(1), 1)[0]
    kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    assert not problems(program, kernel, inputs, wanted, 6)
    head, mark, body = kernel.text("cuda").rpartition("//@ kernel\n")
    changed, count = re.subn(right, wrong, body, count=1)
    assert count == 1
    lax = replace(kernel, texts=(("cuda", head + mark + changed), kernel.texts[1]))
    assert any(problems(program, lax, inputs, wanted, mode) for mode in (0, 6, 9, 15))


LARGE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("w4_grouped", {"m": 4096, "n": 4096, "groups": 32, "bytes": 64}),
    ("w8_float", {"m": 64, "n": 4096, "k": 4096}),
)


@pytest.mark.skipif(not has_nvrtc(), reason="no NVRTC")
@pytest.mark.parametrize(("name", "arguments"), LARGE)
@draws(0, 1)
def test_overlapped_blocks_compile_as_they_are_meant(
    name: str, arguments: dict[str, Any], count: int
) -> None:
    """Without spills, products neither one by one nor read before they are done."""
    program = quantised(name, **arguments)
    space = overlapped(program)
    rng = np.random.default_rng(0)
    for row in [space.seed_rows(rng)[0], *space.sample(rng, count)]:
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        arch = json.loads(kernel.text("launch"))["arch"]
        code, found = nvrtc.compile_text(kernel.text("cuda"), arch, [])
        assert (found.spill_stores, found.spill_loads, found.serialised) == (0, 0, ())
        if disassembler() is not None:
            assert early_reads(code) == []
