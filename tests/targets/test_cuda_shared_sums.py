"""Lanes that share what an iteration of a step combines: sums inside other loops, extremes."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, contract, maximum, minimum, recur, reduce, where
from ir.inputs import random_inputs
from ir.program import Program
from ir.values import uniform
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems


def values(states: int, actions: int, steps: int) -> Program:
    """Value iteration: the best action's reward and what follows in the mean, again and again."""
    g = Graph("values")
    t, s, a, other = g.axes(t=steps, s=states, a=actions, o=states)
    p = g.input("P", (a, s, other), "f32", values=uniform(0, 2 / states))
    v = g.state(t, (s,))
    q = g.input("R", (a, s), "f32") + 0.9 * contract(p, v.at(s=other), over=other)
    g.output("V", recur(v, reduce("max", q, over=a)), "f32", (s,))
    return g.program()


def paths(n: int, steps: int) -> Program:
    """The widest paths from the first point: the largest of the smaller of two, again and again."""
    g = Graph("paths")
    t, i, j = g.axes(t=steps, i=n, j=n)
    w = g.input("W", (i, j), "f32", values=uniform(0, 1))
    d = g.state(t, (i,), where(g.iota(i) == 0, 9.0, 0.0))
    best = reduce("max", minimum(d.at(i=j), w), over=j)
    g.output("D", recur(d, maximum(d, best)), "f32", (i,))
    return g.program()


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")
@pytest.mark.parametrize("program", [values(40, 3, 3), paths(48, 4)], ids=lambda p: p.name)
def test_lanes_share_what_an_iteration_combines(program: Program) -> None:
    inputs = random_inputs(program, np.random.default_rng(1))
    bounds = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE)
    assert max(space.decision("share").domain) == 32
    for number, share in enumerate((1, 4, 32)):
        for row in space.pin(share=share).sample(np.random.default_rng(number), 2):
            lowered = BACKEND.lower(program, space.schedule(row), HARDWARE)
            assert ("tw_shuffle" in lowered.text("cuda").rpartition("TW_KERNEL")[2]) == (share > 1)
            assert not problems(program, lowered, inputs, bounds, (0, 6, 15)[number])
