"""Reads at indices that tiles hold, some of them outside: what is there is the fill, everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ir import Graph, operator, uniform, where
from ir.ops.base import Array
from tests.emulator.emulate import compiler
from tests.operators.contract import Case, Inputs, Reference, check_cpu, check_cuda, check_meaning


@operator
def beside(g: Graph, m: int, n: int, rows: int, dtype: str) -> None:
    """Y[i, j] = X[index[i] + j - 2, j], 3 outside; the affine part leaves X as well."""
    i, j = g.axes(i=m, j=n)
    index = g.input("index", (i,), "i32", uniform(-4, rows + 3))
    x = g.tensor("X", (rows, n), dtype, fill=1 if dtype == "bool" else 3)
    value = x[index + g.iota(j) - 2, j]
    g.output("Y", where(value, 5.0, -1.0) if dtype == "bool" else value, dims=(i, j))


@operator
def scattered(g: Graph, m: int, n: int, rows: int, dtype: str) -> None:
    """Y[i, j] = X[row[i], column[j] ], plus X at [row[i], i - 1]; 3 outside."""
    i, j = g.axes(i=m, j=n)
    row = g.input("row", (i,), "i32", uniform(-2, rows + 1))
    column = g.input("column", (j,), "i32", uniform(-3, n + 2))
    x = g.tensor("X", (rows, n), dtype, fill=3)
    g.output("Y", x[row, column] + x[row, i - 1], "f32", (i, j))


@operator
def pointed(g: Graph, m: int, n: int, rows: int, dtype: str) -> None:
    """Y[i, j] = X[row[i], column[i], j] of indices that are all inside."""
    i, j = g.axes(i=m, j=n)
    row = g.input("row", (i,), "i32")
    column = g.input("column", (i,), "i32")
    g.output("Y", g.tensor("X", (rows, 3, n), dtype)[row, column, j], dims=(i, j))


@operator
def decoded(g: Graph, m: int, n: int, rows: int, dtype: str) -> None:
    """Y[i, j] = book[X[i, j]] of a book of 256."""
    i, j = g.axes(i=m, j=n)
    code = g.input("X", (i, j), "u8", uniform(0, 255))
    g.output("Y", g.tensor("book", (256,), dtype, fill=3 if rows else None)[code], dims=(i, j))


def _at(x: Array, row: int, column: int, fill: float) -> Any:
    inside = 0 <= row < x.shape[0] and 0 <= column < x.shape[1]
    return x[row, column] if inside else fill


def _beside(x: Inputs, m: int, n: int, dtype: str, **_: object) -> Array:
    found = [[_at(x["X"], x["index"][i] + j - 2, j, 3) for j in range(n)] for i in range(m)]
    return np.where(found, 5.0, -1.0) if dtype == "bool" else np.array(found)


def _scattered(x: Inputs, m: int, n: int, **_: object) -> Array:
    rows, columns = x["row"], x["column"]
    first = [[_at(x["X"], rows[i], columns[j], 3) for j in range(n)] for i in range(m)]
    second = [[_at(x["X"], rows[i], i - 1, 3)] for i in range(m)]
    return np.asarray(np.array(first, np.float64) + np.array(second, np.float64))


def _pointed(x: Inputs, **_: object) -> Array:
    return x["X"][x["row"], x["column"]]


def _decoded(x: Inputs, **_: object) -> Array:
    return x["book"][x["X"]]


_HERE = f"{__file__}:"
_SIZES = {"m": 21, "n": 37, "rows": 6}
_OF: dict[str, Reference] = {
    "beside": _beside,
    "scattered": _scattered,
    "pointed": _pointed,
    "decoded": _decoded,
}
CASES = [
    Case(f"{_HERE}{name}", _SIZES | {"dtype": dtype}, _OF[name])
    for name, dtypes in (
        ("beside", ("f32", "bf16", "f16", "e4m3", "i8", "u8", "i32", "bool")),
        ("scattered", ("f32", "bf16", "i8")),
        ("pointed", ("f32", "bool", "i8")),
        ("decoded", ("bf16",)),
    )
    for dtype in dtypes
]
NAMES = [f"{case.operator.rpartition(':')[2]}-{case.arguments['dtype']}" for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
@pytest.mark.alike(2)
def test_on_the_cpu(case: Case) -> None:
    check_meaning(case)
    check_cpu(case, 6)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("case", CASES, ids=NAMES)
@pytest.mark.alike(2)
def test_on_cuda(case: Case) -> None:
    check_cuda(case)
