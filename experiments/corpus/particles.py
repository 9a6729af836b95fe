"""Programs of science, signals and data: particles, wavelets, hashes, sketches.

`tilewright tune experiments/corpus/particles.py:NAME full ...`; what they take is in README.md.
"""

from __future__ import annotations

import math

from ir import (
    Graph,
    absolute,
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
    operator,
    philox_uniform,
    positive,
    recur,
    reduce,
    scatter,
    sin,
    sqrt,
    top,
    uniform,
    where,
)


def _crc():
    out = []
    for i in range(256):
        c = i
        for _ in range(8):
            c = (c >> 1) ^ (0xEDB88320 if c & 1 else 0)
        out.append(c)
    return out


@operator
def sph(g: Graph, n: int, m: int) -> None:
    """Densities of smoothed particles by a cubic spline, and pressures between all pairs."""
    I, J, D = g.axes(i=n, j=m, d=3)  # noqa: E741
    x = g.input("X", (I, D), "f32", values=uniform(0, 1))
    y = g.input("Y", (J, D), "f32", values=uniform(0, 1))
    p = g.input("P", (J,), "f32", values=positive())
    away = x - y
    r = sqrt(reduce("sum", away * away, over=D) + 1e-9)
    q = r * 8.0
    w = where(q < 1, 1 - 1.5 * q * q + 0.75 * q**3, where(q < 2, 0.25 * (2 - q) ** 3, 0.0))
    g.output("rho", reduce("sum", w, over=J), "f32", (I,))
    dw = where(q < 1, -3 * q + 2.25 * q * q, where(q < 2, -0.75 * (2 - q) ** 2, 0.0))
    g.output("F", reduce("sum", p * dw / r * away, over=J), "f32", (I, D))


@operator
def periodic_pairs(g: Graph, n: int, m: int) -> None:
    """Lennard-Jones with a cutoff in a periodic box: energies and the virial."""
    I, J, D = g.axes(i=n, j=m, d=3)  # noqa: E741
    x = g.input("X", (I, D), "f32", values=uniform(0, 10))
    y = g.input("Y", (J, D), "f32", values=uniform(0, 10))
    a = x - y
    a = a - 10.0 * round(a * 0.1)
    r2 = reduce("sum", a * a, over=D)
    near = (r2 < 6.25) & (r2 > 0.04)
    s = 1.0 / where(near, r2, 1.0)
    s6 = s * s * s * 1e-2
    g.output("E", reduce("sum", where(near, 4 * (s6 * s6 - s6), 0.0), over=J), "f32", (I,))
    g.output("W", reduce("sum", where(near, 24 * (2 * s6 * s6 - s6), 0.0), over=(I, J)), "f32", ())


@operator
def diffusivity(g: Graph, z: int, y: int, x: int) -> None:
    """One application of div(k grad u) with a coefficient at each point, in f64, on a grid."""
    Z, Y, X = g.axes(z=z, y=y, x=x)
    u = g.tensor("U", (z, y, x), "f64", fill=0)
    k = g.tensor("K", (z, y, x), "f64", fill=0)
    c, kc = u[Z, Y, X], k[Z, Y, X]
    total = None
    for dz, dy, dx in ((1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)):
        flow = 0.5 * (kc + k[Z + dz, Y + dy, X + dx]) * (u[Z + dz, Y + dy, X + dx] - c)
        total = flow if total is None else total + flow
    g.output("R", total, "f64", (Z, Y, X))


