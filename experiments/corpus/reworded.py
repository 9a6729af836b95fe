"""Operators that everyone knows, in other words: sums for products, one-hot factors for gathers.

`tilewright tune experiments/corpus/reworded.py:NAME full ...`; what they take is in README.md.
"""

from __future__ import annotations

import math

from ir import (
    Graph,
    cast,
    contract,
    exp,
    indices,
    log,
    normal,
    operator,
    recur,
    reduce,
    silu,
    uniform,
    where,
)


@operator
def product(g: Graph, m: int, n: int, k: int, dtype: str = "bf16") -> None:
    """A product of matrices as a sum of products."""
    M, N, K = g.axes(m=m, n=n, k=k)
    a, b = g.input("A", (M, K), dtype), g.input("B", (N, K), dtype)
    g.output("C", reduce("sum", cast(a, "f32") * b, over=K), "f32", (M, N))


@operator
def scaled_product(g: Graph, m: int, n: int, k: int) -> None:
    """A product whose terms are weighed, in f32."""
    M, N, K = g.axes(m=m, n=n, k=k)
    a, b = g.input("A", (M, K), "f32"), g.input("B", (N, K), "f32")
    g.output("C", reduce("sum", a * b * g.input("w", (K,), "f32"), over=K), "f32", (M, N))


@operator
def real_part(g: Graph, m: int, n: int, k: int) -> None:
    """The real part of a product of complex matrices."""
    M, N, K = g.axes(m=m, n=n, k=k)
    ar, ai = (cast(g.input(s, (M, K), "bf16"), "f32") for s in ("Ar", "Ai"))
    br, bi = (g.input(s, (N, K), "bf16") for s in ("Br", "Bi"))
    g.output("C", reduce("sum", ar * br - ai * bi, over=K), "f32", (M, N))


@operator
def bilinear(g: Graph, b: int, i: int, j: int, o: int) -> None:
    """x W y for each of several matrices W, as one sum."""
    B, I, J, O = g.axes(b=b, i=i, j=j, o=o)  # noqa: E741
    x, y = g.input("X", (B, I), "bf16"), g.input("Y", (B, J), "bf16")
    w = g.input("W", (O, I, J), "bf16")
    g.output("Z", reduce("sum", cast(x, "f32") * w * y, over=(I, J)), "bf16", (B, O))


@operator
def attention_in_sums(g: Graph, b: int, t: int, d: int) -> None:
    """Attention without the word for a product."""
    B, I, J, D, E = g.axes(b=b, i=t, j=t, d=d, e=d)  # noqa: E741
    q, k = (g.input(s, (B, axis, D), "bf16") for s, axis in (("Q", I), ("K", J)))
    s = reduce("sum", cast(q, "f32") * k, over=D) * d**-0.5
    p = exp(s - reduce("max", s, over=J))
    v = cast(g.input("V", (B, J, E), "bf16"), "f32")
    o = reduce("sum", cast(p, "bf16") * v, over=J) / reduce("sum", p, over=J)
    g.output("O", o, "bf16", (B, I, E))


@operator
def convolution_in_sums(g: Graph, n: int, y: int, x: int, c: int, f: int) -> None:
    """A convolution of 3 x 3 taps as one sum."""
    N, Y, X, F, R, S, C = g.axes(n=n, y=y, x=x, f=f, r=3, s=3, c=c)
    image = g.tensor("X", (n, y + 2, x + 2, c), "bf16")
    w = g.input("W", (F, R, S, C), "bf16")
    out = reduce("sum", cast(image[N, Y + R, X + S, C], "f32") * w, over=(R, S, C))
    g.output("Y", out, "bf16", (N, Y, X, F))


@operator
def gram(g: Graph, b: int, n: int, d: int) -> None:
    """Products of all columns with all columns."""
    B, N, D, E = g.axes(b=b, n=n, d=d, e=d)
    x = g.tensor("X", (b, n, d), "bf16")
    g.output("G", reduce("sum", cast(x[B, N, D], "f32") * x[B, N, E], over=N), "f32", (B, D, E))


@operator
def rows_by_factor(g: Graph, t: int, v: int, d: int) -> None:
    """Rows of a table by a product with one-hot rows."""
    T, V, D = g.axes(t=t, v=v, d=d)
    place = g.input("i", (T,), "i32", values=indices(v))
    hot = cast(where(g.iota(V) == place, 1.0, 0.0), "bf16")
    g.output("Y", contract(hot, g.input("E", (V, D), "bf16"), over=V), "bf16", (T, D))


@operator
def label_loss(g: Graph, t: int, v: int) -> None:
    """Cross entropy whose label is found by a comparison."""
    T, V = g.axes(t=t, v=v)
    label = g.input("i", (T,), "i32", values=indices(v))
    x = cast(g.input("X", (T, V), "bf16"), "f32")
    m = reduce("max", x, over=V)
    whole = log(reduce("sum", exp(x - m), over=V)) + m
    own = reduce("sum", where(g.iota(V) == label, x, 0.0), over=V)
    g.output("L", whole - own, "f32", (T,))


