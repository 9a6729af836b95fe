"""Programs of losses, mixtures, filters, hashes and pictures that no other file foresees.

`tilewright tune experiments/corpus/sundry.py:NAME full ...`; what they take is in README.md.
"""

from __future__ import annotations

import math

from ir import (
    Graph,
    absolute,
    argmin,
    cast,
    contract,
    cos,
    exp,
    floor,
    indices,
    log,
    maximum,
    minimum,
    normal,
    operator,
    positive,
    recur,
    reduce,
    rsqrt,
    sigmoid,
    silu,
    tanh,
    trunc,
    uniform,
    where,
)


@operator
def policy_loss(g: Graph, b: int, t: int, n: int) -> None:
    """Clipped ratios of a group's policy, with a penalty for leaving the reference."""
    B, T, N = g.axes(b=b, t=t, n=n)
    logits = g.tensor("Z", (b, t, n), "bf16")
    z = logits[B, T, N]
    token = g.input("token", (B, T), "i32", values=indices(n))
    m = reduce("max", cast(z, "f32"), over=N)
    total = m + log(reduce("sum", exp(z - m), over=N))
    chosen = logits[B, T, token] - total
    old, ref = (g.input(s, (B, T), "f32", values=uniform(-12, -9)) for s in ("old", "ref"))
    ratio, away = exp(chosen - old), ref - chosen
    gain = g.input("A", (B,), "f32")
    held = minimum(maximum(ratio, 0.8), 1.28)
    loss = 0.04 * (exp(away) - away - 1) - minimum(ratio * gain, held * gain)
    mask = cast(g.input("mask", (B, T), "i8", values=uniform(0, 1)), "f32")
    count = reduce("sum", mask, over=(B, T))
    g.output("L", reduce("sum", loss * mask, over=(B, T)) / maximum(count, 1.0), "f32", ())


@operator
def several_tokens(g: Graph, b: int, h: int, t: int, d: int) -> None:
    """Causal attention whose scores are mixed over neighbouring queries and keys before softmax."""
    B, H, I, J, D, E, R, S = g.axes(b=b, h=h, i=t, j=t, d=d, e=d, r=4, s=5)  # noqa: E741
    q, k = g.input("Q", (B, H, I, D), "bf16"), g.input("K", (B, H, J, D), "bf16")
    scores = contract(q, k, over=D) * d**-0.5
    scores = where(g.iota(J) <= I, scores, 0.0)
    w = g.input("W", (H, R, S), "f32", values=normal(0.2))
    mixed = reduce("sum", w * scores.at(i=I - R, j=J + S - 2, fill=0), over=(R, S))
    mixed = where(g.iota(J) <= I, mixed, -math.inf)
    p = exp(mixed - reduce("max", mixed, over=J))
    o = contract(cast(p, "bf16"), g.input("V", (B, H, J, E), "bf16"), over=J)
    g.output("O", o / reduce("sum", p, over=J), "bf16", (B, H, I, E))


@operator
def factored_heads(g: Graph, t: int, h: int, d: int, rank: int) -> None:
    """Attention whose queries, keys and values are sums of outer products of heads and features."""
    H, I, J, D, E, R = g.axes(h=h, i=t, j=t, d=d, e=d, r=rank)  # noqa: E741

    def tensor(name, T, F):
        a = g.input(f"{name}a", (T, R, H), "bf16")
        return cast(contract(a, g.input(f"{name}b", (T, R, F), "bf16"), over=R) / rank, "bf16")

    s = contract(tensor("Q", I, D), tensor("K", J, D), over=D) * d**-0.5
    s = where(g.iota(J) <= I, s, -math.inf)
    p = exp(s - reduce("max", s, over=J))
    o = contract(cast(p, "bf16"), tensor("V", J, E), over=J)
    g.output("O", o / reduce("sum", p, over=J), "bf16", (I, H, E))


