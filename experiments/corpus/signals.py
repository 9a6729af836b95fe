"""Programs of signals, markets and pictures: filters, transforms, lattices, frames.

`tilewright tune experiments/corpus/signals.py:NAME full ...`; what they take is in README.md.
"""

from __future__ import annotations

import math

from ir import (
    Graph,
    absolute,
    ascending,
    cast,
    contract,
    cos,
    cumulative,
    exp,
    floor,
    indices,
    log,
    lookup,
    maximum,
    minimum,
    normal,
    offsets,
    operator,
    philox_uniform,
    popcount,
    positive,
    recur,
    reduce,
    rsqrt,
    scatter,
    sigmoid,
    sin,
    sqrt,
    tanh,
    uniform,
    where,
)


@operator
def ell_rank(g: Graph, n: int, k: int) -> None:
    """A step of PageRank over in-links that are listed by rows, dangling pages, and what moved."""
    N, K = g.axes(n=n, k=k)
    link = g.input("link", (N, K), "i32", values=indices(n))
    rank = g.tensor("R", (n,), "f64", values=uniform(0, 2.0 / n))
    out = g.tensor("out", (n,), "i32", values=uniform(0, 30))
    share = where(out[link] > 0, rank[link] / maximum(cast(out[link], "f64"), 1.0), 0.0)
    dangling = reduce("sum", where(out[N] == 0, rank[N], 0.0), over=N)
    new = 0.15 / n + 0.85 * (reduce("sum", share, over=K) + dangling / n)
    g.output("new", new, "f64", (N,))
    g.output("moved", reduce("sum", absolute(new - rank[N]), over=N), "f64", ())


@operator
def equivariant(g: Graph, e: int, n: int, d: int) -> None:
    """A layer of a graph of points: messages of edges by a product, sums of nodes, moved points."""
    E, N, K, H, C = g.axes(e=e, n=n, k=d, h=d, c=3)
    src, dst = (
        g.input("src", (E,), "i32", values=indices(n)),
        g.input("dst", (E,), "i32", values=indices(n)),
    )
    h, x = g.tensor("H", (n, d), "bf16"), g.tensor("X", (n, 3), "f32")
    a = x[dst, C] - x[src, C]
    r2 = reduce("sum", a * a, over=C)
    ws, wd = (g.input(s, (K, H), "bf16", values=normal(d**-0.5)) for s in ("Ws", "Wd"))
    wr, wx = g.input("wr", (H,), "f32"), g.input("wx", (H,), "f32", values=normal(d**-0.5))
    z = contract(h[src, K], ws, over=K) + contract(h[dst, K], wd, over=K) + r2 * wr
    m = z * sigmoid(z)
    g.output("M", scatter("sum", m, {N: dst, H: g.iota(H)}), "f32", (N, H))
    gate = tanh(reduce("sum", m * wx, over=H))
    move = scatter("sum", a * gate / (sqrt(r2) + 1), {N: dst, C: g.iota(C)})
    g.output("moved", x[N, C] + move, "f32", (N, C))


@operator
def ising(g: Graph, b: int, n: int, parity: int = 0) -> None:
    """A half sweep of a lattice of spins under Metropolis' rule."""
    B, Y, X = g.axes(b=b, y=n, x=n)
    s = g.tensor("S", (b, n, n), "i8", values=uniform(-1, 1))

    def at(dy, dx):
        return cast(s[B, (g.coordinate(Y) + dy) % n, (g.coordinate(X) + dx) % n], "i32")

    own = at(0, 0)
    around = at(1, 0) + at(-1, 0) + at(0, 1) + at(0, -1)
    u = philox_uniform(g.coordinate(B) * (n * n) + g.coordinate(Y * n + X), seed=11)
    flip = (g.coordinate(Y + X) % 2 == parity) & (u < exp(-0.88 * cast(own * around, "f32")))
    g.output("N", where(flip, -own, own), "i8", (B, Y, X))


