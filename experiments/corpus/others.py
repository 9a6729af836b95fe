"""Programs of a kind that no other file foresees: chains of contractions, reductions and maps.

Each is written as on paper, without a thought of how it lowers; others.json has extents.
"""

from __future__ import annotations

import math

from ir import (
    Graph,
    cast,
    contract,
    exp,
    log,
    maximum,
    operator,
    reduce,
    relu,
    rsqrt,
    sigmoid,
    silu,
    tanh,
    where,
)
from ir.values import positive


@operator
def squared_relu_norm(g: Graph, m: int, n: int, k: int, o: int) -> None:
    """Y = rmsnorm(relu(X W1)^2 * (X W2)) W3."""
    mm, nn, kk, oo = g.axes(m=m, n=n, k=k, o=o)
    x = g.input("X", (mm, kk), "bf16")
    one, two = (contract(x, g.input(w, (nn, kk), "bf16"), over=kk) for w in ("W1", "W2"))
    hidden = relu(one) * relu(one) * two
    hidden = hidden * rsqrt(reduce("sum", hidden * hidden, over=nn) * (1.0 / n) + 1e-6)
    w3 = g.input("W3", (oo, nn), "bf16")
    g.output("Y", contract(cast(hidden, "bf16"), w3, over=nn), "bf16")


@operator
def contrastive_loss(g: Graph, n: int, d: int) -> None:
    """L[i] = log sum_j exp(s x_i.y_j / |x_i||y_j|) - s x_i.y_i / |x_i||y_i|: InfoNCE."""
    i, j, c = g.axes(i=n, j=n, c=d)
    x, y = g.tensor("X", (n, d), "bf16"), g.tensor("Y", (n, d), "bf16")

    def root(t: object) -> object:
        wide = cast(t, "f32")
        return rsqrt(reduce("sum", wide * wide, over=c))

    xi, yj, yi = x[i, c], y[j, c], y[i, c]
    scores = contract(xi, yj, over=c) * root(xi) * root(yj) * 14.0
    own = reduce("sum", cast(xi, "f32") * yi, over=c) * root(xi) * root(yi) * 14.0
    top = reduce("max", scores, over=j)
    g.output("L", log(reduce("sum", exp(scores - top), over=j)) + top - own, "f32")


@operator
def additive_pooling(g: Graph, b: int, t: int, d: int, h: int) -> None:
    """P[b] = sum_t softmax_t(tanh(X W) u) X: additive attention over a sequence."""
    bb, tt, dd, hh = g.axes(b=b, t=t, d=d, h=h)
    x, w = g.input("X", (bb, tt, dd), "bf16"), g.input("W", (hh, dd), "bf16")
    u = g.input("u", (hh,), "f32")
    scores = reduce("sum", tanh(contract(x, w, over=dd)) * u, over=hh) * h**-0.5
    top = reduce("max", scores, over=tt)
    weights = exp(scores - top)
    pooled = reduce("sum", weights * x, over=tt) / reduce("sum", weights, over=tt)
    g.output("P", pooled, "bf16")


@operator
def two_sided(g: Graph, b: int, m: int, n: int) -> None:
    """Y[b] = A X[b] B^T: both sides of many matrices."""
    bb, i, j, p, q = g.axes(b=b, i=m, j=n, p=m, q=n)
    a, w = g.input("A", (i, p), "bf16"), g.input("B", (j, q), "bf16")
    x = g.input("X", (bb, p, q), "bf16")
    half = cast(contract(a, x, over=p), "bf16")
    g.output("Y", contract(half, w, over=q), "bf16", (bb, i, j))


@operator
def quadratic_form(g: Graph, n: int, d: int) -> None:
    """q[i] = (x_i - mu)^T P (x_i - mu): Mahalanobis distances."""
    i, a, b = g.axes(i=n, a=d, b=d)
    x, mu = g.tensor("X", (n, d), "bf16"), g.tensor("mu", (d,), "bf16")
    left, right = cast(x[i, a] - mu[a], "bf16"), cast(x[i, b] - mu[b], "bf16")
    inner = contract(left, g.input("P", (b, a), "bf16"), over=a)
    g.output("q", reduce("sum", inner * right, over=b), "f32")


