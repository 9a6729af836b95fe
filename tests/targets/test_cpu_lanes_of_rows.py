"""Lanes along rows of different length go as far as the longest of them."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.runtime.process import Worker
from ir import Graph, cast, indices, lengths, minimum, offsets, reduce, where
from ir.program import Program
from tests.few import draws
from tests.targets.test_cpu_routes import BACKEND, MACHINE, right, worker

__all__ = ["worker"]


def sparse(n: int = 61, total: int = 150, longest: int = 40) -> Program:
    """Rows of a sparse matrix, told by offsets, times a vector."""
    g = Graph("sparse")
    row, j = g.axes(n=n, j=longest)
    start = g.input("start", (g.axis("s", n + 1),), "i32", values=offsets(total))
    column = g.tensor("column", (total,), "i32", values=indices(97))
    value, x = g.tensor("value", (total,), "f32"), g.tensor("x", (97,), "f64")
    first, end = start.at(s=row), start.at(s=row + 1)
    at = minimum(first + g.iota(j), total - 1)
    term = cast(value[at], "f64") * x[column[at]]
    g.output("y", reduce("sum", where(first + g.iota(j) < end, term, 0.0), over=j), "f64", (row,))
    return g.program()


def kept(n: int = 61, longest: int = 70) -> Program:
    """Of columns as many points as each has, and of others those from a place on."""
    g = Graph("kept")
    j, column = g.axes(j=longest, n=n)
    x = g.input("X", (j, column), "f32")
    most = g.input("most", (column,), "i32", values=lengths(longest, 1))
    begin = g.input("begin", (column,), "i32", values=lengths(longest - 1, 1))
    here = g.iota(j)
    g.output("Y", reduce("sum", where(here < most, x, 0.0), over=j), "f32", (column,))
    g.output("Z", reduce("sum", where(here >= begin, x * x, 0.0), over=j), "f32", (column,))
    return g.program()


@pytest.mark.parametrize("program", [sparse(), kept()], ids=lambda p: p.name)
@draws(4, 16)
def test_they_are_right(program: Program, worker: Worker, count: int) -> None:
    right(program, BACKEND.space(program, MACHINE), count, worker)


def test_loops_end_with_the_longest_of_their_lanes() -> None:
    program = sparse()
    space = BACKEND.space(program, MACHINE).pin({"lane.s0": "n"})
    for row in space.sample(np.random.default_rng(0), 8):
        text = dict(BACKEND.lower(program, space.schedule(row), MACHINE).texts)["llvm"]
        assert "call i64 @llvm.vector.reduce.smax" in text
