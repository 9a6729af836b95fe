"""Programs of signals, strings, graphs, search, sampling and their neighbours.

`tilewright tune experiments/corpus/sequences.py:NAME full ...`; times are in README.md.
"""

from __future__ import annotations

import math

from ir import (
    Graph,
    absolute,
    argmax,
    cast,
    contract,
    cos,
    cumulative,
    erf,
    exp,
    log,
    maximum,
    minimum,
    operator,
    philox_uniform,
    popcount,
    recur,
    reduce,
    rsqrt,
    scatter,
    sigmoid,
    sqrt,
    tanh,
    top,
    where,
)
from ir.values import indices, normal, positive, probabilities, uniform


@operator
def gru(g: Graph, b: int, t: int, h: int) -> None:
    """A gated recurrent layer behind its inputs' product."""
    B, T, H, K = g.axes(b=b, t=t, h=h, k=h)
    xr, xz, xn = (g.input(n, (B, T, H), "bf16") for n in ("Xr", "Xz", "Xn"))
    s = g.state(T, (B, H))
    ur, uz, un = (g.input(n, (K, H), "bf16", values=normal(0.05)) for n in ("Ur", "Uz", "Un"))
    sk = cast(s, "bf16").at(h=K)
    r = sigmoid(xr + contract(sk, ur, over=K))
    z = sigmoid(xz + contract(sk, uz, over=K))
    n = tanh(xn + r * contract(sk, un, over=K))
    after = (1.0 - z) * n + z * s
    g.output("Y", after, "bf16", (B, T, H))
    recur(s, after)


