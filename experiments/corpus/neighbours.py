"""Programs of no table whose points share what they read: windows, stencils, pairs of points.

tilewright tune experiments/corpus/neighbours.py:sobel b=16 h=2048 w=2048 --target cuda --seconds 8
"""

from __future__ import annotations

from ir import Graph, cast, contract, maximum, operator, reduce, sqrt


@operator
def sobel(g: Graph, b: int, h: int, w: int) -> None:
    """The size of the gradient of images, with zeros around them."""
    bb, y, x = g.axes(b=b, y=h, x=w)
    image = g.tensor("I", (b, h, w), "f32", fill=0)
    at = {(i, j): image[bb, y + i, x + j] for i in (-1, 0, 1) for j in (-1, 0, 1)}
    across = at[-1, 1] + 2.0 * at[0, 1] + at[1, 1] - at[-1, -1] - 2.0 * at[0, -1] - at[1, -1]
    down = at[1, -1] + 2.0 * at[1, 0] + at[1, 1] - at[-1, -1] - 2.0 * at[-1, 0] - at[-1, 1]
    g.output("G", sqrt(across * across + down * down), "f32", (bb, y, x))


@operator
def moving_average(g: Graph, b: int, t: int, c: int, width: int = 25) -> None:
    """The trend of series (a box of `width`), and what is left of them; channels last, in bf16."""
    bb, i, channel, j = g.axes(b=b, t=t, c=c, w=width)
    x = g.tensor("X", (b, t, c), "bf16", fill=0)
    total = reduce("sum", cast(x[bb, i + j - width // 2, channel], "f32"), over=j)
    g.output("trend", total / width, "bf16", (bb, i, channel))
    season = cast(x[bb, i, channel], "f32") - total / width
    g.output("season", season, "bf16", (bb, i, channel))


@operator
def separable(g: Graph, n: int, h: int, w: int, c: int, f: int) -> None:
    """A depthwise convolution of 3 x 3, ReLU, a pointwise one; channels last, in bf16."""
    nn, p, q, cc, ff, r, s = g.axes(n=n, p=h, q=w, c=c, f=f, r=3, s=3)
    x = g.tensor("X", (n, h, w, c), "bf16", fill=0)
    taps, mixed = g.input("D", (r, s, cc), "bf16"), g.input("W", (cc, ff), "bf16")
    shifted = cast(x[nn, p + r - 1, q + s - 1, cc], "f32")
    middle = maximum(reduce("sum", shifted * cast(taps, "f32"), over=(r, s)), 0.0)
    g.output("Y", contract(cast(middle, "bf16"), mixed, over=cc), "bf16", (nn, p, q, ff))


@operator
def chamfer(g: Graph, b: int, n: int, m: int, d: int = 3) -> None:
    """The squared distance of every point to the nearest one of another cloud."""
    bb, i, j, k = g.axes(b=b, i=n, j=m, d=d)
    x, y = g.input("X", (bb, i, k), "f32"), g.input("Y", (bb, j, k), "f32")
    apart = reduce("sum", (x - y) * (x - y), over=k)
    g.output("N", reduce("min", apart, over=j), "f32", (bb, i))


@operator
def predicted_covariance(g: Graph, b: int, n: int) -> None:
    """F P F^T + Q of a batch of small Kalman filters."""
    bb, i, j, k, m = g.axes(b=b, i=n, j=n, k=n, m=n)
    f, p, q = (
        g.tensor("F", (b, n, n), "f32"),
        g.input("P", (bb, k, m), "f32"),
        g.tensor("Q", (n, n), "f32"),
    )
    half = contract(f[bb, i, k], p, over=k)
    g.output("P1", contract(half, f[bb, j, m], over=m) + q[i, j], "f32", (bb, i, j))
