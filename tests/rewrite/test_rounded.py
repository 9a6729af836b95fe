"""States that sums read rounded are states of their own; the numbers are the same."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, cast, contract, evaluate, recur
from ir.inputs import random_inputs
from ir.loops import loops_of
from ir.ops.recur import Before
from ir.program import Program
from ir.rewrite.rounded import with_rounded_states
from tests import cells


def states(program: Program) -> list[str]:
    return [node.op.label for node in program.nodes if isinstance(node.op, Before)]


@pytest.mark.parametrize("make", [cells.gru, cells.lstm])
def test_numbers_are_the_same(make: object) -> None:
    assert callable(make)
    program = make(3, 6, 16)
    other = with_rounded_states(program)
    assert len(states(other)) == len(states(program)) + 1
    assert len(loops_of(other)) == 1
    inputs = random_inputs(program, np.random.default_rng(0))
    found, expected = evaluate(other, inputs), evaluate(program, inputs)
    for name, array in expected.items():
        assert np.array_equal(found[name], array), name
    assert with_rounded_states(other) is other


def test_what_no_sum_reads_stays() -> None:
    g = Graph("held")
    t, k, n = g.axes(t=5, k=16, n=16)
    h = g.state(t, (k,))
    g.output("Y", cast(h, "bf16"), "bf16", (t, k))
    g.output("last", recur(h, 0.5 * h + g.input("X", (t, k), "f32")), "f32", (k,))
    program = g.program()
    assert with_rounded_states(program) is program
    g = Graph("wide")
    t, k, n = g.axes(t=5, k=16, n=16)
    h = g.state(t, (k,))
    w = g.input("W", (k, n), "f32")
    g.output("last", recur(h, contract(cast(h, "f32"), w, over=k).at(n=k)), "f32", (k,))
    program = g.program()
    assert with_rounded_states(program) is program


def test_a_state_that_nothing_reads_belongs_to_the_loop_that_makes_it() -> None:
    g = Graph("shown")
    t, k = g.axes(t=5, k=16)
    x = g.input("X", (t, k), "f32")
    h, seen = g.state(t, (k,)), g.state(t, (k,))
    after = 0.5 * h + x
    g.output("last", recur(h, after), "f32", (k,))
    g.output("twice", recur(seen, 2 * after), "f32", (k,))
    program = g.program()
    (loop,) = loops_of(program)
    assert len(loop.states) == 2
