"""Small dense linear algebra in batches: solves, factors and inverses, a column at a time."""

from __future__ import annotations

from ir import (
    Graph,
    contract,
    near_identity,
    operator,
    recur,
    reduce,
    rsqrt,
    sqrt,
    where,
)
from ir.forward import solved

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "triangular_solve": {
        "small": {"batch": 3, "n": 7, "columns": 4},
        "small-upper": {"batch": 2, "n": 5, "columns": 3, "upper": True},
        "batched": {"batch": 4096, "n": 32, "columns": 32},
        "delta-net chunks": {"batch": 2048, "n": 64, "columns": 128},
    },
    "triangular_inverse": {
        "small": {"batch": 3, "n": 7},
        "delta-net chunks": {"batch": 2048, "n": 64},
    },
    "cholesky": {
        "small": {"batch": 3, "n": 6},
        "batched": {"batch": 4096, "n": 32},
    },
    "power_iteration": {
        "small": {"n": 9, "steps": 5},
        "spectral norm of 4096": {"n": 4096, "steps": 8},
    },
}


@operator
def triangular_solve(
    g: Graph, batch: int, n: int, columns: int, upper: bool = False, dtype: str = "f32"
) -> None:
    """X = L^-1 B for lower triangular L: B and X are (batch, n, columns), L is (batch, n, n).

    Row by row from the first, or of an `upper` triangular matrix from the last; the other triangle
    is not read.
    """
    bb, i, r, s = g.axes(b=batch, i=n, r=columns, s=n)
    matrix = g.tensor("L", (batch, n, n), dtype, values=near_identity())
    given = g.tensor("B", (batch, n, columns), dtype)
    place = {axis: n - 1 - axis if upper else axis + 0 for axis in (i, s)}
    left = g.state(s, (bb, i, r), given[bb, place[i], r])
    row = left.at(i=s) / matrix[bb, place[s], place[s]]
    below = where(g.iota(i) > s, matrix[bb, place[i], place[s]], 0.0)
    recur(left, left - below * row)
    g.output("X", row.at(s=place[i]), dtype, (bb, i, r))


@operator
def triangular_inverse(g: Graph, batch: int, n: int, dtype: str = "f32") -> None:
    """Y = (I + L)^-1 for matrices L (batch, n, n), of which only what is below the diagonal counts.

    What the chunks of a delta rule need.
    """
    bb, i, j, r, s = g.axes(b=batch, i=n, j=n, r=n, s=n)
    identity = where(g.iota(i) == r, 1.0, 0.0)
    lower = g.input("L", (bb, i, j), dtype, near_identity())
    g.output("Y", solved(lower, identity, (bb, i, r), j, s), dtype, (bb, i, r))


@operator
def cholesky(g: Graph, batch: int, n: int, dtype: str = "f32") -> None:
    """A = L L^T for positive definite A (batch, n, n), of which only the lower triangle counts.

    Column by column: each, divided by the root of its pivot, is a column of L, and its product
    with itself is taken off what is left.
    """
    bb, i, j, s = g.axes(b=batch, i=n, j=n, s=n)
    left = g.state(s, (bb, i, j), g.input("A", (bb, i, j), dtype, near_identity()))
    pivot = left.at(i=s, j=s)
    column = where(g.iota(i) >= s, left.at(j=s) * rsqrt(pivot), 0.0)
    recur(left, left - column * column.at(i=j))
    g.output("L", column, dtype, (bb, i, s))


@operator
def power_iteration(g: Graph, n: int, steps: int, dtype: str = "f32") -> None:
    """v = A v / |A v|, `steps` times from `first`; value = v . A v, towards the largest eigenvalue.

    A is symmetric, (n, n).
    """
    i, j, step = g.axes(i=n, j=n, step=steps)
    a = g.input("A", (i, j), dtype, near_identity(4.0))
    v = g.state(step, (i,), g.input("first", (i,), dtype))
    image = contract(a, v.at(i=j), over=j)
    norm = sqrt(reduce("sum", image * image, over=i))
    last = recur(v, image / norm)
    g.output("v", last, dtype, (i,))
    again = contract(a, last.at(i=j), over=j)
    g.output("value", reduce("sum", last * again, over=i), "f32", ())
