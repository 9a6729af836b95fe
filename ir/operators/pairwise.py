"""Products with matrices that are functions of pairs of points, and are never stored."""

from __future__ import annotations

import math

from ir import Axis, Graph, Tile, contract, exp, operator, reduce


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
