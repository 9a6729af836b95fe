"""Tensors read at indices that tiles hold: beyond their ends, by bytes, of truth values."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, contract, reduce, uniform, where
from ir.builder import Operator, operator
from ir.inputs import random_inputs
from ir.targets.cuda.emulate import compiler
from tests.judging import bounds_of
from tests.operators.contract import Prepared, run_cpu, run_cuda

AROUND = uniform(-4, 40)  # of extents of 37 and less


@operator
def byte_index(g: Graph) -> None:
    """Indices above 127 in bytes."""
    i, j = g.axes(i=37, j=19)
    at = g.input("at", (i,), "u8", values=uniform(0, 255))
    g.output("Y", g.tensor("X", (256, 19), "f32")[at, j] + 1.0)


@operator
def truths(g: Graph) -> None:
    """Truth values, true outside."""
    i, j = g.axes(i=37, j=19)
    at = g.input("at", (i, j), "i32", values=AROUND)
    g.output("Y", where(g.tensor("X", (37, 19), "bool", fill=1)[at, j], 1.0, 2.0))


@operator
def beside_a_window(g: Graph) -> None:
    """Looked-up rows, of which neighbours are read."""
    i, j, t = g.axes(i=37, j=19, t=3)
    at = g.input("at", (i,), "i32", values=AROUND)
    g.output("Y", reduce("sum", g.tensor("X", (37, 19), "bf16", fill=2.5)[at, j + t - 1], t))


@operator
def both_dimensions(g: Graph) -> None:
    """A row's index that lanes share, and a column's of their own."""
    i, j = g.axes(i=37, j=29)
    a, b = g.input("a", (i,), "i32", values=AROUND), g.input("b", (j,), "i64", values=AROUND)
    g.output("Y", g.tensor("X", (37, 19), "i8", fill=-3)[a, b] + 1)


@operator
def an_operand(g: Graph) -> None:
    """Rows of a product's operand."""
    i, j, k = g.axes(i=17, j=29, k=33)
    at, x = g.input("at", (j,), "i32", values=AROUND), g.tensor("X", (37, 33), "e4m3", fill=0)
    g.output("Y", contract(g.input("A", (i, k), "e4m3"), x[at, k], over=k))


@operator
def one_of_three(g: Graph) -> None:
    """A tensor that others read beyond its ends too."""
    i, j = g.axes(i=20, j=19)
    at, x = g.input("at", (i,), "i32", values=AROUND), g.tensor("X", (20, 19), "f32", fill=1)
    g.output("Y", x[at, j] + x[i + 2, j - 3] + x[i - 1, j])


ALL = (byte_index, truths, beside_a_window, both_dimensions, an_operand, one_of_three)
every_program = pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)


def prepared(one: Operator) -> Prepared:
    program = one.build()
    inputs = random_inputs(program, np.random.default_rng(3))
    return Prepared(program, inputs, {}, bounds_of(program, inputs))


@every_program
def test_cpu_kernels_are_right(one: Operator) -> None:
    assert run_cpu(prepared(one), 8, 0) == []


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@every_program
def test_cuda_kernels_are_right(one: Operator) -> None:
    assert run_cuda(prepared(one), 1, 0) == []
