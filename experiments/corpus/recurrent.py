"""Programs of no table: recurrences in logarithms and averages, nearest partners, mixed types.

`tilewright tune experiments/corpus/recurrent.py:NAME ... --target cuda --seconds 11`; the figures
stand in the folder's README.
"""

from __future__ import annotations

from ir import (
    Axis,
    Graph,
    Tile,
    argmax,
    argmin,
    cast,
    contract,
    cumulative,
    exp,
    log,
    maximum,
    minimum,
    operator,
    recur,
    reduce,
    relu,
    sigmoid,
    tanh,
)
from ir.values import uniform


@operator
def selective_scan(g: Graph, b: int, t: int, d: int, n: int) -> None:
    """A state space of n numbers for each channel, whose decay the input chooses (Mamba)."""
    bb, tt, dd, nn = g.axes(b=b, t=t, d=d, n=n)
    x = cast(g.input("X", (bb, tt, dd), "bf16"), "f32")
    step = g.input("dt", (bb, tt, dd), "f32", values=uniform(0.001, 0.1))
    a = g.input("A", (dd, nn), "f32", values=uniform(-8, -0.5))
    key = cast(g.input("B", (bb, tt, nn), "bf16"), "f32")
    query = cast(g.input("C", (bb, tt, nn), "bf16"), "f32")
    s = g.state(tt, (bb, dd, nn))
    h = s * exp(step * a) + step * x * key
    recur(s, h)
    through = x * g.input("D", (dd,), "f32")
    g.output("Y", reduce("sum", h * query, over=nn) + through, "bf16", (bb, tt, dd))


@operator
def forward(g: Graph, b: int, t: int, n: int) -> None:
    """The forward algorithm of a hidden Markov model, in logarithms."""
    bb, tt, i, j = g.axes(b=b, t=t, i=n, j=n)
    a = g.input("A", (i, j), "f32", values=uniform(-4, 0))
    e = g.input("E", (bb, tt, j), "f32", values=uniform(-4, 0))
    s = g.state(tt, (bb, j))
    x = s.at(j=i) + a
    m = reduce("max", x, over=i)
    new = log(reduce("sum", exp(x - m), over=i)) + m + e
    recur(s, new)
    g.output("F", new, "f32", (bb, tt, j))


@operator
def ctc(g: Graph, b: int, t: int, s: int) -> None:
    """Forward variables of connectionist temporal classification, in logarithms."""
    bb, tt, ss = g.axes(b=b, t=t, s=s)
    e = g.input("E", (bb, tt, ss), "f32", values=uniform(-4, 0))
    skip = g.input("skip", (bb, ss), "f32", values=uniform(-4, 0))
    a = g.state(tt, (bb, ss), -1.0)
    one, two = a.at(s=ss - 1, fill=-1e4), a.at(s=ss - 2, fill=-1e4) + skip
    m = maximum(maximum(a, one), two)
    new = m + log(exp(a - m) + exp(one - m) + exp(two - m)) + e
    recur(a, new)
    g.output("A", new, "f32", (bb, tt, ss))


def _average(g: Graph, t: Axis, b: Axis, value: Tile, length: int) -> Tile:
    s = g.state(t, (b,))
    new = s + (value - s) * (2.0 / (length + 1))
    recur(s, new)
    return new


@operator
def averages(g: Graph, b: int, t: int) -> None:
    """The difference of two exponential averages, and how far it is from its own average."""
    bb, tt = g.axes(b=b, t=t)
    x = g.input("X", (bb, tt), "f32")
    d = _average(g, tt, bb, x, 12) - _average(g, tt, bb, x, 26)
    g.output("D", d, "f32", (bb, tt))
    g.output("H", d - _average(g, tt, bb, d, 9), "f32", (bb, tt))


@operator
def deviations(g: Graph, b: int, t: int, c: int) -> None:
    """Squares of what is off a moving average, in the mean up to each step."""
    bb, tt, cc = g.axes(b=b, t=t, c=c)
    x = cast(g.input("X", (bb, tt, cc), "bf16"), "f32")
    s = g.state(tt, (bb, cc))
    new = s * 0.9 + x * 0.1
    recur(s, new)
    d = x - new
    count = cast(g.iota(tt), "f32") + 1.0
    g.output("V", cumulative("sum", d * d, tt) / count, "f32", (bb, tt, cc))


