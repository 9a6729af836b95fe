"""Programs of no table: dropouts, heads that are mixed, channels that attend, losses of pairs.

`tilewright tune experiments/corpus/mixed.py:NAME ...`; what they take is in README.md.
"""

from __future__ import annotations

from ir import (
    Graph,
    Tile,
    cast,
    contract,
    exp,
    log,
    operator,
    philox_uniform,
    reduce,
    rsqrt,
    sigmoid,
    tanh,
    where,
)


def _softmax_sum(score: Tile, over: object, dtype: str) -> tuple[Tile, Tile]:
    """Weights in dtype, before they are divided by their sum, and that sum."""
    p = exp(score - reduce("max", score, over=over))
    return cast(p, dtype), reduce("sum", p, over=over)


@operator
def dropout(
    g: Graph, m: int, n: int, rate: float = 0.1, seed: int = 3, flat: bool = False,
    dtype: str = "bf16",
) -> None:  # fmt: skip
    """Y = X / (1 - rate) where u >= rate, else 0; u of a row's stream, or numbered through."""
    i, j = g.axes(m=m, n=n)
    x = g.input("X", (i, j), dtype)
    numbers = (g.coordinate(i * n + j), 0) if flat else (g.iota(j), g.iota(i))
    u = philox_uniform(*numbers, seed)
    g.output("Y", where(u >= rate, x * (1 / (1 - rate)), 0.0), dtype, (i, j))


@operator
def dropped_residual(
    g: Graph, m: int, n: int, rate: float = 0.1, seed: int = 3, dtype: str = "bf16"
) -> None:
    """H = R + dropout(X), Y = (H - mean H) / deviation * w, along n."""
    i, j = g.axes(m=m, n=n)
    x, r = g.input("X", (i, j), dtype), g.input("R", (i, j), dtype)
    u = philox_uniform(g.coordinate(i * n + j), seed=seed)
    h = cast(r + where(u >= rate, x * (1 / (1 - rate)), 0.0), "f32")
    mean = reduce("sum", h, over=j) * (1 / n)
    variance = reduce("sum", (h - mean) * (h - mean), over=j) * (1 / n)
    g.output("H", h, dtype, (i, j))
    normal = (h - mean) * rsqrt(variance + 1e-5)
    g.output("Y", normal * g.input("W", (j,), dtype), dtype, (i, j))


@operator
def dense_experts(g: Graph, t: int, k: int, o: int, e: int) -> None:
    """Every expert's product, weighted by a softmax of a gate."""
    tt, kk, oo, ee = g.axes(t=t, k=k, o=o, e=e)
    x, w = g.input("X", (tt, kk), "bf16"), g.input("W", (ee, kk, oo), "bf16")
    gate = contract(x, g.input("R", (kk, ee), "bf16"), over=kk)
    p = exp(gate - reduce("max", gate, over=ee))
    p = p / reduce("sum", p, over=ee)
    g.output("Y", reduce("sum", p * contract(x, w, over=kk), over=ee), "bf16", (tt, oo))


@operator
def channel_attention(g: Graph, b: int, h: int, n: int, d: int) -> None:
    """Channels attend to channels, normalised over n tokens (cross-covariance attention)."""
    bb, hh, nn, dd, ee = g.axes(b=b, h=h, n=n, d=d, e=d)
    q, k = g.input("Q", (bb, hh, nn, dd), "bf16"), g.input("K", (bb, hh, nn, ee), "bf16")
    v = g.input("V", (bb, hh, nn, ee), "bf16")
    of_q, of_k = (
        rsqrt(reduce("sum", cast(x, "f32") * cast(x, "f32"), over=nn) + 1e-6) for x in (q, k)
    )
    score = contract(q, k, over=nn) * of_q * of_k * g.input("tau", (hh,), "f32")
    p = exp(score - reduce("max", score, over=ee))
    p = cast(p / reduce("sum", p, over=ee), "bf16")
    g.output("O", contract(v, p, over=ee), "bf16", (bb, hh, nn, dd))


@operator
def bilinear(g: Graph, b: int, i: int, j: int, o: int) -> None:
    """y[b, o] = x[b] W[o] z[b]."""
    bb, ii, jj, oo = g.axes(b=b, i=i, j=j, o=o)
    x, z = g.input("X", (bb, ii), "bf16"), g.input("Z", (bb, jj), "bf16")
    half = contract(x, g.input("W", (oo, ii, jj), "bf16"), over=ii)
    g.output("Y", reduce("sum", half * z, over=jj), "f32", (bb, oo))


@operator
def pair_loss(g: Graph, n: int, d: int) -> None:
    """Log-sum-exp of scaled similarities, along rows and along columns."""
    i, j, k = g.axes(i=n, j=n, k=d)
    a, b = g.input("A", (i, k), "bf16"), g.input("B", (j, k), "bf16")
    score = contract(a, b, over=k) * g.input("scale", (), "f32")
    for name, kept, over in (("rows", i, j), ("columns", j, i)):
        most = reduce("max", score, over=over)
        total = reduce("sum", exp(score - most), over=over)
        g.output(name, log(total) + most, "f32", (kept,))