@operator
def covariance_apply(g: Graph, n: int, d: int, r: int) -> None:
    """Y = X (X^T V) / n: a step of subspace iteration, with X^T X in nobody's mind."""
    i, j, c, rr = g.axes(i=n, j=n, c=d, r=r)
    x, v = g.tensor("X", (n, d), "bf16"), g.tensor("V", (n, r), "bf16")
    inner = cast(contract(x[j, c], v[j, rr], over=j) * (1.0 / n), "bf16")
    g.output("Y", contract(x[i, c], inner, over=c), "bf16")


@operator
def separable_convolution(g: Graph, n: int, h: int, w: int, c: int, f: int) -> None:
    """Y = silu(depthwise 3x3 of X) W: channels last, padded."""
    nn, y, x, r, s, cc, ff = g.axes(n=n, y=h, x=w, r=3, s=3, c=c, f=f)
    near = g.tensor("X", (n, h, w, c), "bf16", fill=0)[nn, y + r - 1, x + s - 1, cc]
    taps = g.input("D", (r, s, cc), "f32")
    middle = silu(reduce("sum", cast(near, "f32") * taps, over=(r, s)))
    g.output("Y", contract(cast(middle, "bf16"), g.input("W", (ff, cc), "bf16"), over=cc), "bf16")


@operator
def sigmoid_attention(g: Graph, b: int, heads: int, t: int, d: int) -> None:
    """O = sigmoid(Q K^T / sqrt(d) - log t) V, causal: attention without a softmax."""
    bb, h, i, j, c, e = g.axes(b=b, h=heads, i=t, j=t, c=d, e=d)
    q, k = g.input("Q", (bb, h, i, c), "bf16"), g.input("K", (bb, h, j, c), "bf16")
    v = g.input("V", (bb, h, j, e), "bf16")
    scores = contract(q, k, over=c) * d**-0.5 - math.log(t)
    weights = where(g.iota(j) <= i, sigmoid(scores), 0.0)
    g.output("O", contract(cast(weights, "bf16"), v, over=j), "bf16")


@operator
def differential_attention(g: Graph, b: int, heads: int, t: int, d: int) -> None:
    """O = (softmax(Q1 K1^T) - l softmax(Q2 K2^T)) V: two maps of attention on one V."""
    bb, h, i, j, c, e = g.axes(b=b, h=heads, i=t, j=t, c=d, e=2 * d)
    v = g.input("V", (bb, h, j, e), "bf16")

    def attended(number: str) -> object:
        q, k = (g.input(f"{x}{number}", (bb, h, z, c), "bf16") for x, z in (("Q", i), ("K", j)))
        scores = contract(q, k, over=c) * d**-0.5
        weights = exp(scores - reduce("max", scores, over=j))
        total = reduce("sum", weights, over=j)
        return contract(cast(weights, "bf16"), v, over=j) / total

    g.output("O", attended("1") - attended("2") * g.input("l", (h,), "f32"), "bf16")


@operator
def int8_cache_attention(g: Graph, b: int, heads: int, t: int, d: int, q: int) -> None:
    """O = softmax(Q (K s)^T / sqrt(d)) (V z): keys and values in bytes, a scale for each token."""
    bb, h, i, j, c, e = g.axes(b=b, h=heads, i=q, j=t, c=d, e=d)
    query = g.input("Q", (bb, h, i, c), "bf16")
    k, v = g.input("K", (bb, h, j, c), "i8"), g.input("V", (bb, h, j, e), "i8")
    s, z = (g.input(name, (bb, h, j), "f32", values=positive(0.01)) for name in ("s", "z"))
    scores = contract(query, cast(k, "bf16"), over=c) * s * d**-0.5
    weights = exp(scores - reduce("max", scores, over=j))
    total = reduce("sum", weights, over=j)
    o = contract(cast(weights * z, "bf16"), cast(v, "bf16"), over=j) / total
    g.output("O", o, "bf16")


