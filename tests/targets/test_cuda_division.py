"""Quotients: to nearest where something whole is made of them, without a slow road elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, cast, floor, sqrt
from ir.program import Program
from tests.emulator.emulate import compiler, emulate
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import arrays_of


def _quotients(whole: bool, by: float | None = None) -> Program:
    g = Graph("quotients")
    (i,) = g.axes(i=4096)
    x = g.input("X", (i,), "f32")
    q = x / (g.input("Y", (i,), "f32") if by is None else by)
    g.output("Q", q, "f32", (i,))
    g.output("R", cast(floor(q), "i32") if whole else sqrt(q), "i32" if whole else "f32", (i,))
    return g.program()


def _text(program: Program) -> str:
    space = BACKEND.space(program, HARDWARE)
    schedule = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
    return BACKEND.lower(program, schedule, HARDWARE).text("cuda")


def _body(program: Program) -> str:
    return _text(program).split("//@ kernel")[1]


def test_how_a_quotient_is_written() -> None:
    assert "tw_divide(" in _body(_quotients(whole=True))
    close = _body(_quotients(whole=False))
    assert "tw_quotient(" in close
    assert "tw_root(" in close
    stated = _body(_quotients(whole=False, by=3.0))
    assert "tw_quotient(" not in stated
    assert "0.3333333" in stated


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_quotients_that_decide_are_to_nearest() -> None:
    program, rng = _quotients(whole=True), np.random.default_rng(2)
    ends = np.array([0.0, -0.0, 1e-40, -1e-45, 3e38, np.inf, -np.inf, np.nan, 1.0, -3.0, 1e-30])
    drawn = [
        np.where(
            rng.random(4096) < 0.3,
            rng.choice(ends, 4096),
            rng.standard_normal(4096) * 10.0 ** rng.integers(-20, 20, 4096),
        ).astype(np.float32)
        for _ in range(2)
    ]
    space = BACKEND.space(program, HARDWARE)
    schedule = space.schedule(space.seed_rows(rng)[0])
    kernel = BACKEND.lower(program, schedule, HARDWARE)
    arrays = arrays_of(kernel, {"X": drawn[0], "Y": drawn[1]})
    emulate(kernel.text("cuda"), kernel.text("launch"), arrays)
    with np.errstate(all="ignore"):
        wanted = drawn[0] / drawn[1]
    found = arrays["Q"].view(np.float32).reshape(-1)
    there = ~np.isnan(wanted)
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    assert np.array_equal(found[there].view(np.uint32), wanted[there].view(np.uint32))
