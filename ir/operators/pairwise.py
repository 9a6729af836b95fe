"""Products with matrices that are functions of pairs of points, and are never stored."""

from __future__ import annotations

import math

from ir import Axis, Graph, Tile, UsageError, absolute, contract, exp, operator, reduce, sqrt

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "gaussian": {"small": {"n": 33, "m": 21, "d": 3}, "keops": {"n": 100000, "d": 3}},
    "laplacian": {"small": {"n": 33, "m": 21, "d": 3}, "keops": {"n": 100000, "d": 3}},
    "matern": {
        "small": {"n": 33, "m": 21, "d": 3},
        "small-five-halves": {"n": 33, "m": 21, "d": 3, "halves": 5},
        "keops": {"n": 100000, "d": 3},
        "falkon": {"n": 100000, "d": 10, "halves": 5},
    },
    "distances": {
        "small": {"n": 33, "m": 21, "d": 5},
        "small-expanded": {"n": 33, "m": 21, "d": 5, "kind": "expanded"},
        "search": {"n": 4096, "m": 16384, "d": 128, "kind": "expanded"},
    },
}


def _expanded(x: Tile, y: Tile, dd: Axis) -> Tile:
    squares = reduce("sum", x * x, over=dd) + reduce("sum", y * y, over=dd)
    return squares - contract(x, y, over=dd) * 2.0


@operator
def gaussian(
    g: Graph, n: int, d: int, m: int = 0, s: float = 0.0, dtype: str = "f32", expand: bool = False
) -> None:
    """out[i] = sum_j exp(-|x_i - y_j|^2 / 2 s^2) v[j]; n points x, m points y in d dimensions.

    m defaults to n, and s to sqrt(d). `expand` takes |x|^2 + |y|^2 - 2 x.y for the distance: half
    the work, and right as long as the points' norms are not much larger than s.
    """
    i, j, dd = g.axes(i=n, j=m or n, d=d)
    x, y = g.input("x", (i, dd), dtype), g.input("y", (j, dd), dtype)
    v = g.input("v", (j,), dtype)
    distance = _expanded(x, y, dd) if expand else reduce("sum", (x - y) ** 2, over=dd)
    weight = exp(distance * (-0.5 / (s or math.sqrt(d)) ** 2))
    g.output("out", reduce("sum", weight * v, over=j), dtype, (i,))


@operator
def laplacian(g: Graph, n: int, d: int, m: int = 0, s: float = 0.0, dtype: str = "f32") -> None:
    """out[i] = sum_j exp(-|x_i - y_j| / s) v[j]; n points x, m points y in d dimensions.

    m defaults to n, and s to sqrt(d).
    """
    i, j, dd = g.axes(i=n, j=m or n, d=d)
    x, y = g.input("x", (i, dd), dtype), g.input("y", (j, dd), dtype)
    distance = sqrt(reduce("sum", (x - y) ** 2, over=dd))
    weight = exp(distance * (-1.0 / (s or math.sqrt(d))))
    g.output("out", reduce("sum", weight * g.input("v", (j,), dtype), over=j), dtype, (i,))


@operator
def matern(
    g: Graph, n: int, d: int, m: int = 0, s: float = 0.0, halves: int = 3, dtype: str = "f32"
) -> None:
    """out[i] = sum_j (1 + t) exp(-t) v[j], t = sqrt(3) |x_i - y_j| / s; n points x, m points y.

    The Matern kernel of smoothness `halves` / 2: 3, or 5 with (1 + t + t^2 / 3) and sqrt(5).
    m defaults to n, and s to sqrt(d).
    """
    if halves not in (3, 5):
        raise UsageError(f"matern: halves={halves}; the smoothness is 3 or 5 halves")
    i, j, dd = g.axes(i=n, j=m or n, d=d)
    x, y = g.input("x", (i, dd), dtype), g.input("y", (j, dd), dtype)
    distance = sqrt(reduce("sum", (x - y) ** 2, over=dd))
    t = distance * (math.sqrt(halves) / (s or math.sqrt(d)))
    factor = t + 1.0 if halves == 3 else t + 1.0 + t * t * (1 / 3)
    weight = factor * exp(-t)
    g.output("out", reduce("sum", weight * g.input("v", (j,), dtype), over=j), dtype, (i,))


@operator
def distances(
    g: Graph, n: int, d: int, m: int = 0, kind: str = "euclidean", dtype: str = "f32"
) -> None:
    """D[i, j] = |x_i - y_j|; n points x, m points y (default: n) in d dimensions.

    `kind` is euclidean, squared, manhattan, or expanded: |x|^2 + |y|^2 - 2 x.y for the square,
    by a product of matrices.
    """
    i, j, dd = g.axes(i=n, j=m or n, d=d)
    x, y = g.input("x", (i, dd), dtype), g.input("y", (j, dd), dtype)
    if kind == "expanded":
        distance = _expanded(x, y, dd)
    elif kind == "manhattan":
        distance = reduce("sum", absolute(x - y), over=dd)
    elif kind in ("euclidean", "squared"):
        square = reduce("sum", (x - y) ** 2, over=dd)
        distance = sqrt(square) if kind == "euclidean" else square
    else:
        known = "euclidean, squared, manhattan, expanded"
        raise UsageError(f"distances: kind={kind!r}: known are {known}")
    g.output("D", distance, dtype, (i, j))
