"""Axes along which a program can be computed a stretch at a time, and what it is of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ir import Graph, iota, reduce
from ir.inputs import random_inputs
from ir.oracle import evaluate
from ir.program import Program
from ir.registry import load_operator
from ir.rows import row_axes, stretch, tensors_along

M, N = 6, 4
Body = Callable[[Graph, Any, Any], None]


def made(body: Body) -> Program:
    g = Graph("rows")
    body(g, *g.axes(m=M, n=N))
    return g.program()


def normed(g: Graph, m: Any, n: Any) -> None:
    x, w = g.input("X", (m, n), "f32"), g.input("W", (n,), "f32")
    g.output("Y", reduce("sum", x * w, n) * x, dims=(m, n))


def summed(g: Graph, m: Any, n: Any) -> None:
    g.output("Y", reduce("sum", g.input("X", (m, n), "f32"), m))


def counted(g: Graph, m: Any, n: Any) -> None:
    g.output("Y", g.input("X", (m, n), "f32") * iota(g, m))


def inner(g: Graph, m: Any, n: Any) -> None:
    g.output("Y", g.input("X", (n, m), "f32") * 2.0, dims=(m, n))


def written_inside(g: Graph, m: Any, n: Any) -> None:
    g.output("Y", g.input("X", (m, n), "f32") * 2.0, dims=(n, m))


def shifted(g: Graph, m: Any, n: Any) -> None:
    g.output("Y", g.tensor("X", (M + 1, N), "f32")[m + 1, n] * 2.0, dims=(m, n))


def read_elsewhere_too(g: Graph, m: Any, n: Any) -> None:
    x = g.tensor("X", (M, N), "f32")
    g.output("Y", x[m, n] * x[0, n], dims=(m, n))


def not_in_all_outputs(g: Graph, m: Any, n: Any) -> None:
    x = g.input("X", (m, n), "f32")
    g.output("Y", x * 2.0, dims=(m, n))
    g.output("Z", g.input("W", (n,), "f32") * 2.0)


@pytest.mark.parametrize(
    ("body", "axes"),
    [
        (normed, ("m",)), (summed, ()), (counted, ()), (inner, ()),
        (written_inside, ()), (shifted, ()), (read_elsewhere_too, ()), (not_in_all_outputs, ()),
    ],
    ids=lambda value: getattr(value, "__name__", "axes"),
)  # fmt: skip
def test_rows_are_read_and_written_at_their_own_coordinate(
    body: Body, axes: tuple[str, ...]
) -> None:
    assert row_axes(made(body)) == axes


@pytest.mark.parametrize(
    ("name", "arguments", "axis"),
    [
        ("fft", {"m": 6, "n": 8}, "m"),
        ("hadamard_steps", {"m": 6, "n": 8}, "m"),
        ("softmax", {"m": 6, "n": 5}, "m"),
        ("attention", {"b": 3, "heads": 2, "sq": 4, "d": 8}, "b"),
        ("gla", {"b": 2, "t": 5, "heads": 2, "d": 4}, "b"),
        ("retention_chunked", {"b": 2, "t": 8, "heads": 2, "d": 4, "chunk": 4}, "b"),
    ],
)
def test_stretches_are_what_the_whole_is_there(
    name: str, arguments: dict[str, Any], axis: str
) -> None:
    program = load_operator(name).build(**arguments)
    assert axis in row_axes(program)
    inputs = random_inputs(program, np.random.default_rng(0))
    want, along = evaluate(program, inputs), tensors_along(program, axis)
    extent = program.axes[axis]
    count = extent // 2 if extent % 2 == 0 else 1
    part = stretch(program, axis, count)

    def cut(name: str, array: Any, start: int) -> Any:
        place = next(place for place, size in enumerate(array.shape) if size == extent)
        where = (slice(None),) * place + (slice(start, start + count),)
        return array[where] if name in along else array

    for start in range(0, extent, count):
        own = {name: cut(name, array, start) for name, array in inputs.items()}
        for output, found in evaluate(part, own).items():
            np.testing.assert_allclose(found, cut(output, want[output], start), rtol=1e-9)


def test_products_have_rows_of_one_operand() -> None:
    program = load_operator("matmul").build(m=4, n=6, k=5)
    assert row_axes(program) == ("m",)
    assert tensors_along(program, "m") == ("A", "C")
    assert row_axes(load_operator("scatter").build(m=5, d=3, rows=4)) == ()