@operator
def resampled(g: Graph, b: int, n: int, up: int, down: int, taps: int) -> None:
    """Rational resampling by a polyphase filter."""
    B, T, K = g.axes(b=b, t=n * up // down, k=taps)
    x = g.tensor("X", (b, n), "f32", fill=0)
    h = g.tensor("H", (taps * up,), "f32", values=normal(taps**-0.5))
    t = g.coordinate(T) * down
    y = reduce("sum", x[B, t // up - K] * h[t % up + up * g.iota(K)], over=K)
    g.output("Y", y, "f32", (B, T))


@operator
def mdct(g: Graph, b: int, f: int, n: int) -> None:
    """The modified cosine transform of windowed frames that overlap by half."""
    B, F, K, W = g.axes(b=b, f=f, k=n, w=2 * n)
    x = g.tensor("X", (b, (f + 1) * n), "f32")
    c = g.input("C", (W, K), "f32", values=uniform(-1, 1))
    frame = x[B, F * n + W] * sin((g.iota(W) + 0.5) * (math.pi / (2 * n)))
    g.output("Y", contract(frame, c, over=W), "f32", (B, F, K))


@operator
def lifting(g: Graph, b: int, n: int) -> None:
    """The whole-number wavelet of JPEG 2000, rows of 16 bits."""
    B, I = g.axes(b=b, i=n // 2)  # noqa: E741
    x = g.tensor("X", (b, n), "i16", values=uniform(-500, 500))

    def at(k):
        k = g.coordinate(k)
        return x[B, where(k > n - 1, 2 * (n - 1) - k, absolute(k))]

    def high(k):
        return at(2 * k + 1) - ((at(2 * k) + at(2 * k + 2)) >> 1)

    d = high(I)
    g.output("D", d, "i16", (B, I))
    before = at(2 * I - 1) - ((at(2 * I - 2) + at(2 * I)) >> 1)
    g.output("S", at(2 * I) + ((before + d + 2) >> 2), "i16", (B, I))


@operator
def rank_filter(g: Graph, b: int, h: int, w: int) -> None:
    """A 5 x 5 median by counting, for each of its points, how many come before it."""
    B, Y, X, P, Q = g.axes(b=b, y=h, x=w, p=25, q=25)
    x = g.tensor("X", (b, h, w), "u8", fill=0)

    def at(k):
        k = g.coordinate(k)
        return cast(x[B, g.coordinate(Y) + k // 5 - 2, g.coordinate(X) + k % 5 - 2], "i32")

    mine, other = at(P), at(Q)
    rank = reduce(
        "sum",
        where((other < mine) | ((other == mine) & (g.iota(Q) < P)), g.constant(1, "i32"), 0),
        over=Q,
    )
    g.output("Y", cast(reduce("sum", where(rank == 12, mine, 0), over=P), "u8"), "u8", (B, Y, X))


@operator
def mutual_information(g: Graph, b: int, n: int) -> None:
    """How much two pictures tell of each other: a weighted joint histogram, its entropies."""
    B, N, I, J = g.axes(b=b, n=n, i=64, j=64)  # noqa: E741
    x, y = (
        g.input("X", (B, N), "u8", values=uniform(0, 255)),
        g.input("Y", (B, N), "u8", values=uniform(0, 255)),
    )
    w = g.input("W", (B, N), "f32", values=uniform(0.5, 1))
    joint = scatter("sum", w, {B: g.iota(B), I: x >> 2, J: y >> 2})
    p = joint / reduce("sum", w, over=N)
    px, py = reduce("sum", p, over=J), reduce("sum", p, over=I)
    g.output(
        "MI", reduce("sum", where(p > 0, p * log(p / (px * py)), 0.0), over=(I, J)), "f32", (B,)
    )


@operator
def digit_ranks(g: Graph, blocks: int, n: int) -> None:
    """Where each key of a radix pass goes: counts of digits by blocks, summed over blocks first."""
    T, N, D = g.axes(t=blocks, n=n, d=16)
    digit = (g.input("K", (T, N), "u32", values=uniform(0, 2**31 - 1)) >> 8) & 15
    hot = where(digit == D, g.constant(1, "i32"), 0)
    count = reduce("sum", hot, over=N)
    total = reduce("sum", count, over=T)
    base = cumulative("sum", total, D) - total
    before = cumulative("sum", count, T) - count
    inner = cumulative("sum", hot, N) - hot
    d = cast(digit, "i32")
    g.output("at", base.at(d=d) + before.at(d=d) + inner.at(d=d), "i32", (T, N))


@operator
def filtered_neighbours(g: Graph, q: int, n: int, d: int, k: int) -> None:
    """The nearest of byte vectors whose bit is set in a filter."""
    Q, N, D, K = g.axes(q=q, n=n, d=d, k=k)
    x, y = g.input("X", (Q, D), "i8"), g.input("Y", (N, D), "i8")
    bits = g.tensor("bits", (n // 32,), "u32", values=uniform(0, 2**31 - 1))
    norm = g.input("norm", (N,), "f32", values=uniform(0.5, 1))
    c = g.coordinate(N)
    allowed = ((bits[c // 32] >> (c % 32)) & 1) == 1
    s = where(allowed, cast(contract(x, y, over=D), "f32") * norm, -math.inf)
    value, place = top(s, N, K)
    g.output("value", value, "f32", (Q, K))
    g.output("place", place, "i32", (Q, K))


@operator
def range_finder(g: Graph, m: int, n: int, r: int) -> None:
    """A sketch of a matrix's range: A (A^T (A W))."""
    M, N, R, L, O = g.axes(m=m, n=n, r=r, l=m, o=n)  # noqa: E741
    a = g.tensor("A", (m, n), "f32", values=normal(n**-0.5))
    w = g.input("W", (O, R), "f32")
    y = contract(a[L, O], w, over=O)
    z = contract(a[L, N], y, over=L)
    g.output("Y", contract(a[M, N], z, over=N), "f32", (M, R))


@operator
def systematic(g: Graph, b: int, n: int, d: int) -> None:
    """Particles drawn anew in proportion to their weights by one random number for each filter."""
    B, N, M, D = g.axes(b=b, n=n, m=n, d=d)
    lw = g.input("lw", (B, N), "f32")
    w = exp(lw - reduce("max", lw, over=N))
    c = cumulative("sum", w, N)
    u = philox_uniform(g.coordinate(B), seed=5)
    edge = c / reduce("sum", w, over=N) * n - u
    last = minimum(maximum(cast(floor(edge), "i32") + 1, 0), n)
    first = last.at(n=N - 1, fill=0)
    mark = scatter(
        "max",
        where(last > first, g.coordinate(N), -1),
        {B: g.iota(B), M: first},
    )
    parent = cumulative("max", mark, M)
    x = g.tensor("X", (b, n, d), "f32")
    g.output("Y", x[B, maximum(parent, 0), D], "f32", (B, M, D))


@operator
def heston(g: Graph, paths: int, steps: int) -> None:
    """Options under a variance of its own process, on drawn paths."""
    T, P, S = g.axes(t=steps, p=paths, s=8)

    def pair(stream):
        u1 = philox_uniform(g.coordinate(P), g.coordinate(T), stream) * 0.9999 + 5e-5
        u2 = philox_uniform(g.coordinate(P), g.coordinate(T), stream + 1)
        return sqrt(-2 * log(u1)), u2 * (2 * math.pi)

    r, a = pair(0)
    z1, z2 = r * cos(a), r * sin(a)
    dt = 1.0 / steps
    v, x = g.state(T, (P,), 0.04), g.state(T, (P,), 0.0)
    vp = maximum(v, 0.0)
    sv = sqrt(vp * dt)
    x2 = x - 0.5 * vp * dt + sv * z1
    v2 = v + 1.5 * (0.04 - vp) * dt + 0.3 * sv * (-0.7 * z1 + 0.714 * z2)
    recur(v, v2)
    end = exp(recur(x, x2))
    strike = 0.8 + 0.05 * g.iota(S)
    g.output("C", reduce("sum", maximum(end - strike, 0.0), over=P) / paths, "f32", (S,))


@operator
def binomial_tree(g: Graph, b: int, n: int) -> None:
    """American puts on a tree: each step back takes the larger of holding and exercise."""
    T, B, J = g.axes(t=n, b=b, j=n + 1)
    spot = g.input("spot", (B,), "f32", values=uniform(80, 120))
    dt = 1.0 / n
    u = 0.2 * dt**0.5
    p = (math.exp(0.05 * dt) - math.exp(-u)) / (math.exp(u) - math.exp(-u))

    def worth(level):
        return maximum(100.0 - spot * exp(u * cast(2 * g.coordinate(J) - level, "f32")), 0.0)

    v = g.state(T, (B, J), worth(n))
    hold = math.exp(-0.05 * dt) * (p * v.at(j=J + 1, fill=0) + (1 - p) * v)
    new = maximum(hold, worth(n - 1 - g.coordinate(T)))
    g.output("V", recur(v, new).at(j=0), "f32", (B,))


@operator
def crc32(g: Graph, b: int, n: int) -> None:
    """Checksums of packets, byte by byte through a table."""
    T, B = g.axes(t=n, b=b)
    x = g.input("X", (B, T), "u8", values=uniform(0, 255))
    c = g.state(T, (B,), g.constant(0xFFFFFFFF, "u32"))
    new = (c >> 8) ^ lookup(_crc(), (c ^ x) & 255, "u32")
    g.output("crc", recur(c, new) ^ 0xFFFFFFFF, "u32", (B,))


@operator
def fnv(g: Graph, b: int, n: int) -> None:
    """Hashes of keys of bytes."""
    T, B = g.axes(t=n, b=b)
    x = g.input("X", (B, T), "u8", values=uniform(0, 255))
    h = g.state(T, (B,), g.constant(2166136261, "i64"))
    new = ((h ^ x) * 16777619) & 0xFFFFFFFF
    g.output("hash", recur(h, new), "i64", (B,))


@operator
def warped(g: Graph, b: int, m: int, n: int, d: int) -> None:
    """Dynamic time warping: the least cost of aligning two series of vectors."""
    T, B, J, D = g.axes(t=m, b=b, j=n, d=d)
    x, y = g.input("X", (B, T, D), "f32"), g.input("Y", (B, J, D), "f32")
    away = x - y
    cost = sqrt(reduce("sum", away * away, over=D))
    row = g.state(T, (B, J), 1e30)
    come = minimum(row, row.at(j=J - 1, fill=1e30))
    come = where((g.iota(J) == 0) & (g.iota(T) == 0), 0.0, come)
    so_far = cumulative("sum", cost, J)
    new = so_far + cumulative("min", come + cost - so_far, J)
    g.output("D", recur(row, new).at(j=n - 1), "f32", (B,))


@operator
def bicubic(g: Graph, b: int, c: int, h: int, w: int, oh: int, ow: int) -> None:
    """Pictures at given places by a cubic kernel, channels first."""
    B, C, Y, X, P, Q = g.axes(b=b, c=c, y=oh, x=ow, p=4, q=4)
    image = g.tensor("I", (b, c, h, w), "f16", fill=0)
    grid = g.input("grid", (B, Y, X, g.axis("two", 2)), "f32", values=uniform(-1, 1))
    fx, fy = (grid.at(two=0) + 1) * (0.5 * (w - 1)), (grid.at(two=1) + 1) * (0.5 * (h - 1))
    x0, y0 = floor(fx), floor(fy)

    def cubic(s):
        s = absolute(s)
        near = (1.25 * s - 2.25) * s * s + 1
        far = ((-0.75 * s + 3.75) * s - 6) * s + 3
        return where(s <= 1, near, where(s < 2, far, 0.0))

    wy, wx = cubic(fy - y0 + 1 - g.iota(P)), cubic(fx - x0 + 1 - g.iota(Q))
    v = image[B, C, cast(y0, "i32") + P - 1, cast(x0, "i32") + Q - 1]
    g.output("Y", reduce("sum", cast(v, "f32") * wy * wx, over=(P, Q)), "f16", (B, C, Y, X))


@operator
def labels_step(g: Graph, b: int, h: int, w: int) -> None:
    """A step of connected components: the least label around that is of one colour, then a jump."""
    B, Y, X = g.axes(b=b, y=h, x=w)
    label = g.tensor("L", (b, h * w), "i32", values=indices(h * w))
    colour = g.tensor("C", (b, h, w), "u8", fill=255)
    own = label[B, Y * w + X]
    best = own
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            if dy or dx:
                y = minimum(maximum(g.coordinate(Y) + dy, 0), h - 1)
                x = minimum(maximum(g.coordinate(X) + dx, 0), w - 1)
                same = colour[B, Y + dy, X + dx] == colour[B, Y, X]
                best = minimum(best, where(same, label[B, y * w + x], own))
    g.output("N", minimum(best, label[B, best]), "i32", (B, Y, X))


EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "sph": {"small": {"n": 37, "m": 53}, "full": {"n": 131071, "m": 131071}},
    "periodic_pairs": {"small": {"n": 41, "m": 29}, "full": {"n": 131071, "m": 131071}},
    "diffusivity": {"small": {"z": 5, "y": 7, "x": 11}, "full": {"z": 509, "y": 509, "x": 511}},
    "resampled": {
        "small": {"b": 2, "n": 98, "up": 10, "down": 7, "taps": 5},
        "full": {"b": 512, "n": 441000, "up": 160, "down": 147, "taps": 24},
    },
    "mdct": {"small": {"b": 2, "f": 7, "n": 16}, "full": {"b": 64, "f": 4095, "n": 1024}},
    "lifting": {"small": {"b": 3, "n": 34}, "full": {"b": 65536, "n": 8190}},
    "rank_filter": {"small": {"b": 1, "h": 9, "w": 13}, "full": {"b": 64, "h": 1080, "w": 1920}},
    "mutual_information": {"small": {"b": 2, "n": 300}, "full": {"b": 16, "n": 16777213}},
    "digit_ranks": {"small": {"blocks": 5, "n": 33}, "full": {"blocks": 16384, "n": 8192}},
    "filtered_neighbours": {
        "small": {"q": 5, "n": 96, "d": 32, "k": 4},
        "full": {"q": 32, "n": 8388608, "d": 256, "k": 10},
    },
    "range_finder": {"small": {"m": 45, "n": 31, "r": 8}, "full": {"m": 65521, "n": 4096, "r": 32}},
    "systematic": {"small": {"b": 3, "n": 41, "d": 4}, "full": {"b": 256, "n": 131072, "d": 8}},
    "heston": {"small": {"paths": 70, "steps": 9}, "full": {"paths": 16777213, "steps": 252}},
    "binomial_tree": {"small": {"b": 5, "n": 12}, "full": {"b": 16384, "n": 1024}},
    "crc32": {"small": {"b": 19, "n": 23}, "full": {"b": 1048573, "n": 1500}},
    "fnv": {"small": {"b": 19, "n": 23}, "full": {"b": 33554393, "n": 64}},
    "warped": {
        "small": {"b": 3, "m": 9, "n": 11, "d": 5},
        "full": {"b": 4096, "m": 512, "n": 509, "d": 13},
    },
    "bicubic": {
        "small": {"b": 2, "c": 3, "h": 11, "w": 13, "oh": 5, "ow": 7},
        "full": {"b": 64, "c": 3, "h": 2160, "w": 3840, "oh": 1080, "ow": 1920},
    },
    "labels_step": {"small": {"b": 2, "h": 7, "w": 9}, "full": {"b": 32, "h": 4093, "w": 4096}},
}
