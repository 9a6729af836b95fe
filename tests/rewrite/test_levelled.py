"""Sums of very many terms along several axes, as sums of sums."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ir import Graph, contract, reduce
from ir.inputs import random_inputs
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite import levelled as module
from ir.rewrite.levelled import levelled


def whole(a: int, b: int, c: int, kind: str = "sum", dtype: str = "f32") -> Program:
    """All squares of a tensor."""
    g = Graph("whole")
    i, j, k = g.axes(a=a, b=b, c=c)
    x = g.input("X", (i, j, k), dtype)
    g.output("S", reduce(kind, x * x, over=(i, j, k)))
    return g.program()


def rows(a: int, b: int, c: int) -> Program:
    """A product of each two slices, which is no product of matrices."""
    g = Graph("rows")
    i, j, k = g.axes(a=a, b=b, c=c)
    x, y = g.input("X", (i, j, k), "f32"), g.input("Y", (i, j, k), "f32")
    g.output("S", contract(x, y, over=(j, k)))
    return g.program()


def matrices(a: int, b: int, c: int) -> Program:
    g = Graph("matrices")
    i, n, j, k = g.axes(a=a, n=4, b=b, c=c)
    x, y = g.input("X", (i, j, k), "f32"), g.input("Y", (n, j, k), "f32")
    g.output("S", contract(x, y, over=(j, k)))
    return g.program()


def sums(program: Program) -> list[tuple[str, ...]]:
    return [node.op.over for node in program.nodes if hasattr(node.op, "over")]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if eight terms were many."""
    monkeypatch.setattr(module, "MANY", 8)
    monkeypatch.setattr(module, "BESIDE", 4)
    levelled.cache_clear()
    yield
    levelled.cache_clear()


@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        (whole(521, 1021, 509), [("b", "c"), ("a",)]),
        (whole(7, 8191, 8191), [("c",), ("a", "b")]),
        (whole(1, 65521, 65521), [("a", "c"), ("b",)]),
        (rows(3, 16381, 16381), [("c",), ("b",)]),
        (whole(512, 512, 256), [("a", "b", "c")]),
        (whole(1, 1, 1 << 28), [("a", "b", "c")]),
        (whole(521, 1021, 509, "max"), [("a", "b", "c")]),
        (whole(521, 1021, 509, dtype="f64"), [("a", "b", "c")]),
        (matrices(8, 16381, 16381), [("b", "c")]),
    ],
)
def test_sums_of_many_terms_have_levels(program: Program, wanted: list[tuple[str, ...]]) -> None:
    assert sums(levelled(program)) == wanted


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("program", [whole(3, 5, 7), whole(9, 9, 9), rows(2, 5, 3)])
def test_levels_are_the_same_sum(program: Program) -> None:
    made = levelled(program)
    assert len(sums(made)) > 1
    inputs = random_inputs(program, np.random.default_rng(3))
    wanted, had = evaluate(program, inputs), evaluate(made, inputs)
    np.testing.assert_allclose(had["S"], wanted["S"], 1e-12)
