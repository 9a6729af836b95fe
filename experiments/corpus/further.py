"""More programs of no table: gradients of norms and activations, iterations, statistics of images.

`tilewright tune experiments/corpus/further.py:NAME ...`; what they take is in README.md.
"""

from __future__ import annotations

import math

from ir import (
    Graph,
    cast,
    contract,
    exp,
    log,
    maximum,
    operator,
    recur,
    reduce,
    rsqrt,
    tanh,
    where,
)
from ir.values import lengths, positive


@operator
def rmsnorm_backward(g: Graph, m: int, n: int, dtype: str = "bf16") -> None:
    """dX and dW of Y = X rsqrt(mean X^2 + eps) W."""
    i, j = g.axes(m=m, n=n)
    x, dy = g.input("X", (i, j), dtype), g.input("dY", (i, j), dtype)
    w = g.input("W", (j,), "f32")
    wide = cast(x, "f32")
    scale = rsqrt(reduce("sum", wide * wide, over=j) * (1 / n) + 1e-6)
    normal = wide * scale
    along = reduce("sum", dy * w * normal, over=j) * (1 / n)
    g.output("dX", (dy * w - normal * along) * scale, dtype, (i, j))
    g.output("dW", reduce("sum", dy * normal, over=i), "f32", (j,))


@operator
def gelu_backward(g: Graph, m: int, n: int, dtype: str = "bf16") -> None:
    """dX of Y = gelu(X + b) (by tanh), and db, its sum over rows."""
    i, j = g.axes(m=m, n=n)
    z = g.input("X", (i, j), dtype) + g.input("b", (j,), dtype)
    inner = tanh(0.7978845608 * (z + 0.044715 * z * z * z))
    slope = 0.5 * z * (1 - inner * inner) * 0.7978845608 * (1 + 3 * 0.044715 * z * z)
    dx = g.input("dY", (i, j), dtype) * (0.5 * (1 + inner) + slope)
    g.output("dX", dx, dtype, (i, j))
    g.output("db", reduce("sum", dx, over=i), "f32", (j,))


@operator
def sinkhorn(g: Graph, n: int, steps: int = 10) -> None:
    """Scalings of a positive matrix to given sums of rows and columns, in turns."""
    t, i, j = g.axes(t=steps, i=n, j=n)
    k = g.input("K", (i, j), "f32", values=positive())
    rows, columns = (
        g.input(name, (a,), "f32", values=positive()) for name, a in zip("ab", (i, j), strict=True)
    )
    v = g.state(t, (j,), 1.0)
    u = rows / contract(k, v, j)
    g.output("v", recur(v, columns / contract(k, u, i)))


@operator
def heat(g: Graph, n: int, steps: int = 12) -> None:
    """Explicit steps of the heat equation on a cube, and how much each step changes in all."""
    t, x, y, z = g.axes(t=steps, x=n, y=n, z=n)
    u = g.state(t, (x, y, z), g.input("U", (x, y, z), "f32"))
    around = -6.0 * u
    for axis in (x, y, z):
        for step in (-1, 1):
            around = around + u.at({axis: axis + step}, fill=0.0)
    change = 0.1 * around
    g.output("moved", reduce("sum", change * change, over=(x, y, z)), "f32", (t,))
    g.output("end", recur(u, u + change), "f32", (x, y, z))


@operator
def instance_norm(g: Graph, n: int, c: int, h: int, w: int, dtype: str = "f16") -> None:
    """Images normalised a channel each, behind it a leaky ReLU."""
    nn, cc, hh, ww = g.axes(n=n, c=c, h=h, w=w)
    x = cast(g.input("X", (nn, cc, hh, ww), dtype), "f32")
    mean = reduce("sum", x, over=(hh, ww)) * (1 / (h * w))
    variance = reduce("sum", (x - mean) * (x - mean), over=(hh, ww)) * (1 / (h * w))
    y = (x - mean) * rsqrt(variance + 1e-5)
    g.output("Y", maximum(y, 0.2 * y), dtype, (nn, cc, hh, ww))


@operator
def column_softmax(g: Graph, b: int, s: int, c: int, dtype: str = "bf16") -> None:
    """Weights of positions for each channel: a softmax along the longer axis, channels last."""
    bb, ss, cc = g.axes(b=b, s=s, c=c)
    x = g.input("X", (bb, ss, cc), dtype)
    p = exp(x - reduce("max", x, over=ss))
    g.output("Y", p / reduce("sum", p, over=ss), dtype, (bb, ss, cc))


@operator
def attention_pooling(g: Graph, b: int, s: int, d: int, dtype: str = "bf16") -> None:
    """One vector of a sequence: its tokens, weighed by how they score; of given lengths."""
    bb, ss, k, e = g.axes(b=b, s=s, d=d, e=d)
    w = g.input("w", (k,), dtype)
    count = g.input("length", (bb,), "i32", values=lengths(s * b // 2, s, 1))
    x = g.tensor("X", (b, s, d), dtype)
    score = contract(cast(x[bb, ss, k], "f32"), cast(w, "f32"), over=k) * (1 / math.sqrt(d))
    score = where(g.iota(ss) < count, score, -math.inf)
    p = exp(score - reduce("max", score, over=ss))
    pooled = reduce("sum", p * x[bb, ss, e], over=ss) / reduce("sum", p, over=ss)
    g.output("Y", pooled, dtype, (bb, e))


@operator
def distillation(g: Graph, m: int, n: int, heat: float = 2.0, dtype: str = "bf16") -> None:
    """Kullback-Leibler divergence of two softmaxes of long rows."""
    i, j = g.axes(m=m, n=n)
    s, t = (cast(g.input(name, (i, j), dtype), "f32") * (1 / heat) for name in "ST")
    top_s, top_t = (reduce("max", x, over=j) for x in (s, t))
    sum_s, sum_t = (reduce("sum", exp(x - top), over=j) for x, top in ((s, top_s), (t, top_t)))
    apart = (t - top_t - log(sum_t)) - (s - top_s - log(sum_s))
    weight = exp(t - top_t) / sum_t
    g.output("loss", reduce("sum", weight * apart, over=j) * heat * heat, "f32", (i,))
