"""Maxima that no output feels: found in softmaxes and log-sum-exps, not where one shows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, log, maximum, operator, recur, reduce, sqrt, where
from ir.builder import Operator
from ir.inputs import drawn_inputs
from ir.oracle import evaluate
from ir.program import Program
from ir.shifts import unfelt
from tests.judging import bounds_of


def built(made: Operator) -> Program:
    return made.build()


def _rows(g: Graph):  # type: ignore[no-untyped-def]
    i, j, e = g.axes(i=3, j=5, e=2)
    return i, j, e, g.input("S", (i, j), "f32"), g.input("V", (j, e), "f32")


@operator
def softmax(g: Graph) -> None:
    i, j, _, s, _ = _rows(g)
    p = exp(s - reduce("max", s, over=j))
    g.output("Y", p / reduce("sum", p, over=j), "f32", (i, j))


@operator
def attention(g: Graph) -> None:
    i, j, e, s, v = _rows(g)
    s = where(g.iota(j) <= g.iota(i), s, -math.inf)
    p = exp((s - reduce("max", s, over=j)) * 0.5)
    g.output("O", contract(p, v, over=j) / reduce("sum", p, over=j), "f32", (i, e))


@operator
def logsumexp(g: Graph) -> None:
    i, j, _, s, _ = _rows(g)
    m = reduce("max", s, over=j)
    g.output("Y", log(reduce("sum", exp(s - m), over=j)) + m, "f32", (i,))


@operator
def rooted(g: Graph) -> None:
    i, j, _, s, _ = _rows(g)
    m = reduce("max", s, over=j)
    p = exp(s * 2.0 - m * 2.0)
    g.output("Y", exp(s - m) / sqrt(reduce("sum", p, over=j)), "f32", (i, j))


@operator
def narrow(g: Graph) -> None:
    i, j, e, s, v = _rows(g)
    p = exp(s - reduce("max", s, over=j))
    o = contract(cast(p, "bf16"), cast(v, "bf16"), over=j)
    g.output("O", o / reduce("sum", p, over=j), "f32", (i, e))


@operator
def kept(g: Graph) -> None:
    i, j, _, s, _ = _rows(g)
    m = reduce("max", s, over=j)
    g.output("Y", exp(s - m), "f32", (i, j))


@operator
def sink(g: Graph) -> None:
    i, j, _, s, _ = _rows(g)
    p = exp(s - reduce("max", s, over=j))
    g.output("Y", p / (reduce("sum", p, over=j) + 1.0), "f32", (i, j))


@operator
def clipped(g: Graph) -> None:
    i, j, _, s, _ = _rows(g)
    m = reduce("max", s, over=j)
    p = exp(maximum(s - m, -2.0))
    g.output("Y", p / reduce("sum", p, over=j), "f32", (i, j))


@operator
def across(g: Graph) -> None:
    i, j, _, s, _ = _rows(g)
    p = exp(s - reduce("max", s, over=i))
    g.output("Y", p / reduce("sum", p, over=j), "f32", (i, j))


@operator
def forward(g: Graph, t: int = 40, n: int = 6) -> None:
    """The forward algorithm: a log-sum-exp over the states before, at each step."""
    time, i, j = g.axes(t=t, i=n, j=n)
    emitted, moved = g.input("E", (time, j), "f32"), g.input("A", (i, j), "f32")
    before = g.state(time, (j,))
    s = before.at(j=i) + moved
    m = reduce("max", s, over=i)
    after = log(reduce("sum", exp(s - m), over=i)) + m + emitted
    g.output("Z", recur(before, after), "f32", (j,))


@pytest.mark.parametrize("made", [softmax, attention, logsumexp, rooted, forward])
def test_nobody_feels_it(made: Operator) -> None:
    assert len(unfelt(built(made))) == 1


@pytest.mark.parametrize("made", [narrow, kept, sink, clipped, across])
def test_somebody_does(made: Operator) -> None:
    assert not unfelt(built(made))


def test_errors_do_not_grow_with_steps() -> None:
    program = built(forward)
    inputs = drawn_inputs(program, 3)
    (exact,) = evaluate(program, inputs).values()
    bounds = bounds_of(program, inputs)["Z"]
    assert bounds.judge(exact.astype(np.float32)).right
    assert not bounds.judge((exact + 1e-3 * np.abs(exact)).astype(np.float32)).right
    state = np.zeros(6, np.float32)
    for row in inputs["E"].astype(np.float32):
        s = state[:, None] + inputs["A"].astype(np.float32)
        m = s.max(axis=0)
        state = np.log(np.exp(s - m).sum(axis=0)) + m + row
    assert bounds.judge(state).right
