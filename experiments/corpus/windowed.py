"""Programs of windows, patches, pairs and statistics that no other file foresees.

`tilewright tune experiments/corpus/windowed.py:NAME full ...`; what they take is in README.md.
"""

from __future__ import annotations

import math

from ir import (
    Graph,
    cast,
    contract,
    cos,
    cumulative,
    exp,
    floor,
    maximum,
    minimum,
    operator,
    reduce,
    rsqrt,
    sin,
    where,
)
from ir.values import normal, uniform


@operator
def swin(g: Graph, b: int, h: int, n: int, w: int, d: int) -> None:
    """Shifted window attention with a bias by relative position and a mask of regions."""
    B, H, Y, X, I, J, K, L, D, E = g.axes(  # noqa: E741
        b=b, h=h, wy=n // w, wx=n // w, iy=w, ix=w, jy=w, jx=w, d=d, e=d
    )
    q, k, v = (
        g.input(s, (B, Y, X, H, *a, c), "bf16")
        for s, a, c in (("Q", (I, J), D), ("K", (K, L), D), ("V", (K, L), E))
    )
    bias = g.tensor("bias", (h, 2 * w - 1, 2 * w - 1), "f32")
    s = contract(q, k, over=D) * d**-0.5 + bias[H, I - K + (w - 1), J - L + (w - 1)]
    half = w // 2

    def region(big, small):
        return where((g.iota(big) == n // w - 1) & (g.iota(small) >= w - half), 1, 0)

    same = (region(Y, I) == region(Y, K)) & (region(X, J) == region(X, L))
    s = where(same, s, -1e9)
    p = exp(s - reduce("max", s, over=(K, L)))
    o = contract(cast(p, "bf16"), v, over=(K, L)) / reduce("sum", p, over=(K, L))
    g.output("O", o, "bf16", (B, Y, X, H, I, J, E))


@operator
def windows_in_place(g: Graph, b: int, h: int, n: int, w: int, d: int) -> None:
    """Windows of an image as it lies."""
    B, H, Y, X, I, J, K, L, D, E = g.axes(  # noqa: E741
        b=b, h=h, wy=n // w, wx=n // w, iy=w, ix=w, jy=w, jx=w, d=d, e=d
    )
    t = {s: g.tensor(s, (b, n, n, h, d), "bf16") for s in ("Q", "K", "V")}
    s = (
        contract(
            t["Q"][B, Y * w + I, X * w + J, H, D], t["K"][B, Y * w + K, X * w + L, H, D], over=D
        )
        * d**-0.5
    )
    p = exp(s - reduce("max", s, over=(K, L)))
    o = contract(cast(p, "bf16"), t["V"][B, Y * w + K, X * w + L, H, E], over=(K, L)) / reduce(
        "sum", p, over=(K, L)
    )
    g.output("O", o, "bf16", (B, Y, X, I, J, H, E))


@operator
def swin_rolled(g: Graph, b: int, h: int, n: int, w: int, d: int) -> None:
    """Windows of an image as it lies, rolled by half a window."""
    B, H, Y, X, I, J, K, L, D, E = g.axes(  # noqa: E741
        b=b, h=h, wy=n // w, wx=n // w, iy=w, ix=w, jy=w, jx=w, d=d, e=d
    )
    t = {s: g.tensor(s, (b, n, n, h, d), "bf16") for s in ("Q", "K", "V")}
    half = w // 2

    def at(name, a, c, last):
        return t[name][
            B, (g.coordinate(Y * w + a) + half) % n, (g.coordinate(X * w + c) + half) % n, H, last
        ]

    s = contract(at("Q", I, J, D), at("K", K, L, D), over=D) * d**-0.5
    p = exp(s - reduce("max", s, over=(K, L)))
    o = contract(cast(p, "bf16"), at("V", K, L, E), over=(K, L)) / reduce("sum", p, over=(K, L))
    g.output("O", o, "bf16", (B, Y, X, I, J, H, E))


@operator
def patch_embed(g: Graph, n: int, h: int, p: int, f: int) -> None:
    """Patches of an image, times weights, plus places, and a norm."""
    N, Y, X, C, R, S, F = g.axes(n=n, y=h // p, x=h // p, c=3, r=p, s=p, f=f)
    t = g.tensor("I", (n, 3, h, h), "bf16")
    y = contract(t[N, C, Y * p + R, X * p + S], g.input("W", (F, C, R, S), "bf16"), over=(C, R, S))
    y = y + g.input("pos", (Y, X, F), "f32")
    m = reduce("sum", y, over=F) * (1 / f)
    v = reduce("sum", (y - m) * (y - m), over=F) * (1 / f)
    g.output("E", (y - m) * rsqrt(v + 1e-6), "bf16", (N, Y, X, F))


@operator
def haar(g: Graph, n: int, h: int) -> None:
    """A step of a wavelet in both directions: four images of half the size."""
    N, Q, Y, X = g.axes(n=n, q=4, y=h // 2, x=h // 2)
    t = g.tensor("I", (n, h, h), "f32")
    a, b, c, d = (t[N, 2 * Y + i, 2 * X + j] for i in (0, 1) for j in (0, 1))
    v = where(
        g.iota(Q) == 0,
        a + b + c + d,
        where(g.iota(Q) == 1, a - b + c - d, where(g.iota(Q) == 2, a + b - c - d, a - b - c + d)),
    )
    g.output("O", 0.5 * v, "f32", (N, Q, Y, X))


@operator
def kv_quantise(g: Graph, b: int, s: int, h: int, d: int) -> None:
    """Keys by channels and values by rows, to 4 bits with scale and zero."""
    B, S, H, D = g.axes(b=b, s=s, h=h, d=d)
    x = cast(g.input("X", (B, S, H, D), "bf16"), "f32")
    lo, hi = reduce("min", x, over=D), reduce("max", x, over=D)
    s_ = maximum((hi - lo) * (1 / 15), 1e-6)
    g.output(
        "Q", cast(minimum(maximum(floor((x - lo) / s_ + 0.5), 0.0), 15.0), "u8"), "u4", (B, S, H, D)
    )
    g.output("scale", s_, "f16", (B, S, H))
    g.output("zero", lo, "f16", (B, S, H))


@operator
def drawdown(g: Graph, p: int, t: int) -> None:
    """The largest loss since the highest value so far of each path, and the time under water."""
    P, T = g.axes(p=p, t=t)
    x = cumulative("sum", g.input("R", (P, T), "f32", values=normal(0.01)), T)
    most = cumulative("max", x, T)
    g.output("D", reduce("max", most - x, over=T), "f32", (P,))
    g.output(
        "under", reduce("sum", where(most - x > 0.05, 1.0, 0.0), over=T) * (1 / t), "f32", (P,)
    )


@operator
def layernorm_backward(g: Graph, m: int, n: int) -> None:
    """Gradients of x, gain and bias."""
    I, J = g.axes(i=m, j=n)  # noqa: E741
    x, dy = cast(g.input("X", (I, J), "bf16"), "f32"), cast(g.input("dY", (I, J), "bf16"), "f32")
    w = g.input("w", (J,), "f32")
    mu = reduce("sum", x, over=J) * (1 / n)
    r = rsqrt(reduce("sum", (x - mu) * (x - mu), over=J) * (1 / n) + 1e-5)
    h = (x - mu) * r
    gw = dy * w
    dx = r * (
        gw - reduce("sum", gw, over=J) * (1 / n) - h * (reduce("sum", gw * h, over=J) * (1 / n))
    )
    g.output("dX", dx, "bf16", (I, J))
    g.output("dW", reduce("sum", dy * h, over=I), "f32", (J,))
    g.output("dB", reduce("sum", dy, over=I), "f32", (J,))


@operator
def covariance(g: Graph, n: int, d: int) -> None:
    """Means and the covariance of columns."""
    N, I, J = g.axes(n=n, i=d, j=d)  # noqa: E741
    t = g.tensor("X", (n, d), "bf16")
    m = reduce("sum", cast(t[N, I], "f32"), over=N) * (1 / n)
    mj = reduce("sum", cast(t[N, J], "f32"), over=N) * (1 / n)
    c = contract(t[N, I], t[N, J], over=N) * (1 / n) - m * mj
    g.output("C", c, "f32", (I, J))
    g.output("M", m, "f32", (I,))


@operator
def sinks(g: Graph, b: int, h: int, kv: int, s: int, d: int, w: int) -> None:
    """Sliding windows, groups of heads, and a learned logit of each head in the denominator."""
    B, K, G, I, J, D, E = g.axes(b=b, k=kv, g=h // kv, i=s, j=s, d=d, e=d)  # noqa: E741
    q = g.input("Q", (B, I, K, G, D), "bf16")
    k, v = g.input("K", (B, J, K, D), "bf16"), g.input("V", (B, J, K, E), "bf16")
    sink = g.input("sink", (K, G), "f32")
    x = contract(q, k, over=D) * d**-0.5
    x = where((g.iota(J) <= g.iota(I)) & (g.iota(J) > g.iota(I) - w), x, -math.inf)
    m = maximum(reduce("max", x, over=J), sink)
    p = exp(x - m)
    o = contract(cast(p, "bf16"), v, over=J) / (reduce("sum", p, over=J) + exp(sink - m))
    g.output("O", o, "bf16", (B, I, K, G, E))


@operator
def differential(g: Graph, b: int, h: int, s: int, d: int) -> None:
    """The difference of two softmaxes, times values, and a norm of each head."""
    B, H, I, J, D, E = g.axes(b=b, h=h, i=s, j=s, d=d, e=2 * d)  # noqa: E741
    lam = g.input("lam", (H,), "f32", values=uniform(0.2, 0.8))

    def weights(n):
        x = (
            contract(
                g.input("Q" + n, (B, H, I, D), "bf16"),
                g.input("K" + n, (B, H, J, D), "bf16"),
                over=D,
            )
            * d**-0.5
        )
        x = where(g.iota(J) <= g.iota(I), x, -math.inf)
        p = exp(x - reduce("max", x, over=J))
        return p, reduce("sum", p, over=J)

    v = g.input("V", (B, H, J, E), "bf16")
    (p, a), (q, c) = weights("1"), weights("2")
    o = contract(cast(p, "bf16"), v, over=J) / a - lam * contract(cast(q, "bf16"), v, over=J) / c
    o = o * rsqrt(reduce("sum", o * o, over=E) / (2 * d) + 1e-5)
    g.output("O", o, "bf16", (B, H, I, E))


@operator
def muon(g: Graph, b: int, n: int, m: int) -> None:
    """A step of Newton and Schulz: a X + (b A + c A A) X with A = X X^T."""
    B, I, J, K, L, M = g.axes(b=b, i=n, j=n, k=n, l=m, m=m)  # noqa: E741
    t = g.tensor("X", (b, n, m), "bf16", values=normal(1 / math.sqrt(m)))
    A = cast(contract(t[B, I, L], t[B, J, L], over=L), "bf16")
    AA = contract(A, A.at(i=J, j=K), over=J)
    P = cast(AA * 2.0315 - 4.775 * cast(A.at(j=K), "f32"), "bf16")
    y = 3.4445 * t[B, I, M] + contract(P, t[B, K, M], over=K)
    g.output("Y", y, "bf16", (B, I, M))


@operator
def rope2d(g: Graph, b: int, h: int, n: int, d: int) -> None:
    """Attention over a grid whose positions turn halves of heads, angles computed."""
    B, H, I, J, P, D, E = g.axes(b=b, h=h, i=n * n, j=n * n, p=2, d=d // 2, e=d)  # noqa: E741

    def turned(name, axis):
        x = g.input(name, (B, H, axis, P, D), "bf16")
        at = where(g.iota(D) < d // 4, g.iota(axis) // n, g.iota(axis) % n)
        angle = cast(at, "f32") * exp(
            cast(g.iota(D) % (d // 4), "f32") * (-math.log(100.0) * 4 / d)
        )
        a, b_ = cast(x.at(p=0), "f32"), cast(x.at(p=1), "f32")
        c, s = cos(angle), sin(angle)
        return cast(where(g.iota(P) == 0, a * c - b_ * s, a * s + b_ * c), "bf16")

    s = contract(turned("Q", I), turned("K", J), over=(P, D)) * d**-0.5
    p = exp(s - reduce("max", s, over=J))
    o = contract(cast(p, "bf16"), g.input("V", (B, H, J, E), "bf16"), over=J) / reduce(
        "sum", p, over=J
    )
    g.output("O", o, "bf16", (B, H, I, E))


@operator
def block_diag(g: Graph, m: int, h: int, d: int) -> None:
    """Monarch: block-diagonal, a transposition, block-diagonal."""
    I, A, B, K, L = g.axes(i=m, a=h, b=d, k=h, l=d)  # noqa: E741
    x = g.tensor("X", (m, h * d), "bf16")[I, A * d + L]
    y = cast(contract(x, g.input("W1", (A, B, L), "bf16"), over=L), "bf16")
    z = contract(y.at(a=K), g.input("W2", (B, A, K), "bf16"), over=K)
    g.output("Z", z, "bf16", (I, A, B))


@operator
def streaming(g: Graph, b: int, h: int, s: int, d: int, window: int, first: int) -> None:
    """Causal attention to the first keys and to a window, as caches keep them that stream."""
    B, H, I, J, D, E = g.axes(b=b, h=h, i=s, j=s, d=d, e=d)  # noqa: E741
    q, k, v = (
        g.input(n, (B, H, a, c), "bf16") for n, a, c in (("Q", I, D), ("K", J, D), ("V", J, E))
    )
    kept = ((g.iota(J) < first) | (g.iota(I) - g.iota(J) < window)) & (g.iota(J) <= I)
    scores = where(kept, contract(q, k, over=D) * d**-0.5, -math.inf)
    p = exp(scores - reduce("max", scores, over=J))
    o = contract(cast(p, "bf16"), v, over=J) / reduce("sum", p, over=J)
    g.output("O", o, "bf16", (B, H, I, E))


EXTENTS = {
    "swin": {
        "small": {"b": 1, "h": 2, "n": 16, "w": 8, "d": 16},
        "full": {"b": 64, "h": 6, "n": 56, "w": 7, "d": 32},
    },
    "windows_in_place": {
        "small": {"b": 1, "h": 2, "n": 16, "w": 8, "d": 16},
        "full": {"b": 64, "h": 6, "n": 64, "w": 8, "d": 32},
    },
    "swin_rolled": {
        "small": {"b": 1, "h": 2, "n": 14, "w": 7, "d": 16},
        "full": {"b": 64, "h": 6, "n": 56, "w": 7, "d": 32},
    },
    "patch_embed": {
        "small": {"n": 1, "h": 32, "p": 8, "f": 48},
        "full": {"n": 64, "h": 224, "p": 14, "f": 1024},
    },
    "haar": {"small": {"n": 2, "h": 18}, "full": {"n": 16, "h": 2048}},
    "kv_quantise": {
        "small": {"b": 1, "s": 9, "h": 2, "d": 32},
        "full": {"b": 8, "s": 8192, "h": 8, "d": 128},
    },
    "drawdown": {"small": {"p": 5, "t": 67}, "full": {"p": 65536, "t": 1024}},
    "layernorm_backward": {"small": {"m": 19, "n": 130}, "full": {"m": 8192, "n": 4096}},
    "covariance": {"small": {"n": 90, "d": 40}, "full": {"n": 262144, "d": 512}},
    "sinks": {
        "small": {"b": 1, "h": 4, "kv": 2, "s": 96, "d": 32, "w": 24},
        "full": {"b": 2, "h": 64, "kv": 8, "s": 8192, "d": 64, "w": 128},
    },
    "differential": {
        "small": {"b": 1, "h": 2, "s": 80, "d": 16},
        "full": {"b": 2, "h": 16, "s": 4096, "d": 64},
    },
    "muon": {"small": {"b": 1, "n": 48, "m": 64}, "full": {"b": 8, "n": 1024, "m": 4096}},
    "rope2d": {
        "small": {"b": 1, "h": 2, "n": 6, "d": 32},
        "full": {"b": 8, "h": 16, "n": 32, "d": 64},
    },
    "block_diag": {"small": {"m": 20, "h": 4, "d": 16}, "full": {"m": 16384, "h": 64, "d": 64}},
    "streaming": {
        "small": {"b": 1, "h": 1, "s": 70, "d": 16, "window": 9, "first": 4},
        "full": {"b": 1, "h": 16, "s": 16384, "d": 128, "window": 1024, "first": 64},
    },
}
