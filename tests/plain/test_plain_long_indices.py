"""Indices of 32 bits in 64: the same elements, at places that are known to grow evenly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ir import Graph, argmax, argmin, cumulative, uniform
from ir.inputs import drawn_inputs
from ir.plain.build import plain_kernel
from ir.plain.long_indices import with_long_indices
from ir.plain.meaning import meaning
from ir.program import Program
from ir.target import get_backend
from ir.targets.cpu.plain_points import lane_axis
from tests.judging import bounds_of
from tests.targets.test_meaning_of_numbers import run_cpu

BACKEND = get_backend("cpu")
HOST = BACKEND.hardware(2)


def pooled() -> Program:
    """Where the largest of 2 x 3 is: one axis counts both."""
    g = Graph("pooled")
    h, w, k = g.axes(h=5, w=37, k=6)
    x = g.tensor("x", (10, 111), "f32")
    seen = x[h * 2 + g.coordinate(k) // 3, w * 3 + g.coordinate(k) % 3]
    g.output("at", argmax(seen, k), "i32", (h, w))
    return g.program()


def looked_up() -> Program:
    """Beside a place that a tensor tells, of a coordinate that is read more than once."""
    g = Graph("looked_up")
    m, n = g.axes(m=40, n=9)
    x = g.tensor("x", (200,), "f32")
    at = g.input("at", (n,), "i32", values=uniform(0, 20))
    i = g.iota(m)
    made = x[g.coordinate(m) * 4 - i + i + at] * (i - 3)
    g.output("y", argmin(made, n), "i32", (m,))
    return g.program()


def filled() -> Program:
    """Outside of the tensor as well, by a fill."""
    g = Graph("filled")
    m, n = g.axes(m=33, n=8)
    x = g.tensor("x", (40,), "f32", fill=2.0)
    g.output(
        "y", cumulative("sum", x[g.coordinate(m) * 3 - 20 + g.coordinate(n) // 2], n), "f32", (m, n)
    )
    return g.program()


PROGRAMS = (pooled(), looked_up(), filled())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_the_same_elements(program: Program) -> None:
    kernel, inputs = plain_kernel(program), drawn_inputs(program, 1)
    found, wanted = meaning(with_long_indices(kernel), inputs), meaning(kernel, inputs)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)


def test_points_of_windows_run_beside_each_other() -> None:
    kernel = plain_kernel(pooled())
    assert lane_axis(kernel, 16) is None
    axis = lane_axis(with_long_indices(kernel), 16)
    assert axis is not None
    assert axis.name.startswith("i_w")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_every_seed_on_a_cpu(program: Program, code_cache: Path) -> None:
    inputs, space = drawn_inputs(program, 1), BACKEND.space(program, HOST)
    wanted = bounds_of(program, inputs)
    for row in space.seed_rows(np.random.default_rng(0)):
        kernel = BACKEND.lower(program, space.schedule(row), HOST)
        (found,) = run_cpu(kernel, [inputs], code_cache)
        assert [v.detail for n, b in wanted.items() if not (v := b.judge(found[n])).right] == []
