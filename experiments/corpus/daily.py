"""Layers, losses and statistics as models have them every day, of extents that nothing divides.

`tilewright tune experiments/corpus/daily.py:NAME full ...`; what they take is in README.md.
"""

from __future__ import annotations

import math

from ir import (
    Graph,
    absolute,
    cast,
    contract,
    cumulative,
    exp,
    floor,
    indices,
    log,
    maximum,
    minimum,
    normal,
    operator,
    reduce,
    relu,
    rsqrt,
    sigmoid,
    sqrt,
    tanh,
    uniform,
    where,
)


@operator
def add_norm(g: Graph, m: int, n: int) -> None:
    """The sum of two streams and a bias, kept, and its layer norm: what begins a block."""
    M, N = g.axes(m=m, n=n)
    x, y = (cast(g.input(s, (M, N), "bf16"), "f32") for s in ("X", "Y"))
    bias, gain, shift = (g.input(s, (N,), "bf16") for s in ("bias", "gain", "shift"))
    h = x + y + cast(bias, "f32")
    mean = reduce("sum", h, over=N) / n
    var = reduce("sum", (h - mean) * (h - mean), over=N) / n
    g.output("H", h, "bf16", (M, N))
    out = (h - mean) * rsqrt(var + 1e-5) * cast(gain, "f32") + cast(shift, "f32")
    g.output("Z", out, "bf16", (M, N))


@operator
def nll_entropy(g: Graph, t: int, v: int) -> None:
    """Loss, entropy and gradient of a vocabulary of odd size."""
    T, V = g.axes(t=t, v=v)
    z = cast(g.input("Z", (T, V), "bf16"), "f32")
    label = g.input("label", (T,), "i32", values=indices(v))
    m = reduce("max", z, over=V)
    e = exp(z - m)
    s = reduce("sum", e, over=V)
    lse = m + log(s)
    own = reduce("sum", where(label == V, z, 0.0), over=V)
    g.output("L", lse - own, "f32", (T,))
    g.output("H", lse - reduce("sum", e * z, over=V) / s, "f32", (T,))
    g.output("dZ", (e / s - where(label == V, 1.0, 0.0)) * (1.0 / t), "bf16", (T, V))


@operator
def attentive_pool(g: Graph, b: int, t: int, d: int) -> None:
    """A softmax over time of one score a step, and the mean of the steps weighed by it."""
    B, T, D = g.axes(b=b, t=t, d=d)
    x = cast(g.input("X", (B, T, D), "bf16"), "f32")
    w = g.input("w", (D,), "f32", values=normal(d**-0.5))
    z = reduce("sum", x * w, over=D)
    p = exp(z - reduce("max", z, over=T))
    g.output("Y", reduce("sum", p * x, over=T) / reduce("sum", p, over=T), "f32", (B, D))


@operator
def swiglu_backward(g: Graph, m: int, n: int) -> None:
    """Gradients of both halves, which lie side by side, and what the product was."""
    M, N = g.axes(m=m, n=n)
    both = g.tensor("AB", (m, 2 * n), "bf16")
    a, b = cast(both[M, N], "f32"), cast(both[M, N + n], "f32")
    d = cast(g.input("D", (M, N), "bf16"), "f32")
    s = sigmoid(a)
    g.output("dA", d * b * s * (1.0 + a * (1.0 - s)), "bf16", (M, N))
    g.output("dB", d * a * s, "bf16", (M, N))
    g.output("H", a * s * b, "bf16", (M, N))


@operator
def router(g: Graph, t: int, e: int, d: int) -> None:
    """Scores of experts by a product, their softmax, and the mean of it over tokens."""
    T, E, D = g.axes(t=t, e=e, d=d)
    x = g.input("X", (T, D), "bf16")
    z = contract(x, g.input("W", (E, D), "bf16", values=normal(d**-0.5)), over=D)
    p = exp(z - reduce("max", z, over=E))
    p = p / reduce("sum", p, over=E)
    g.output("P", p, "f32", (T, E))
    g.output("load", reduce("sum", p, over=T) / t, "f32", (E,))


@operator
def norm_backward(g: Graph, m: int, n: int) -> None:
    """Of a layer norm: gradients by its input, gains and shifts."""
    M, N = g.axes(m=m, n=n)
    x, dy = (cast(g.input(s, (M, N), "bf16"), "f32") for s in ("X", "dY"))
    gain = g.input("gain", (N,), "f32", values=uniform(0.5, 1.5))
    mean = reduce("sum", x, over=N) / n
    inv = rsqrt(reduce("sum", (x - mean) * (x - mean), over=N) / n + 1e-5)
    xh = (x - mean) * inv
    dg = dy * gain
    a, q = reduce("sum", dg, over=N) / n, reduce("sum", dg * xh, over=N) / n
    g.output("dX", inv * (dg - a - xh * q), "bf16", (M, N))
    g.output("dgain", reduce("sum", dy * xh, over=M), "f32", (N,))
    g.output("dshift", reduce("sum", dy, over=M), "f32", (N,))


@operator
def weighed_covariance(g: Graph, n: int, d: int) -> None:
    """Of many points with weights: X^T diag(w) X over the sum of weights."""
    N, D, E = g.axes(n=n, d=d, e=d)
    x = g.tensor("X", (n, d), "bf16")
    w = g.input("w", (N,), "bf16", values=uniform(0.0, 1.0))
    c = contract(x[N, D] * w, x[N, E], over=N)
    g.output("C", c / reduce("sum", cast(w, "f32"), over=N), "f32", (D, E))