@operator
def gated_output(g: Graph, m: int, h: int, d: int, n: int) -> None:
    """What heads give, under a gate of each, normalised by head, through the last projection."""
    M, H, D, N = g.axes(m=m, h=h, d=d, n=n)
    x, z = g.input("X", (M, H, D), "bf16"), g.input("Z", (M, H, D), "bf16")
    root = rsqrt(reduce("sum", cast(x, "f32") * x, over=D) * (1 / d) + 1e-6)
    y = x * root * g.input("gamma", (D,), "f32") * silu(cast(z, "f32"))
    w = g.input("W", (N, H, D), "bf16", values=normal((h * d) ** -0.5))
    g.output("Y", contract(cast(y, "bf16"), w, over=(H, D)), "bf16", (M, N))


@operator
def hashed_memory(g: Graph, t: int, tables: int, rows: int, d: int) -> None:
    """Pairs of words, hashed to rows of several tables, under a gate that the state opens."""
    T, R, D = g.axes(t=t, r=tables, d=d)
    words = g.input("words", (T,), "i32", values=indices(120000))
    before = words.at(t=T - 1, fill=0)
    seed = cast(g.iota(R), "u32") * 2654435761 + 97
    mixed = (cast(words, "u32") * 2246822519) ^ (cast(before, "u32") * 3266489917) ^ seed
    mixed = (mixed ^ (mixed >> 15)) * 668265263
    place = cast((mixed ^ (mixed >> 13)) % rows, "i32")
    memory = reduce("sum", g.tensor("tables", (tables, rows, d), "bf16")[R, place, D], over=R)
    x = cast(g.input("X", (T, D), "bf16"), "f32")
    norms = [rsqrt(reduce("sum", v * v, over=D) * (1 / d) + 1e-6) for v in (x, memory)]
    gate = sigmoid(reduce("sum", x * memory, over=D) * norms[0] * norms[1] * d**-0.5)
    g.output("Y", x + gate * memory, "bf16", (T, D))


@operator
def spline_layer(g: Graph, m: int, n: int, k: int, grid: int) -> None:
    """Each weight is a function: a sum of hat functions on a grid, and a SiLU beside it."""
    M, N, K, P = g.axes(m=m, n=n, k=k, p=grid)
    x = cast(g.input("X", (M, K), "bf16"), "f32")
    away = absolute((tanh(x) + 1) * ((grid - 1) / 2) - g.iota(P))
    hats = cast(maximum(1 - away, 0.0), "bf16")
    c = g.input("C", (N, K, P), "bf16", values=normal(k**-0.5))
    w = g.input("W", (N, K), "bf16", values=normal(k**-0.5))
    y = contract(hats, c, over=(K, P)) + contract(cast(silu(x), "bf16"), w, over=K)
    g.output("Y", y, "bf16", (M, N))


@operator
def modes(g: Graph, b: int, c: int, f: int, n: int) -> None:
    """Channels mixed by a complex matrix of each frequency."""
    B, C, D, F = g.axes(b=b, c=c, d=c, f=f)
    xr, xi = (g.input(s, (F, B, C), "bf16") for s in ("Xr", "Xi"))
    wr, wi = (g.input(s, (F, C, D), "bf16", values=normal(c**-0.5)) for s in ("Wr", "Wi"))
    angle = g.iota(F) * (2 * math.pi * n / f)
    re = contract(xr, wr, over=C) - contract(xi, wi, over=C)
    im = contract(xr, wi, over=C) + contract(xi, wr, over=C)
    g.output("Yr", re * cos(angle) - im * cos(angle - math.pi / 2), "bf16", (F, B, D))
    g.output("Yi", re * cos(angle - math.pi / 2) + im * cos(angle), "bf16", (F, B, D))