@operator
def counts(g: Graph, n: int, b: int) -> None:
    """A histogram by comparing each byte with each bin."""
    N, B = g.axes(n=n, b=b)
    x = cast(g.input("X", (N,), "u8"), "i32")
    g.output("H", reduce("sum", cast(x == g.iota(B), "i32"), over=N), "i32", (B,))


@operator
def cluster_sums(g: Graph, n: int, s: int, d: int) -> None:
    """Sums of the rows of each cluster, by a product with one-hot columns."""
    N, S, D = g.axes(n=n, s=s, d=d)
    own = g.input("i", (N,), "i32", values=indices(s))
    hot = cast(cast(own == g.iota(S), "f32"), "bf16")
    g.output("Y", contract(hot, g.input("X", (N, D), "bf16"), over=N), "f32", (S, D))


@operator
def triangle(g: Graph, m: int, n: int) -> None:
    """Running sums by a triangle of ones."""
    M, I, J = g.axes(m=m, i=n, j=n)  # noqa: E741
    ones = where(g.iota(J) <= g.iota(I), 1.0, 0.0)
    g.output("Y", contract(g.input("X", (M, J), "f32"), ones, over=J), "f32", (M, I))


@operator
def remaining(g: Graph, m: int, n: int) -> None:
    """What is left behind each point of a row, itself left out, as a share."""
    M, I, J = g.axes(m=m, i=n, j=n)  # noqa: E741
    x = exp(g.input("X", (M, J), "f32"))
    later = reduce("sum", where(g.iota(J) > g.iota(I), x, 0.0), over=J)
    g.output("Y", later / reduce("sum", x, over=J), "f32", (M, I))


@operator
def moving_average(g: Graph, m: int, n: int) -> None:
    """An exponential moving average by a matrix of powers."""
    M, I, J = g.axes(m=m, i=n, j=n)  # noqa: E741
    apart = cast(g.iota(I) - g.iota(J), "f32")
    w = where(g.iota(J) <= g.iota(I), exp(apart * math.log(0.9)), 0.0)
    g.output("Y", reduce("sum", w * g.input("X", (M, J), "f32"), over=J), "f32", (M, I))


@operator
def masked_attention(g: Graph, b: int, t: int, d: int) -> None:
    """Causal attention whose mask is multiplied and added."""
    B, I, J, D, E = g.axes(b=b, i=t, j=t, d=d, e=d)  # noqa: E741
    q, k = (g.input(s, (B, axis, D), "bf16") for s, axis in (("Q", I), ("K", J)))
    seen = cast(g.iota(J) <= g.iota(I), "f32")
    s = contract(q, k, over=D) * d**-0.5 * seen + (1 - seen) * -1e9
    p = exp(s - reduce("max", s, over=J))
    p = p / reduce("sum", p, over=J)
    v = g.input("V", (B, J, E), "bf16")
    g.output("O", contract(cast(p, "bf16"), v, over=J), "bf16", (B, I, E))


@operator
def zero_points(g: Graph, m: int, n: int, k: int) -> None:
    """A product of bytes less their zero points, as a sum in whole numbers."""
    M, N, K = g.axes(m=m, n=n, k=k)
    a = cast(g.input("A", (M, K), "u8"), "i32")
    b = cast(g.input("B", (N, K), "i8"), "i32")
    za = g.input("za", (M,), "i32", values=uniform(0, 255))
    zb = g.input("zb", (N,), "i32", values=uniform(-3, 3))
    y = reduce("sum", (a - za) * (b - zb), over=K)
    scale = g.input("s", (N,), "f32", values=uniform(1e-4, 1e-3))
    g.output("Y", cast(y, "f32") * scale, "bf16", (M, N))