@operator
def requantised(g: Graph, m: int, n: int, k: int) -> None:
    """A product of bytes with scales of rows and columns, a bias and relu, in bytes again."""
    M, N, K = g.axes(m=m, n=n, k=k)
    y = contract(g.input("A", (M, K), "i8"), g.input("B", (N, K), "i8"), over=K)
    rows, columns = (
        g.input(s, (axis,), "f32", values=uniform(1e-3, 2e-3)) for s, axis in (("sa", M), ("sb", N))
    )
    z = relu(cast(y, "f32") * rows * columns + g.input("bias", (N,), "f32"))
    g.output("Q", minimum(floor(z * 64.0 + 0.5), 127.0), "i8", (M, N))


@operator
def gated_convolution(g: Graph, b: int, t: int, c: int) -> None:
    """Four taps of a causal depthwise convolution, SiLU, and a gate."""
    B, T, C, S = g.axes(b=b, t=t, c=c, s=4)
    x = g.tensor("X", (b, t, c), "bf16", fill=0)
    w = g.input("w", (C, S), "f32", values=normal(0.5))
    y = reduce("sum", cast(x[B, T + S - 3, C], "f32") * w, over=S)
    gate = cast(g.input("gate", (B, T, C), "bf16"), "f32")
    g.output("Y", y * sigmoid(y) * tanh(gate), "bf16", (B, T, C))


@operator
def drawdown(g: Graph, n: int, t: int) -> None:
    """Of returns of many series: the wealth at each step below its best, and the deepest."""
    N, T = g.axes(n=n, t=t)
    r = g.input("R", (N, T), "f32", values=normal(0.01))
    wealth = cumulative("sum", r, along=T)
    below = cumulative("max", wealth, along=T) - wealth
    g.output("D", below, "f32", (N, T))
    g.output("deepest", reduce("max", below, over=T), "f32", (N,))
    g.output("risk", sqrt(reduce("sum", r * r, over=T) / t), "f32", (N,))


@operator
def capped_attention(g: Graph, b: int, h: int, kv: int, t: int, d: int) -> None:
    """Scores under a tangent, a bias by distance, causal; groups of heads share keys."""
    B, G, R, I, J, D, E = g.axes(b=b, g=kv, r=h // kv, i=t, j=t, d=d, e=d)  # noqa: E741
    q = g.input("Q", (B, G, R, I, D), "bf16")
    k, v = g.input("K", (B, G, J, D), "bf16"), g.input("V", (B, G, J, E), "bf16")
    z = 30.0 * tanh(contract(q, k, over=D) * (d**-0.5 / 30.0))
    slope = g.input("slope", (G, R), "f32", values=uniform(0.001, 0.1))
    z = where(g.iota(J) <= I, z - slope * cast(g.iota(I) - J, "f32"), -math.inf)
    p = exp(z - reduce("max", z, over=J))
    o = contract(cast(p, "bf16"), v, over=J) / reduce("sum", p, over=J)
    g.output("O", o, "bf16", (B, G, R, I, E))


@operator
def channel_statistics(g: Graph, n: int, h: int, w: int, c: int) -> None:
    """Mean, deviation and largest of each channel of pictures, and the pictures normalised."""
    N, H, W, C = g.axes(n=n, h=h, w=w, c=c)
    x = cast(g.input("X", (N, H, W, C), "f16"), "f32")
    count = n * h * w
    mean = reduce("sum", x, over=(N, H, W)) / count
    var = reduce("sum", x * x, over=(N, H, W)) / count - mean * mean
    g.output("mean", mean, "f32", (C,))
    g.output("var", var, "f32", (C,))
    g.output("most", reduce("max", absolute(x), over=(N, H, W)), "f32", (C,))
    g.output("Y", (x - mean) * rsqrt(maximum(var, 0.0) + 1e-5), "f16", (N, H, W, C))


EXTENTS = {
    "add_norm": {"small": {"m": 7, "n": 72}, "full": {"m": 32749, "n": 5120}},
    "nll_entropy": {"small": {"t": 7, "v": 53}, "full": {"t": 16381, "v": 50257}},
    "attentive_pool": {
        "small": {"b": 3, "t": 19, "d": 40}, "full": {"b": 251, "t": 2000, "d": 2560},
    },
    "swiglu_backward": {"small": {"m": 7, "n": 40}, "full": {"m": 16381, "n": 11008}},
    "router": {"small": {"t": 21, "e": 16, "d": 32}, "full": {"t": 65521, "e": 160, "d": 5120}},
    "norm_backward": {"small": {"m": 9, "n": 72}, "full": {"m": 32749, "n": 5120}},
    "weighed_covariance": {"small": {"n": 53, "d": 24}, "full": {"n": 1048573, "d": 320}},
    "requantised": {
        "small": {"m": 21, "n": 32, "k": 48}, "full": {"m": 8191, "n": 11008, "k": 4096},
    },
    "gated_convolution": {
        "small": {"b": 2, "t": 13, "c": 24}, "full": {"b": 8, "t": 8191, "c": 5376},
    },
    "drawdown": {"small": {"n": 5, "t": 67}, "full": {"n": 100003, "t": 2521}},
    "capped_attention": {
        "small": {"b": 1, "h": 4, "kv": 2, "t": 40, "d": 32},
        "full": {"b": 4, "h": 32, "kv": 8, "t": 4000, "d": 128},
    },
    "channel_statistics": {
        "small": {"n": 2, "h": 5, "w": 7, "c": 12},
        "full": {"n": 128, "h": 112, "w": 112, "c": 100},
    },
}  # fmt: skip
