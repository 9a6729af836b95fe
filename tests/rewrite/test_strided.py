"""Sums along an axis that others read at every second point, or by halves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir import Graph, cast, maximum, reduce, rsqrt
from ir.inputs import random_inputs
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite.strided import NAME, rewritten
from ir.target import get_backend
from ir.targets.cuda.rows.hardware import known_hardware
from tests.emulator.emulate import compiler
from tests.targets.test_unforeseen import emulated


def quantised(dtype: str, m: int = 5, n: int = 24) -> Program:
    """Rows by their own extremes, in bits."""
    g = Graph("quantised")
    i, j = g.axes(i=m, j=n)
    x = cast(g.input("X", (i, j), "bf16"), "f32")
    least, most = reduce("min", x, over=j), reduce("max", x, over=j)
    scale = maximum(most - least, 1e-5) / (15.0 if dtype != "i2" else 3.0)
    g.output("Q", (x - least) / scale - (2.0 if dtype == "i2" else 0.0), dtype, (i, j))
    g.output("S", scale, "f32", (i,))
    return g.program()


def turned(halves: bool, kind: str, m: int = 4, n: int = 16, kept: bool = False) -> Program:
    """Rows by what their numbers are together, of which pairs or halves are turned."""
    g = Graph("turned")
    i, j, p = g.axes(i=m, j=n, p=n // 2)
    x = g.tensor("X", (m, n), "f32")
    square = x[i, j] * x[i, j]
    scale = rsqrt(reduce(kind, square, over=j) + 1.0)
    first, second = (x[i, p], x[i, p + n // 2]) if halves else (x[i, 2 * p], x[i, 2 * p + 1])
    turn = g.input("turn", (p,), "f32")
    g.output("Y", (first * turn - second) * scale, "f32", (i, p))
    if kept:
        g.output("Z", square, "f32", (i, j))
    return g.program()


def judged(program: Program) -> Program:
    """The program without sums along the axis, which gives the same numbers."""
    found = rewritten(program)
    assert found is not None
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted, others = evaluate(program, inputs), evaluate(found[1], inputs)
    for name, value in wanted.items():
        np.testing.assert_allclose(others[name], value, rtol=1e-12, atol=1e-12, err_msg=name)
    return found[1]


@pytest.mark.parametrize("dtype", ["u4", "i4", "e2m1", "i2"])
def test_rows_that_leave_in_bits_are_summed_byte_by_byte(dtype: str) -> None:
    found = judged(quantised(dtype))
    assert {*found.axes} == {"i", "j_bytes"}


@settings(max_examples=30)
@given(st.booleans(), st.sampled_from(("sum", "max", "min", "prod")), st.integers(1, 9))
def test_rows_whose_pairs_are_turned_are_summed_along_pairs(
    halves: bool, kind: str, pairs: int
) -> None:
    assert {*judged(turned(halves, kind, n=2 * pairs)).axes} == {"i", "p"}


def test_what_something_else_goes_along_stays() -> None:
    assert rewritten(turned(False, "sum", kept=True)) is None


def test_sums_that_are_wider_than_what_they_add_stay() -> None:
    """Two bytes together may be more than one holds."""
    g = Graph("narrow")
    i, p, j = g.axes(i=4, p=4, j=8)
    x = g.tensor("X", (4, 8), "i8")
    g.output("Y", x[i, 2 * p] + reduce("sum", x[i, j], over=j), "i32", (i, p))
    assert rewritten(g.program()) is None


def test_rows_are_quantised_to_halves_of_bytes_by_one_kernel() -> None:
    """Two read the row twice, and a third packed the scales: 0.18 of what memory allows."""
    backend, card = get_backend("cuda"), known_hardware("h200")
    space = backend.space(quantised("u4", 8192, 8192), card)
    assert any(str(name).startswith(NAME) for name in space.decision("form").domain)
    rows = space.seed_rows(np.random.default_rng(0))
    rows = rows[space.legal(rows)]
    assert space.features is not None
    names, table = space.features(space.columns(rows))
    best = space.schedule(rows[table[:, names.index("total.estimate")].argmin()])
    assert str(best["form"]).startswith(NAME)
    assert table[:, names.index("total.estimate")].min() < 0.5


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_kernels_of_rows_in_bits_are_right() -> None:
    program, card = quantised("u4", 9, 64), known_hardware("h200")
    space = get_backend("cuda").space(program, card)
    for schedule in [space.schedule(row) for row in space.sample(np.random.default_rng(1), 6)]:
        assert emulated(program, schedule, card) == []
