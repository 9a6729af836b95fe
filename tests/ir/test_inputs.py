"""Random inputs: many numbers are drawn by threads, and are the same in every run."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ir import Graph, load_operator, operator, top, where
from ir.dtypes import to_float
from ir.inputs import random_inputs


@pytest.mark.parametrize("dtype", ["f32", "bf16", "e4m3"])
def test_many_numbers_are_normal_and_the_same_again(dtype: str) -> None:
    program = load_operator("softmax").build(m=700, n=1500, dtype=dtype)
    (first,), (again,), (other,) = (
        random_inputs(program, np.random.default_rng(seed)).values() for seed in (5, 5, 6)
    )
    assert first.shape == (700, 1500)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    values = to_float(first, dtype).reshape(-1)
    assert abs(values.mean()) < 0.01
    assert abs(values.std() - 1) < 0.01
    if dtype == "f32":
        assert len(np.unique(values)) > 0.9 * values.size


@operator
def blocks_of(g: Graph, n: int, rows: int) -> None:
    """Rows at 8 * B + A + j - 3 of a table, which arithmetic on indices must not leave."""
    axis, inner = g.axes(n=n, j=4)
    table = g.tensor("T", (rows,), "f32")
    block, more = g.input("B", (axis,), "i32"), g.input("A", (axis,), "i32")
    g.output("Y", table[block * 8 + more - 3 + g.iota(inner)])


@pytest.mark.parametrize("rows", [12, 100, 4099])
def test_arithmetic_on_indices_stays_inside(rows: int) -> None:
    program = blocks_of.build(n=500, rows=rows)
    inputs = random_inputs(program, np.random.default_rng(1))
    place = inputs["B"] * 8 + inputs["A"] - 3
    assert place.min() >= 0
    assert place.max() + 3 < rows
    assert rows < 100 or len(np.unique(place)) > 20


def test_an_index_that_floats_decide_is_left_alone() -> None:
    g = Graph("op")
    n, k = g.axes(n=9, k=3)
    ranking = where(g.input("M", (n,), "i32") > 0, g.input("X", (n,), "f32"), -math.inf)
    table = g.tensor("T", (9,), "f32")
    g.output("Y", table[top(ranking, n, k)[1]])
    assert set(random_inputs(g.program(), np.random.default_rng(1))) == {"M", "X", "T"}
