"""Where the largest stand: argmax, the top of rows, sorting, nearest neighbours."""

from __future__ import annotations

from ir import Graph, UsageError, contract, operator, reduce, where
from ir import argmax as place_of_largest
from ir import argmin as place_of_smallest
from ir import top as topmost
from ir.values import probabilities

_MATRIX: dict[str, dict[str, object]] = {
    "small": {"m": 7, "n": 53},
    "llama3-70b vocabulary": {"m": 256, "n": 128256},
}
EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "argmax": _MATRIX,
    "argmin": _MATRIX,
    "top_k": {
        "small": {"m": 7, "n": 53, "k": 5},
        "tilelang example": {"m": 320, "n": 128, "k": 6},
        "sparse attention": {"m": 32768, "n": 65536, "k": 1024},
    },
    "sort_rows": {"small": {"m": 5, "n": 29}, "large": {"m": 4096, "n": 4096}},
    "top_k_mask": {
        "small": {"m": 7, "n": 53, "k": 5},
        "sampling, llama3-70b": {"m": 256, "n": 128256, "k": 50},
    },
    "nearest": {
        "small": {"n": 17, "m": 31, "d": 5, "k": 3},
        "small-expanded": {"n": 17, "m": 31, "d": 5, "k": 3, "expand": True},
        "search": {"n": 4096, "m": 16384, "d": 128, "k": 10, "expand": True},
        "keops": {"n": 10000, "m": 100000, "d": 3, "k": 10},
    },
}


@operator
def argmax(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """Y[m] = where the largest of X[m, n] stands along n: the first of equals, as i32."""
    mm, nn = g.axes(m=m, n=n)
    g.output("Y", place_of_largest(g.input("X", (mm, nn), dtype), nn), dims=(mm,))


@operator
def argmin(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """Y[m] = where the smallest of X[m, n] stands along n: the first of equals, as i32."""
    mm, nn = g.axes(m=m, n=n)
    g.output("Y", place_of_smallest(g.input("X", (mm, nn), dtype), nn), dims=(mm,))


@operator
def top_k(g: Graph, m: int, n: int, k: int, least: bool = False, dtype: str = "f32") -> None:
    """Y[m, k] = the k largest of X[m, n] in order, index[m, k] = where they stand.

    `least` takes the smallest. Of equals the first comes first.
    """
    if k > n:
        raise UsageError(f"top_k: k={k} of n={n} elements")
    mm, nn, kk = g.axes(m=m, n=n, k=k)
    values, index = topmost(g.input("X", (mm, nn), dtype), nn, kk, least=least)
    g.output("Y", values, dtype, (mm, kk))
    g.output("index", index, "i32", (mm, kk))


@operator
def sort_rows(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """Y[m, k] = X[m, n] in ascending order, index[m, k] = where each stood; stable."""
    mm, nn, kk = g.axes(m=m, n=n, k=n)
    values, index = topmost(g.input("X", (mm, nn), dtype), nn, kk, least=True)
    g.output("Y", values, dtype, (mm, kk))
    g.output("index", index, "i32", (mm, kk))


@operator
def top_k_mask(g: Graph, m: int, n: int, k: int, dtype: str = "f32") -> None:
    """Y[m, n] = P[m, n] / the sum of the k largest of P[m], 0 for what is smaller than these.

    What sampling from the k most probable draws from; all that equal the k-th stay.
    """
    if k > n:
        raise UsageError(f"top_k_mask: k={k} of n={n} elements")
    mm, nn, kk = g.axes(m=m, n=n, k=k)
    p = g.input("P", (mm, nn), dtype, probabilities())
    smallest = topmost(p, nn, kk)[0].at(k=k - 1)
    kept = where(p >= smallest, p, 0.0)
    g.output("Y", kept / reduce("sum", kept, over=nn), dtype, (mm, nn))


@operator
def nearest(
    g: Graph, n: int, m: int, d: int, k: int, expand: bool = False, dtype: str = "f32"
) -> None:
    """index[n, k] = the k of m points y that are nearest to x[n], square[n, k] = |x - y|^2.

    Nearest first, in d dimensions. `expand` takes |x|^2 + |y|^2 - 2 x.y, by a product of matrices.
    """
    if k > m:
        raise UsageError(f"nearest: k={k} of m={m} points")
    i, j, dd, kk = g.axes(i=n, j=m, d=d, k=k)
    x, y = g.input("x", (i, dd), dtype), g.input("y", (j, dd), dtype)
    if expand:
        squares = reduce("sum", x * x, over=dd) + reduce("sum", y * y, over=dd)
        distance = squares - contract(x, y, over=dd) * 2.0
    else:
        distance = reduce("sum", (x - y) ** 2, over=dd)
    values, index = topmost(distance, j, kk, least=True)
    g.output("square", values, "f32", (i, kk))
    g.output("index", index, "i32", (i, kk))
