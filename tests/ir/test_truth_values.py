"""Truth values among numbers: counted where they are added, one or all of them at the ends."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, Tile, absolute, argmax, cumulative, evaluate, maximum, minimum, reduce, sin
from ir.ops.base import Array

MASK = np.array([[False, True, True], [False, False, False]])


def found(make: Tile, g: Graph) -> tuple[str, Array]:
    g.output("Y", make)
    return make.dtype, evaluate(g.program(), {"M": MASK, "N": MASK[::-1].copy()})["Y"]


@pytest.mark.parametrize(("kind", "dtype", "wanted"), [
    ("sum", "i32", [2, 0]), ("prod", "i32", [0, 0]), ("max", "bool", [True, False]),
    ("min", "bool", [False, False]),
])  # fmt: skip
def test_reduced(kind: str, dtype: str, wanted: list[int]) -> None:
    g = Graph("reduced")
    i, j = g.axes(i=2, j=3)
    got, values = found(reduce(kind, g.input("M", (i, j), "bool"), over=j), g)
    assert got == dtype
    assert values.tolist() == wanted


def test_added_and_chosen() -> None:
    g = Graph("added")
    i, j = g.axes(i=2, j=3)
    m, n = g.input("M", (i, j), "bool"), g.input("N", (i, j), "bool")
    either, both = maximum(m, n), minimum(m, n)
    assert either.dtype == both.dtype == "bool"
    count = (m + n) * 10 + absolute(-m)
    assert count.dtype == "i32"
    g.output("either", either)
    g.output("both", both)
    g.output("count", count)
    g.output("less", m < n)
    other = MASK[::-1].copy()
    values = evaluate(g.program(), {"M": MASK, "N": other})
    assert (values["either"] == (MASK | other)).all()
    assert (values["both"] == (MASK & other)).all()
    assert (values["less"] == (~MASK & other)).all()
    assert (values["count"] == (MASK + other.astype(int)) * 10 + MASK).all()


def test_running_and_first() -> None:
    g = Graph("running")
    i, j = g.axes(i=2, j=3)
    m = g.input("M", (i, j), "bool")
    g.output("count", cumulative("sum", m, j))
    g.output("any", cumulative("max", m, j), "bool")
    g.output("first", argmax(m, j))
    values = evaluate(g.program(), {"M": MASK})
    assert values["count"].tolist() == [[0, 1, 2], [0, 0, 0]]
    assert values["any"].tolist() == [[False, True, True], [False, False, False]]
    assert values["first"].tolist() == [1, 0]


def test_functions_of_floats() -> None:
    """numpy has them of bytes in 16 bits."""
    g = Graph("sine")
    i, j = g.axes(i=2, j=3)
    _, values = found(sin(g.input("M", (i, j), "bool")), g)
    assert values.dtype == np.float64
    np.testing.assert_allclose(values, np.sin(MASK.astype(np.float64)), rtol=1e-15)
