"""Steps of optimisers, losses and gradients as training has them.

`tilewright tune experiments/corpus/updates.py:NAME full ...`; what they take is in README.md.
"""

from __future__ import annotations

from ir import (
    Graph,
    absolute,
    bitcast,
    cast,
    contract,
    exp,
    floor,
    indices,
    lengths,
    log,
    maximum,
    minimum,
    normal,
    operator,
    philox,
    philox_uniform,
    popcount,
    positive,
    probabilities,
    reduce,
    relu,
    rsqrt,
    sigmoid,
    sqrt,
    tanh,
    top,
    uniform,
    where,
)


@operator
def cautious_lion(g: Graph, m: int, n: int) -> None:
    """Lion, whose steps against the gradient are left out, the others scaled up; bf16."""
    I, J = g.axes(i=m, j=n)  # noqa: E741
    w, d = g.input("W", (I, J), "bf16"), cast(g.input("G", (I, J), "bf16"), "f32")
    old = cast(g.input("M", (I, J), "bf16"), "f32")
    c = 0.9 * old + 0.1 * d
    sign = where(c > 0, 1.0, where(c < 0, -1.0, 0.0))
    good = where(sign * d > 0, 1.0, 0.0)
    share = reduce("sum", good, over=(I, J)) / (m * n)
    step = sign * good / maximum(share, 1e-3)
    g.output("W2", cast(w, "f32") * (1 - 1e-4) - 1e-3 * step, "bf16", (I, J))
    g.output("M2", 0.99 * old + 0.01 * d, "bf16", (I, J))


@operator
def adam8(g: Graph, blocks: int, n: int = 256) -> None:
    """Adam whose moments are bytes with a scale for each block."""
    B, N = g.axes(b=blocks, n=n)
    w = g.input("W", (B, N), "f32")
    d = cast(g.input("G", (B, N), "bf16"), "f32")
    mq, vq = g.input("M", (B, N), "i8"), g.input("V", (B, N), "u8", values=uniform(0, 255))
    ms, vs = (g.input(s, (B,), "f32", values=uniform(1e-3, 2e-3)) for s in ("ms", "vs"))
    m = 0.9 * cast(mq, "f32") * ms + 0.1 * d
    r = cast(vq, "f32") * vs
    v = 0.99 * r * r + 0.01 * d * d
    g.output("W2", w - 1e-3 * m / (sqrt(v) + 1e-8), "f32", (B, N))
    mm = reduce("max", absolute(m), over=N) / 127
    vv = sqrt(reduce("max", v, over=N)) / 255
    g.output("M2", floor(m / maximum(mm, 1e-20) + 0.5), "i8", (B, N))
    g.output("V2", floor(sqrt(v) / maximum(vv, 1e-20) + 0.5), "u8", (B, N))
    g.output("ms2", mm, "f32", (B,))
    g.output("vs2", vv, "f32", (B,))


@operator
def soap(g: Graph, m: int, n: int) -> None:
    """Adam in the eigenbasis of Shampoo: the gradient is turned, stepped and turned back."""
    I, J, K, L = g.axes(i=m, j=n, k=m, l=n)  # noqa: E741
    d = g.input("G", (K, L), "bf16")
    ql, qr = (
        g.input("QL", (K, I), "bf16", values=normal(m**-0.5)),
        g.input("QR", (L, J), "bf16", values=normal(n**-0.5)),
    )
    t = contract(cast(contract(ql, d, over=K), "bf16"), qr, over=L)
    v = 0.95 * g.input("V", (I, J), "f32", values=positive()) + 0.05 * t * t
    g.output("V2", v, "f32", (I, J))
    step = cast(t * rsqrt(v + 1e-8), "bf16")
    back = contract(cast(contract(ql.at(k=K, i=I), step, over=I), "bf16"), qr.at(l=L), over=J)
    g.output("S", back, "bf16", (K, L))


