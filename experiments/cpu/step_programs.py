"""Programs of steps that `steps.py` times beside the library's own."""

from __future__ import annotations

from ir import Graph, Tile, minimum, operator, recur
from ir.values import uniform


@operator
def shortest(g: Graph, n: int) -> None:
    """Shortest paths between all pairs, over one more place at each step (Floyd and Warshall)."""
    k, i, j = g.axes(k=n, i=n, j=n)
    d = g.state(k, (i, j), g.input("D", (i, j), "f32", values=uniform(0, 1)))
    g.output("S", recur(d, minimum(d, d.at(j=k) + d.at(i=k))), "f32", (i, j))


@operator
def reaction(g: Graph, n: int, steps: int) -> None:
    """Two substances that spread and react (Gray and Scott)."""
    t, i, j = g.axes(t=steps, i=n, j=n)
    u, v = (g.state(t, (i, j), g.input(name, (i, j), "f32", values=uniform(0, 1))) for name in "UV")

    def spread(x: Tile) -> Tile:
        beside = x.at(j=j - 1, fill=0.0) + x.at(j=j + 1, fill=0.0)
        return x.at(i=i - 1, fill=0.0) + x.at(i=i + 1, fill=0.0) + beside - 4.0 * x

    r = u * v * v
    more, less = u + 0.16 * spread(u) - r + 0.035 * (1 - u), v + 0.08 * spread(v) + r - 0.1 * v
    g.output("u", recur(u, more), "f32", (i, j))
    g.output("v", recur(v, less), "f32", (i, j))
