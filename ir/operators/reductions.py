"""Reductions of a matrix along its rows or columns."""

from __future__ import annotations

from ir import Graph, operator, reduce


def _reduced(g: Graph, kind: str, extents: tuple[int, int], rows: bool, dtype: str) -> None:
    m, n = g.axes(m=extents[0], n=extents[1])
    value = reduce(kind, g.input("X", (m, n), dtype), over=n if rows else m)
    g.output("Y", value, value.dtype, (m,) if rows else (n,))


@operator
def row_sum(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """Y[m] = sum of X[m, n] along n; in f32 for floats, i32 for ints."""
    _reduced(g, "sum", (m, n), True, dtype)


@operator
def row_max(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """Y[m] = the largest of X[m, n] along n."""
    _reduced(g, "max", (m, n), True, dtype)


@operator
def column_sum(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """Y[n] = sum of X[m, n] along m."""
    _reduced(g, "sum", (m, n), False, dtype)


@operator
def column_max(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """Y[n] = the largest of X[m, n] along m."""
    _reduced(g, "max", (m, n), False, dtype)