@operator
def layernorm_backward(g: Graph, m: int, n: int) -> None:
    """dX, dw and db of layer norm, from its mean and its deviation's inverse."""
    i, j = g.axes(m=m, n=n)
    dy, x = g.input("dY", (i, j), "bf16"), g.input("X", (i, j), "bf16")
    mean, inverse = g.input("mean", (i,), "f32"), g.input("inverse", (i,), "f32")
    normal, wide = (x - mean) * inverse, dy * g.input("w", (j,), "bf16")
    along = reduce("sum", normal * wide, over=j) * (1 / n)
    total = reduce("sum", cast(wide, "f32"), over=j) * (1 / n)
    g.output("dX", (wide - (normal * along + total)) * inverse, "bf16", (i, j))
    g.output("dw", reduce("sum", dy * normal, over=i), "f32", (j,))
    g.output("db", reduce("sum", cast(dy, "f32"), over=i), "f32", (j,))


@operator
def windows(g: Graph, b: int, h: int, n: int = 49, d: int = 32) -> None:
    """Attention within windows of n places, with a bias for each pair of them."""
    bb, hh, qq, kk, dd, ee = g.axes(b=b, h=h, q=n, k=n, d=d, e=d)
    q, k = g.input("Q", (bb, hh, qq, dd), "f16"), g.input("K", (bb, hh, kk, dd), "f16")
    v, bias = g.input("V", (bb, hh, kk, ee), "f16"), g.input("bias", (hh, qq, kk), "f16")
    weights, total = _softmax_sum(contract(q, k, over=dd) * d**-0.5 + bias, kk, "f16")
    g.output("O", contract(weights, v, over=kk) / total, "f16", (bb, hh, qq, ee))


@operator
def talking_heads(g: Graph, b: int, h: int, s: int, d: int) -> None:
    """Attention whose scores are mixed between heads ahead of their softmax."""
    bb, hh, gg, qq, kk, dd, ee = g.axes(b=b, h=h, g=h, q=s, k=s, d=d, e=d)
    q, k = g.input("Q", (bb, gg, qq, dd), "bf16"), g.input("K", (bb, gg, kk, dd), "bf16")
    v, w = g.input("V", (bb, hh, kk, ee), "bf16"), g.input("W", (hh, gg), "bf16")
    own = cast(contract(q, k, over=dd) * d**-0.5, "bf16")
    weights, total = _softmax_sum(contract(own, w, over=gg), kk, "bf16")
    g.output("O", contract(weights, v, over=kk) / total, "bf16", (bb, hh, qq, ee))


@operator
def gated_convolution(g: Graph, b: int, t: int, c: int, r: int = 4) -> None:
    """A causal convolution of each channel, SiLU, times a gate."""
    bb, tt, cc, rr = g.axes(b=b, t=t, c=c, r=r)
    x = g.tensor("X", (b, t, c), "bf16", fill=0)[bb, tt + rr - (r - 1), cc]
    y = contract(x, g.input("W", (rr, cc), "bf16"), over=rr)
    g.output("Y", y * sigmoid(y) * g.input("Z", (bb, tt, cc), "bf16"), "bf16", (bb, tt, cc))


@operator
def capped_and_biased(g: Graph, b: int, h: int, s: int, d: int, cap: float = 30.0) -> None:
    """Attention with capped scores and a bias for each key behind the cap."""
    bb, hh, qq, kk, dd, ee = g.axes(b=b, h=h, q=s, k=s, d=d, e=d)
    q, k = g.input("Q", (bb, hh, qq, dd), "bf16"), g.input("K", (bb, hh, kk, dd), "bf16")
    v, bias = g.input("V", (bb, hh, kk, ee), "bf16"), g.input("bias", (bb, kk), "f32")
    score = tanh(contract(q, k, over=dd) * (d**-0.5 / cap)) * cap + bias
    weights, total = _softmax_sum(score, kk, "bf16")
    g.output("O", contract(weights, v, over=kk) / total, "bf16", (bb, hh, qq, ee))


@operator
def byte_patches(g: Graph, n: int, s: int = 224, p: int = 16, f: int = 768) -> None:
    """Patches of images of bytes, normalised, times weights."""
    b, i, j, u, v, c, o = g.axes(b=n, i=s // p, j=s // p, u=p, v=p, c=3, f=f)
    x = g.tensor("X", (n, s, s, 3), "u8")[b, p * i + u, p * j + v, c]
    wide = cast((cast(x, "f32") - 127.5) * (1 / 58.0), "bf16")
    w = g.input("W", (u, v, c, o), "bf16")
    g.output("Y", contract(wide, w, over=(u, v, c)), "bf16", (b, i, j, o))
