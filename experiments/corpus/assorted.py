"""Programs of selectors, optimisers, structures, images and cells that no other file foresees.

`tilewright tune experiments/corpus/assorted.py:NAME full ...`; what they take is in README.md.
"""

from __future__ import annotations

import math

from ir import (
    Graph,
    argmax,
    cast,
    contract,
    cos,
    cumulative,
    exp,
    floor,
    indices,
    log,
    maximum,
    minimum,
    operator,
    popcount,
    recur,
    reduce,
    relu,
    rsqrt,
    sigmoid,
    sin,
    tanh,
    uniform,
    where,
)
from ir.values import normal, probabilities


@operator
def index_scores(g: Graph, t: int, s: int, h: int, d: int) -> None:
    """What a light head thinks of each key: gated sums of rectified scores, causal, in fp8."""
    T, S, H, D = g.axes(t=t, s=s, h=h, d=d)
    q, k = g.input("Q", (T, H, D), "e4m3"), g.input("K", (S, D), "e4m3")
    w, scale = g.input("w", (T, H), "f32"), g.input("scale", (S,), "f32", values=uniform(0.5, 2))
    v = reduce("sum", relu(contract(q, k, over=D)) * w, over=H) * scale
    g.output("I", where(g.iota(S) <= T + (s - t), v, -math.inf), "f32", (T, S))


@operator
def newton_schulz(g: Graph, m: int, n: int) -> None:
    """A step towards the nearest orthogonal matrix, as Muon takes it."""
    I, J, K, N = g.axes(i=m, j=m, k=m, n=n)  # noqa: E741
    t = g.tensor("X", (m, n), "bf16")
    a = cast(contract(t[I, N], t[J, N], over=N), "bf16")
    b = -4.775 * a + 2.0315 * contract(a.at(j=K), a.at(i=K), over=K)
    y = 3.4445 * t[I, N] + contract(cast(b, "bf16"), t[J, N], over=J)
    g.output("Y", y, "bf16", (I, N))


@operator
def outer_product_mean(g: Graph, s: int, r: int, c: int, z: int) -> None:
    """Pairs of residues from a stack of sequences: the mean of outer products, projected."""
    S, I, J, C, D, Z = g.axes(s=s, i=r, j=r, c=c, d=c, z=z)  # noqa: E741
    a, b = g.input("A", (S, I, C), "bf16"), g.input("B", (S, J, D), "bf16")
    o = cast(contract(a, b, over=S) * (1 / s), "bf16")
    g.output("Z", contract(o, g.input("W", (C, D, Z), "bf16"), over=(C, D)), "bf16", (I, J, Z))


@operator
def gru(g: Graph, b: int, t: int, d: int) -> None:
    """A gated recurrent cell over a sequence whose inputs are projected already."""
    T, B, K, N = g.axes(t=t, b=b, k=d, n=d)
    x = {s: g.input("X" + s, (T, B, N), "bf16") for s in "zrn"}
    w = {s: g.input("W" + s, (K, N), "bf16", values=normal(d**-0.5)) for s in "zrn"}
    h = g.state(T, (B, K))
    u = cast(h, "bf16")
    z = sigmoid(x["z"] + contract(u, w["z"], over=K))
    r = sigmoid(x["r"] + contract(u, w["r"], over=K))
    n = tanh(x["n"] + r * contract(u, w["n"], over=K))
    after = (1 - z.at(n=K)) * n.at(n=K) + z.at(n=K) * h
    g.output("H", after, "bf16", (T, B, K))
    g.output("last", recur(h, after), "f32", (B, K))


@operator
def lstm(g: Graph, b: int, t: int, d: int) -> None:
    """A cell with a memory: four gates, whose weights are one tensor."""
    T, B, K, N, Q = g.axes(t=t, b=b, k=d, n=d, q=4)
    w = g.input("W", (Q, K, N), "bf16", values=normal(d**-0.5))
    h, c = g.state(T, (B, K)), g.state(T, (B, N))
    z = contract(cast(h, "bf16"), w, over=K) + g.input("X", (T, B, Q, N), "bf16")
    i, f, o, u = (z.at(q=n) for n in range(4))
    memory = sigmoid(f) * c + sigmoid(i) * tanh(u)
    out = sigmoid(o) * tanh(memory)
    g.output("H", out, "bf16", (T, B, N))
    g.output("last", recur(h, out.at(n=K)), "f32", (B, K))
    g.output("C", recur(c, memory), "f32", (B, N))


