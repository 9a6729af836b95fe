"""Rows that a warp's threads have, one each, and that pass through shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.runtime.nvrtc import compile_text
from ir import Graph, cast, cumulative, exp, maximum, minimum, recur, reduce, uniform
from ir.program import Program
from ir.schedule import Schedule
from ir.target import get_backend
from ir.targets.cuda.rows.hardware import known_hardware
from tests.emulator.emulate import compiler
from tests.targets.test_unforeseen import emulated

HOPPER = known_hardware("h200")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


def limited(b: int = 64, n: int = 72, dtype: str = "bf16") -> Program:
    """Sums that stay within bounds, by how much they move, and where they are at one."""
    g = Graph("limited")
    i, t = g.axes(b=b, n=n)
    x, step = g.input("X", (i, t), dtype), g.input("S", (i, t), "f32", values=uniform(0, 1))
    state = g.state(t, (i,))
    new = minimum(maximum(state + step * cast(x, "f32"), -2.0), 2.0)
    recur(state, new)
    g.output("Y", new, dtype, (i, t))
    g.output("Z", new > 1.0, "bool", (i, t))
    return g.program()


def staged(program: Program) -> list[Schedule]:
    """The space's legal seeds whose rows do."""
    space = get_backend("cuda").space(program, HOPPER)
    rows = space.seed_rows(np.random.default_rng(0))
    found = [space.schedule(row) for row in rows[space.legal(rows)]]
    return [s for s in found if s["staged"] is True]


@needs_compiler
@pytest.mark.parametrize("dtype", ["bf16", "f32", "i8"])
@pytest.mark.alike(2)
def test_they_mean_the_program(dtype: str) -> None:
    """Turns of all lengths; 72 steps are no whole number of the longest."""
    program = limited(dtype=dtype)
    space = get_backend("cuda").space(program, HOPPER)
    found = [s for s in staged(program) if s["threads"] == 64 or s["threads"] == 128]
    drawn = space.pin({"staged": True}).sample(np.random.default_rng(1), 3)
    for schedule in [*found[:2], *map(space.schedule, drawn)]:
        text = get_backend("cuda").lower(program, schedule, HOPPER).texts[0][1]
        assert "tw_lane_i64(" in text
        assert emulated(program, schedule, HOPPER) == []


@needs_compiler
def test_rows_of_three_numbers_a_step_are_shared_out_too() -> None:
    """Colours along rays: 192 bytes for 16 steps are twelve words, of which a warp has 384."""
    g = Graph("rendered")
    r, s, c = g.axes(r=4224, s=20, c=3)
    sigma = g.input("sigma", (r, s), "f32", values=uniform(0, 1))
    rgb = g.input("rgb", (r, s, c), "f32", values=uniform(0, 1))
    weight = exp(sigma - cumulative("sum", sigma, s)) * (1.0 - exp(-sigma))
    g.output("C", reduce("sum", weight * rgb, over=s), "f32", (r, c))
    program = g.program()
    space = get_backend("cuda").space(program, HOPPER)
    rows = space.seed_rows(np.random.default_rng(0))
    legal = [space.schedule(row) for row in rows[space.legal(rows)]]
    found = [one for one in legal if one.get("steps-whole.staged", False)]
    assert found
    for schedule in found[:3]:
        text = get_backend("cuda").lower(program, schedule, HOPPER).texts[0][1]
        assert "/ 12" in text
        assert emulated(program, schedule, HOPPER) == []


def test_a_warp_of_which_some_have_no_row_reads_each_alone() -> None:
    """Who shares words waits for all of its warp."""
    space = get_backend("cuda").space(limited(b=37), HOPPER)
    assert "staged" not in space.names


def test_lines_are_whole_and_nothing_spills() -> None:
    """64 bytes of a row are read by four lanes beside each other, and kept in registers."""
    program = limited(65536, 512)
    schedule = max(staged(program), key=lambda s: int(s["steps"]))
    text = get_backend("cuda").lower(program, schedule, HOPPER).texts[0][1]
    assert "% 4 * 8" in text  # of 8 elements each
    assert compile_text(text, "sm_90a")[1].spill_stores == 0


def test_they_look_faster_where_rows_are_many() -> None:
    program = limited(65536, 512)
    space = get_backend("cuda").space(program, HOPPER)
    pair = [
        {"staged": way, "steps": 16, "threads": 128, "prefetch": False} for way in (True, False)
    ]
    rows = np.stack([space.pin(one).any_legal(np.random.default_rng(0)) for one in pair])
    assert space.features is not None
    names, table = space.features(space.columns(rows))
    together, apart = table[:, names.index("total.estimate")]
    assert together < apart
