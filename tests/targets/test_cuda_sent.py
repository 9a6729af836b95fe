"""What the steps of a thread write side by side, and leave in words."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, cast, maximum, minimum, recur
from ir.program import Program
from ir.schedule import Schedule
from ir.target import get_backend
from ir.targets.cuda.rows.hardware import known_hardware
from tests.emulator.emulate import compiler
from tests.targets.test_unforeseen import emulated

HOPPER = known_hardware("h200")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


def bounded(n: int, dtype: str = "bf16", apart: bool = False) -> Program:
    """Sums that stay within bounds; `apart`: what is written of a step is not beside the next."""
    g = Graph("bounded")
    b, t = g.axes(b=37, n=n)
    state = g.state(t, (b,))
    new = minimum(maximum(state + cast(g.input("X", (b, t), dtype), "f32"), -2.0), 2.0)
    recur(state, new)
    g.output("Y", new, dtype, (t, b) if apart else (b, t))
    g.output("Z", new > 1.0, "bool", (t, b) if apart else (b, t))
    return g.program()


def kernels(program: Program) -> list[tuple[Schedule, str]]:
    """The space's legal seeds and what becomes of them, without what they have in common."""
    backend = get_backend("cuda")
    space = backend.space(program, HOPPER)
    rows = space.seed_rows(np.random.default_rng(0))
    schedules = [space.schedule(row) for row in rows[space.legal(rows)]]
    texts = [backend.lower(program, s, HOPPER).texts[0][1] for s in schedules]
    return [(s, t[t.index("//@ kernel") :]) for s, t in zip(schedules, texts, strict=True)]


@needs_compiler
@pytest.mark.parametrize("dtype", ["bf16", "f32", "i8"])
def test_steps_leave_in_words(dtype: str) -> None:
    """One by one, each would be a sector of its own: 0.83 ms for what takes 0.14."""
    program = bounded(48, dtype)
    found = [(s, text) for s, text in kernels(program) if s["steps"] == 16]
    assert found
    for schedule, text in found[:2]:
        assert "tw_store_16(" in text
        assert "Y[" not in text
        assert emulated(program, schedule, HOPPER) == []


@pytest.mark.parametrize("program", [bounded(50), bounded(48, apart=True)])
def test_what_is_not_side_by_side_or_not_at_a_words_place_leaves_alone(program: Program) -> None:
    found = [text for s, text in kernels(program) if s["steps"] != 1]
    assert found
    assert not any("tw_store_16(" in text or "tw_store_8(" in text for text in found)


@needs_compiler
def test_the_last_steps_leave_one_by_one() -> None:
    """Rows of 40 are two turns of 16 and eight steps."""
    program = bounded(40)
    found = [(s, text) for s, text in kernels(program) if s["steps"] == 16]
    for schedule, text in found[:2]:
        assert "tw_store_16(" in text
        assert "Y[" in text
        assert emulated(program, schedule, HOPPER) == []