@operator
def hmm_forward(g: Graph, b: int, t: int, s: int) -> None:
    """Likelihoods of sequences under a hidden Markov model, scaled at each step."""
    T, B, I, J = g.axes(t=t, b=b, i=s, j=s)  # noqa: E741
    a = g.input("A", (I, J), "f32", values=probabilities())
    e = g.input("E", (T, B, J), "f32", values=uniform(0.1, 1))
    p = g.state(T, (B, I), 1 / s)
    q = contract(p, a, over=I) * e
    c = reduce("sum", q, over=J)
    last = recur(p, (q * (1 / c)).at(j=I))
    g.output("P", last, "f32", (B, I))
    g.output("L", reduce("sum", log(c), over=T), "f32", (B,))


@operator
def ssim(g: Graph, n: int, h: int, w: int) -> None:
    """Structural similarity of two images in windows of 7 x 7."""
    N, Y, X, R, S = g.axes(n=n, y=h - 6, x=w - 6, r=7, s=7)
    a, b = (g.tensor(name, (n, h, w), "f32")[N, Y + R, X + S] for name in "AB")

    def mean(v):
        return reduce("sum", v, over=(R, S)) * (1 / 49)

    ma, mb = mean(a), mean(b)
    va, vb, both = mean(a * a) - ma * ma, mean(b * b) - mb * mb, mean(a * b) - ma * mb
    top = (2 * ma * mb + 1e-4) * (2 * both + 9e-4)
    g.output("M", top / ((ma * ma + mb * mb + 1e-4) * (va + vb + 9e-4)), "f32", (N, Y, X))


@operator
def grid_sample(g: Graph, n: int, c: int, h: int, w: int) -> None:
    """An image, channels last, read between its points at given places."""
    N, Y, X, C = g.axes(n=n, y=h, x=w, c=c)
    t = g.tensor("I", (n, h, w, c), "bf16")
    places = [
        g.input(s, (N, Y, X), "f32", values=uniform(0, e - 1.01)) for s, e in (("py", h), ("px", w))
    ]
    low = [floor(p) for p in places]
    part = [p - f for p, f in zip(places, low, strict=True)]
    at = [cast(f, "i32") for f in low]
    v = g.constant(0.0, "f32")
    for i in (0, 1):
        for j in (0, 1):
            weight = (part[0] if i else 1 - part[0]) * (part[1] if j else 1 - part[1])
            y, x = minimum(at[0] + i, h - 1), minimum(at[1] + j, w - 1)
            v = v + weight * t[N, y, x, C]
    g.output("O", v, "bf16", (N, Y, X, C))


@operator
def long_filter(g: Graph, b: int, t: int, c: int) -> None:
    """Each channel of a sequence under a causal filter as long as the sequence."""
    B, T, S, C = g.axes(b=b, t=t, s=t, c=c)
    f = g.tensor("F", (c, t), "bf16", fill=0)[C, T - S]
    y = contract(f, g.input("X", (C, S, B), "bf16"), over=S)
    g.output("Y", y, "bf16", (C, T, B))


@operator
def simplicial(g: Graph, b: int, h: int, t: int, v: int, w: int, d: int) -> None:
    """Attention over pairs of keys, each from a window before the query."""
    B, H, T, J, K, D, E = g.axes(b=b, h=h, t=t, j=v, k=w, d=d, e=d)
    q = g.input("Q", (B, H, T, D), "bf16")
    near = {s: g.tensor(s, (b, h, t, d), "bf16", fill=0) for s in ("K1", "K2", "V1", "V2")}
    s = contract(cast(q * near["K1"][B, H, T - J, D], "bf16"), near["K2"][B, H, T - K, D], over=D)
    s = where((g.coordinate(T - J) >= 0) & (g.coordinate(T - K) >= 0), s * d**-0.5, -math.inf)
    p = exp(s - reduce("max", s, over=(J, K)))
    inner = contract(cast(p, "bf16"), near["V2"][B, H, T - K, E], over=K)
    o = reduce("sum", inner * near["V1"][B, H, T - J, E], over=J)
    g.output("O", o / reduce("sum", p, over=(J, K)), "bf16", (B, H, T, E))


