"""Kernels of states that a step corrects several times, by chunks: right on both targets."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from explorer.runtime import nvrtc
from ir import Graph, Tile, cast, contract, exp, recur
from ir.errors import MissingTarget
from ir.inputs import random_inputs
from ir.program import Program
from ir.rewrite.chunks import chunked
from ir.values import normal, uniform
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, drawn
from tests.targets.test_cuda_emulated import problems
from tests.targets.test_meaning_of_numbers import cpu_kernels, run_cpu

KINDS = ("one after the other", "at once")


@cache
def steps(kind: str, dtype: str = "f32", t: int = 64, d: int = 16, heads: int = 1) -> Program:
    """Two corrections a step behind a decay, of what is there or each of what the other leaves."""
    g = Graph("steps")
    h, time, k, v = g.axes(h=heads, t=t, k=d, v=d)
    decay = exp(g.input("gate", (h, time), "f32", uniform(-0.2, 0)))
    before = g.state(time, (h, k, v))
    first = before * decay
    state: Tile = first
    for n in "12":
        key = g.input("K" + n, (h, time, k), dtype, normal(d**-0.5))
        beta = g.input("beta" + n, (h, time), "f32", uniform(0, 0.5))
        read = contract(state if kind == KINDS[0] else first, key, over=k)
        state = state + key * (beta * (g.input("V" + n, (h, time, v), dtype) - read))
    q = g.input("Q", (h, time, k), dtype, normal(d**-0.5))
    g.output("O", cast(contract(state, q, over=k), dtype), dtype, (h, time, v))
    g.output("S", recur(before, state), "f32", (h, k, v))
    return g.program()


@cache
def by_chunks(kind: str, dtype: str = "f32", t: int = 64, d: int = 16, heads: int = 1) -> Program:
    return next(form for _, _, form in chunked(steps(kind, dtype, t, d, heads)))


@pytest.mark.parametrize("kind", KINDS)
def test_on_a_cpu(kind: str, code_cache: Path) -> None:
    program = by_chunks(kind)
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    for kernel in cpu_kernels(program, 2):
        (found,) = run_cpu(kernel, [inputs], code_cache)
        assert [v.detail for n, b in wanted.items() if not (v := b.judge(found[n])).right] == []


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.alike(1)
def test_emulated(kind: str) -> None:
    program = by_chunks(kind, "bf16")
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    for turn, schedule in enumerate(drawn(program, 0, 1, 1)):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        assert not problems(program, kernel, inputs, wanted, turn), schedule.to_json()


def test_compiled() -> None:
    """The first seed of a form that is offered, at extents as models have them."""
    try:
        nvrtc.version()
    except MissingTarget as missing:
        pytest.skip(str(missing))
    program = steps(KINDS[0], "bf16", 1024, 64, 8)
    space = BACKEND.space(program, HARDWARE)
    form = next(str(v) for v in space.decision("form").domain if str(v).startswith("chunks-"))
    space = space.pin(form=form)
    row = space.seed_rows(np.random.default_rng(0))[0]
    kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
    plan = json.loads(kernel.text("launch"))
    code, _ = nvrtc.compile_text(kernel.text("cuda"), plan["arch"], tuple(plan["options"]))
    assert code