@operator
def groupnorm_backward(g: Graph, b: int, groups: int, c: int, n: int) -> None:
    """Gradients of a group norm by its input, gains and shifts."""
    B, G, C, N = g.axes(b=b, g=groups, c=c, n=n)
    x, dy = (cast(g.input(s, (B, G, C, N), "f16"), "f32") for s in ("X", "dY"))
    gain = g.input("gain", (G, C), "f32", values=uniform(0.5, 1.5))
    count = c * n
    mean = reduce("sum", x, over=(C, N)) / count
    var = reduce("sum", (x - mean) * (x - mean), over=(C, N)) / count
    inv = rsqrt(var + 1e-5)
    xh = (x - mean) * inv
    dg = dy * gain
    a = reduce("sum", dg, over=(C, N)) / count
    q = reduce("sum", dg * xh, over=(C, N)) / count
    g.output("dX", inv * (dg - a - xh * q), "f16", (B, G, C, N))
    g.output("dgain", reduce("sum", dy * xh, over=(B, N)), "f32", (G, C))
    g.output("dshift", reduce("sum", dy, over=(B, N)), "f32", (G, C))


@operator
def masked_softmax_backward(g: Graph, b: int, n: int) -> None:
    """The gradient through dropout, a causal softmax and a scale."""
    B, I, J = g.axes(b=b, i=n, j=n)  # noqa: E741
    p = cast(g.input("P", (B, I, J), "bf16", values=probabilities()), "f32")
    dy = cast(g.input("dY", (B, I, J), "bf16"), "f32")
    place = g.coordinate(B) * (n * n) + g.coordinate(I * n + J)
    kept = where(philox_uniform(place, seed=3) < 0.9, dy / 0.9, 0.0)
    z = p * (kept - reduce("sum", kept * p, over=J)) * 0.125
    g.output("dX", where(g.iota(J) <= I, z, 0.0), "bf16", (B, I, J))


@operator
def smoothed_z_loss(g: Graph, t: int, v: int) -> None:
    """Cross entropy with smoothed labels and a penalty on the normaliser, and its gradient."""
    T, V = g.axes(t=t, v=v)
    z = cast(g.input("Z", (T, V), "bf16"), "f32")
    label = g.input("label", (T,), "i32", values=indices(v))
    m = reduce("max", z, over=V)
    e = exp(z - m)
    s = reduce("sum", e, over=V)
    lse = m + log(s)
    eps = 0.1
    own = reduce("sum", where(label == V, z, 0.0), over=V)
    mean = reduce("sum", z, over=V) / v
    valid = where(label > 0, 1.0, 0.0)
    loss = (lse - (1 - eps) * own - eps * mean + 1e-4 * lse * lse) * valid
    g.output("L", loss, "f32", (T,))
    p = e / s * (1 + 2e-4 * lse)
    g.output("dZ", valid * (p - eps / v - where(label == V, 1.0 - eps, 0.0)), "bf16", (T, V))


@operator
def siglip(g: Graph, n: int, d: int) -> None:
    """Pairwise sigmoid loss of pictures and texts, and the gradient by the pictures."""
    I, J, D = g.axes(i=n, j=n, d=d)  # noqa: E741
    x, y = (
        g.input("X", (I, D), "bf16", values=normal(d**-0.5)),
        g.input("Y", (J, D), "bf16", values=normal(d**-0.5)),
    )
    z = 10.0 * contract(x, y, over=D) - 10.0
    sign = where(g.iota(I) == J, 1.0, -1.0)
    g.output("L", -reduce("sum", log(sigmoid(sign * z)), over=(I, J)) / n, "f32", ())
    dz = -sign * sigmoid(-sign * z) * (10.0 / n)
    g.output("dX", contract(cast(dz, "bf16"), y, over=J), "f32", (I, D))


@operator
def clip_two(g: Graph, m: int, n: int, k: int, o: int) -> None:
    """Tensors of unlike shapes and types, scaled by the norm of all, and averages of weights."""
    M, N, K, O = g.axes(m=m, n=n, k=k, o=o)  # noqa: E741
    a = g.input("A", (M, N), "bf16")
    c = g.input("C", (K, M, O), "f16")
    e = g.input("E", (N,), "f32")
    fa, fc = cast(a, "f32"), cast(c, "f32")
    total = (
        reduce("sum", fa * fa, over=(M, N))
        + reduce("sum", fc * fc, over=(K, M, O))
        + reduce("sum", e * e, over=N)
    )
    scale = minimum(1.0 / (sqrt(total) + 1e-6), 1.0)
    w = g.input("W", (M, N), "f32")
    new = w - 0.01 * fa * scale
    g.output("W2", new, "f32", (M, N))
    g.output("avg", 0.999 * g.input("avg0", (M, N), "f32") + 0.001 * new, "f32", (M, N))
    g.output("C2", fc * scale, "f16", (K, M, O))
    g.output("E2", e * scale, "f32", (N,))
    g.output("norm", sqrt(total), "f32", ())