@operator
def mel(g: Graph, b: int, t: int, hop: int, n: int, f: int, m: int) -> None:
    """Logarithms of a mel spectrogram: frames, a window, the DFT as a product, power, filters."""
    B, F, K, W, M = g.axes(b=b, f=t // hop - n // hop, k=f, w=n, m=m)
    x = g.tensor("X", (b, t), "f32")
    frame = x[B, F * hop + W] * (0.5 - 0.5 * cos(g.iota(W) * (2 * math.pi / n)))
    re = contract(frame, g.input("C", (W, K), "f32"), over=W)
    im = contract(frame, g.input("S", (W, K), "f32"), over=W)
    y = contract(re * re + im * im, g.input("M", (M, K), "f32", values=positive(0.1)), over=K)
    g.output("Y", log(maximum(y, 1e-5)), "f32", (B, F, M))


@operator
def floyd(g: Graph, n: int) -> None:
    """All shortest paths."""
    S, I, J = g.axes(s=n, i=n, j=n)  # noqa: E741
    d = g.input("D", (I, J), "f32", values=uniform(1, 9))
    before = g.state(S, (I, J), d)
    after = minimum(before, before.at(j=S) + before.at(i=S))
    g.output("P", recur(before, after), "f32", (I, J))


@operator
def edit(g: Graph, b: int, n: int, m: int) -> None:
    """Edit distances of pairs of strings, a row at a time: a scan of minima along it."""
    B, S, J = g.axes(b=b, s=n, j=m + 1)
    x = g.tensor("X", (b, n), "u8", values=indices(4))
    y = g.tensor("Y", (b, m), "u8", values=indices(4), fill=255)
    row = before = g.state(S, (B, J), g.iota(J))
    same = where(x[B, S] == y[B, J - 1], g.constant(0, "i32"), 1)
    change = row.at(j=J - 1, fill=1 << 20) + same
    best = minimum(change, row + 1)
    best = where(g.iota(J) == 0, g.iota(S) + 1, best)
    after = cumulative("min", best - g.iota(J), J) + g.iota(J)
    g.output("D", recur(before, after), "i32", (B, J))


@operator
def overlap_add(g: Graph, b: int, f: int, n: int, hop: int) -> None:
    """Frames under a window, added where they overlap."""
    B, F, W, T = g.axes(b=b, f=f, w=n, t=(f - 1) * hop + n)
    x = g.input("X", (B, F, W), "f32") * (0.5 - 0.5 * cos(g.iota(W) * (2 * math.pi / n)))
    g.output("Y", scatter("sum", x, {T: F * hop + W, B: g.iota(B)}), "f32", (B, T))


@operator
def synthesis(g: Graph, b: int, f: int, k: int, n: int, hop: int) -> None:
    """Frames by a product with a basis, added where they overlap."""
    B, F, K, W, T = g.axes(b=b, f=f, k=k, w=n, t=(f - 1) * hop + n)
    x = contract(g.input("X", (B, F, K), "bf16"), g.input("W", (K, W), "bf16"), over=K)
    g.output("Y", scatter("sum", x, {T: F * hop + W, B: g.iota(B)}), "f32", (B, T))


@operator
def full_conv(g: Graph, b: int, n: int, m: int) -> None:
    """All of a convolution, as an outer product whose diagonals are added."""
    B, N, M, T = g.axes(b=b, n=n, m=m, t=n + m - 1)
    v = g.input("X", (B, N), "f32") * g.input("W", (M,), "f32")
    g.output("Y", scatter("sum", v, {B: g.iota(B), T: N + M}), "f32", (B, T))


@operator
def coo(g: Graph, e: int, n: int, m: int, d: int) -> None:
    """A sparse matrix of listed entries by a dense one."""
    E, M, D = g.axes(e=e, m=m, d=d)
    row, col = (g.input(s, (E,), "i32", values=indices(x)) for s, x in (("row", m), ("col", n)))
    x = g.tensor("X", (n, d), "f32")
    v = g.input("V", (E,), "f32") * x[col, D]
    g.output("Y", scatter("sum", v, {M: row, D: g.iota(D)}), "f32", (M, D))


@operator
def relative(g: Graph, b: int, h: int, s: int, d: int) -> None:
    """Attention with scores of learned vectors for how far apart two places are."""
    B, H, I, J, D, E = g.axes(b=b, h=h, i=s, j=s, d=d, e=d)  # noqa: E741
    q = g.input("Q", (B, H, I, D), "bf16")
    r = g.tensor("R", (2 * s - 1, d), "bf16")
    s1 = contract(q, g.input("K", (B, H, J, D), "bf16"), over=D)
    s2 = contract(q, r[J - I + (s - 1), D], over=D)
    x = (s1 + s2) * d**-0.5
    p = exp(x - reduce("max", x, over=J))
    o = contract(cast(p, "bf16"), g.input("V", (B, H, J, E), "bf16"), over=J)
    g.output("O", o / reduce("sum", p, over=J), "bf16", (B, H, I, E))


@operator
def bucketed(g: Graph, b: int, h: int, s: int, d: int) -> None:
    """Attention with a bias of logarithmic buckets."""
    B, H, I, J, D, E = g.axes(b=b, h=h, i=s, j=s, d=d, e=d)  # noqa: E741
    table = g.tensor("T", (h, 32), "f32")
    far = maximum(g.iota(I) - g.iota(J), 0)
    big = 16 + cast(
        log(maximum(cast(far, "f32"), 1.0) * (1 / 16)) * (16 / math.log(128 / 16)), "i32"
    )
    bucket = where(far < 16, far, minimum(big, 31))
    x = contract(g.input("Q", (B, H, I, D), "bf16"), g.input("K", (B, H, J, D), "bf16"), over=D)
    x = x + table[H, maximum(bucket, 0)]
    x = where(g.iota(J) <= g.iota(I), x, -1e30)
    p = exp(x - reduce("max", x, over=J))
    o = contract(cast(p, "bf16"), g.input("V", (B, H, J, E), "bf16"), over=J)
    g.output("O", o / reduce("sum", p, over=J), "bf16", (B, H, I, E))


@operator
def nucleus(g: Graph, b: int, v: int, k: int) -> None:
    """What is left of the best k by top-p, drawn by Gumbel's trick."""
    B, V, K = g.axes(b=b, v=v, k=k)
    x = cast(g.input("X", (B, V), "bf16"), "f32") * (1 / 0.7)
    best, at = top(x, V, K)
    e = exp(best - reduce("max", best, over=K))
    p = e / reduce("sum", e, over=K)
    before = cumulative("sum", p, K) - p
    noise = -log(-log(philox_uniform(g.coordinate(B * k + K), seed=5) * 0.999999 + 5e-7))
    z = where(before < 0.9, best + noise, -1e30)
    choice = argmax(z, K)
    g.output("T", at.at(k=choice), "i32", (B,))


@operator
def beam(g: Graph, b: int, w: int, v: int) -> None:
    """A step of a beam search: the best of all that all beams may go on with."""
    B, W, V, K = g.axes(b=b, w=w, v=v, k=w)
    x = cast(g.input("X", (B, W, V), "bf16"), "f32")
    m = reduce("max", x, over=V)
    lse = m + log(reduce("sum", exp(x - m), over=V))
    y = x - lse + g.input("score", (B, W), "f32")
    U = g.axis("u", w * v)
    flat = y.at(w=g.iota(U) // v, v=g.iota(U) % v)
    best, place = top(flat, U, K)
    g.output("S", best, "f32", (B, K))
    g.output("beam", place // v, "i32", (B, K))
    g.output("token", place % v, "i32", (B, K))


@operator
def verified(g: Graph, b: int, t: int, v: int) -> None:
    """How many drafted tokens stand, and what is left of the distributions where they do not."""
    B, T, V = g.axes(b=b, t=t, v=v)
    p, q = (
        g.tensor("P", (b, t, v), "f32", values=probabilities()),
        g.tensor("Q", (b, t, v), "f32", values=probabilities()),
    )
    token = g.input("token", (B, T), "i32", values=indices(v))
    u = philox_uniform(g.coordinate(B * t + T), seed=1)
    good = where(u * q[B, T, token] <= p[B, T, token], 1, 0)
    run = cumulative("min", good, T)
    g.output("N", reduce("sum", run, over=T), "i32", (B,))
    rest = maximum(p[B, T, V] - q[B, T, V], 0.0)
    g.output("R", rest / maximum(reduce("sum", rest, over=V), 1e-20), "f32", (B, T, V))


@operator
def adafactor(g: Graph, m: int, n: int) -> None:
    """Statistics of rows and columns, and a step by them."""
    I, J = g.axes(i=m, j=n)  # noqa: E741
    x = cast(g.input("G", (I, J), "bf16"), "f32")
    sq = x * x + 1e-30
    r = g.input("R", (I,), "f32", values=positive(1.0)) * 0.99 + reduce("sum", sq, over=J) * (
        0.01 / n
    )
    c = g.input("C", (J,), "f32", values=positive(1.0)) * 0.99 + reduce("sum", sq, over=I) * (
        0.01 / m
    )
    g.output("Rn", r, "f32", (I,))
    g.output("Cn", c, "f32", (J,))
    mean = reduce("sum", r, over=I) * (1 / m)
    u = x * rsqrt(r / mean) * rsqrt(c)
    rms = sqrt(reduce("sum", u * u, over=(I, J)) * (1 / (m * n)))
    w = g.input("W", (I, J), "f32")
    g.output("Wn", w - 1e-3 * u / maximum(rms, 1.0), "f32", (I, J))


@operator
def packed_signs(g: Graph, m: int, n: int) -> None:
    """Signs of rows, 32 to a word, and a scale of each row."""
    I, W, K = g.axes(i=m, w=n // 32, k=32)  # noqa: E741
    x = g.input("X", (I, W, K), "bf16")
    bits = where(x > 0.0, g.constant(1, "i64"), 0) << g.iota(K)
    g.output("B", cast(reduce("sum", bits, over=K), "u32"), "u32", (I, W))
    g.output("S", reduce("sum", absolute(cast(x, "f32")), over=(W, K)) * (1 / n), "f32", (I,))


@operator
def hamming(g: Graph, q: int, n: int, words: int, k: int) -> None:
    """The nearest codes by the bits that differ."""
    Q, N, W, K = g.axes(q=q, n=n, w=words, k=k)
    x, y = g.input("Q", (Q, W), "i32"), g.input("N", (N, W), "i32")
    d = reduce("sum", popcount(x ^ y), over=W)
    v, i = top(-d, N, K)
    g.output("D", -v, "i32", (Q, K))
    g.output("I", i, "i32", (Q, K))


@operator
def pq(g: Graph, q: int, n: int, m: int) -> None:
    """Distances by tables of product codes, the least of each query."""
    Q, N, M = g.axes(q=q, n=n, m=m)
    table = g.tensor("T", (q, m, 256), "f32")
    codes = g.input("codes", (N, M), "u8")
    d = reduce("sum", table[Q, M, cast(codes, "i32")], over=M)
    g.output("D", d, "f32", (Q, N))


@operator
def five(g: Graph, a: int, b: int, c: int, d: int, e: int) -> None:
    """A contraction of tensors of four dimensions, as physicists write it."""
    A, B, C, D, E, F = g.axes(a=a, b=b, c=c, d=d, e=e, f=e)
    x = g.input("X", (A, C, B, D), "f16")
    y = g.input("Y", (D, E, C, F), "f16")
    g.output("Z", contract(x, y, over=(C, D)), "f16", (A, E, B, F))


@operator
def block_choice(g: Graph, b: int, h: int, t: int, d: int, size: int, k: int) -> None:
    """Means of blocks of keys, scores of them summed over heads, the best few of each query."""
    B, H, I, J, O, D, K = g.axes(b=b, h=h, i=t, j=t // size, o=size, d=d, k=k)  # noqa: E741
    keys = g.tensor("K", (b, t, d), "bf16")
    mean = cast(reduce("sum", keys[B, J * size + O, D], over=O) * (1 / size), "bf16")
    s = contract(g.input("Q", (B, H, I, D), "bf16"), mean, over=D) * d**-0.5
    s = where(J * size + (size - 1) <= g.iota(I), s, -1e30)
    p = exp(s - reduce("max", s, over=J))
    p = p / reduce("sum", p, over=J)
    _v, n = top(reduce("sum", p, over=H), J, K)
    g.output("I", n, "i32", (B, I, K))


@operator
def black_scholes(g: Graph, n: int) -> None:
    """Calls and puts."""
    N = g.axis("n", n)
    s, k, t = (
        g.input(x, (N,), "f32", values=uniform(*r))
        for x, r in (("S", (5, 30)), ("K", (1, 100)), ("T", (0.25, 10)))
    )
    root = sqrt(t) * 0.3
    d1 = (log(s / k) + (0.02 + 0.045) * t) / root
    d2 = d1 - root

    near, far = (0.5 + 0.5 * erf(d * math.sqrt(0.5)) for d in (d1, d2))
    disc = k * exp(t * -0.02)
    call = s * near - disc * far
    g.output("C", call, "f32", (N,))
    g.output("P", disc * (1 - far) - s * (1 - near), "f32", (N,))


EXTENTS = {
    "gru": {"small": {"b": 5, "t": 4, "h": 32}, "full": {"b": 64, "t": 128, "h": 512}},
    "mel": {
        "small": {"b": 2, "t": 320, "hop": 16, "n": 64, "f": 33, "m": 10},
        "full": {"b": 16, "t": 480000, "hop": 160, "n": 400, "f": 201, "m": 80},
    },
    "floyd": {"small": {"n": 13}, "full": {"n": 1024}},
    "edit": {"small": {"b": 5, "n": 9, "m": 13}, "full": {"b": 4096, "n": 256, "m": 255}},
    "overlap_add": {
        "small": {"b": 2, "f": 9, "n": 16, "hop": 4},
        "full": {"b": 16, "f": 4000, "n": 1024, "hop": 256},
    },
    "synthesis": {
        "small": {"b": 2, "f": 9, "k": 16, "n": 32, "hop": 8},
        "full": {"b": 16, "f": 4000, "k": 512, "n": 1024, "hop": 256},
    },
    "full_conv": {"small": {"b": 3, "n": 40, "m": 7}, "full": {"b": 64, "n": 65536, "m": 31}},
    "coo": {
        "small": {"e": 301, "n": 40, "m": 50, "d": 9},
        "full": {"e": 4194304, "n": 262144, "m": 262144, "d": 64},
    },
    "relative": {
        "small": {"b": 2, "h": 2, "s": 70, "d": 32},
        "full": {"b": 4, "h": 16, "s": 2048, "d": 64},
    },
    "bucketed": {
        "small": {"b": 2, "h": 2, "s": 70, "d": 32},
        "full": {"b": 4, "h": 16, "s": 2048, "d": 64},
    },
    "nucleus": {"small": {"b": 5, "v": 301, "k": 16}, "full": {"b": 256, "v": 128256, "k": 64}},
    "beam": {"small": {"b": 3, "w": 4, "v": 77}, "full": {"b": 64, "w": 8, "v": 32000}},
    "verified": {"small": {"b": 5, "t": 4, "v": 77}, "full": {"b": 64, "t": 8, "v": 128256}},
    "adafactor": {"small": {"m": 37, "n": 53}, "full": {"m": 4096, "n": 14336}},
    "packed_signs": {"small": {"m": 37, "n": 96}, "full": {"m": 16384, "n": 4096}},
    "hamming": {
        "small": {"q": 5, "n": 130, "words": 3, "k": 4},
        "full": {"q": 1024, "n": 262144, "words": 8, "k": 10},
    },
    "pq": {"small": {"q": 3, "n": 70, "m": 4}, "full": {"q": 64, "n": 1048576, "m": 16}},
    "five": {
        "small": {"a": 5, "b": 7, "c": 6, "d": 9, "e": 11},
        "full": {"a": 32, "b": 32, "c": 32, "d": 32, "e": 48},
    },
    "block_choice": {
        "small": {"b": 2, "h": 3, "t": 64, "d": 32, "size": 8, "k": 3},
        "full": {"b": 1, "h": 16, "t": 16384, "d": 128, "size": 64, "k": 16},
    },
    "black_scholes": {"small": {"n": 1001}, "full": {"n": 33554432}},
}
