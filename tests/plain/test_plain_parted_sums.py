"""Long sums of few results by parts: the same numbers, whatever is dealt out, and how often."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, contract, recur, reduce, rsqrt
from ir.inputs import drawn_inputs
from ir.oracle import evaluate
from ir.plain import parted_sums
from ir.plain.accesses import every
from ir.plain.build import plain_kernel
from ir.plain.code import Accumulate, PlainKernel, Spread
from ir.plain.meaning import meaning
from ir.plain.parted_sums import with_parted_sums
from ir.program import Program


def grid(x: int, y: int) -> Program:
    """A stencil along two axes whose steps each say how much they change, in all and by rows."""
    g = Graph("grid")
    t, i, j = g.axes(t=3, i=x, j=y)
    u = g.state(t, (i, j), g.input("U", (i, j), "f32"))
    change = 0.2 * (u.at(i=i - 1, fill=0.0) + u.at(j=j + 1, fill=0.0) - 2.0 * u)
    size = reduce("sum", change * change, over=(i, j))
    g.output("size", size, "f32", (t,))
    g.output("rows", reduce("sum", change, over=j), "f32", (t, i))
    g.output("end", recur(u, u + change * rsqrt(size + 1.0)), "f32", (i, j))
    return g.program()


def moments(n: int, kinds: int) -> Program:
    """Two sums of one number each, and one for each of few kinds, at every step."""
    g = Graph("moments")
    t, i, k = g.axes(t=2, i=n, k=kinds)
    w, x = g.input("W", (k, i), "f32"), g.input("X", (i,), "f32")
    s = g.state(t, (i,), x)
    ratio = reduce("sum", s, over=i) * rsqrt(reduce("sum", s * s, over=i) + 1.0)
    g.output("kinds", contract(w, s, over=i), "f32", (t, k))
    g.output("end", recur(s, 0.5 * s + ratio), "f32", (i,))
    return g.program()


def same(program: Program) -> PlainKernel:
    kernel = with_parted_sums(plain_kernel(program))
    inputs = drawn_inputs(program, 1)
    found = meaning(kernel, inputs)
    for name, exact in evaluate(program, inputs).items():
        np.testing.assert_allclose(found[name], exact, rtol=1e-4, atol=1e-4)
    return kernel


def longest(kernel: PlainKernel) -> int:
    """Points of the shared loops that write what is added up of parts."""
    found = [s for s in every(kernel.body) if isinstance(s, Spread)]
    return max(int(np.prod([n for _, n in s.variables], initial=1)) for s in found)


def test_one_number_of_a_grid_is_a_fold_of_all_threads() -> None:
    kernel = same(grid(16, 20))
    folds = [s for s in every(kernel.body) if isinstance(s, Accumulate)]
    assert [fold.extent for fold in folds] == [320]
    assert not any(array.name.startswith("parts") for array in kernel.arrays)


@pytest.mark.parametrize("shared", [4, 40])
@pytest.mark.parametrize(("x", "y"), [(16, 20), (13, 11), (1, 150)])
@pytest.mark.alike(2)
def test_parts_of_parts_come_to_the_same(
    x: int, y: int, shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few terms a part, so that there are several rounds, and parts of unequal length."""
    for name, value in {"TERMS": 3, "AGAIN": 2, "SHARED": shared, "LONG": 8}.items():
        monkeypatch.setattr(parted_sums, name, value)
    kernel = same(grid(x, y))
    parts = [array.size for array in kernel.arrays if array.name.startswith("parts")]
    assert parts[0] >= x * y // 6
    assert all(s.extent <= shared for s in every(kernel.body) if isinstance(s, Accumulate))


@pytest.mark.parametrize("kinds", [1, 3, 20])
def test_sums_of_several_results(kinds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TERMS": 5, "AGAIN": 3, "SHARED": 16, "LONGER": 150}.items():
        monkeypatch.setattr(parted_sums, name, value)
    same(moments(200, kinds))
    same(moments(131, kinds))


def test_what_lanes_can_share_is_left_to_them() -> None:
    """A product of a matrix and a vector has results enough."""
    kernel = plain_kernel(moments(256, 64))
    found = with_parted_sums(kernel)
    sums = [s for s in every(found.body) if isinstance(s, Spread) and s.variables]
    assert any(s.variables[-1][1] == 64 for s in sums)
    assert not any(array.name.startswith("parts") for array in found.arrays)


def test_columns_of_a_large_matrix_have_more_threads_than_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neighbours in a line are different threads', in each part; rows are left to lanes."""
    for name, value in {"TERMS": 20, "AGAIN": 4, "LARGE": 1 << 13}.items():
        monkeypatch.setattr(parted_sums, name, value)
    g = Graph("both")
    t, i, j = g.axes(t=2, i=150, j=90)
    k = g.input("K", (i, j), "f32")
    v = g.state(t, (j,), 1.0)
    u = contract(k, v, j) * 0.01
    g.output("v", recur(v, contract(k, u, i) * 0.01))
    kernel = same(g.program())
    (first, *_) = (array for array in kernel.arrays if array.name.startswith("parts"))
    assert first.size == 90 * 10
    dealt = [s for s in every(kernel.body) if isinstance(s, Spread) and len(s.variables) == 2]
    assert {s.variables[-1][1] for s in dealt} == {90}