@operator
def grpo(g: Graph, groups: int, k: int, t: int, v: int) -> None:
    """Policy gradients by groups: advantages within a group, ratios, a KL to a reference."""
    G, K, T, V = g.axes(g=groups, k=k, t=t, v=v)
    z = cast(g.input("Z", (G, K, T, V), "bf16"), "f32")
    token = g.input("token", (G, K, T), "i32", values=indices(v))
    old, ref = (g.input(s, (G, K, T), "f32", values=uniform(-9, -3)) for s in ("old", "ref"))
    r = g.input("R", (G, K), "f32")
    length = g.input("length", (G, K), "i32", values=lengths(t, 1))
    mean = reduce("sum", r, over=K) / k
    dev = sqrt(reduce("sum", (r - mean) * (r - mean), over=K) / k)
    adv = (r - mean) / (dev + 1e-4)
    m = reduce("max", z, over=V)
    lp = (
        reduce("sum", where(token == V, z, 0.0), over=V)
        - m
        - log(reduce("sum", exp(z - m), over=V))
    )
    ratio = exp(minimum(lp - old, 10.0))
    gain = minimum(ratio * adv, minimum(maximum(ratio, 0.8), 1.28) * adv)
    away = minimum(ref - lp, 10.0)
    kl = exp(away) - away - 1
    loss = where(g.iota(T) < length, 0.04 * kl - gain, 0.0)
    g.output("L", reduce("sum", loss, over=T) / cast(length, "f32"), "f32", (G, K))
    g.output("lp", lp, "f32", (G, K, T))


@operator
def window_backward(g: Graph, b: int, h: int, t: int, d: int, window: int) -> None:
    """Gradients of attention in a causal window, from its log-sum-exps."""
    B, H, I, J, D, E = g.axes(b=b, h=h, i=t, j=t, d=d, e=d)  # noqa: E741
    q, do = (g.input(s, (B, H, I, ax), "bf16") for s, ax in (("Q", D), ("dO", E)))
    k, v = g.input("K", (B, H, J, D), "bf16"), g.input("V", (B, H, J, E), "bf16")
    lse, delta = (
        g.input("lse", (B, H, I), "f32", values=uniform(3, 6)),
        g.input("delta", (B, H, I), "f32"),
    )
    scale = d**-0.5
    s = contract(q, k, over=D) * scale
    live = (g.iota(J) <= I) & (g.coordinate(I - J) < window)
    p = where(live, exp(s - lse), 0.0)
    dp = contract(do, v, over=E)
    ds = cast(p * (dp - delta) * scale, "bf16")
    g.output("dV", contract(cast(p, "bf16"), do, over=I), "bf16", (B, H, J, E))
    g.output("dK", contract(ds, q, over=I), "bf16", (B, H, J, D))
    g.output("dQ", contract(ds, k, over=J), "bf16", (B, H, I, D))


@operator
def barlow(g: Graph, n: int, d: int) -> None:
    """The loss of a cross-correlation that should be the identity, of standardised columns."""
    N, I, J = g.axes(n=n, i=d, j=d)  # noqa: E741

    def made(name, axis):
        x = cast(g.input(name, (N, axis), "bf16"), "f32")
        mean = reduce("sum", x, over=N) / n
        var = reduce("sum", (x - mean) * (x - mean), over=N) / n
        return cast((x - mean) * rsqrt(var + 1e-5), "bf16")

    c = contract(made("X", I), made("Y", J), over=N) / n
    off = where(g.iota(I) == J, (c - 1) * (c - 1), 0.005 * c * c)
    g.output("L", reduce("sum", off, over=(I, J)), "f32", ())