@operator
def bucketed(g: Graph, b: int, h: int, s: int, d: int) -> None:
    """Attention whose bias is a table by the logarithm of the distance."""
    B, H, I, J, D, E = g.axes(b=b, h=h, i=s, j=s, d=d, e=d)  # noqa: E741
    q, k = g.input("Q", (B, H, I, D), "bf16"), g.input("K", (B, H, J, D), "bf16")
    table = g.tensor("bias", (h, 32), "f32")
    away = maximum(g.iota(J) - I, g.iota(I) - J)
    far = 8 + cast(log(maximum(cast(away, "f32"), 1.0) * 0.125) * (8 / math.log(16)), "i32")
    bucket = where(away < 8, away, minimum(far, 15)) + cast(where(g.iota(J) > I, 16, 0), "i32")
    s_ = contract(q, k, over=D) + table[H, bucket]
    p = exp(s_ - reduce("max", s_, over=J))
    o = contract(cast(p, "bf16"), g.input("V", (B, H, J, E), "bf16"), over=J)
    g.output("O", o / reduce("sum", p, over=J), "bf16", (B, H, I, E))


@operator
def greedy_head(g: Graph, m: int, n: int, k: int) -> None:
    """The likeliest word of each row, and its logit."""
    M, N, K = g.axes(m=m, n=n, k=k)
    x, w = g.input("X", (M, K), "bf16"), g.input("W", (N, K), "bf16", values=normal(k**-0.5))
    z = contract(x, w, over=K)
    g.output("value", reduce("max", z, over=N), "f32", (M,))
    g.output("place", argmax(z, N), "i32", (M,))


@operator
def head_entropy(g: Graph, m: int, n: int, k: int) -> None:
    """Entropy of the next word, and the log-probability of the one that came."""
    M, N, K = g.axes(m=m, n=n, k=k)
    x, w = g.input("X", (M, K), "bf16"), g.input("W", (N, K), "bf16", values=normal(k**-0.5))
    label = g.input("label", (M,), "i32", values=indices(n))
    z = contract(x, w, over=K)
    m_ = reduce("max", z, over=N)
    e = exp(z - m_)
    total = reduce("sum", e, over=N)
    g.output("H", log(total) - reduce("sum", e * (z - m_), over=N) / total, "f32", (M,))
    chosen = reduce("sum", where(g.iota(N) == label, z, 0.0), over=N)
    g.output("L", chosen - m_ - log(total), "f32", (M,))


