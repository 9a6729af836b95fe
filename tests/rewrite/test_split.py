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
    ("matmul", {"m": 5, "n": 7, "k": 13, "dtype": "i8"}, "k"),
    ("column_max", {"m": 13, "n": 4, "dtype": "i8"}, "m"),
    ("attention", {"b": 1, "heads": 2, "sq": 7, "sk": 11, "d": 8, "dtype": "bf16"}, "sk"),
    ("attention", {"b": 1, "heads": 2, "sq": 13, "d": 8, "window": 3, "causal": True}, "sk"),
    ("conv2d", {"n": 1, "h": 5, "w": 6, "c": 7, "f": 3, "padding": 1}, "c"),
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
@pytest.mark.parametrize("parts", [2, 3, 5])
def test_operators(name: str, arguments: dict[str, object], axis: str, parts: int) -> None:
    same(load_operator(name).build(**arguments), axis, parts)


@pytest.mark.parametrize("parts", [2, 4, 5, 6, 7])
def test_variances_merge(parts: int) -> None:
    same(variance(), "k", parts)


def test_there_must_be_as_many_points_as_parts() -> None:
    with pytest.raises(UsageError, match="extent 12 has no 13 parts"):
        split(load_operator("matmul").build(m=2, n=2, k=12), "k", 13)


def test_a_stored_axis_is_not_split() -> None:
    with pytest.raises(UsageError, match="stored"):
        split(load_operator("softmax").build(m=2, n=12), "n", 2)


def test_an_axis_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="no axis q; its axes are m, n, k"):
        split(load_operator("matmul").build(m=2, n=2, k=12), "q", 2)


def test_a_carried_axis_is_split_before() -> None:
    program = stream(load_operator("attention").build(b=1, heads=1, sq=4, d=2))
    with pytest.raises(UsageError, match="split it before streaming"):
        split(program, "sk", 2)