@operator
def vicreg(g: Graph, n: int, d: int) -> None:
    """Variances of features kept above one, and their covariances near zero."""
    N, I, J = g.axes(n=n, i=d, j=d)  # noqa: E741
    x = g.input("X", (N, I), "f16")
    w = cast(x, "f32")
    c = w - reduce("sum", w, over=N) / n
    cov = contract(cast(c, "f16"), cast(c, "f16").at(i=J), over=N) / (n - 1)
    g.output(
        "cov", reduce("sum", where(g.iota(I) == J, 0.0, cov * cov), over=(I, J)) / d, "f32", ()
    )
    std = sqrt(reduce("sum", c * c, over=N) / (n - 1) + 1e-4)
    g.output("var", reduce("sum", relu(1 - std), over=I) / d, "f32", ())


@operator
def stochastic_adamw(g: Graph, n: int, k: int) -> None:
    """AdamW on bf16 weights that are rounded up or down at random, by bits."""
    N, K = g.axes(n=n, k=k)
    w = cast(g.input("W", (N, K), "bf16"), "f32")
    d = cast(g.input("G", (N, K), "bf16"), "f32")
    m = 0.9 * cast(g.input("M", (N, K), "bf16"), "f32") + 0.1 * d
    v = 0.95 * cast(g.input("V", (N, K), "bf16", values=positive()), "f32") + 0.05 * d * d
    new = w * (1 - 1e-5) - 1e-3 * m / (sqrt(v) + 1e-8)
    seed = g.input("step", (), "i32")
    noise = philox(g.coordinate(N), g.coordinate(K), seed) & 0xFFFF
    bits = cast(bitcast(new, "u32"), "i64") + noise
    g.output("W2", bitcast(cast(bits & 0xFFFF0000, "u32"), "f32"), "bf16", (N, K))
    g.output("M2", m, "bf16", (N, K))
    g.output("V2", v, "bf16", (N, K))


@operator
def hardest(g: Graph, b: int, c: int, n: int, keep: int) -> None:
    """Segmentation: the mean loss of the hardest pixels, and which they are."""
    B, C, N, K = g.axes(b=b, c=c, n=n, k=keep)
    z = cast(g.input("Z", (B, C, N), "f16"), "f32")
    label = g.input("label", (B, N), "u8", values=uniform(0, c - 1))
    m = reduce("max", z, over=C)
    loss = (
        m
        + log(reduce("sum", exp(z - m), over=C))
        - reduce("sum", where(label == C, z, 0.0), over=C)
    )
    value, place = top(loss, N, K)
    g.output("L", reduce("sum", value, over=(B, K)) / (b * keep), "f32", ())
    g.output("place", place, "i32", (B, K))