@operator
def streams(g: Graph, t: int, s: int, d: int) -> None:
    """Residual streams, mixed by a matrix that depends on them, and what a layer reads of them."""
    T, S, R, D, Q = g.axes(t=t, s=s, r=s, d=d, q=s + 1)
    x = g.input("X", (T, S, D), "bf16")
    wide = cast(x, "f32")
    root = rsqrt(reduce("sum", wide * wide, over=(S, D)) * (1 / (s * d)) + 1e-6)
    w = g.input("W", (R, Q, S, D), "bf16", values=normal((s * d) ** -0.5))
    mix = contract(x, w, over=(S, D)) * root + g.input("bias", (R, Q), "f32")
    own = exp(mix)
    own = own / reduce("sum", where(g.iota(Q) < s, own, 0.0), over=Q)
    new = reduce("sum", own.at(q=S) * wide, over=S)
    g.output("Y", new, "bf16", (T, R, D))
    layer = reduce("sum", sigmoid(mix.at(q=s)).at(r=S) * wide, over=S)
    g.output("U", layer, "bf16", (T, D))


@operator
def kalman(g: Graph, b: int, t: int, s: int) -> None:
    """Filters of noisy positions: means and covariances of small states, step by step."""
    T, B, I, J, K = g.axes(t=t, b=b, i=s, j=s, k=s)  # noqa: E741
    f = g.input("F", (I, J), "f32", values=normal(0.2))
    seen = g.input("z", (T, B), "f32")
    x, p = g.state(T, (B, J), 0.0), g.state(T, (B, J, K), where(g.iota(J) == g.iota(K), 1.0, 0.0))
    ahead = reduce("sum", f * x, over=J)
    half = reduce("sum", f * p, over=J)
    whole = reduce("sum", half * f.at(i=J, j=K), over=K)
    whole = whole + where(g.iota(I) == g.iota(J), 0.05, 0.0)
    first = whole.at(j=0)
    gain = first / (first.at(i=0) + 0.1)
    new = ahead + gain * (seen - ahead.at(i=0))
    less = whole - gain * first.at(i=J)
    g.output("X", new, "f32", (T, B, I))
    g.output("last", recur(x, new.at(i=J)), "f32", (B, J))
    g.output("P", recur(p, less.at(i=J, j=K)), "f32", (B, J, K))


@operator
def biquads(g: Graph, c: int, t: int) -> None:
    """A section of second order on each channel of a signal."""
    C, T = g.axes(c=c, t=t)
    k = [g.input(s, (C,), "f32", values=uniform(-0.45, 0.45)) for s in ("b0", "b1", "a1", "a2")]
    x = g.input("X", (C, T), "f32")
    u, v = g.state(T, (C,)), g.state(T, (C,))
    y = k[0] * x + u
    g.output("Y", y, "f32", (C, T))
    g.output("u", recur(u, k[1] * x - k[2] * y + v), "f32", (C,))
    g.output("v", recur(v, k[0] * x - k[3] * y), "f32", (C,))


@operator
def waves(g: Graph, b: int, n: int, t: int) -> None:
    """Electric and magnetic fields on staggered points of lines, leapfrogging."""
    T, B, N = g.axes(t=t, b=b, n=n)
    e = g.state(T, (B, N), g.input("E0", (B, N), "f32"))
    h = g.state(T, (B, N), g.input("H0", (B, N), "f32"))
    slow = g.input("eps", (B, N), "f32", values=uniform(0.2, 0.5))
    magnetic = h + 0.5 * (e.at(n=N + 1, fill=0) - e)
    electric = e + slow * (magnetic - magnetic.at(n=N - 1, fill=0))
    g.output("E", recur(e, electric), "f32", (B, N))
    g.output("H", recur(h, magnetic), "f32", (B, N))


@operator
def min_hash(g: Graph, m: int, n: int, k: int) -> None:
    """Signatures of sets of words: the least of k hashes over each, and where it was."""
    M, N, K = g.axes(m=m, n=n, k=k)
    words = g.input("words", (M, N), "u32", values=indices(1 << 20))
    seed = cast(g.iota(K), "u32") * 2654435761
    x = (words ^ seed) * 2246822519
    x = (x ^ (x >> 13)) * 3266489917
    x = (x ^ (x >> 16)) >> 1
    g.output("S", reduce("min", cast(x, "i32"), over=N), "i32", (M, K))
    g.output("where", argmin(cast(x, "i32"), N), "i32", (M, K))