@operator
def structure_factor(g: Graph, k: int, n: int) -> None:
    """Sums of charges' phases at wave vectors, and the energy of all of them."""
    K, N, D = g.axes(k=k, n=n, d=3)
    v = g.input("K", (K, D), "f32", values=uniform(-6, 6))
    x = g.input("X", (N, D), "f32", values=uniform(0, 1))
    q = g.input("q", (N,), "f32")
    phase = reduce("sum", v * x, over=D)
    re, im = reduce("sum", q * cos(phase), over=N), reduce("sum", q * sin(phase), over=N)
    k2 = reduce("sum", v * v, over=D) + 1e-3
    g.output("S", re * re + im * im, "f32", (K,))
    g.output("E", reduce("sum", exp(-0.01 * k2) / k2 * (re * re + im * im), over=K), "f32", ())


@operator
def escape(g: Graph, h: int, w: int, steps: int) -> None:
    """After how many steps points of a plane escape."""
    T, Y, X = g.axes(t=steps, y=h, x=w)
    cx = g.input("cx", (X,), "f32", values=ascending(-2, 0.5))
    cy = g.input("cy", (Y,), "f32", values=ascending(-1, 1))
    x, y = g.state(T, (Y, X), 0.0), g.state(T, (Y, X), 0.0)
    count = g.state(T, (Y, X), g.constant(0, "i32"))
    inside = x * x + y * y < 4.0
    recur(x, where(inside, x * x - y * y + cx, x))
    recur(y, where(inside, 2 * x * y + cy, y))
    g.output("N", recur(count, count + cast(inside, "i32")), "u16", (Y, X))


@operator
def repeated(g: Graph, n: int, total: int, d: int) -> None:
    """Rows repeated as often as a list says, until there is no room."""
    N, T, D = g.axes(n=n, t=total, d=d)
    times = g.input("times", (N,), "i32", values=uniform(0, 6))
    end = cumulative("sum", times, N)
    start = end - times
    mark = scatter("max", where(times > 0, g.coordinate(N), 0), {T: minimum(start, total - 1)})
    row = maximum(cumulative("max", where(mark < 0, 0, mark), T), 0)
    x = g.tensor("X", (n, d), "bf16")
    g.output(
        "Y",
        where(g.iota(T) < reduce("max", end, over=N), cast(x[row, D], "f32"), 0.0),
        "bf16",
        (T, D),
    )


@operator
def morton(g: Graph, n: int) -> None:
    """Places along a curve through the box that holds all points."""
    N, D = g.axes(n=n, d=3)
    x = g.input("X", (N, D), "f32")
    low, high = reduce("min", x, over=N), reduce("max", x, over=N)
    q = cast(minimum(floor((x - low) / (high - low) * 1024), 1023.0), "i32")
    for shift, mask in ((16, 0x030000FF), (8, 0x0300F00F), (4, 0x030C30C3), (2, 0x09249249)):
        q = (q | (q << shift)) & mask
    g.output("code", reduce("sum", q << g.iota(D), over=D), "i32", (N,))