@operator
def norm_to_fp8(g: Graph, m: int, n: int) -> None:
    """The gradient of an RMS norm, plus the residual's, in bf16 and in e4m3 by tiles of 128."""
    M, A, P = g.axes(m=m, a=n // 128, p=128)
    x, dy, res = (cast(g.input(s, (M, A, P), "bf16"), "f32") for s in ("X", "dY", "R"))
    gain = g.input("gain", (A, P), "f32", values=uniform(0.5, 1.5))
    inv = rsqrt(reduce("sum", x * x, over=(A, P)) / n + 1e-6)
    dg = dy * gain
    dot = reduce("sum", dg * x, over=(A, P)) / n
    dx = res + inv * (dg - x * (inv * inv * dot))
    g.output("dX", dx, "bf16", (M, A, P))
    s = maximum(reduce("max", absolute(dx), over=P), 1e-6) / 448
    g.output("S", s, "f32", (M, A))
    g.output("Q", dx / s, "e4m3", (M, A, P))
    g.output("dgain", reduce("sum", dy * x * inv, over=M), "f32", (A, P))


@operator
def nvfp4(g: Graph, m: int, n: int) -> None:
    """Blocks of 16 to FP4 with e4m3 scales under one scale of the tensor."""
    M, B, P = g.axes(m=m, b=n // 16, p=16)
    x = cast(g.input("X", (M, B, P), "bf16"), "f32")
    most = reduce("max", absolute(x), over=P)
    whole = reduce("max", most, over=(M, B)) / (448 * 6)
    s = cast(most / 6 / whole, "e4m3")
    g.output("S", s, "e4m3", (M, B))
    g.output("G", whole, "f32", ())
    wide = maximum(cast(s, "f32") * whole, 1e-12)
    g.output("Q", x / wide, "e2m1", (M, B, P))


@operator
def nvfp4_product(g: Graph, m: int, n: int, k: int) -> None:
    """Both operands FP4 with e4m3 scales of blocks of 16, each tensor with a scale."""
    M, N, B, P = g.axes(m=m, n=n, b=k // 16, p=16)
    x, xs = g.input("X", (M, B, P), "e2m1"), g.input("xs", (M, B), "e4m3", values=uniform(0.5, 4))
    w, ws = g.input("W", (N, B, P), "e2m1"), g.input("ws", (N, B), "e4m3", values=uniform(0.5, 4))
    a = cast(cast(x, "f32") * cast(xs, "f32"), "bf16")
    c = cast(cast(w, "f32") * cast(ws, "f32"), "bf16")
    s = g.input("s", (), "f32", values=uniform(0.01, 0.02))
    g.output("Y", contract(a, c, over=(B, P)) * s, "bf16", (M, N))


@operator
def shifted_bytes(g: Graph, m: int, n: int, k: int) -> None:
    """Activations of unsigned bytes with zero points by token, weights by channel."""
    M, N, K = g.axes(m=m, n=n, k=k)
    x = g.input("X", (M, K), "u8", values=uniform(0, 255))
    w = g.input("W", (N, K), "i8")
    zp = g.input("zp", (M,), "u8", values=uniform(100, 150))
    sx, sw = (
        g.input("sx", (M,), "f32", values=uniform(0.01, 0.02)),
        g.input("sw", (N,), "f32", values=uniform(0.01, 0.02)),
    )
    total = contract(x, w, over=K) - cast(zp, "i32") * reduce("sum", cast(w, "i32"), over=K)
    y = cast(total, "f32") * sx * sw + g.input("bias", (N,), "f32")
    g.output("Y", y, "f16", (M, N))


@operator
def rotated_int4(g: Graph, m: int, n: int) -> None:
    """Blocks of 128 turned by a Hadamard matrix, and codes of four bits with a scale a row."""
    M, A, P, Q = g.axes(m=m, a=n // 128, p=128, q=128)
    x = g.input("X", (M, A, Q), "bf16")
    sign = where((popcount(g.coordinate(P) & g.coordinate(Q)) & 1) == 0, 1.0, -1.0)
    y = contract(x, cast(sign, "bf16"), over=Q) * 128**-0.5
    s = maximum(reduce("max", absolute(y), over=(A, P)), 1e-6) / 7
    g.output("S", s, "f32", (M,))
    g.output("Q4", y / s, "i4", (M, A, P))


@operator
def fsq(g: Graph, n: int, d: int) -> None:
    """Finite scalar quantisation: bounded channels, rounded, and the index of the code."""
    N, D = g.axes(n=n, d=d)
    z = cast(g.input("Z", (N, D), "f16"), "f32")
    q = round(tanh(z) * 3.5 - 0.5)
    g.output("Q", (q + 0.5) / 3.5, "f16", (N, D))
    g.output("index", reduce("sum", (cast(q, "i32") + 4) << (3 * g.iota(D)), over=D), "i32", (N,))


@operator
def sharpness_step(g: Graph, a: int, b: int, c: int) -> None:
    """The weights uphill of a gradient of length one, of odd extents, adaptive by rows."""
    A, B, C = g.axes(a=a, b=b, c=c)
    w, d = g.input("W", (A, B, C), "f32"), g.input("G", (A, B, C), "f16")
    scaled = absolute(w) * cast(d, "f32")
    norm = sqrt(reduce("sum", scaled * scaled, over=(A, B, C)))
    g.output("W2", w + 0.05 * w * w * cast(d, "f32") / (norm + 1e-12), "f32", (A, B, C))


@operator
def info_nce_backward(g: Graph, n: int, m: int, d: int) -> None:
    """A contrastive loss over a queue of negatives, and its gradient by normalised queries."""
    I, J, D, E = g.axes(i=n, j=m, d=d, e=d)  # noqa: E741
    x = g.input("X", (I, D), "f16")
    key = g.input("key", (I, D), "f16", values=normal(d**-0.5))
    queue = g.input("queue", (J, D), "f16", values=normal(d**-0.5))
    f = cast(x, "f32")
    inv = rsqrt(reduce("sum", f * f, over=D) + 1e-6)
    u = cast(f * inv, "f16")
    zp = reduce("sum", cast(u, "f32") * cast(key, "f32"), over=D) * 5.0
    zn = contract(u, queue, over=D) * 5.0
    most = maximum(reduce("max", zn, over=J), zp)
    e = exp(zn - most)
    total = reduce("sum", e, over=J) + exp(zp - most)
    g.output("L", most + log(total) - zp, "f32", (I,))
    pull = contract(cast(e, "f16"), queue.at(d=E), over=J) / total
    du = 5.0 * (pull - (1 - exp(zp - most) / total) * cast(key.at(d=E), "f32"))
    own = reduce("sum", du * cast(u.at(d=E), "f32"), over=E)
    g.output("dX", (du - own * cast(u.at(d=E), "f32")) * inv, "f32", (I, E))


EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "cautious_lion": {"small": {"m": 13, "n": 37}, "full": {"m": 28672, "n": 8191}},
    "adam8": {"small": {"blocks": 3}, "full": {"blocks": 1048573}},
    "soap": {"small": {"m": 48, "n": 32}, "full": {"m": 8192, "n": 8192}},
    "groupnorm_backward": {
        "small": {"b": 2, "groups": 3, "c": 4, "n": 25},
        "full": {"b": 61, "groups": 32, "c": 16, "n": 9216},
    },
    "masked_softmax_backward": {"small": {"b": 2, "n": 29}, "full": {"b": 64, "n": 4096}},
    "smoothed_z_loss": {"small": {"t": 7, "v": 53}, "full": {"t": 8191, "v": 151936}},
    "siglip": {"small": {"n": 40, "d": 32}, "full": {"n": 32768, "d": 1152}},
    "clip_two": {
        "small": {"m": 12, "n": 21, "k": 2, "o": 5},
        "full": {"m": 8192, "n": 28672, "k": 3, "o": 8191},
    },
    "grpo": {
        "small": {"groups": 2, "k": 3, "t": 5, "v": 41},
        "full": {"groups": 2, "k": 8, "t": 1021, "v": 151936},
    },
    "window_backward": {
        "small": {"b": 1, "h": 2, "t": 48, "d": 32, "window": 17},
        "full": {"b": 4, "h": 32, "t": 16384, "d": 128, "window": 1024},
    },
    "barlow": {"small": {"n": 40, "d": 24}, "full": {"n": 16384, "d": 8192}},
    "vicreg": {"small": {"n": 40, "d": 24}, "full": {"n": 65536, "d": 4096}},
    "stochastic_adamw": {"small": {"n": 7, "k": 33}, "full": {"n": 32768, "k": 8192}},
    "hardest": {
        "small": {"b": 2, "c": 5, "n": 60, "keep": 7},
        "full": {"b": 16, "c": 19, "n": 2097143, "keep": 4096},
    },
    "norm_to_fp8": {"small": {"m": 7, "n": 256}, "full": {"m": 65521, "n": 7168}},
    "nvfp4": {"small": {"m": 7, "n": 64}, "full": {"m": 65521, "n": 16384}},
    "nvfp4_product": {
        "small": {"m": 9, "n": 24, "k": 64},
        "full": {"m": 4096, "n": 16384, "k": 16384},
    },
    "shifted_bytes": {
        "small": {"m": 9, "n": 24, "k": 64},
        "full": {"m": 8191, "n": 28672, "k": 8192},
    },
    "rotated_int4": {"small": {"m": 5, "n": 256}, "full": {"m": 65521, "n": 14336}},
    "fsq": {"small": {"n": 33, "d": 6}, "full": {"n": 134217689, "d": 6}},
    "sharpness_step": {"small": {"a": 5, "b": 7, "c": 11}, "full": {"a": 521, "b": 1021, "c": 509}},
    "info_nce_backward": {
        "small": {"n": 24, "m": 40, "d": 32},
        "full": {"n": 8191, "m": 1048576, "d": 128},
    },
}
