"""More programs that no file foresees: solvers, codes, markets, molecules, genomes and layers.

`tilewright tune experiments/corpus/oddities.py:NAME full ...`; what they take is in README.md.
"""

from __future__ import annotations

import math

from ir import (
    Graph,
    absolute,
    argmin,
    bitcast,
    cast,
    contract,
    cumulative,
    erf,
    exp,
    floor,
    indices,
    log,
    log1p,
    maximum,
    minimum,
    near_identity,
    normal,
    offsets,
    operator,
    permutation,
    philox,
    popcount,
    positive,
    recur,
    reduce,
    relu,
    rsqrt,
    scan,
    scatter,
    sigmoid,
    silu,
    sin,
    sqrt,
    top,
    uniform,
    where,
)


@operator
def conjugate(g: Graph, b: int, n: int, steps: int) -> None:
    """Conjugate gradients on a batch of systems: some steps from zero."""
    T, B, I, J = g.axes(t=steps, b=b, i=n, j=n)  # noqa: E741
    a = g.input("A", (B, I, J), "f32", values=near_identity(0.01))
    y = g.input("y", (B, I), "f32")
    x, r, p = g.state(T, (B, I), 0.0), g.state(T, (B, I), y), g.state(T, (B, I), y)
    ap = reduce("sum", a * p.at(i=J), over=J)
    rr = reduce("sum", r * r, over=I)
    alpha = rr / (reduce("sum", p * ap, over=I) + 1e-20)
    new = r - alpha * ap
    beta = reduce("sum", new * new, over=I) / (rr + 1e-20)
    g.output("X", recur(x, x + alpha * p), "f32", (B, I))
    g.output("R", recur(r, new), "f32", (B, I))
    g.output("P", recur(p, new + beta * p), "f32", (B, I))