@operator
def gated(g: Graph, b: int, t: int, n: int) -> None:
    """A gated recurrence whose matrices are diagonal."""
    bb, tt, nn = g.axes(b=b, t=t, n=n)
    x, z, r = (cast(g.input(k, (bb, tt, nn), "bf16"), "f32") for k in ("X", "Z", "R"))
    u = g.input("u", (nn,), "f32")
    s = g.state(tt, (bb, nn))
    c = tanh(x + sigmoid(r + s * u) * s)
    new = s + sigmoid(z + s * u) * (c - s)
    recur(s, new)
    g.output("H", new, "bf16", (bb, tt, nn))


@operator
def overlaps(g: Graph, n: int, m: int) -> None:
    """Intersection over union of all pairs of boxes: each one's best, and with whom."""
    nn, mm = g.axes(n=n, m=m)
    a = g.tensor("A", (n, 4), "f32", values=uniform(0, 1))
    b = g.tensor("B", (m, 4), "f32", values=uniform(0, 1))
    ax, ay, aw, ah = (a[nn, z] for z in range(4))
    bx, by, bw, bh = (b[mm, z] for z in range(4))
    width = maximum(minimum(ax + aw, bx + bw) - maximum(ax, bx), 0.0)
    height = maximum(minimum(ay + ah, by + bh) - maximum(ay, by), 0.0)
    both = width * height
    share = both / (aw * ah + bw * bh - both + 1e-6)
    g.output("best", reduce("max", share, over=mm), "f32", (nn,))
    g.output("at", argmax(share, mm), "i32", (nn,))


@operator
def codebook(g: Graph, m: int, n: int, d: int, dtype: str = "bf16") -> None:
    """Which of n codes is nearest."""
    mm, nn, dd = g.axes(m=m, n=n, d=d)
    x, c = g.input("X", (mm, dd), dtype), g.input("C", (nn, dd), dtype)
    own = reduce("sum", cast(c, "f32") * cast(c, "f32"), over=dd)
    g.output("I", argmin(own - contract(x, c, over=dd) * 2.0, nn), "i32", (mm,))


@operator
def eight_bit_scores(g: Graph, b: int, h: int, s: int, d: int) -> None:
    """Attention with queries and keys of eight bits and a scale for each of their rows."""
    bb, hh, i, j, k, e = g.axes(b=b, h=h, i=s, j=s, d=d, e=d)
    q, keys = g.input("Q", (bb, hh, i, k), "i8"), g.input("K", (bb, hh, j, k), "i8")
    v = g.input("V", (bb, hh, j, e), "f16")
    qs = g.input("qs", (bb, hh, i), "f32", values=uniform(0.001, 0.01))
    ks = g.input("ks", (bb, hh, j), "f32", values=uniform(0.001, 0.01))
    x = cast(contract(q, keys, over=k), "f32") * qs * ks * d**-0.5
    p = exp(x - reduce("max", x, over=j))
    o = contract(cast(p, "f16"), v, over=j) / reduce("sum", p, over=j)
    g.output("O", o, "f16", (bb, hh, i, e))


@operator
def stem(g: Graph, b: int, h: int, w: int, n: int) -> None:
    """7 x 7 taps of three channels, every second pixel, with bias and ReLU; channels last."""
    bb, y, x, r, s, c, nn = g.axes(b=b, y=h // 2, x=w // 2, r=7, s=7, c=3, n=n)
    picture = g.tensor("X", (b, h, w, 3), "bf16", fill=0)
    taps = g.input("W", (r, s, c, nn), "bf16")
    z = contract(picture[bb, y * 2 + r - 3, x * 2 + s - 3, c], taps, over=(r, s, c))
    g.output("Z", relu(z + g.input("bias", (nn,), "f32")), "bf16", (bb, y, x, nn))


@operator
def filter_bank(g: Graph, b: int, t: int, f: int, r: int) -> None:
    """Energy of f filters of r taps over one signal, in frames of 160."""
    bb, tt, ff, rr, p = g.axes(b=b, t=t // 160, f=f, r=r, p=160)
    x = g.tensor("X", (b, t), "f32", fill=0)
    z = contract(x[bb, tt * 160 + p + rr - r // 2], g.input("W", (ff, rr), "f32"), over=rr)
    g.output("E", log(reduce("sum", z * z, over=p) + 1e-6), "f32", (bb, tt, ff))