@operator
def nibbles(g: Graph, m: int, n: int, k: int) -> None:
    """Bytes times halves of bytes, each less eight, in whole numbers."""
    M, N, K = g.axes(m=m, n=n, k=k)
    packed = g.tensor("W", (n, k // 2), "u8")[N, g.iota(K) // 2]
    w = ((cast(packed, "i32") >> ((g.iota(K) & 1) * 4)) & 15) - 8
    x = cast(g.input("X", (M, K), "i8"), "i32")
    scale = g.input("s", (N,), "f32", values=uniform(1e-4, 1e-3))
    g.output("Y", cast(reduce("sum", x * w, over=K), "f32") * scale, "bf16", (M, N))


@operator
def fused_gates(g: Graph, m: int, k: int, f: int) -> None:
    """Both halves of one product, the one through a gate of the other."""
    M, K, N, F = g.axes(m=m, k=k, n=2 * f, f=f)
    w = g.input("W", (N, K), "bf16", values=normal(k**-0.5))
    y = contract(g.input("X", (M, K), "bf16"), w, over=K)
    g.output("Y", silu(y.at(n=F)) * y.at(n=F + f), "bf16", (M, F))


@operator
def convolution_by_shifts(g: Graph, n: int, y: int, x: int, c: int, f: int) -> None:
    """A convolution of 3 x 3 taps as nine products of shifted images."""
    N, Y, X, F, C = g.axes(n=n, y=y, x=x, f=f, c=c)
    image, w = g.tensor("X", (n, y + 2, x + 2, c), "bf16"), g.tensor("W", (3, 3, f, c), "bf16")
    taps = [contract(image[N, Y + r, X + s, C], w[r, s, F, C], over=C)
            for r in range(3) for s in range(3)]  # fmt: skip
    g.output("Y", sum(taps[1:], taps[0]), "bf16", (N, Y, X, F))


@operator
def unlike(g: Graph, m: int, n: int, k: int, left: str = "bf16", right: str = "e4m3") -> None:
    """A product of two types, each widened to f32."""
    M, N, K = g.axes(m=m, n=n, k=k)
    a, b = g.input("A", (M, K), left), g.input("B", (N, K), right)
    g.output("C", contract(cast(a, "f32"), cast(b, "f32"), over=K), "bf16", (M, N))


@operator
def rank_ones(g: Graph, b: int, t: int, m: int, n: int) -> None:
    """A sum of outer products, one added in each step."""
    B, T, M, N = g.axes(b=b, t=t, m=m, n=n)
    left, right = g.input("U", (B, T, M), "bf16"), g.input("V", (B, T, N), "bf16")
    before = g.state(T, (B, M, N))
    g.output("S", recur(before, before + cast(left, "f32") * right), "f32", (B, M, N))


EXTENTS = {
    "unlike": {
        "small": {"m": 24, "n": 40, "k": 64},
        "bytes": {"m": 24, "n": 40, "k": 64, "right": "i8"},
        "full": {"m": 4096, "n": 4096, "k": 4096},
    },
    "zero_points": {
        "small": {"m": 24, "n": 40, "k": 64},
        "full": {"m": 4096, "n": 4096, "k": 4096},
    },
    "nibbles": {
        "small": {"m": 24, "n": 40, "k": 64},
        "full": {"m": 4096, "n": 4096, "k": 4096},
    },
    "fused_gates": {
        "small": {"m": 24, "k": 64, "f": 40},
        "full": {"m": 4096, "k": 4096, "f": 14336},
    },
    "convolution_by_shifts": {
        "small": {"n": 2, "y": 5, "x": 6, "c": 16, "f": 24},
        "full": {"n": 32, "y": 56, "x": 56, "c": 128, "f": 128},
    },
    "product": {
        "small": {"m": 24, "n": 40, "k": 64},
        "full": {"m": 4096, "n": 4096, "k": 4096},
    },
    "scaled_product": {
        "small": {"m": 24, "n": 40, "k": 64},
        "full": {"m": 4096, "n": 4096, "k": 4096},
    },
    "real_part": {
        "small": {"m": 24, "n": 40, "k": 64},
        "full": {"m": 4096, "n": 4096, "k": 4096},
    },
    "rank_ones": {
        "small": {"b": 2, "t": 12, "m": 24, "n": 40},
        "full": {"b": 4, "t": 4096, "m": 2048, "n": 2048},
    },
    "bilinear": {
        "small": {"b": 24, "i": 16, "j": 8, "o": 24},
        "full": {"b": 8192, "i": 64, "j": 64, "o": 1024},
    },
    "attention_in_sums": {
        "small": {"b": 2, "t": 48, "d": 16},
        "full": {"b": 64, "t": 4096, "d": 128},
    },
    "convolution_in_sums": {
        "small": {"n": 2, "y": 5, "x": 6, "c": 16, "f": 24},
        "full": {"n": 32, "y": 56, "x": 56, "c": 128, "f": 128},
    },
    "gram": {"small": {"b": 2, "n": 64, "d": 24}, "full": {"b": 16, "n": 65536, "d": 128}},
    "rows_by_factor": {
        "small": {"t": 12, "v": 64, "d": 24},
        "full": {"t": 16384, "v": 32000, "d": 2048},
    },
    "label_loss": {"small": {"t": 5, "v": 64}, "full": {"t": 8192, "v": 32000}},
    "counts": {"small": {"n": 300, "b": 256}, "full": {"n": 67108864, "b": 256}},
    "cluster_sums": {
        "small": {"n": 64, "s": 12, "d": 24},
        "full": {"n": 1048576, "s": 4096, "d": 128},
    },
    "triangle": {"small": {"m": 5, "n": 40}, "full": {"m": 16384, "n": 4096}},
    "remaining": {"small": {"m": 5, "n": 40}, "full": {"m": 16384, "n": 4096}},
    "moving_average": {"small": {"m": 5, "n": 64}, "full": {"m": 16384, "n": 4096}},
    "masked_attention": {
        "small": {"b": 2, "t": 48, "d": 16},
        "full": {"b": 64, "t": 4096, "d": 128},
    },
}