@operator
def projected_heads(g: Graph, m: int, h: int, d: int, k: int) -> None:
    """Queries: a projection, a norm of each head, and the rotation of its halves by position."""
    M, H, P, F, K = g.axes(m=m, h=h, p=2, f=d // 2, k=k)
    x = g.input("X", (M, K), "bf16")
    w = g.input("W", (H, P, F, K), "bf16", values=normal(k**-0.5))
    gain = g.input("gain", (P, F), "f32")
    y = contract(x, w, over=K)
    y = y * rsqrt(reduce("sum", y * y, over=(P, F)) * (1 / d) + 1e-6) * gain
    angle = M * exp(g.iota(F) * (-2 / d * math.log(10000.0)))
    turned = where(g.iota(P) == 0, -y.at(p=1), y.at(p=0))
    g.output("Q", y * cos(angle) + turned * sin(angle), "bf16", (M, H, P, F))


@operator
def pair_bias(g: Graph, n: int, h: int, d: int, c: int) -> None:
    """Attention over residues whose bias is a projection of the normalised pairs."""
    H, I, J, D, E, C = g.axes(h=h, i=n, j=n, d=d, e=d, c=c)  # noqa: E741
    q, k = g.input("Q", (I, H, D), "bf16"), g.input("K", (J, H, D), "bf16")
    z = cast(g.input("Z", (I, J, C), "bf16"), "f32")
    mu = reduce("sum", z, over=C) * (1 / c)
    var = reduce("sum", (z - mu) * (z - mu), over=C) * (1 / c)
    w = g.input("W", (C, H), "bf16", values=normal(c**-0.5))
    bias = contract(cast((z - mu) * rsqrt(var + 1e-5), "bf16"), w, over=C)
    s = contract(q, k, over=D) * d**-0.5 + bias
    p = exp(s - reduce("max", s, over=J))
    o = contract(cast(p, "bf16"), g.input("V", (J, H, E), "bf16"), over=J)
    gate = sigmoid(cast(g.input("G", (I, H, E), "bf16"), "f32"))
    g.output("O", gate * o / reduce("sum", p, over=J), "bf16", (I, H, E))


@operator
def normal_equations(g: Graph, u: int, n: int, items: int, d: int) -> None:
    """Least squares for each user, over the items that it has rated: both sides."""
    U, R, I, J = g.axes(u=u, r=n, i=d, j=d)  # noqa: E741
    item = g.input("item", (U, R), "i32", values=indices(items))
    t = g.tensor("Y", (items, d), "bf16")
    g.output("A", contract(t[item, I], t[item, J], over=R), "f32", (U, I, J))
    rating = g.input("rating", (U, R), "bf16")
    g.output("b", contract(rating, t[item, I], over=R), "f32", (U, I))


@operator
def signs(g: Graph, m: int, n: int, k: int) -> None:
    """A product of matrices of signs, 32 to a word."""
    M, N, K = g.axes(m=m, n=n, k=k // 32)
    a, b = g.input("A", (M, K), "u32"), g.input("B", (N, K), "u32")
    g.output("C", k - 2 * reduce("sum", popcount(a ^ b), over=K), "i32", (M, N))


@operator
def mean_crossing(g: Graph, c: int, t: int) -> None:
    """Channels of a signal: how often each crosses its running mean."""
    C, T = g.axes(c=c, t=t)
    x = g.input("X", (C, T), "f32")
    above = x > cumulative("sum", x, T) / (g.iota(T) + 1)
    up = where(above, 1, 0)
    g.output("n", reduce("sum", where(up != up.at(t=T - 1, fill=0), 1, 0), over=T), "i32", (C,))


EXTENTS = {
    "index_scores": {
        "small": {"t": 24, "s": 40, "h": 3, "d": 32},
        "full": {"t": 4096, "s": 16384, "h": 64, "d": 128},
    },
    "newton_schulz": {"small": {"m": 32, "n": 48}, "full": {"m": 4096, "n": 12288}},
    "outer_product_mean": {
        "small": {"s": 32, "r": 12, "c": 8, "z": 16},
        "full": {"s": 512, "r": 384, "c": 32, "z": 128},
    },
    "gru": {"small": {"b": 4, "t": 5, "d": 32}, "full": {"b": 64, "t": 128, "d": 512}},
    "lstm": {"small": {"b": 8, "t": 5, "d": 32}, "full": {"b": 256, "t": 64, "d": 1024}},
    "hmm_forward": {"small": {"b": 3, "t": 6, "s": 16}, "full": {"b": 256, "t": 256, "s": 128}},
    "ssim": {"small": {"n": 2, "h": 19, "w": 22}, "full": {"n": 16, "h": 1024, "w": 1024}},
    "grid_sample": {
        "small": {"n": 2, "c": 8, "h": 9, "w": 11},
        "full": {"n": 16, "c": 64, "h": 512, "w": 512},
    },
    "long_filter": {"small": {"b": 8, "t": 32, "c": 3}, "full": {"b": 16, "t": 2048, "c": 1024}},
    "simplicial": {
        "small": {"b": 1, "h": 2, "t": 24, "v": 6, "w": 8, "d": 16},
        "full": {"b": 1, "h": 8, "t": 4096, "v": 32, "w": 64, "d": 64},
    },
    "bucketed": {
        "small": {"b": 1, "h": 2, "s": 40, "d": 16},
        "full": {"b": 4, "h": 32, "s": 4096, "d": 64},
    },
    "greedy_head": {"small": {"m": 5, "n": 96, "k": 32}, "full": {"m": 64, "n": 128256, "k": 4096}},
    "head_entropy": {
        "small": {"m": 24, "n": 96, "k": 32},
        "full": {"m": 4096, "n": 128256, "k": 4096},
    },
    "projected_heads": {
        "small": {"m": 12, "h": 3, "d": 16, "k": 32},
        "full": {"m": 8192, "h": 32, "d": 128, "k": 4096},
    },
    "pair_bias": {
        "small": {"n": 24, "h": 3, "d": 16, "c": 16},
        "full": {"n": 1024, "h": 16, "d": 32, "c": 128},
    },
    "normal_equations": {
        "small": {"u": 5, "n": 16, "items": 40, "d": 16},
        "full": {"u": 16384, "n": 256, "items": 1000000, "d": 64},
    },
    "signs": {"small": {"m": 12, "n": 20, "k": 128}, "full": {"m": 4096, "n": 4096, "k": 8192}},
    "mean_crossing": {"small": {"c": 5, "t": 37}, "full": {"c": 4096, "t": 16384}},
}
