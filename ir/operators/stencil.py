"""Stencils: one step of a grid whose cells read their neighbours."""

from __future__ import annotations

from ir import Graph, operator

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "stencil_1d": {"small": {"n": 131}, "large": {"n": 67108864}},
    "stencil_2d": {"small": {"m": 13, "n": 37}, "large": {"m": 8192, "n": 8192}},
    "stencil_2d_box": {"small": {"m": 13, "n": 37}, "large": {"m": 8192, "n": 8192}},
    "stencil_3d": {
        "small": {"d": 5, "m": 7, "n": 19},
        "large": {"d": 512, "m": 512, "n": 512},
    },
}


@operator
def stencil_1d(g: Graph, n: int, rate: float = 0.25, dtype: str = "f32") -> None:
    """Y[i] = X[i] + rate * (X[i - 1] + X[i + 1] - 2 X[i]).

    A step of diffusion along a line; 0 beyond its ends.
    """
    (i,) = g.axes(i=n)
    x = g.tensor("X", (n,), dtype, fill=0)
    g.output("Y", x[i] + (x[i - 1] + x[i + 1] - x[i] * 2.0) * rate, dtype, (i,))


@operator
def stencil_2d(g: Graph, m: int, n: int, rate: float = 0.125, dtype: str = "f32") -> None:
    """Y[i, j] = X[i, j] + rate * (the sum of its 4 neighbours - 4 X[i, j]).

    A step of diffusion in the plane; 0 beyond the edges.
    """
    i, j = g.axes(i=m, j=n)
    x = g.tensor("X", (m, n), dtype, fill=0)
    around = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]
    g.output("Y", x[i, j] + (around - x[i, j] * 4.0) * rate, dtype, (i, j))


@operator
def stencil_2d_box(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """Y[i, j] = (4 X[i, j] + 2 * the sum of its 4 neighbours + the sum of its 4 corners) / 16.

    A small blur; 0 beyond the edges.
    """
    i, j = g.axes(i=m, j=n)
    x = g.tensor("X", (m, n), dtype, fill=0)
    around = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]
    corners = x[i - 1, j - 1] + x[i - 1, j + 1] + x[i + 1, j - 1] + x[i + 1, j + 1]
    g.output("Y", (x[i, j] * 4.0 + around * 2.0 + corners) * (1 / 16), dtype, (i, j))


@operator
def stencil_3d(g: Graph, d: int, m: int, n: int, rate: float = 0.1, dtype: str = "f32") -> None:
    """Y[i, j, k] = X[i, j, k] + rate * (the sum of its 6 neighbours - 6 X[i, j, k]).

    A step of diffusion in space; 0 beyond the faces.
    """
    i, j, k = g.axes(i=d, j=m, k=n)
    x = g.tensor("X", (d, m, n), dtype, fill=0)
    around = x[i - 1, j, k] + x[i + 1, j, k] + x[i, j - 1, k] + x[i, j + 1, k]
    around = around + x[i, j, k - 1] + x[i, j, k + 1]
    g.output("Y", x[i, j, k] + (around - x[i, j, k] * 6.0) * rate, dtype, (i, j, k))
