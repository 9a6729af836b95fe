"""Programs of many kinds that no file foresees: serving, images, simulation, statistics.

`tilewright tune experiments/corpus/varied.py:NAME full ...`; times are in README.md.
"""

from __future__ import annotations

from ir import (
    Graph,
    absolute,
    argmin,
    cast,
    contract,
    cos,
    cumulative,
    exp,
    log,
    maximum,
    minimum,
    operator,
    philox_uniform,
    reduce,
    rsqrt,
    scatter,
    silu,
    sin,
    sqrt,
    where,
)
from ir.values import indices, normal, permutation


@operator
def drafts(g: Graph, b: int, h: int, kv: int, s: int, t: int, d: int) -> None:
    """A tree of draft tokens: a cache that all see, and bits that say which drafts each sees."""
    B, K, G, I, J, L, D, E = g.axes(b=b, k=kv, g=h // kv, i=t, j=s, l=t, d=d, e=d)  # noqa: E741
    q = g.input("Q", (B, I, K, G, D), "bf16")
    cached = contract(q, g.input("Kc", (B, J, K, D), "bf16"), over=D) * d**-0.5
    own = contract(q, g.input("Kd", (B, L, K, D), "bf16"), over=D) * d**-0.5
    bits = g.input("mask", (B, I), "i64", values=indices(2**31))
    own = where(((bits >> g.iota(L)) & 1) == 1, own, -1e30)
    most = maximum(reduce("max", cached, over=J), reduce("max", own, over=L))
    first, second = exp(cached - most), exp(own - most)
    o = contract(cast(first, "bf16"), g.input("Vc", (B, J, K, E), "bf16"), over=J)
    o = o + contract(cast(second, "bf16"), g.input("Vd", (B, L, K, E), "bf16"), over=L)
    total = reduce("sum", first, over=J) + reduce("sum", second, over=L)
    g.output("O", o / total, "bf16", (B, I, K, G, E))


@operator
def chosen_blocks(g: Graph, b: int, t: int, h: int, d: int, c: int, size: int) -> None:
    """Each query has blocks of keys of its own, which its heads share."""
    B, I, H, C, O, D, E = g.axes(b=b, i=t, h=h, c=c, o=size, d=d, e=d)  # noqa: E741
    q = g.input("Q", (B, I, H, D), "bf16")
    chosen = g.input("chosen", (B, I, C), "i32", values=indices(t // size))
    k, v = g.tensor("K", (b, t, d), "bf16"), g.tensor("V", (b, t, d), "bf16")
    place = chosen * size + O
    s = contract(q, k[B, place, D], over=D) * d**-0.5
    s = where(place <= g.iota(I), s, -1e30)
    p = exp(s - reduce("max", s, over=(C, O)))
    o = contract(cast(p, "bf16"), v[B, place, E], over=(C, O))
    g.output("O", o / reduce("sum", p, over=(C, O)), "bf16", (B, I, H, E))


@operator
def append(g: Graph, t: int, h: int, d: int, pages: int, page: int) -> None:
    """Keys, normalised and turned, go to their places in the pages of a cache."""
    T, H, P, D, S, O = g.axes(t=t, h=h, p=2, d=d // 2, s=pages, o=page)  # noqa: E741
    k = cast(g.input("K", (T, H, P, D), "bf16"), "f32")
    k = k * rsqrt(reduce("sum", k * k, over=(P, D)) / d + 1e-6)
    c, s = g.input("cos", (T, D), "f32"), g.input("sin", (T, D), "f32")
    first, second = k.at(p=0), k.at(p=1)
    y = where(g.iota(P) == 0, first * c - second * s, first * s + second * c)
    slot = g.input("slot", (T,), "i32", values=permutation())
    there = {S: slot // page, O: slot % page, H: g.iota(H), P: g.iota(P), D: g.iota(D)}
    g.output("cache", scatter("sum", y, there), "bf16", (S, O, H, P, D))


@operator
def gated_quantised(g: Graph, m: int, n: int, k: int) -> None:
    """A gated product, quantised to e4m3 with a scale for 128 of a row."""
    I, B, C, K = g.axes(i=m, b=n // 128, c=128, k=k)  # noqa: E741
    x = g.input("X", (I, K), "bf16")
    u = contract(x, g.input("U", (B, C, K), "bf16"), over=K)
    v = contract(x, g.input("V", (B, C, K), "bf16"), over=K)
    h = silu(u) * v
    s = reduce("max", absolute(h), over=C) * (1 / 448)
    g.output("S", s, "f32", (I, B))
    g.output("H", h / maximum(s, 1e-8), "e4m3", (I, B, C))


@operator
def sparse(g: Graph, m: int, n: int, k: int) -> None:
    """Of every four weights two, and bytes that say which."""
    I, J, Q, S = g.axes(i=m, j=n, q=k // 4, s=2)  # noqa: E741
    x, w = g.tensor("X", (m, k), "bf16"), g.input("W", (J, Q, S), "bf16")
    which = cast(g.input("P", (J, Q, S), "u8", values=indices(4)), "i32")
    g.output("Y", contract(x[I, 4 * Q + which], w, over=(Q, S)), "bf16", (I, J))


@operator
def siren(g: Graph, n: int, d: int, w: int) -> None:
    """Two layers of sines and one behind them."""
    N, D, A, B, C = g.axes(n=n, d=d, a=w, b=w, c=d)
    x = g.input("X", (N, D), "bf16")
    first, second = (
        g.input(name, axes, "bf16", values=normal(0.1))
        for name, axes in (("W0", (A, D)), ("W1", (B, A)))
    )
    y = cast(sin(30.0 * contract(x, first, over=D)), "bf16")
    y = cast(sin(contract(y, second, over=A)), "bf16")
    g.output("Y", contract(y, g.input("W2", (C, B), "bf16"), over=B), "bf16", (N, C))


@operator
def pairs(g: Graph, p: int, n: int) -> None:
    """The share of pairs in order: the area under a curve of two kinds of scores."""
    P, N = g.axes(p=p, n=n)
    ordered = where(g.input("P", (P,), "f32") > g.input("N", (N,), "f32"), 1.0, 0.0)
    g.output("A", reduce("sum", ordered, over=(P, N)) * (1.0 / (p * n)), "f32", ())


@operator
def path_means(g: Graph, paths: int, steps: int) -> None:
    """What an option on the mean of a path pays, over drawn paths."""
    P, T = g.axes(p=paths, t=steps)
    place = g.coordinate(P * steps + T)
    radius = sqrt(-2.0 * log(1.0 - philox_uniform(place, seed=3)))
    z = radius * cos(6.2831853 * philox_uniform(place, stream=1, seed=3))
    price = exp(cumulative("sum", z * 0.02 + 0.0001, T))
    pays = maximum(reduce("sum", price, over=T) * (1 / steps) - 1.0, 0.0)
    g.output("V", reduce("sum", pays, over=P) * (1 / paths), "f32", ())


@operator
def assigned(g: Graph, n: int, k: int, d: int) -> None:
    """A step of k-means: the nearest centre of each point, and the means of those that it has."""
    N, K, D = g.axes(n=n, k=k, d=d)
    x, c = g.input("X", (N, D), "f32"), g.input("C", (K, D), "f32")
    nearest = argmin(reduce("sum", c * c, over=D) - 2.0 * contract(x, c, over=D), K)
    count = scatter("sum", g.constant(1.0, "f32") + 0.0 * cast(nearest, "f32"), {K: nearest})
    total = scatter("sum", x, {K: nearest, D: g.iota(D)})
    g.output("nearest", nearest, "i32")
    g.output("means", total / maximum(count, 1.0), "f32", (K, D))


@operator
def median(g: Graph, n: int, h: int, w: int) -> None:
    """The median of nine bytes, by a network of minima and maxima."""
    N, Y, X = g.axes(n=n, y=h, x=w)
    t = g.tensor("I", (n, h, w), "u8", fill=0)
    v = [cast(t[N, Y + a - 1, X + b - 1], "i32") for a in range(3) for b in range(3)]
    network = "12 45 78 01 34 67 12 45 78 03 58 47 36 14 25 47 42 64 42"
    for i, j in (map(int, pair) for pair in network.split()):
        v[i], v[j] = minimum(v[i], v[j]), maximum(v[i], v[j])
    g.output("O", v[4], "u8", (N, Y, X))


@operator
def patches(g: Graph, h: int, w: int, r: int) -> None:
    """Means of neighbours, weighed by how alike their patches of 3 x 3 are."""
    Y, X, A, B, P, Q = g.axes(y=h, x=w, a=2 * r + 1, b=2 * r + 1, p=3, q=3)
    t = g.tensor("I", (h, w), "f32", fill=0)
    apart = t[Y + P - 1, X + Q - 1] - t[Y + P + A - 1 - r, X + Q + B - 1 - r]
    s = exp(-1.0 * reduce("sum", apart * apart, over=(P, Q)))
    v = t[Y + A - r, X + B - r]
    g.output("O", reduce("sum", s * v, over=(A, B)) / reduce("sum", s, over=(A, B)), "f32", (Y, X))


EXTENTS = {
    "drafts": {
        "small": {"b": 1, "h": 4, "kv": 2, "s": 64, "t": 8, "d": 16},
        "full": {"b": 8, "h": 32, "kv": 8, "s": 8192, "t": 32, "d": 128},
    },
    "chosen_blocks": {
        "small": {"b": 1, "t": 64, "h": 16, "d": 16, "c": 2, "size": 16},
        "full": {"b": 1, "t": 8192, "h": 16, "d": 128, "c": 16, "size": 64},
    },
    "append": {
        "small": {"t": 16, "h": 2, "d": 16, "pages": 4, "page": 4},
        "full": {"t": 32768, "h": 8, "d": 128, "pages": 2048, "page": 16},
    },
    "gated_quantised": {
        "small": {"m": 48, "n": 256, "k": 64}, "full": {"m": 4096, "n": 7168, "k": 2048},
    },
    "sparse": {"small": {"m": 32, "n": 32, "k": 64}, "full": {"m": 2048, "n": 2048, "k": 2048}},
    "siren": {"small": {"n": 64, "d": 16, "w": 32}, "full": {"n": 262144, "d": 64, "w": 256}},
    "pairs": {"small": {"p": 100, "n": 200}, "full": {"p": 65536, "n": 65536}},
    "path_means": {
        "small": {"paths": 64, "steps": 16}, "full": {"paths": 262144, "steps": 256},
    },
    "assigned": {"small": {"n": 200, "k": 16, "d": 16}, "full": {"n": 131072, "k": 1024, "d": 64}},
    "median": {"small": {"n": 2, "h": 12, "w": 24}, "full": {"n": 16, "h": 1024, "w": 1024}},
    "patches": {"small": {"h": 12, "w": 24, "r": 2}, "full": {"h": 1024, "w": 1024, "r": 5}},
}  # fmt: skip
