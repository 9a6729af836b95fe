"""Scans as states: the same values, one step after the other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ir import Graph, cumulative, exp, operator, recurrence, reduce, where
from ir.inputs import random_inputs
from ir.loops import loops_of, widened
from ir.ops.fold import Fold
from ir.ops.recur import Recur
from ir.ops.reduce import Contract
from ir.oracle import evaluate
from ir.phases import phases_of
from ir.program import Program
from ir.registry import load_operator
from ir.rewrite.stated import stated
from tests.plain.judge import judge


@operator
def ends(g: Graph, n: int, m: int, shift: int = 1) -> None:
    """A running sum before each point, behind it, and at its end; or farther back."""
    i, j = g.axes(i=n, j=m)
    x = g.input("X", (i, j), "f32")
    total = cumulative("sum", x, i)
    before = total.at({i: i - shift}, fill=0)
    g.output("A", before * x, "f32", (i, j))
    g.output("B", total + x, "f32", (i, j))
    g.output("C", total.at({i: n - 1}), "f32", (j,))


@operator
def backwards(g: Graph, n: int) -> None:
    (i,) = g.axes(i=n)
    x = g.input("X", (i,), "f32")
    g.output("Y", recurrence(exp(-x * x), x, i, backward=True), "f32", (i,))


def kinds(program: Program, kind: type) -> int:
    return sum(isinstance(node.op, kind) for node in program.nodes)


CASES: tuple[tuple[str, dict[str, Any], int], ...] = (
    ("retention_chunked", {"b": 1, "heads": 2, "d": 5, "dv": 6, "t": 12, "chunk": 4}, 1),
    ("mamba2_chunked", {"b": 1, "t": 12, "heads": 4, "p": 3, "n": 5, "groups": 2, "chunk": 4}, 1),
    ("gla_chunked", {"b": 1, "heads": 2, "d": 5, "dv": 6, "t": 12, "chunk": 4}, 1),
)


def same(program: Program, other: Program) -> None:
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted, found = evaluate(program, inputs), evaluate(other, inputs)
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("name", "arguments", "states"), CASES)
def test_scans_of_chunks_are_states(name: str, arguments: dict[str, Any], states: int) -> None:
    program = load_operator(name).build(**arguments)
    found = stated(program)
    assert kinds(found, Recur) == states
    assert kinds(found, Fold) == kinds(program, Fold) - states
    same(program, found)


def test_a_scan_may_be_read_before_behind_and_at_its_end() -> None:
    program = ends.build(n=7, m=3)
    found = stated(program)
    assert kinds(found, Fold) == 0
    same(program, found)


def test_scans_that_are_read_elsewhere_stay() -> None:
    program = ends.build(n=7, m=3, shift=2)
    assert stated(program) is program


def test_scans_that_go_backwards_stay() -> None:
    program = backwards.build(n=5)
    assert stated(program) is program


def test_steps_hold_the_products_that_they_alone_read() -> None:
    name, arguments, _ = CASES[0]
    program = stated(load_operator(name).build(**arguments))
    (loop,) = loops_of(program)
    held = {p for p, node in enumerate(program.nodes) if isinstance(node.op, Contract)}
    assert len(held & loop.inside) == 1  # the one of the state
    assert held <= widened(program, loop).inside
    assert len(phases_of(program)) > 1
    (phase,) = phases_of(program, whole=True)
    assert phase.plain


def test_what_needs_more_than_a_step_stays_outside_of_it() -> None:
    program = stated(load_operator("mamba2_chunked").build(**CASES[1][1]))
    (loop,) = loops_of(program)
    inside = widened(program, loop).inside
    assert not any(isinstance(program.nodes[p].op, Fold) for p in inside)
    assert [phase.plain for phase in phases_of(program, whole=True)] == [True, True]


@operator
def falls(g: Graph, p: int, t: int) -> None:
    """The largest fall since the highest point of a path, how long it was under, and its pieces."""
    path, time, c = g.axes(p=p, t=t, c=2)
    x = cumulative("sum", g.input("X", (path, time), "f32"), time)
    high = cumulative("max", x, time)
    before = high.at(t=time - 1, fill=-math.inf)
    g.output("D", reduce("max", high - x, over=time), "f32", (path,))
    g.output("U", reduce("sum", where(high - x > 0.5, 1.0, 0.0), over=time), "f32", (path,))
    parts = (high - x) * g.input("W", (time, c), "f32")
    g.output("S", reduce("sum", parts, over=(time, c)), "f32", (path,))
    g.output("N", reduce("sum", where(x > before, 1.0, 0.0), over=time), "f32", (path,))


def test_what_running_values_are_reduced_to_is_a_state() -> None:
    program = falls.build(p=3, t=7)
    found = stated(program)
    same(program, found)
    assert kinds(found, Fold) == 0
    assert kinds(found, Recur) == 6
    assert len(phases_of(found)) == 1
    judge(found)


@operator
def both_ways(g: Graph, n: int, m: int) -> None:
    """Running sums along two axes, and what is left of both at once."""
    i, j = g.axes(i=n, j=m)
    x = g.input("X", (i, j), "f32")
    down, across = cumulative("sum", x, i), cumulative("sum", x, j)
    g.output("M", reduce("max", down * across, over=(i, j)), "f32", ())


def test_what_is_reduced_along_two_loops_is_right() -> None:
    program = both_ways.build(n=4, m=5)
    same(program, stated(program))


def test_running_products_are_states_too() -> None:
    """What is left of a ray behind each sample, and what arrives of it."""
    g = Graph("ray")
    r, n = g.axes(r=3, n=8)
    x = g.input("X", (r, n), "f32")
    left = cumulative("prod", exp(-x * x), n).at(n=n - 1, fill=1.0)
    g.output("Y", reduce("sum", left * x, over=n), "f32", (r,))
    program = g.program()
    made = stated(program)
    assert kinds(program, Fold) == 1
    assert kinds(made, Fold) == 0
    same(program, made)
