"""Loops of many small steps are computed on the host, whatever array library the rest is on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from explorer.expectation import error_model
from ir import Graph, recur, reduce
from ir.evaluation import LITTLE, MANY, Evaluation
from ir.inputs import random_inputs
from ir.oracle import answers
from ir.program import Program
from ir.targets.cuda.rows.roundoff import ACCUMULATIONS


class Elsewhere:
    """An array library of another device, whose arrays come and go by name."""

    def __init__(self) -> None:
        self.went, self.came = 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def asnumpy(self, array: Any) -> Any:
        self.went += 1
        return np.asarray(array)

    def asarray(self, array: Any, *more: Any, **named: Any) -> Any:
        self.came += 1
        return np.asarray(array, *more, **named)


def filtered(b: int, t: int) -> Program:
    """A filter of second order, and the largest of what it gives at each step."""
    g = Graph("filtered")
    bb, tt = g.axes(b=b, t=t)
    x = g.input("X", (bb, tt), "f32")
    one, two = g.state(tt, (bb,)), g.state(tt, (bb,))
    y = x * 0.2 + 1.6 * one - 0.64 * two
    end = recur(two, one * 1.0)
    recur(one, y)
    g.output("Y", y, "f32", (bb, tt))
    g.output("end", end)
    g.output("most", reduce("max", y, over=bb), "f32", (tt,))
    return g.program()


@pytest.mark.parametrize("steps", [MANY, MANY // 2])
def test_short_steps_go_to_the_host_and_come_back(steps: int) -> None:
    program = filtered(3, steps)
    inputs = random_inputs(program, np.random.default_rng(1))
    model = error_model(program, ACCUMULATIONS)
    want = answers(program, inputs, model)
    other = Elsewhere()
    have = answers(program, inputs, model, xp=other)
    assert bool(other.went) == (steps >= MANY)
    for name, answer in want.items():
        np.testing.assert_array_equal(have[name].value, answer.value)
        if steps < MANY:
            np.testing.assert_array_equal(have[name].reach, answer.reach)
        else:  # roundings may be drawn by another generator
            most = 8 * answer.reach.astype(np.float64) + 1e-6
            assert np.all(have[name].reach <= most)


def test_long_steps_stay() -> None:
    program = filtered(LITTLE, MANY)
    inputs = random_inputs(program, np.random.default_rng(1))
    coordinates = {axis: np.arange(extent) for axis, extent in program.axes.items()}
    evaluation = Evaluation(program, inputs, coordinates, 0, xp=Elsewhere())
    loop = next(iter(evaluation.loops.values()))
    assert not evaluation._is_short(loop)
