"""Splitting a reduced axis: parts and merges mean the same as the whole, in float64."""

from __future__ import annotations

import numpy as np
import pytest

from ir.builder import Graph, reduce
from ir.errors import UsageError
from ir.oracle import evaluate, random_inputs
from ir.program import Program
from ir.registry import load_operator
from ir.rewrite.split import split
from ir.rewrite.streaming import stream

CASES: tuple[tuple[str, dict[str, object], str], ...] = (
    ("matmul", {"m": 5, "n": 7, "k": 12}, "k"),
    ("row_sum", {"m": 5, "n": 36}, "n"),
    ("column_max", {"m": 36, "n": 4}, "m"),
    ("gaussian", {"n": 12, "d": 3}, "j"),
    ("attention", {"b": 1, "heads": 2, "sq": 12, "d": 8}, "sk"),
    ("attention", {"b": 1, "heads": 2, "sq": 12, "d": 8, "causal": True}, "sk"),
    (
        "attention",
        {"b": 1, "heads": 4, "kv_heads": 2, "sq": 24, "d": 8, "window": 5, "causal": True},
        "sk",
    ),
)


def variance() -> Program:
    graph = Graph("variance")
    i, k = graph.axes(i=3, k=12)
    x = graph.input("x", (i, k), "f64")
    mean = reduce("sum", x, k) / 12.0
    graph.output("out", reduce("sum", (x - mean) * (x - mean), k))
    return graph.program()


def same(program: Program, axis: str, parts: int) -> None:
    inputs = random_inputs(program, np.random.default_rng(0))
    plain = evaluate(program, inputs)
    parted = split(program, axis, parts)
    for found in (
        evaluate(parted, inputs),
        evaluate(stream(parted, frozenset({f"{axis}_part"})), inputs, block=2),
    ):
        for name, expected in plain.items():
            np.testing.assert_allclose(found[name], expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("name", "arguments", "axis"), CASES)
@pytest.mark.parametrize("parts", [2, 3])
def test_operators(name: str, arguments: dict[str, object], axis: str, parts: int) -> None:
    same(load_operator(name).build(**arguments), axis, parts)


@pytest.mark.parametrize("parts", [2, 4, 6])
def test_variances_merge(parts: int) -> None:
    same(variance(), "k", parts)


def test_parts_must_be_equal() -> None:
    with pytest.raises(UsageError, match="no 5 equal parts"):
        split(load_operator("matmul").build(m=2, n=2, k=12), "k", 5)


def test_a_stored_axis_is_not_split() -> None:
    with pytest.raises(UsageError, match="stored"):
        split(load_operator("softmax").build(m=2, n=12), "n", 2)