@operator
def sketch(g: Graph, b: int, n: int, bits: int) -> None:
    """Distinct keys of streams, by the longest runs of zeros in buckets of their hashes."""
    B, N, M = g.axes(b=b, n=n, m=1 << bits)
    x = g.input("X", (B, N), "i64", values=uniform(0, 2**40))
    h = (x ^ (x >> 20)) & 0xFFFFFFFF
    h = ((h ^ (h >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    h = ((h ^ (h >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    h = h ^ (h >> 16)
    rest = h >> bits
    v = rest
    for s in (1, 2, 4, 8, 16):
        v = v | (v >> s)
    rank = 32 - bits - popcount(v) + 1
    reg = scatter("max", cast(rank, "i32"), {B: g.iota(B), M: cast(h & ((1 << bits) - 1), "i32")})
    reg = maximum(reg, 0)
    z = reduce("sum", exp(cast(reg, "f32") * -math.log(2)), over=M)
    g.output(
        "estimate", 0.7213 / (1 + 1.079 / (1 << bits)) * float((1 << bits) ** 2) / z, "f32", (B,)
    )


@operator
def nv12(g: Graph, b: int, h: int, w: int, oh: int, ow: int) -> None:
    """Frames of a decoder: brightness and colours to normalised, resized planes of f16."""
    B, C, Y, X = g.axes(b=b, c=3, y=oh, x=ow)
    luma, uv = g.tensor("Y8", (b, h, w), "u8"), g.tensor("UV", (b, h // 2, w // 2, 2), "u8")
    fy, fx = (cast(g.iota(a), "f32") * (s / o) for a, s, o in ((Y, h, oh), (X, w, ow)))
    y0, x0 = cast(floor(fy), "i32"), cast(floor(fx), "i32")
    ty, tx = fy - floor(fy), fx - floor(fx)
    y1, x1 = minimum(y0 + 1, h - 1), minimum(x0 + 1, w - 1)

    def wide(t):
        return cast(t, "f32")

    lum = (wide(luma[B, y0, x0]) * (1 - tx) + wide(luma[B, y0, x1]) * tx) * (1 - ty) + (
        wide(luma[B, y1, x0]) * (1 - tx) + wide(luma[B, y1, x1]) * tx
    ) * ty
    u, v = (wide(uv[B, y0 // 2, x0 // 2, k]) - 128 for k in (0, 1))
    base = 1.164 * (lum - 16)
    rgb = where(
        g.iota(C) == 0,
        base + 1.596 * v,
        where(g.iota(C) == 1, base - 0.392 * u - 0.813 * v, base + 2.017 * u),
    )
    mean = lookup([123.7, 116.3, 103.5], g.iota(C))
    std = lookup([58.4, 57.1, 57.4], g.iota(C))
    g.output("P", (minimum(maximum(rgb, 0.0), 255.0) - mean) / std, "f16", (B, C, Y, X))


@operator
def demosaic(g: Graph, b: int, h: int, w: int) -> None:
    """Colours of a Bayer pattern by averages of neighbours, by the parities of a pixel."""
    B, Y, X, C = g.axes(b=b, y=h, x=w, c=3)
    raw = g.tensor("R", (b, h, w), "u16", fill=0)

    def s(*around):
        total = None
        for dy, dx in around:
            v = cast(raw[B, Y + dy, X + dx], "f32")
            total = v if total is None else total + v
        return total / len(around)

    own, cross = s((0, 0)), s((0, 1), (0, -1), (1, 0), (-1, 0))
    diag = s((1, 1), (1, -1), (-1, 1), (-1, -1))
    hor, ver = s((0, 1), (0, -1)), s((1, 0), (-1, 0))
    ye, xe = g.coordinate(Y) % 2 == 0, g.coordinate(X) % 2 == 0
    red = where(ye, where(xe, own, hor), where(xe, ver, diag))
    green = where(ye == xe, cross, own)
    blue = where(ye, where(xe, diag, ver), where(xe, hor, own))
    g.output(
        "RGB", where(g.iota(C) == 0, red, where(g.iota(C) == 1, green, blue)), "f16", (B, Y, X, C)
    )


@operator
def hough(g: Graph, b: int, n: int, angles: int, r: int) -> None:
    """Votes of edge points for lines."""
    B, N, A, R = g.axes(b=b, n=n, a=angles, r=r)
    x, y = (g.input(s, (B, N), "f32", values=uniform(0, 1)) for s in "XY")
    w = g.input("W", (B, N), "f32", values=positive())
    t = g.iota(A) * (math.pi / angles)
    rho = cast(floor((x * cos(t) + y * sin(t) + 1) * (r / 3.0)), "i32")
    g.output(
        "V",
        scatter("sum", w + 0 * cast(rho, "f32"), {B: g.iota(B), A: g.iota(A), R: rho}),
        "f32",
        (B, A, R),
    )


@operator
def autocorrelation(g: Graph, b: int, n: int, lags: int) -> None:
    """Of centred series, at the first lags, normalised."""
    B, T, L = g.axes(b=b, t=n, l=lags)
    x = g.input("X", (B, T), "f32")
    c = x - reduce("sum", x, over=T) / n
    s = reduce("sum", c * c.at(t=T + L, fill=0), over=T)
    g.output("R", s / (reduce("sum", c * c, over=T) + 1e-9), "f32", (B, L))


@operator
def rolling_score(g: Graph, b: int, n: int, w: int) -> None:
    """How many deviations a price is off the mean of its window, in f64 by running sums."""
    T, B = g.axes(t=n, b=b)
    x = cast(g.input("X", (T, B), "f32"), "f64")
    s, q = cumulative("sum", x, T), cumulative("sum", x * x, T)
    mean = (s - s.at(t=T - w, fill=0)) / w
    var = (q - q.at(t=T - w, fill=0)) / w - mean * mean
    z = (x - mean) / sqrt(maximum(var, 1e-9))
    g.output("Z", where(g.iota(T) >= w - 1, z, 0.0), "f32", (T, B))


@operator
def levinson(g: Graph, b: int, n: int) -> None:
    """Coefficients of linear prediction from autocorrelations."""
    T, B, J = g.axes(t=n, b=b, j=n + 1)
    r = g.tensor("R", (b, n + 1), "f32", values=uniform(-0.02, 0.02))
    r0 = 1.0 + absolute(r[B, 0])
    a = g.state(T, (B, J), where(g.iota(J) == 0, 1.0, 0.0))
    e = g.state(T, (B,), r0)
    m = g.coordinate(T + 1)
    back = m - g.coordinate(J)
    known = where(g.iota(J) <= g.iota(T), a * r[B, minimum(maximum(back, 0), n)], 0.0)
    k = -reduce("sum", known, over=J) / e
    turned = where(back >= 0, a.at(j=minimum(maximum(back, 0), n)), 0.0)
    new = a + k * turned
    g.output("A", recur(a, new), "f32", (B, J))
    g.output("E", recur(e, e * (1 - k * k)), "f32", (B,))


@operator
def gram_schmidt(g: Graph, b: int, m: int, n: int) -> None:
    """Orthonormal columns of small matrices, one step a column."""
    T, B, I, J = g.axes(t=n, b=b, i=m, j=n)  # noqa: E741
    a = g.input("A", (B, I, J), "f32")
    q = g.state(T, (B, I, J), a)
    own = q.at(j=T)
    unit = own * rsqrt(reduce("sum", own * own, over=I) + 1e-12)
    along = reduce("sum", q * unit, over=I)
    new = where(g.iota(J) == T, unit, where(g.iota(J) > T, q - unit * along, q))
    g.output("Q", recur(q, new), "f32", (B, I, J))


@operator
def mean_pool(g: Graph, b: int, total: int, longest: int, d: int) -> None:
    """Sentences: means of their tokens by offsets, made of length one."""
    B, J, D = g.axes(b=b, j=longest, d=d)
    start = g.input("start", (g.axis("s", b + 1),), "i32", values=offsets(total))
    x = g.tensor("X", (total, d), "bf16")
    first, end = start.at(s=B), start.at(s=B + 1)
    at = first + g.iota(J)
    v = where(at < end, cast(x[minimum(at, total - 1), D], "f32"), 0.0)
    mean = reduce("sum", v, over=J) / cast(maximum(end - first, 1), "f32")
    g.output("Y", mean * rsqrt(reduce("sum", mean * mean, over=D) + 1e-12), "f16", (B, D))


@operator
def rabin_karp(g: Graph, b: int, n: int, w: int) -> None:
    """Hashes of all windows of bytes modulo a prime, and the first that is like a pattern's."""
    B, T, W = g.axes(b=b, t=n - w + 1, w=w)
    x = g.tensor("X", (b, n), "u8", values=uniform(0, 3))
    p = g.input("P", (W,), "u8", values=uniform(0, 3))
    q = 2147483647
    weight = g.input("weight", (W,), "i64", values=uniform(0, q - 1))
    h = reduce("sum", cast(x[B, T + W], "i64") * weight, over=W) % q
    want = reduce("sum", cast(p, "i64") * weight, over=W) % q
    g.output("H", h, "i64", (B, T))
    g.output("first", reduce("min", where(h == want, g.coordinate(T), n), over=T), "i32", (B,))


@operator
def forest(g: Graph, n: int, f: int, trees: int, depth: int) -> None:
    """Boosted trees whose levels ask one question each, on features in bytes."""
    N, T, D = g.axes(n=n, t=trees, d=depth)
    x = g.tensor("X", (n, f), "u8", values=uniform(0, 255))
    feature = g.input("feature", (T, D), "i32", values=indices(f))
    border = g.input("border", (T, D), "u8", values=uniform(0, 255))
    leaf = g.tensor("leaf", (trees, 1 << depth), "f32")
    bit = cast(x[N, feature] > border, "i32")
    at = reduce("sum", bit << g.iota(D), over=D)
    g.output("Y", reduce("sum", leaf[T, at], over=T), "f32", (N,))


@operator
def black_scholes_greeks(g: Graph, n: int) -> None:
    """Prices and three greeks of options, in f64 from f32 quotes."""
    (N,) = g.axes(n=n)
    s, k = (g.input(x, (N,), "f32", values=uniform(80, 120)) for x in ("S", "K"))
    t, v = (
        g.input("T", (N,), "f32", values=uniform(0.1, 2)),
        g.input("V", (N,), "f32", values=uniform(0.1, 0.5)),
    )
    from ir import erf

    s, k, t, v = (cast(x, "f64") for x in (s, k, t, v))
    root = v * sqrt(t)
    d1 = (log(s / k) + (0.03 + 0.5 * v * v) * t) / root
    d2 = d1 - root

    def cdf(x):
        return 0.5 * (1 + erf(x * 2**-0.5))

    disc = k * exp(-0.03 * t)
    pdf = exp(-0.5 * d1 * d1) * (2 * math.pi) ** -0.5
    g.output("call", s * cdf(d1) - disc * cdf(d2), "f32", (N,))
    g.output("delta", cdf(d1), "f32", (N,))
    g.output("gamma", pdf / (s * root), "f32", (N,))
    g.output("vega", s * pdf * sqrt(t), "f32", (N,))


EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "ell_rank": {"small": {"n": 61, "k": 7}, "full": {"n": 16777213, "k": 16}},
    "equivariant": {
        "small": {"e": 70, "n": 19, "d": 32},
        "full": {"e": 4194301, "n": 131071, "d": 128},
    },
    "ising": {"small": {"b": 2, "n": 10}, "full": {"b": 16, "n": 8192}},
    "structure_factor": {"small": {"k": 17, "n": 45}, "full": {"k": 8191, "n": 1048573}},
    "escape": {
        "small": {"h": 7, "w": 13, "steps": 20},
        "full": {"h": 8191, "w": 16381, "steps": 256},
    },
    "repeated": {
        "small": {"n": 17, "total": 60, "d": 16},
        "full": {"n": 1048573, "total": 3145728, "d": 256},
    },
    "morton": {"small": {"n": 71}, "full": {"n": 134217689}},
    "sketch": {"small": {"b": 3, "n": 90, "bits": 4}, "full": {"b": 64, "n": 4194301, "bits": 12}},
    "nv12": {
        "small": {"b": 2, "h": 12, "w": 18, "oh": 7, "ow": 11},
        "full": {"b": 128, "h": 2160, "w": 3840, "oh": 1024, "ow": 1024},
    },
    "demosaic": {"small": {"b": 1, "h": 9, "w": 14}, "full": {"b": 48, "h": 3000, "w": 4000}},
    "hough": {
        "small": {"b": 2, "n": 30, "angles": 12, "r": 20},
        "full": {"b": 64, "n": 65521, "angles": 180, "r": 1024},
    },
    "autocorrelation": {
        "small": {"b": 3, "n": 61, "lags": 9},
        "full": {"b": 2048, "n": 131071, "lags": 64},
    },
    "rolling_score": {
        "small": {"b": 6, "n": 47, "w": 8},
        "full": {"b": 4099, "n": 65536, "w": 240},
    },
    "levinson": {"small": {"b": 5, "n": 8}, "full": {"b": 1048573, "n": 24}},
    "gram_schmidt": {"small": {"b": 3, "m": 11, "n": 6}, "full": {"b": 65521, "m": 64, "n": 32}},
    "mean_pool": {
        "small": {"b": 5, "total": 40, "longest": 17, "d": 24},
        "full": {"b": 16381, "total": 2097152, "longest": 8192, "d": 768},
    },
    "rabin_karp": {"small": {"b": 2, "n": 40, "w": 5}, "full": {"b": 16, "n": 8388608, "w": 16}},
    "forest": {
        "small": {"n": 23, "f": 9, "trees": 7, "depth": 4},
        "full": {"n": 8388593, "f": 100, "trees": 500, "depth": 6},
    },
    "black_scholes_greeks": {"small": {"n": 77}, "full": {"n": 67108859}},
}
