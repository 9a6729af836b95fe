"""Statistics in parts of which others are made along the same axis: each stage has parts."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, exp, log, reduce
from ir.inputs import random_inputs
from ir.program import Program
from ir.rewrite.inhabited import inhabited
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.space.residences import PARTS, residences
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")


def entropy(n: int) -> Program:
    """Softmax of one row, and its entropy, whose terms have no parts until both sums are known."""
    g = Graph("entropy")
    (points,) = g.axes(n=n)
    x = g.input("X", (points,), "f32")
    weights = exp(x - reduce("max", x, over=points))
    p = weights * (1.0 / reduce("sum", weights, over=points))
    g.output("P", p, "f32", (points,))
    g.output("H", -reduce("sum", p * log(p + 1e-30), over=points), "f32", ())
    return inhabited(g.program())


def test_what_has_no_parts_together_has_them_one_after_the_other() -> None:
    program = entropy(1 << 20)
    counts = [name for name in residences(program, HARDWARE["sms"]) if name.startswith(PARTS)]
    assert counts
    kernels = kernels_of(program, HARDWARE, "fma", counts[0])
    assert len(kernels) == 5  # of parts and of their merge twice, and what reads both sums


@needs_compiler
@draws(2, 6)
def test_they_are_right(count: int) -> None:
    program = entropy(1 << 16)
    space = BACKEND.space(program, HARDWARE)
    names = [name for name in space.decision("residence").domain if str(name).startswith(PARTS)]
    assert names
    inputs = random_inputs(program, np.random.default_rng(0))
    bounds = bounds_of(program, inputs)
    for name in names[:2]:
        pinned = space.pin({"residence": name})
        for number, row in enumerate(pinned.sample(np.random.default_rng(0), count)):
            kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
            assert not problems(program, kernel, inputs, bounds, (0, 15, 6, 9)[number % 4])