@operator
def polynomial_kernel(g: Graph, n: int, m: int, d: int, v: int) -> None:
    """Y = (X Z^T / d + 1)^3 V: a kernel of degree three times a few vectors."""
    i, j, c, vv = g.axes(i=n, j=m, c=d, v=v)
    x, z = g.input("X", (i, c), "bf16"), g.input("Z", (j, c), "bf16")
    base = contract(x, z, over=c) * (1.0 / d) + 1.0
    values = g.input("V", (j, vv), "bf16")
    g.output("Y", contract(cast(base * base * base, "bf16"), values, over=j), "f32")


@operator
def factorisation_machine(g: Graph, b: int, fields: int, rows: int, d: int) -> None:
    """y[b] = sum_f w + ((sum_f e)^2 - sum_f e^2) / 2 over embeddings e that indices name."""
    bb, f, c = g.axes(b=b, f=fields, c=d)
    index = g.input("index", (bb, f), "i32")
    e = cast(g.tensor("table", (rows, d), "bf16")[index, c], "f32")
    w = g.tensor("weight", (rows,), "f32")[index]
    total, square = reduce("sum", e, over=f), reduce("sum", e * e, over=f)
    pairs = reduce("sum", total * total - square, over=c) * 0.5
    g.output("y", reduce("sum", w, over=f) + pairs, "f32")


@operator
def tensor_train(g: Graph, m: int, a: int, b: int, c: int, r: int, o: int) -> None:
    """Y = X[m, a, b, c] G1[a, r] G2[r, b, s] G3[s, c, o]: a matrix as a train of three."""
    mm, aa, bb, cc, rr, ss, oo = g.axes(m=m, a=a, b=b, c=c, r=r, s=r, o=o)
    x = g.input("X", (mm, aa, bb, cc), "bf16")
    g1, g2, g3 = (
        g.input("G1", (rr, aa), "bf16"), g.input("G2", (ss, rr, bb), "bf16"),
        g.input("G3", (oo, ss, cc), "bf16"),
    )  # fmt: skip
    one = cast(contract(x, g1, over=aa), "bf16")
    two = cast(contract(one, g2, over=(rr, bb)), "bf16")
    g.output("Y", contract(two, g3, over=(ss, cc)), "bf16")


@operator
def gated_low_rank(g: Graph, m: int, n: int, k: int, r: int) -> None:
    """Y = X W * sigmoid((X A) B) + bias: a gate of low rank on a large product."""
    mm, nn, kk, rr = g.axes(m=m, n=n, k=k, r=r)
    x, w = g.input("X", (mm, kk), "bf16"), g.input("W", (nn, kk), "bf16")
    low = cast(contract(x, g.input("A", (rr, kk), "bf16"), over=kk), "bf16")
    gate = sigmoid(contract(low, g.input("B", (nn, rr), "bf16"), over=rr))
    bias = g.input("bias", (nn,), "bf16")
    g.output("Y", contract(x, w, over=kk) * gate + bias, "bf16", (mm, nn))


@operator
def sharpest(g: Graph, b: int, q: int, t: int, d: int) -> None:
    """s[b] = sum_q max_t Q.T: late interaction of a query's and a document's tokens."""
    bb, i, j, c = g.axes(b=b, q=q, t=t, c=d)
    query, tokens = g.input("Q", (i, c), "bf16"), g.input("T", (bb, j, c), "bf16")
    best = reduce("max", contract(query, tokens, over=c), over=j)
    g.output("s", reduce("sum", best, over=i), "f32", (bb,))


@operator
def clipped_dequantised_sum(g: Graph, m: int, n: int, k: int) -> None:
    """Y = max over two halves of (X W_h * s_h): the larger of two int8 products, scaled."""
    mm, nn, kk, hh = g.axes(m=m, n=n, k=k, h=2)
    x, w = g.input("X", (mm, kk), "i8"), g.input("W", (hh, nn, kk), "i8")
    s = g.input("s", (hh, nn), "f32", values=positive(0.01))
    scaled = cast(contract(x, w, over=kk), "f32") * s
    g.output("Y", maximum(reduce("max", scaled, over=hh), 0.0), "bf16", (mm, nn))
