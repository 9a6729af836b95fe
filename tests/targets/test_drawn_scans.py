"""Drawn numbers inside what goes along an axis in its order: the same on both targets."""

from __future__ import annotations

from pathlib import Path

import pytest

from ir import Graph, cumulative, fold, philox_uniform, popcount, recur
from ir.program import Program
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, drawn
from tests.targets.test_meaning_of_numbers import cpu_kernels, run_cpu, run_emulated


def walks() -> Program:
    """Sums of drawn steps up to each, their largest, and a state that draws decide."""
    g = Graph("walks")
    p, t = g.axes(p=12, t=70)
    u = philox_uniform(g.coordinate(p * 70 + t), seed=3)
    g.output("walk", cumulative("sum", u - 0.5, t), "f32", (p, t))
    (most,) = fold("max", u, t)
    g.output("most", most, "f32", (p,))
    s = g.state(t, (p,), dtype="i32")
    g.output("ones", recur(s, s + popcount(g.iota(t)) * (u < 0.25)), "i32", (p,))
    return g.program()


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate with")
def test_draws_in_scans_on_a_gpu() -> None:
    program = walks()
    wanted = bounds_of(program, {})
    for schedule in drawn(program, 1, 2, 3):
        found = run_emulated(BACKEND.lower(program, schedule, HARDWARE), {})
        assert [v.detail for n, b in wanted.items() if not (v := b.judge(found[n])).right] == []


def test_draws_in_scans_on_a_cpu(code_cache: Path) -> None:
    program = walks()
    wanted = bounds_of(program, {})
    for kernel in cpu_kernels(program, 4):
        (found,) = run_cpu(kernel, [{}], code_cache)
        assert [v.detail for n, b in wanted.items() if not (v := b.judge(found[n])).right] == []
