"""Layers and their neighbours, written after the code was done: rows that leave in bits, routers,
systems of rows, chains of contractions, reductions and maps that no other file has.

`tilewright tune experiments/corpus/layers.py:NAME full --target cuda`
"""

from __future__ import annotations

from ir import (
    Graph,
    absolute,
    cast,
    contract,
    exp,
    maximum,
    minimum,
    operator,
    recur,
    recurrence,
    reduce,
    rsqrt,
    sigmoid,
    silu,
    sqrt,
    tanh,
    top,
    where,
)
from ir.axes import Axis
from ir.tiles import Tile
from ir.values import normal, positive, uniform

# --- rows that leave in bits -------------------------------------------------------------------


@operator
def asym_int4(g: Graph, m: int, n: int, size: int) -> None:
    """Groups by their own extremes, in four bits."""
    i, b, s = g.axes(i=m, g=n // size, s=size)
    x = cast(g.input("X", (i, b, s), "bf16"), "f32")
    least, most = reduce("min", x, over=s), reduce("max", x, over=s)
    scale = maximum(most - least, 1e-5) / 15.0
    g.output("Q", minimum(maximum(round((x - least) / scale), 0.0), 15.0), "u4", (i, b, s))
    g.output("scale", scale, "f16", (i, b))
    g.output("zero", least, "f16", (i, b))


@operator
def mx_rows(g: Graph, m: int, n: int) -> None:
    """Blocks of 32 in e2m1."""
    i, b, s = g.axes(i=m, b=n // 32, s=32)
    x = cast(g.input("X", (i, b, s), "bf16"), "f32")
    scale = maximum(reduce("max", absolute(x), over=s), 1e-30) / 6.0
    g.output("Q", minimum(maximum(x / scale, -6.0), 6.0), "e2m1", (i, b, s))
    g.output("E", scale, "f32", (i, b))


def _turned(g: Graph, t: int, h: int, d: int, halves: bool) -> None:
    i, j, k, p = g.axes(t=t, h=h, d=d, p=d // 2)
    x = g.tensor("X", (t, h, d), "bf16")
    row = cast(x[i, j, k], "f32")
    scale = rsqrt(reduce("sum", row * row, over=k) / d + 1e-6)
    places = (p, p + d // 2) if halves else (2 * p, 2 * p + 1)
    first, second = (cast(x[i, j, place], "f32") * scale for place in places)
    c, s = g.input("cos", (i, p), "f32"), g.input("sin", (i, p), "f32")
    g.output("Y0", first * c - second * s, "bf16", (i, j, p))
    g.output("Y1", first * s + second * c, "bf16", (i, j, p))


@operator
def norm_pairs(g: Graph, t: int, h: int, d: int) -> None:
    """A head's norm, then neighbours turned."""
    _turned(g, t, h, d, False)


@operator
def norm_halves(g: Graph, t: int, h: int, d: int) -> None:
    """The same of halves."""
    _turned(g, t, h, d, True)


@operator
def add_norm_fp8(g: Graph, m: int, n: int, size: int) -> None:
    """The residual, and its norm in e4m3 by groups."""
    i, b, s = g.axes(i=m, g=n // size, s=size)
    x, r = (cast(g.input(name, (i, b, s), "bf16"), "f32") for name in "XR")
    h = x + r
    g.output("H", h, "bf16", (i, b, s))
    y = h * rsqrt(reduce("sum", h * h, over=(b, s)) / n + 1e-6) * g.input("w", (b, s), "f32")
    _in_groups(g, y, (i, b, s))


@operator
def swiglu_fp8(g: Graph, m: int, n: int, size: int) -> None:
    """A gate and what it lets through, side by side in memory, in e4m3 by groups."""
    i, b, s = g.axes(i=m, g=n // size, s=size)
    x = g.tensor("X", (m, 2, n // size, size), "bf16")
    _in_groups(g, silu(cast(x[i, 0, b, s], "f32")) * cast(x[i, 1, b, s], "f32"), (i, b, s))


def _in_groups(g: Graph, y: Tile, axes: tuple[Axis, Axis, Axis]) -> None:
    scale = maximum(reduce("max", absolute(y), over=axes[2]), 1e-6) / 448.0
    g.output("Q", y / scale, "e4m3", axes)
    g.output("scale", scale, "f32", axes[:2])


# --- routers -----------------------------------------------------------------------------------


@operator
def router(g: Graph, t: int, e: int, k: int) -> None:
    """The first experts of a softmax, by their own sum."""
    i, j, r = g.axes(t=t, e=e, k=k)
    x = g.input("X", (i, j), "f32")
    p = exp(x - reduce("max", x, over=j))
    value, index = top(p / reduce("sum", p, over=j), j, r)
    g.output("w", value / reduce("sum", value, over=r), "f32", (i, r))
    g.output("i", index, "i32", (i, r))


@operator
def tops(g: Graph, t: int, e: int, k: int) -> None:
    """The first of rows."""
    i, j, r = g.axes(t=t, e=e, k=k)
    value, index = top(g.input("X", (i, j), "f32"), j, r)
    g.output("w", value, "f32", (i, r))
    g.output("i", index, "i32", (i, r))


@operator
def biased_router(g: Graph, t: int, e: int, k: int) -> None:
    """Chosen with a bias, weighed without."""
    i, j, r = g.axes(t=t, e=e, k=k)
    x = sigmoid(g.input("X", (i, j), "f32"))
    _, index = top(x + g.input("bias", (j,), "f32"), j, r)
    w = x.at({j: index})
    g.output("w", w / reduce("sum", w, over=r), "f32", (i, r))
    g.output("i", index, "i32", (i, r))


# --- rows step by step -------------------------------------------------------------------------


@operator
def tridiagonal(g: Graph, b: int, n: int) -> None:
    """Systems of three diagonals: a step forward, a scan back."""
    i, j = g.axes(b=b, n=n)
    a, c, d = (g.input(name, (i, j), "f32", values=uniform(-0.4, 0.4)) for name in "ACD")
    upper, right = g.state(j, (i,)), g.state(j, (i,))
    pivot = 1.0 / (1.0 - a * upper)
    new, value = c * pivot, (d - a * right) * pivot
    recur(upper, new)
    recur(right, value)
    g.output("X", recurrence(-new, value, j, backward=True), "f32", (i, j))


@operator
def clipped(g: Graph, b: int, n: int, dtype: str) -> None:
    """Sums that stay within bounds, and where they were cut."""
    i, j = g.axes(b=b, n=n)
    state = g.state(j, (i,))
    new = minimum(maximum(state + cast(g.input("X", (i, j), dtype), "f32"), -2.0), 2.0)
    recur(state, new)
    g.output("Y", new, dtype, (i, j))
    g.output("H", absolute(new) >= 2.0, "bool", (i, j))


# --- windows -----------------------------------------------------------------------------------


@operator
def similarity(g: Graph, b: int, h: int, w: int) -> None:
    """How alike the means, squares and products of two images are around each point."""
    n, i, j, p, q = g.axes(b=b, i=h, j=w, p=7, q=7)
    images = (g.tensor(name, (b, h, w), "f32", fill=0, values=uniform(0, 1)) for name in "XY")
    x, y = (image[n, i + p - 3, j + q - 3] for image in images)
    mx, my, xx, yy, xy = (
        reduce("sum", value, over=(p, q)) / 49.0 for value in (x, y, x * x, y * y, x * y)
    )
    near = (2.0 * mx * my + 1e-4) * (2.0 * (xy - mx * my) + 9e-4)
    far = (mx * mx + my * my + 1e-4) * (xx - mx * mx + yy - my * my + 9e-4)
    g.output("S", reduce("sum", near / far, over=(i, j)) / (h * w), "f32", (n,))


# --- chains ------------------------------------------------------------------------------------


@operator
def int8_decode(g: Graph, b: int, kv: int, r: int, s: int, d: int) -> None:
    """One query each; keys and values in bytes, with a scale a token."""
    i, h, q, t, k, e = g.axes(b=b, h=kv, r=r, s=s, d=d, e=d)
    keys, values = g.input("K", (i, h, t, k), "i8"), g.input("V", (i, h, t, e), "i8")
    ks, vs = (g.input(name, (i, h, t), "f32", values=positive(0.01)) for name in ("ks", "vs"))
    scores = contract(g.input("Q", (i, h, q, k), "bf16"), cast(keys, "bf16"), over=k)
    scores = scores * ks * d**-0.5
    p = exp(scores - reduce("max", scores, over=t))
    out = contract(cast(p * vs, "bf16"), cast(values, "bf16"), over=t)
    g.output("O", out / reduce("sum", p, over=t), "bf16", (i, h, q, e))


@operator
def norm_backward(g: Graph, m: int, n: int) -> None:
    """Gradients of a layer norm: of its rows and of its weights."""
    i, j = g.axes(i=m, j=n)
    x, dy = (cast(g.input(name, (i, j), "bf16"), "f32") for name in ("X", "dY"))
    centred = x - reduce("sum", x, over=j) / n
    scale = rsqrt(reduce("sum", centred * centred, over=j) / n + 1e-5)
    norm, grad = centred * scale, dy * g.input("w", (j,), "f32")
    means = [reduce("sum", value, over=j) / n for value in (grad, grad * norm)]
    g.output("dX", scale * (grad - means[0] - norm * means[1]), "bf16", (i, j))
    g.output("dw", reduce("sum", dy * norm, over=i), "f32", (j,))
    g.output("db", reduce("sum", dy, over=i), "f32", (j,))


@operator
def bilinear(g: Graph, m: int, d: int, r: int, o: int) -> None:
    """Two inputs meet in a low rank."""
    i, j, k, p, q = g.axes(i=m, d=d, e=d, r=r, o=o)
    few = normal(0.05)
    a = contract(g.input("X", (i, j), "bf16"), g.input("U", (j, p), "bf16", values=few), over=j)
    b = contract(g.input("Y", (i, k), "bf16"), g.input("V", (k, p), "bf16", values=few), over=k)
    w = g.input("W", (p, q), "bf16", values=few)
    g.output("Z", contract(cast(tanh(a) * b, "bf16"), w, over=p), "bf16", (i, q))


@operator
def gram(g: Graph, b: int, n: int, d: int) -> None:
    """Rows by the root of their size, of length one, with each other."""
    n_, i, j, k = g.axes(b=b, i=n, j=n, d=d)
    x = g.tensor("X", (b, n, d), "bf16")

    def rows(axis: Axis) -> Tile:
        y = cast(x[n_, axis, k], "f32")
        y = where(y < 0, -1.0, 1.0) * sqrt(absolute(y))
        return cast(y * rsqrt(reduce("sum", y * y, over=k) + 1e-6), "bf16")

    g.output("G", contract(rows(i), rows(j), over=k), "bf16", (n_, i, j))


@operator
def poly_attention(g: Graph, b: int, h: int, s: int, d: int) -> None:
    """Weights are squares, not exponentials."""
    n, m, i, j, k, e = g.axes(b=b, h=h, i=s, j=s, d=d, e=d)
    query, key, value = (
        g.input(name, (n, m, *axes), "bf16")
        for name, axes in (("Q", (i, k)), ("K", (j, k)), ("V", (j, e)))
    )
    w = contract(query, key, over=k) * d**-0.5 + 1.0
    w = where(g.iota(j) <= g.iota(i), w * w, 0.0)
    out = contract(cast(w, "bf16"), value, over=j) / (reduce("sum", w, over=j) + 1e-3)
    g.output("O", out, "bf16", (n, m, i, e))


@operator
def sinkhorn(g: Graph, n: int, m: int) -> None:
    """A step of optimal transport, and its plan."""
    i, j = g.axes(i=n, j=m)
    k = exp(g.input("C", (i, j), "f32", values=uniform(0, 1)) * -10.0)
    v = g.input("v", (j,), "f32", values=positive(1.0))
    u = 1.0 / n / (reduce("sum", k * v, over=j) + 1e-9)
    new = 1.0 / m / (reduce("sum", k * u, over=i) + 1e-9)
    g.output("u", u, "f32", (i,))
    g.output("v2", new, "f32", (j,))
    g.output("P", u * k * new, "f32", (i, j))


@operator
def covariance(g: Graph, n: int, d: int) -> None:
    """Of weighed points, about their mean."""
    t, i, j = g.axes(n=n, i=d, j=d)
    x, w = g.tensor("X", (n, d), "bf16"), g.input("w", (t,), "f32", values=positive(1.0))
    total = reduce("sum", w, over=t)

    def centred(axis: Axis) -> Tile:
        value = cast(x[t, axis], "f32")
        return value - reduce("sum", w * value, over=t) / total

    both = contract(cast(centred(i) * w, "bf16"), cast(centred(j), "bf16"), over=t)
    g.output("C", both / total, "f32", (i, j))


@operator
def tucker(g: Graph, a: int, r: int) -> None:
    """A small core along three factors."""
    i, j, k, p, q, s = g.axes(a=a, b=a, c=a, p=r, q=r, r=r)
    found = g.input("T", (p, q, s), "bf16")
    for name, axis, rank in (("U", i, p), ("V", j, q), ("W", k, s)):
        factor = g.input(name, (axis, rank), "bf16", values=normal(0.1))
        found = cast(contract(found, factor, over=rank), "bf16")
    g.output("Y", found, "bf16", (i, j, k))


@operator
def clusters(g: Graph, n: int, k: int, d: int) -> None:
    """The nearest centre of each point."""
    i, j, e, one = g.axes(n=n, k=k, d=d, one=1)
    x, c = g.input("X", (i, e), "bf16"), g.input("C", (j, e), "bf16")
    wide = cast(c, "f32")
    _, nearest = top(2.0 * contract(x, c, over=e) - reduce("sum", wide * wide, over=e), j, one)
    g.output("i", nearest, "i32", (i, one))


@operator
def pooled(g: Graph, b: int, t: int, d: int, h: int) -> None:
    """Weights of a small net over time, then mean and deviation."""
    i, j, k, m = g.axes(b=b, t=t, d=d, h=h)
    x, w = g.input("X", (i, j, k), "bf16"), g.input("W", (k, m), "bf16", values=normal(0.05))
    e = contract(tanh(contract(x, w, over=k)), g.input("u", (m,), "f32"), over=m)
    p = exp(e - reduce("max", e, over=j))
    p, wide = p / reduce("sum", p, over=j), cast(x, "f32")
    mean = reduce("sum", p * wide, over=j)
    g.output("M", mean, "f32", (i, k))
    square = reduce("sum", p * wide * wide, over=j)
    g.output("S", sqrt(maximum(square - mean * mean, 1e-6)), "f32", (i, k))


_GROUPS = {"small": {"m": 7, "n": 64, "size": 16}, "full": {"m": 8192, "n": 8192, "size": 128}}
_HEADS = {"small": {"t": 5, "h": 3, "d": 16}, "full": {"t": 8192, "h": 32, "d": 128}}
_EXPERTS = {"small": {"t": 7, "e": 32, "k": 4}, "full": {"t": 16384, "e": 256, "k": 8}}
EXTENTS = {
    "asym_int4": _GROUPS,
    "mx_rows": {"small": {"m": 5, "n": 96}, "full": {"m": 8192, "n": 8192}},
    "norm_pairs": _HEADS,
    "norm_halves": _HEADS,
    "add_norm_fp8": _GROUPS,
    "swiglu_fp8": {**_GROUPS, "full": {"m": 8192, "n": 14336, "size": 128}},
    "router": _EXPERTS,
    "tops": _EXPERTS,
    "biased_router": _EXPERTS,
    "tridiagonal": {"small": {"b": 64, "n": 48}, "full": {"b": 65536, "n": 256}},
    "clipped": {
        "small": {"b": 96, "n": 72, "dtype": "bf16"},
        "full": {"b": 65536, "n": 512, "dtype": "bf16"},
    },
    "similarity": {"small": {"b": 2, "h": 13, "w": 19}, "full": {"b": 8, "h": 1080, "w": 1920}},
    "int8_decode": {
        "small": {"b": 2, "kv": 2, "r": 4, "s": 75, "d": 32},
        "full": {"b": 32, "kv": 8, "r": 8, "s": 8192, "d": 128},
    },
    "norm_backward": {"small": {"m": 13, "n": 40}, "full": {"m": 16384, "n": 4096}},
    "bilinear": {
        "small": {"m": 33, "d": 48, "r": 64, "o": 40},
        "full": {"m": 8192, "d": 1024, "r": 512, "o": 1024},
    },
    "gram": {"small": {"b": 2, "n": 37, "d": 32}, "full": {"b": 16, "n": 2048, "d": 256}},
    "poly_attention": {
        "small": {"b": 1, "h": 2, "s": 70, "d": 32},
        "full": {"b": 4, "h": 16, "s": 4096, "d": 64},
    },
    "sinkhorn": {"small": {"n": 23, "m": 41}, "full": {"n": 8192, "m": 8192}},
    "covariance": {"small": {"n": 75, "d": 24}, "full": {"n": 131072, "d": 512}},
    "tucker": {"small": {"a": 17, "r": 16}, "full": {"a": 512, "r": 64}},
    "clusters": {"small": {"n": 45, "k": 21, "d": 16}, "full": {"n": 131072, "k": 1024, "d": 64}},
    "pooled": {
        "small": {"b": 3, "t": 29, "d": 32, "h": 16},
        "full": {"b": 64, "t": 1500, "d": 1536, "h": 128},
    },
}
