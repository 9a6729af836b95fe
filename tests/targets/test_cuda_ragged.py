"""Sums over rows of different length: loops of threads that end where their own rows do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from explorer.strategies.opening import estimates
from ir import Graph, cast, exp, maximum, minimum, reduce, where
from ir.inputs import drawn_inputs
from ir.ops.map import Map
from ir.program import Program
from ir.rewrite.domain import ending, live_range
from ir.rewrite.lengths import lengths_of
from ir.target import get_backend
from ir.targets.cuda.cost.alive import alive
from ir.targets.cuda.rows.hardware import known_hardware
from ir.values import lengths, offsets
from tests.targets.test_unforeseen import emulated, needs_compiler

CUDA, HOPPER = get_backend("cuda"), known_hardware("h200")


def pooled(
    rows: int = 37, total: int = 300, longest: int = 64, width: int = 24, kind: str = "sum"
) -> Program:
    """What neighbours in memory are by offsets, of every row."""
    g = Graph("pooled")
    B, J, D = g.axes(b=rows, j=longest, d=width)
    start = g.input("start", (g.axis("s", rows + 1),), "i32", values=offsets(total))
    x = g.tensor("X", (total, width), "bf16")
    first, end = start.at(s=B), start.at(s=B + 1)
    at = first + g.iota(J)
    value = cast(x[minimum(at, total - 1), D], "f32")
    none = 0.0 if kind == "sum" else -np.inf
    found = reduce(kind, where(at < end, value, none), over=J)
    g.output("Y", found / cast(maximum(end - first, 1), "f32") if kind == "sum" else found, "f32")
    return g.program()


def padded() -> Program:
    """Rows of an array as long as lengths say, and a condition that says more."""
    g = Graph("padded")
    B, J = g.axes(b=45, j=70)
    long = g.input("long", (B,), "i32", values=lengths(70))
    x = g.input("X", (B, J), "f32")
    inside = (g.iota(J) < long) & (x > 0)
    g.output("Y", reduce("sum", where(inside, exp(x), 0.0), over=J), "f32", (B,))
    return g.program()


PROGRAMS: dict[str, Callable[[], Program]] = {
    "sum": pooled, "max": lambda: pooled(kind="max"), "padded": padded,
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("name", PROGRAMS)
def test_drawn_schedules_are_right_and_loops_of_threads_end(name: str) -> None:
    program = PROGRAMS[name]()
    space = CUDA.space(program, HOPPER)
    ended = 0
    for row in space.sample(np.random.default_rng(5), 10):
        schedule = space.schedule(row)
        assert emulated(program, schedule, HOPPER) == []
        ended += "break;" in CUDA.lower(program, schedule, HOPPER).text("cuda")
    assert ended > 0


def test_a_condition_ends_a_loop_only_if_it_fails_from_there_on() -> None:
    g = Graph("late")
    B, J = g.axes(b=8, j=70)
    long = g.input("long", (B,), "i32", values=lengths(70))
    x = g.input("X", (B, J), "f32")
    late = where(g.iota(J) >= long, x, 0.0)
    g.output("late", reduce("sum", late, over=J), "f32", (B,))
    assert ending(g.program(), "j") == ()
    program = padded()
    (condition,) = ending(program, "j")
    assert program.nodes[condition].op == Map("lt")
    assert ending(program, "b") == ()


def test_estimates_know_how_long_rows_are() -> None:
    program = pooled(rows=1000, total=20_000, longest=2000)
    one = {axis: np.ones(1) for axis in program.axes}
    share = alive(program, "j", one, one, 1)[0]
    assert 0.5 * 20 / 2000 < share < 2 * 20 / 2000
    eight = one | {"b": np.array([8.0])}
    assert share < alive(program, "j", eight, eight, 1)[0] < 4 * share


def test_estimates_are_as_short_as_rows() -> None:
    program = pooled(rows=4096, total=65_536 * 4, longest=8192, width=256)
    unknown = Graph("unknown")
    B, J, D = unknown.axes(b=4096, j=8192, d=256)
    start = unknown.input("start", (unknown.axis("s", 4097),), "i32")
    x = unknown.tensor("X", (65_536 * 4, 256), "bf16")
    at = start.at(s=B) + unknown.iota(J)
    value = cast(x[minimum(at, 65_536 * 4 - 1), D], "f32")
    unknown.output("Y", reduce("sum", where(at < start.at(s=B + 1), value, 0.0), over=J), "f32")

    def cheapest(one: Program) -> float:
        space = CUDA.space(one, HOPPER)
        return float(estimates(space, space.seed_rows(np.random.default_rng(0))).min())

    assert cheapest(unknown.program()) > cheapest(program) + 4


@pytest.mark.parametrize("skew", [0, 3])
def test_lengths_are_thought_to_be_as_they_are_drawn(skew: int) -> None:
    g = Graph("drawn")
    B, J = g.axes(b=4000, j=5000)
    start = g.input("start", (g.axis("s", 4001),), "i32", values=offsets(400_000, skew))
    x = g.input("X", (J,), "f32")
    at = start.at(s=B) + g.iota(J)
    found = reduce("sum", where(at < start.at(s=B + 1), x, 0.0), over=J)
    g.output("Y", found, "f32", (B,))
    program = g.program()
    (condition,) = live_range(program, "j")
    thought = lengths_of(program, condition, "j")
    assert thought is not None
    drawn = np.diff(np.asarray(drawn_inputs(program, 0)["start"], np.int64))
    for share in (0.25, 0.5, 0.9):
        want = float(np.quantile(drawn, share))
        assert abs(float(np.quantile(thought, share)) - want) < 0.1 * want + 2