@operator
def multigrid(g: Graph, b: int, n: int) -> None:
    """What is left of a grid's equations after a sweep, on a grid of half as many points."""
    B, Y, X, R, S = g.axes(b=b, y=n // 2, x=n // 2, r=3, s=3)
    u, f = g.tensor("U", (b, n, n), "f32", fill=0), g.tensor("F", (b, n, n), "f32", fill=0)
    yy, xx = 2 * Y + R - 1, 2 * X + S - 1

    def at(t, p, q):
        return t[B, yy + p, xx + q]

    around = at(u, 1, 0) + at(u, -1, 0) + at(u, 0, 1) + at(u, 0, -1)
    left = at(f, 0, 0) - (4 * at(u, 0, 0) - around)
    share = (2 - absolute(g.iota(R) - 1)) * (2 - absolute(g.iota(S) - 1))
    g.output("C", reduce("sum", left * cast(share, "f32") / 16, over=(R, S)), "f32", (B, Y, X))


@operator
def barrier_paths(g: Graph, paths: int, steps: int) -> None:
    """What an option with a barrier is worth on drawn paths, and how sure that is."""
    T, P = g.axes(t=steps, p=paths)
    seed = g.input("seed", (), "i32")
    word = philox(g.coordinate(P), g.coordinate(T), seed)
    u1 = cast(word >> 8, "f32") * 2.0**-24 + 2.0**-25
    other = philox(g.coordinate(P), g.coordinate(T), seed, 1)
    u2 = cast(other >> 8, "f32") * 2.0**-24
    z = sqrt(-2 * log(u1)) * sin(u2 * (2 * math.pi))
    move = -0.5 * 0.04 / steps + 0.2 * steps**-0.5 * z
    at = g.state(T, (P,), 0.0)
    low = g.state(T, (P,), 0.0)
    end = recur(at, at + move)
    least = recur(low, minimum(low, at + move))
    pay = where(least > math.log(0.8), maximum(exp(end) - 1.0, 0.0), 0.0)
    g.output("mean", reduce("sum", pay, over=P) / paths, "f32", ())
    g.output("square", reduce("sum", pay * pay, over=P) / paths, "f32", ())


@operator
def smith_waterman(g: Graph, b: int, m: int, n: int) -> None:
    """The best local alignment of pairs of genomes, gaps of one price, row by row."""
    T, B, J = g.axes(t=m, b=b, j=n)
    x = g.input("X", (T, B), "u8", values=uniform(0, 3))
    y = g.input("Y", (B, J), "u8", values=uniform(0, 3))
    row, best = g.state(T, (B, J), 0.0), g.state(T, (B, J), 0.0)
    same = where(x == y, 2.0, -1.0)
    come = maximum(maximum(row.at(j=J - 1, fill=0) + same, row - 1.5), 0.0)
    slid = come + 1.5 * g.iota(J)
    new = cumulative("max", slid, J) - 1.5 * g.iota(J)
    recur(row, new)
    g.output("score", reduce("max", recur(best, maximum(best, new)), over=J), "f32", (B,))


@operator
def syndromes(g: Graph, b: int, m: int, n: int) -> None:
    """Parities of received words by a sparse check, packed bits, and which checks fail."""
    B, M, W = g.axes(b=b, m=m, w=n // 32)
    word = g.input("word", (B, W), "u32", values=uniform(0, 2**31 - 1))
    check = g.input("check", (M, W), "u32", values=uniform(0, 2**31 - 1))
    parity = reduce("sum", popcount(word & check), over=W) & 1
    g.output("parity", cast(parity, "u8"), "u8", (B, M))
    g.output("count", reduce("sum", cast(parity, "i32"), over=M), "i32", (B,))


@operator
def angles(g: Graph, n: int, k: int) -> None:
    """Energies and forces of chains: bonds and the angles between them, sent to their atoms."""
    K, N, D = g.axes(k=k, n=n, d=3)
    x = g.tensor("X", (n, 3), "f32")
    i, j, l = (g.input(s, (K,), "i32", values=indices(n)) for s in "ijl")  # noqa: E741
    u, v = x[i, D] - x[j, D], x[l, D] - x[j, D]
    uu, vv = (reduce("sum", t * t, over=D) + 1e-3 for t in (u, v))
    ru, rv = rsqrt(uu), rsqrt(vv)
    c = reduce("sum", u * v, over=D) * ru * rv
    pull = -2.0 * (c + 0.33)
    fi = pull * ru * (v * rv - c * u * ru)
    fl = pull * rv * (u * ru - c * v * rv)
    force = scatter("sum", fi, {N: i, D: D}) + scatter("sum", fl, {N: l, D: D})
    g.output("F", force - scatter("sum", fi + fl, {N: j, D: D}), "f32", (N, D))
    g.output("E", reduce("sum", (c + 0.33) * (c + 0.33), over=K), "f32", ())


@operator
def top_share(g: Graph, b: int, n: int, steps: int) -> None:
    """Probabilities of the likeliest tokens alone, by a threshold found by halving."""
    T, B, N = g.axes(t=steps, b=b, n=n)
    z = g.input("Z", (B, N), "f32")
    m = reduce("max", z, over=N)
    e = exp(z - m)
    total = reduce("sum", e, over=N)
    low, high = g.state(T, (B,), 0.0), g.state(T, (B,), 1.0)
    middle = 0.5 * (low + high)
    kept = reduce("sum", where(e >= middle, e, 0.0), over=N)
    much = kept >= 0.9 * total
    at = recur(low, where(much, middle, low))
    recur(high, where(much, high, middle))
    p = where(e >= at, e, 0.0)
    g.output("P", p / reduce("sum", p, over=N), "f32", (B, N))


@operator
def ternary_linear(g: Graph, m: int, n: int, k: int) -> None:
    """Weights of -1, 0 and 1, four in a byte, with activations rounded to i8 by token."""
    M, N, K, P = g.axes(m=m, n=n, k=k // 4, p=4)
    x = g.tensor("X", (m, k), "bf16")[M, 4 * K + P]
    wide = cast(x, "f32")
    most = maximum(reduce("max", absolute(wide), over=(K, P)), 1e-5)
    q = cast(floor(wide * (127 / most) + 0.5), "i8")
    byte = g.input("W", (N, K), "u8")
    w = cast(((cast(byte, "i32") >> (2 * g.iota(P))) & 3) - 1, "i8")
    y = cast(contract(q, w, over=(K, P), acc="i32"), "f32") * (most / 127)
    g.output("Y", y * g.input("scale", (), "f32", values=positive()), "bf16", (M, N))


@operator
def shampoo(g: Graph, m: int, n: int) -> None:
    """Preconditioners of a matrix of gradients and their first Newton step to an inverse root."""
    I, J, K, L = g.axes(i=m, j=n, k=m, l=n)  # noqa: E741
    d = g.input("G", (I, J), "bf16", values=normal(n**-0.5))
    left = contract(d, d.at(i=K), over=J)
    right = contract(d, d.at(j=L), over=I)
    old = g.input("P", (I, K), "f32", values=near_identity(0.01))
    new = 0.95 * old + 0.05 * left
    trace = reduce("sum", reduce("sum", where(g.iota(I) == K, new, 0.0), over=K), over=I)
    z = cast(1.5 * where(g.iota(I) == K, 1.0, 0.0) - 0.5 * new * (m / trace), "bf16")
    g.output("L", new, "f32", (I, K))
    g.output("R", right, "f32", (J, L))
    g.output("step", contract(z, d.at(i=K), over=K), "bf16", (I, J))


@operator
def compressed_keys(g: Graph, b: int, h: int, kv: int, t: int, block: int, d: int) -> None:
    """Keys and values averaged by learned weights of a block, and attention over those before."""
    B, G, H, I, C = g.axes(b=b, g=kv, h=h // kv, i=t, c=t // block)  # noqa: E741
    P, D, E = g.axes(p=block, d=d, e=d)
    q = g.input("Q", (B, I, G, H, D), "bf16")
    k, v = (g.tensor(n, (b, t, kv, d), "bf16") for n in "KV")
    w = g.input("w", (P,), "f32")
    w = exp(w - reduce("max", w, over=P))
    w = w / reduce("sum", w, over=P)
    kc = cast(reduce("sum", w * k[B, C * block + P, G, D], over=P), "bf16")
    vc = cast(reduce("sum", w * v[B, C * block + P, G, E], over=P), "bf16")
    s = contract(q, kc, over=D) * d**-0.5
    s = where(g.coordinate(C + 1) * block <= I, s, -1e30)
    p = exp(s - reduce("max", s, over=C))
    total = reduce("sum", p, over=C)
    o = contract(cast(p, "bf16"), vc, over=C) / total
    g.output("O", o, "bf16", (B, I, G, H, E))
    g.output("weight", reduce("sum", p / total, over=H), "f32", (B, G, I, C))


@operator
def gated_experts_bias(g: Graph, t: int, e: int, d: int) -> None:
    """Scores of experts under a bias that balances them, and how unbalanced they are."""
    T, E, D, R = g.axes(t=t, e=e, d=d, r=4)
    z = contract(
        g.input("X", (T, D), "bf16"), g.input("W", (E, D), "bf16", values=normal(d**-0.5)), over=D
    )
    p = sigmoid(z)
    _, place = top(p + g.input("bias", (E,), "f32"), E, R)
    w = p.at(e=place)
    w = w / reduce("sum", w, over=R)
    g.output("w", w, "f32", (T, R))
    g.output("expert", place, "i32", (T, R))
    load = scatter("sum", g.constant(1, "i32") + 0 * place, {E: place})
    g.output("load", load, "i32", (E,))
    mean = reduce("sum", p / reduce("sum", p, over=E), over=T) / t
    g.output("loss", reduce("sum", mean * cast(load, "f32"), over=E) * (e / (4.0 * t)), "f32", ())


@operator
def packed_rows(g: Graph, rows: int, n: int, total: int) -> None:
    """Rows of many lengths, laid one behind the other, into a padded matrix and their softmax."""
    R, N = g.axes(r=rows, n=n)
    start = g.input("start", (g.axis("s", rows + 1),), "i32", values=offsets(total))
    x = g.tensor("X", (total,), "f32")
    first, end = start.at(s=R), start.at(s=R + 1)
    at = first + g.iota(N)
    inside = at < end
    v = where(inside, x[minimum(at, total - 1)], -math.inf)
    m = maximum(reduce("max", v, over=N), -1e30)
    e = exp(v - m)
    g.output("P", e / maximum(reduce("sum", e, over=N), 1e-30), "f32", (R, N))
    g.output("entropy", log(maximum(reduce("sum", e, over=N), 1e-30)) + m, "f32", (R,))


@operator
def spherical(g: Graph, b: int, n: int, k: int) -> None:
    """Latitudes by Legendre polynomials up to a degree, by their recurrence, then summed."""
    L, B, N = g.axes(l=k, b=b, n=n)
    c = g.input("C", (B, L), "f32")
    x = g.input("x", (N,), "f32", values=uniform(-1, 1))
    now, last = g.state(L, (N,), 1.0), g.state(L, (N,), 0.0)
    number = cast(g.iota(L), "f32")
    new = ((2 * number + 1) * x * now - number * last) / (number + 1)
    recur(last, now)
    recur(now, new)
    g.output("Y", reduce("sum", c * now, over=L), "f32", (B, N))


@operator
def sparse_top(g: Graph, m: int, n: int, k: int, keep: int) -> None:
    """An autoencoder that keeps the largest features of each row, and what it gives back."""
    M, N, K, R, L = g.axes(m=m, n=n, k=k, r=keep, l=k)
    x = g.input("X", (M, K), "bf16")
    e = g.input("E", (N, K), "bf16", values=normal(k**-0.5))
    z = relu(contract(x, e, over=K) + g.input("b", (N,), "f32"))
    value, place = top(z, N, R)
    d = g.tensor("D", (n, k), "bf16", values=normal(k**-0.5))
    y = reduce("sum", value * d[place, L], over=R)
    g.output("Y", y, "bf16", (M, L))
    g.output("place", place, "i32", (M, R))
    away = cast(x.at(k=L), "f32") - y
    g.output("loss", reduce("sum", reduce("sum", away * away, over=L), over=M) / (m * k), "f32", ())


@operator
def shuffled_norm(g: Graph, b: int, c: int, n: int) -> None:
    """Channels shuffled by a table, normalised by groups of eight and turned."""
    B, C, G, N = g.axes(b=b, c=8, g=c // 8, n=n)
    at = g.input("at", (G, C), "i32", values=permutation())
    x = cast(g.tensor("X", (b, c, n), "f16")[B, at, N], "f32")
    mean = reduce("sum", x, over=(C, N)) / (8 * n)
    var = reduce("sum", (x - mean) * (x - mean), over=(C, N)) / (8 * n)
    y = (x - mean) * rsqrt(var + 1e-5)
    g.output("Y", silu(y), "f16", (B, N, G, C))


@operator
def survival(g: Graph, n: int, d: int) -> None:
    """A partial likelihood of risks in order of time, and its gradient by each of them."""
    N, D = g.axes(n=n, d=d)
    risk = reduce("sum", g.input("X", (N, D), "f32") * g.input("w", (D,), "f32"), over=D)
    risk = risk * d**-0.5
    m = reduce("max", risk, over=N)
    e = exp(risk - m)
    at = cumulative("sum", e, N, backward=True)
    event = cast(g.input("event", (N,), "u8", values=uniform(0, 1)), "f32")
    g.output("L", reduce("sum", event * (risk - m - log(at)), over=N), "f32", ())
    g.output("G", event - e * cumulative("sum", event / at, N), "f32", (N,))


@operator
def hyperbolic(g: Graph, m: int, n: int, d: int) -> None:
    """Distances of points of a ball, and of which other each is the nearest."""
    I, J, D = g.axes(i=m, j=n, d=d)  # noqa: E741
    x = g.input("X", (I, D), "f32", values=uniform(-0.9 * d**-0.5, 0.9 * d**-0.5))
    y = g.input("Y", (J, D), "f32", values=uniform(-0.9 * d**-0.5, 0.9 * d**-0.5))
    away = reduce("sum", (x - y) * (x - y), over=D)
    own, other = (1 - reduce("sum", v * v, over=D) for v in (x, y))
    a = 2 * away / (own * other)
    far = log1p(a + sqrt(a * (a + 2)))
    g.output("far", far, "f32", (I, J))
    g.output("near", argmin(far, J), "i32", (I,))


@operator
def mixed_logistic(g: Graph, b: int, c: int, k: int, n: int) -> None:
    """Log-likelihoods of bytes under mixtures of logistic bins."""
    B, C, K, N = g.axes(b=b, c=c, k=k, n=n)
    mean, s = g.input("mean", (B, C, K, N), "f16"), g.input("s", (B, C, K, N), "f16")
    x = cast(g.input("X", (B, C, N), "u8"), "f32") / 127.5 - 1
    inv = exp(-maximum(cast(s, "f32") - 3, -7.0))
    up, down = (x - mean + 1 / 255) * inv, (x - mean - 1 / 255) * inv
    inner = sigmoid(up) - sigmoid(down)
    lik = where(x < -0.999, sigmoid(up), where(x > 0.999, sigmoid(-down), maximum(inner, 1e-12)))
    w = g.input("w", (B, K, N), "f16")
    m = reduce("max", cast(w, "f32"), over=K)
    share = cast(w, "f32") - m - log(reduce("sum", exp(w - m), over=K))
    each = reduce("sum", log(lik), over=C) + share
    m = reduce("max", each, over=K)
    g.output("L", m + log(reduce("sum", exp(each - m), over=K)), "f32", (B, N))


@operator
def fading(g: Graph, b: int, t: int, d: int) -> None:
    """Welford's running mean and variance of each channel, and each step normalised by those."""
    B, T, D = g.axes(b=b, t=t, d=d)
    x = g.input("X", (B, T, D), "f32")

    def merge(a, b):
        return tuple(u + v for u, v in zip(a, b, strict=True))

    count, total, square = scan(merge, (g.constant(1.0, "f32") + 0 * x, x, x * x), T)
    mean = total / count
    var = maximum(square / count - mean * mean, 0.0)
    g.output("Y", (x - mean) * rsqrt(var + 1e-3), "f32", (B, T, D))


@operator
def erased(g: Graph, m: int, n: int, k: int) -> None:
    """A layer whose weights are dropped by hashed numbers, the same backward as forward."""
    M, N, K = g.axes(m=m, n=n, k=k)
    seed = g.input("seed", (), "i32")
    word = philox(g.coordinate(N * k + K), seed=seed)
    w = g.input("W", (N, K), "bf16", values=normal(k**-0.5))
    kept = where((word & 1023) < 922, cast(w, "f32") * (1024 / 922), 0.0)
    y = contract(g.input("X", (M, K), "bf16"), cast(kept, "bf16"), over=K)
    g.output("Y", y * 0.5 * (1 + erf(y * 0.5**0.5)), "bf16", (M, N))


@operator
def bytes_of(g: Graph, n: int) -> None:
    """Floats split into planes of bytes, each plane's differences and how often each byte comes."""
    N, P, V = g.axes(n=n, p=4, v=256)
    bits = cast(bitcast(g.input("X", (N,), "f32"), "i32"), "i32")
    byte = (bits >> (8 * g.iota(P))) & 255
    g.output("planes", cast(byte, "u8"), "u8", (P, N))
    before = byte.at(n=N - 1, fill=0)
    delta = (byte - before) & 255
    one = g.constant(1, "i32") + 0 * delta
    g.output("counts", scatter("sum", one, {P: P, V: delta}), "i32", (P, V))


EXTENTS = {
    "conjugate": {
        "small": {"b": 2, "n": 17, "steps": 3},
        "full": {"b": 256, "n": 512, "steps": 32},
    },
    "multigrid": {"small": {"b": 2, "n": 14}, "full": {"b": 16, "n": 4096}},
    "barrier_paths": {"small": {"paths": 50, "steps": 5}, "full": {"paths": 1048576, "steps": 252}},
    "smith_waterman": {
        "small": {"b": 3, "m": 7, "n": 11},
        "full": {"b": 2048, "m": 512, "n": 512},
    },
    "syndromes": {
        "small": {"b": 5, "m": 24, "n": 96},
        "full": {"b": 4096, "m": 2048, "n": 8192},
    },
    "angles": {"small": {"n": 20, "k": 33}, "full": {"n": 1048576, "k": 4194304}},
    "top_share": {
        "small": {"b": 3, "n": 50, "steps": 6},
        "full": {"b": 256, "n": 128256, "steps": 20},
    },
    "ternary_linear": {
        "small": {"m": 9, "n": 24, "k": 64},
        "full": {"m": 64, "n": 6912, "k": 2560},
    },
    "shampoo": {"small": {"m": 32, "n": 48}, "full": {"m": 4096, "n": 4096}},
    "compressed_keys": {
        "small": {"b": 1, "h": 4, "kv": 2, "t": 48, "block": 8, "d": 16},
        "full": {"b": 2, "h": 64, "kv": 4, "t": 8192, "block": 32, "d": 128},
    },
    "gated_experts_bias": {
        "small": {"t": 20, "e": 16, "d": 32},
        "full": {"t": 32768, "e": 256, "d": 7168},
    },
    "packed_rows": {
        "small": {"rows": 6, "n": 20, "total": 50},
        "full": {"rows": 65536, "n": 1024, "total": 33554432},
    },
    "spherical": {"small": {"b": 3, "n": 20, "k": 6}, "full": {"b": 512, "n": 4096, "k": 256}},
    "sparse_top": {
        "small": {"m": 9, "n": 64, "k": 32, "keep": 5},
        "full": {"m": 8192, "n": 32768, "k": 2048, "keep": 64},
    },
    "shuffled_norm": {"small": {"b": 2, "c": 24, "n": 21}, "full": {"b": 64, "c": 512, "n": 4096}},
    "survival": {"small": {"n": 50, "d": 7}, "full": {"n": 4194304, "d": 32}},
    "hyperbolic": {
        "small": {"m": 12, "n": 20, "d": 8},
        "full": {"m": 8192, "n": 8192, "d": 64},
    },
    "mixed_logistic": {
        "small": {"b": 2, "c": 3, "k": 4, "n": 11},
        "full": {"b": 64, "c": 3, "k": 10, "n": 16384},
    },
    "fading": {"small": {"b": 2, "t": 19, "d": 6}, "full": {"b": 16, "t": 8192, "d": 512}},
    "erased": {"small": {"m": 9, "n": 24, "k": 64}, "full": {"m": 8192, "n": 4096, "k": 4096}},
    "bytes_of": {"small": {"n": 77}, "full": {"n": 67108864}},
}
