"""Reductions of a matrix along its rows or columns, and of tensors over any of their axes."""

from __future__ import annotations

import math

from ir import Graph, UsageError, absolute, operator, reduce, sqrt
from ir.values import uniform

_MATRIX: dict[str, dict[str, object]] = {
    "small": {"m": 13, "n": 70},
    "large": {"m": 16384, "n": 8192},
}
EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "row_sum": _MATRIX,
    "row_max": _MATRIX,
    "row_statistics": _MATRIX,
    "row_norm": _MATRIX,
    "column_sum": _MATRIX,
    "column_max": _MATRIX,
    "reduction": {
        "small": {"a": 5, "b": 6, "c": 17, "over": "ac"},
        "image": {"a": 256, "b": 3136, "c": 256, "over": "ab", "kind": "mean", "dtype": "bf16"},
        "whole": {"a": 256, "b": 256, "c": 1024, "over": "abc", "kind": "norm"},
    },
}
_KINDS = ("sum", "prod", "max", "min", "mean", "variance", "norm")


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


@operator
def row_statistics(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """mean[m] = the mean of X[m, n] along n, variance[m] = the mean of (X - mean)^2."""
    mm, nn = g.axes(m=m, n=n)
    x = g.input("X", (mm, nn), dtype)
    mean = reduce("sum", x, over=nn) * (1.0 / n)
    g.output("mean", mean, "f32", (mm,))
    g.output("variance", reduce("sum", (x - mean) ** 2, over=nn) * (1.0 / n), "f32", (mm,))


@operator
def row_norm(g: Graph, m: int, n: int, order: int = 2, dtype: str = "f32") -> None:
    """Y[m] = sqrt(sum of X[m, n]^2), along n; of order 1 the sum of |X|, of order 0 the largest."""
    mm, nn = g.axes(m=m, n=n)
    x = g.input("X", (mm, nn), dtype)
    if order not in (0, 1, 2):
        raise UsageError(f"row_norm: order={order}; it is 1, 2, or 0 for the largest")
    size = absolute(x) if order < 2 else x * x
    value = reduce("sum" if order else "max", size, over=nn)
    g.output("Y", sqrt(value) if order == 2 else value, "f32", (mm,))


@operator
def reduction(
    g: Graph, a: int, b: int, c: int, kind: str = "sum", over: str = "c", dtype: str = "f32"
) -> None:
    """Y = the sum, prod, max, min, mean, variance or norm of X[a, b, c] over some of its axes.

    `over` names them, as in "ac"; what is left of "abc" are the axes of Y.
    """
    if kind not in _KINDS:
        raise UsageError(f"reduction: kind={kind!r}: known are {', '.join(_KINDS)}")
    if not over or set(over) - set("abc") or len(set(over)) < len(over):
        raise UsageError(f"reduction: over={over!r}; it is one or more of a, b and c, once each")
    axes = {axis.name: axis for axis in g.axes(a=a, b=b, c=c)}
    joint, kept = (tuple(axes[n] for n in "abc" if (n in over) is said) for said in (True, False))
    share = 1.0 / math.prod(axis.extent for axis in joint)
    x = g.input("X", tuple(axes.values()), dtype, uniform(-2, 2) if kind == "prod" else None)
    if kind == "norm":
        value = sqrt(reduce("sum", x * x, over=joint))
    elif kind == "mean":
        value = reduce("sum", x, over=joint) * share
    elif kind == "variance":
        mean = reduce("sum", x, over=joint) * share
        value = reduce("sum", (x - mean) ** 2, over=joint) * share
    else:
        value = reduce(kind, x, over=joint)
    g.output("Y", value, value.dtype, kept)
