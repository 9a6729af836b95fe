"""Running values along an axis: sums, products, extremes, linear recurrences, statistics."""

from __future__ import annotations

from collections.abc import Sequence

from ir import Graph, Tile, UsageError, cumulative, exp, fold, log, maximum, operator, recurrence
from ir import scan as scanned
from ir.dtypes import is_float
from ir.values import uniform

_MATRIX: dict[str, dict[str, object]] = {
    "small": {"m": 7, "n": 53},
    "large": {"m": 16384, "n": 8192},
}
EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "scan": {
        "small": {"m": 7, "n": 53, "exclusive": True},
        "large": {"m": 16384, "n": 8192},
        "one-row": {"m": 1, "n": 67108864},
        "routing-offsets": {"m": 32, "n": 65536, "exclusive": True, "dtype": "i32"},
    },
    "column_scan": _MATRIX,
    "linear_recurrence": {
        "small": {"b": 2, "t": 37, "d": 5},
        "griffin-2b": {"b": 8, "t": 2048, "d": 2560, "dtype": "bf16"},
    },
    "running_statistics": _MATRIX,
    "welford": _MATRIX,
    "logsumexp": {
        "small": {"m": 7, "n": 53},
        "llama3-70b": {"m": 4096, "n": 128256, "dtype": "bf16"},
    },
    "logcumsumexp": _MATRIX,
}
_KINDS = ("sum", "prod", "max", "min")
_IDENTITY = {"sum": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}


def _refuse_kind(what: str, kind: str) -> None:
    if kind not in _KINDS:
        raise UsageError(f"{what}: kind={kind!r}: known are {', '.join(_KINDS)}")


@operator
def scan(
    g: Graph, m: int, n: int, kind: str = "sum", exclusive: bool = False, backward: bool = False,
    dtype: str = "f32",
) -> None:  # fmt: skip
    """Y[m, n] = the sum (prod, max, min) of X[m, 0..n]; `backward`: of X[m, n..].

    `exclusive` leaves element n itself out: what is left of nothing is 0, 1 or an infinity, and a
    maximum or minimum of integers is therefore always inclusive.
    """
    _refuse_kind("scan", kind)
    mm, nn = g.axes(m=m, n=n)
    x = g.input("X", (mm, nn), dtype, uniform(-2, 2) if kind == "prod" else None)
    y = cumulative(kind, x, nn, backward=backward)
    if exclusive and kind in ("max", "min") and not is_float(dtype):
        raise UsageError(f"scan: kind={kind!r} of {dtype} has no value for nothing; not exclusive")
    if exclusive:
        y = y.at(n=nn + 1 if backward else nn - 1, fill=_IDENTITY[kind])
    g.output("Y", y, dtype if is_float(dtype) else y.dtype, (mm, nn))


@operator
def column_scan(g: Graph, m: int, n: int, kind: str = "sum", dtype: str = "f32") -> None:
    """Y[m, n] = the sum (prod, max, min) of X[0..m, n]: along the slow axis of a matrix."""
    _refuse_kind("column_scan", kind)
    mm, nn = g.axes(m=m, n=n)
    x = g.input("X", (mm, nn), dtype, uniform(-2, 2) if kind == "prod" else None)
    g.output("Y", cumulative(kind, x, mm), dims=(mm, nn))


@operator
def linear_recurrence(g: Graph, b: int, t: int, d: int, dtype: str = "f32") -> None:
    """h[t] = a[t] h[t - 1] + x[t], from h = 0: the gated recurrence of many linear RNNs.

    a, x and h are (b, t, d); the state is kept in f32.
    """
    axes = bb, tt, dd = g.axes(b=b, t=t, d=d)
    a = g.input("a", axes, dtype, uniform(0, 1))
    g.output("h", recurrence(a, g.input("x", axes, dtype), tt), dtype, (bb, tt, dd))


def _joined(before: Sequence[Tile], after: Sequence[Tile]) -> tuple[Tile, Tile, Tile]:
    """Count, mean and sum of squared differences of two parts together (Chan et al., 1979)."""
    (n, mean, square), (m, other, more) = before, after
    count, apart = n + m, other - mean
    share = m / count
    return count, mean + apart * share, square + more + apart * apart * n * share


def _statistics(x: Tile) -> tuple[Tile, Tile, Tile]:
    """Those of single elements."""
    return x.graph.constant(1.0, "f32"), x, x.graph.constant(0.0, "f32")


@operator
def welford(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """mean[m] = the mean of X[m, n] along n, variance[m] = the mean of (X - mean)^2; in one pass.

    A fold of three states with a merge of its own: see `running_statistics` for each prefix.
    """
    mm, nn = g.axes(m=m, n=n)
    _, mean, square = fold(_joined, _statistics(g.input("X", (mm, nn), dtype)), nn)
    g.output("mean", mean, "f32", (mm,))
    g.output("variance", square * (1.0 / n), "f32", (mm,))


@operator
def running_statistics(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """mean[m, n] = the mean of X[m, 0..n], variance[m, n] = the mean of (X - mean)^2."""
    mm, nn = g.axes(m=m, n=n)
    count, mean, square = scanned(_joined, _statistics(g.input("X", (mm, nn), dtype)), nn)
    g.output("mean", mean, "f32", (mm, nn))
    g.output("variance", square / count, "f32", (mm, nn))


def _added(before: Sequence[Tile], after: Sequence[Tile]) -> tuple[Tile, Tile]:
    """A maximum, and the sum of exponentials beside it, of two parts together."""
    (top, total), (other, more) = before, after
    largest = maximum(top, other)
    return largest, total * exp(top - largest) + more * exp(other - largest)


@operator
def logsumexp(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """Y[m] = log of the sum of exp(X[m, n]) along n, as a fold of (maximum, sum beside it)."""
    mm, nn = g.axes(m=m, n=n)
    x = g.input("X", (mm, nn), dtype)
    largest, total = fold(_added, (x, g.constant(1.0, "f32")), nn)
    g.output("Y", largest + log(total), "f32", (mm,))


@operator
def logcumsumexp(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """Y[m, n] = log of the sum of exp(X[m, 0..n])."""
    mm, nn = g.axes(m=m, n=n)
    x = g.input("X", (mm, nn), dtype)
    largest, total = scanned(_added, (x, g.constant(1.0, "f32")), nn)
    g.output("Y", largest + log(total), "f32", (mm, nn))