@operator
def jpeg(g: Graph, b: int, h: int, w: int) -> None:
    """Blocks of eight by eight: cosines of rows and columns, divided and rounded."""
    B, Y, X, P, Q, U, V = g.axes(b=b, y=h // 8, x=w // 8, p=8, q=8, u=8, v=8)
    t = g.tensor("I", (b, h, w), "u8")[B, Y * 8 + P, X * 8 + Q]
    v = cast(t, "f32") - 128.0

    def cosines(P, U):
        return cos((2 * g.iota(P) + 1) * g.iota(U) * (math.pi / 16)) * where(
            g.iota(U) == 0, 8**-0.5, 0.5
        )

    columns = reduce("sum", v * cosines(Q, V), over=Q)
    c = reduce("sum", columns * cosines(P, U), over=P)
    table = g.input("table", (U, V), "f32", values=uniform(10, 120))
    c = c / table
    g.output("C", cast(floor(c + 0.5), "i8"), "i8", (B, Y, X, U, V))


@operator
def colours(g: Graph, n: int, size: int) -> None:
    """Pixels through a table of three dimensions, in the tetrahedron that each lies in."""
    N, C = g.axes(n=n, c=3)
    t = g.tensor("pixels", (n, 3), "u8")
    table = g.tensor("table", (size, size, size, 3), "f32")
    at = [cast(t[N, i], "f32") * ((size - 1) / 255) for i in range(3)]
    low = [minimum(floor(v), size - 2.0) for v in at]
    r, s, b = (v - u for v, u in zip(at, low, strict=True))
    i, j, k = (cast(v, "i32") for v in low)
    most, least = maximum(maximum(r, s), b), minimum(minimum(r, s), b)
    middle = r + s + b - most - least

    def corner(p, q, u):
        return table[i + p, j + q, k + u, C]

    one = [cast(where(v == most, 1, 0), "i32") for v in (r, s, b)]
    one[1] = one[1] * (1 - one[0])
    one[2] = one[2] * (1 - one[0]) * (1 - one[1])
    last = [cast(where(v == least, 1, 0), "i32") for v in (r, s, b)]
    last[2] = last[2] * (1 - one[2])
    last[1] = last[1] * (1 - one[1]) * (1 - last[2])
    last[0] = (1 - one[0]) * (1 - last[1]) * (1 - last[2])
    two = [1 - v for v in last]
    out = (1 - most) * corner(0, 0, 0) + (most - middle) * corner(*one)
    out = out + (middle - least) * corner(*two) + least * corner(1, 1, 1)
    g.output("Y", cast(trunc(out * 255 + 0.5), "i32"), "i32", (N, C))


@operator
def mixture_density(g: Graph, m: int, k: int, d: int) -> None:
    """Minus the log-likelihood of points under mixtures of diagonal Gaussians of their own."""
    M, K, D = g.axes(m=m, k=k, d=d)
    x = g.input("X", (M, D), "f32")
    mu, s = g.input("mu", (M, K, D), "bf16"), g.input("logs", (M, K, D), "bf16", values=normal(0.3))
    away = (x - mu) * exp(-cast(s, "f32"))
    each = reduce("sum", -0.5 * away * away - s, over=D)
    z = cast(g.input("logits", (M, K), "bf16"), "f32")
    z = z - reduce("max", z, over=K)
    each = each + z - log(reduce("sum", exp(z), over=K))
    top = reduce("max", each, over=K)
    total = top + log(reduce("sum", exp(each - top), over=K)) - 0.5 * d * math.log(2 * math.pi)
    g.output("L", reduce("sum", total, over=M) * (-1 / m), "f32", ())


@operator
def pairwise_ranks(g: Graph, q: int, n: int) -> None:
    """Gradients of a ranking's gain: each pair of documents weighed by what a swap would change."""
    Q, I, J = g.axes(q=q, i=n, j=n)  # noqa: E741
    s, y = g.input("s", (Q, I), "f32"), g.input("y", (Q, I), "i32", values=uniform(0, 4))
    t, z = s.at(i=J), y.at(i=J)
    place = reduce("sum", where((t > s) | ((t == s) & (g.iota(J) < I)), 1, 0), over=J)
    gain, worth = exp(cast(y, "f32") * math.log(2)), 1 / log(cast(place, "f32") + 2)
    change = absolute((gain - gain.at(i=J)) * (worth - worth.at(i=J)))
    pull = change * sigmoid(t - s)
    push = change * sigmoid(s - t)
    g.output(
        "G", reduce("sum", where(y > z, pull, where(y < z, -push, 0.0)), over=J), "f32", (Q, I)
    )


@operator
def margin_head(g: Graph, m: int, n: int, k: int) -> None:
    """Cosines with centres of classes, the own one's angle widened by a margin, and the loss."""
    M, N, K = g.axes(m=m, n=n, k=k)
    x, w = g.input("X", (M, K), "bf16"), g.input("W", (N, K), "bf16")
    rx, rw = (rsqrt(reduce("sum", cast(v, "f32") * v, over=K) + 1e-9) for v in (x, w))
    c = contract(x, w, over=K) * rx * rw
    label = g.input("label", (M,), "i32", values=indices(n))
    own = g.iota(N) == label
    side = maximum(1 - c * c, 0.0)
    wide = c * math.cos(0.5) - side * rsqrt(side + 1e-12) * math.sin(0.5)
    z = 64 * where(own, wide, c)
    top = reduce("max", z, over=N)
    total = top + log(reduce("sum", exp(z - top), over=N))
    g.output("L", total - reduce("sum", where(own, z, 0.0), over=N), "f32", (M,))


@operator
def ring_decode(g: Graph, b: int, h: int, kv: int, n: int, d: int) -> None:
    """Decoding whose cache is a ring: the oldest key lies where the newest will."""
    B, G, H, J, D, E = g.axes(b=b, g=kv, h=h // kv, j=n, d=d, e=d)
    q = g.input("Q", (B, G, H, D), "bf16")
    k, v = g.tensor("K", (b, n, kv, d), "bf16"), g.tensor("V", (b, n, kv, d), "bf16")
    now = g.input("now", (B,), "i32", values=indices(4 * n))
    age = (now - J + 8 * n) % n
    slope = g.input("slope", (G, H), "f32", values=positive())
    s = contract(q, k[B, J, G, D], over=D) * d**-0.5 - slope * cast(age, "f32")
    s = where(age <= now, s, -math.inf)
    p = exp(s - reduce("max", s, over=J))
    o = contract(cast(p, "bf16"), v[B, J, G, E], over=J)
    g.output("O", o / reduce("sum", p, over=J), "bf16", (B, G, H, E))


@operator
def deformed(g: Graph, b: int, h: int, w: int, c: int, f: int) -> None:
    """A convolution of three by three whose taps lie beside their places, and are weighed."""
    B, Y, X, R, S, C, F = g.axes(b=b, y=h, x=w, r=3, s=3, c=c, f=f)
    t = g.tensor("I", (b, h, w, c), "bf16")
    dy, dx = (g.input(n, (B, Y, X, R, S), "f32", values=uniform(-2, 2)) for n in ("dy", "dx"))
    py, px = g.iota(Y) + g.iota(R) - 1 + dy, g.iota(X) + g.iota(S) - 1 + dx
    fy, fx = floor(py), floor(px)
    v = g.constant(0.0, "f32")
    for i in (0, 1):
        for j in (0, 1):
            y, x = cast(fy, "i32") + i, cast(fx, "i32") + j
            weight = (py - fy if i else fy + 1 - py) * (px - fx if j else fx + 1 - px)
            inside = (y >= 0) & (y < h) & (x >= 0) & (x < w)
            tap = t[B, minimum(maximum(y, 0), h - 1), minimum(maximum(x, 0), w - 1), C]
            v = v + where(inside, weight, 0.0) * tap
    m = sigmoid(g.input("m", (B, Y, X, R, S), "f32"))
    k = g.input("W", (F, R, S, C), "bf16", values=normal((9 * c) ** -0.5))
    g.output("O", contract(cast(v * m, "bf16"), k, over=(R, S, C)), "bf16", (B, Y, X, F))


@operator
def three_bits(g: Graph, m: int, n: int, k: int) -> None:
    """Weights of three bits, ten to a word, with a scale and a zero for every 160."""
    M, N, K, P = g.axes(m=m, n=n, k=k // 10, p=10)
    x = g.tensor("X", (m, k), "bf16")[M, K * 10 + P]
    words = g.input("W", (N, K), "u32")
    code = cast((words >> cast(3 * g.iota(P), "u32")) & 7, "f32")
    s, z = (g.tensor(e, (n, k // 160), "f32")[N, g.coordinate(K) // 16] for e in ("scale", "zero"))
    g.output("Y", contract(x, cast((code - z) * s, "bf16"), over=(K, P)), "bf16", (M, N))


EXTENTS = {
    "policy_loss": {
        "small": {"b": 3, "t": 7, "n": 50},
        "full": {"b": 16, "t": 512, "n": 128256},
    },
    "several_tokens": {
        "small": {"b": 1, "h": 2, "t": 40, "d": 16},
        "full": {"b": 2, "h": 16, "t": 2048, "d": 64},
    },
    "factored_heads": {
        "small": {"t": 48, "h": 3, "d": 16, "rank": 2},
        "full": {"t": 4096, "h": 32, "d": 128, "rank": 6},
    },
    "gated_output": {
        "small": {"m": 20, "h": 3, "d": 16, "n": 48},
        "full": {"m": 8192, "h": 32, "d": 128, "n": 4096},
    },
    "hashed_memory": {
        "small": {"t": 12, "tables": 3, "rows": 50, "d": 24},
        "full": {"t": 16384, "tables": 8, "rows": 200000, "d": 512},
    },
    "spline_layer": {
        "small": {"m": 16, "n": 24, "k": 12, "grid": 8},
        "full": {"m": 4096, "n": 1024, "k": 1024, "grid": 8},
    },
    "modes": {
        "small": {"b": 8, "c": 16, "f": 3, "n": 32},
        "full": {"b": 256, "c": 256, "f": 512, "n": 1024},
    },
    "streams": {
        "small": {"t": 12, "s": 4, "d": 32},
        "full": {"t": 16384, "s": 4, "d": 4096},
    },
    "kalman": {"small": {"b": 3, "t": 5, "s": 4}, "full": {"b": 4096, "t": 512, "s": 4}},
    "biquads": {"small": {"c": 3, "t": 17}, "full": {"c": 8192, "t": 8192}},
    "waves": {"small": {"b": 2, "n": 19, "t": 5}, "full": {"b": 1024, "n": 4096, "t": 200}},
    "min_hash": {"small": {"m": 4, "n": 21, "k": 10}, "full": {"m": 4096, "n": 512, "k": 256}},
    "jpeg": {"small": {"b": 2, "h": 16, "w": 24}, "full": {"b": 32, "h": 1080, "w": 1920}},
    "colours": {"small": {"n": 30, "size": 5}, "full": {"n": 16777216, "size": 33}},
    "mixture_density": {
        "small": {"m": 6, "k": 5, "d": 7},
        "full": {"m": 65536, "k": 32, "d": 64},
    },
    "pairwise_ranks": {"small": {"q": 3, "n": 13}, "full": {"q": 4096, "n": 512}},
    "margin_head": {
        "small": {"m": 12, "n": 40, "k": 32},
        "full": {"m": 1024, "n": 200000, "k": 512},
    },
    "ring_decode": {
        "small": {"b": 2, "h": 4, "kv": 2, "n": 48, "d": 16},
        "full": {"b": 32, "h": 32, "kv": 8, "n": 8192, "d": 128},
    },
    "deformed": {
        "small": {"b": 1, "h": 6, "w": 7, "c": 16, "f": 24},
        "full": {"b": 8, "h": 64, "w": 64, "c": 256, "f": 256},
    },
    "three_bits": {
        "small": {"m": 5, "n": 24, "k": 320},
        "full": {"m": 16, "n": 8192, "k": 7680},
    },
}
