"""Layers that end oddly: split and quantised results, statistics beside products, drawn tokens.

`tilewright tune experiments/corpus/fringes.py:NAME full ...`; what they take is in README.md.
"""

from __future__ import annotations

import math

from ir import (
    Graph,
    absolute,
    argmax,
    bitcast,
    cast,
    contract,
    cumulative,
    exp,
    indices,
    lengths,
    log,
    log1p,
    maximum,
    minimum,
    normal,
    offsets,
    operator,
    philox_uniform,
    probabilities,
    recur,
    recurrence,
    reduce,
    rsqrt,
    scatter,
    sigmoid,
    sqrt,
    tanh,
    top,
    uniform,
    where,
)


@operator
def split_outputs(g: Graph, m: int, n: int, k: int) -> None:
    """One projection: queries in bf16, keys in e4m3 with a scale a row, values in f32."""
    M, N, K = g.axes(m=m, n=3 * n, k=k)
    w = g.input("W", (N, K), "bf16", values=normal(k**-0.5))
    y = contract(g.input("X", (M, K), "bf16"), w, over=K)
    A = g.axis("a", n)
    key = y.at(n=A + n)
    scale = maximum(reduce("max", absolute(key), over=A), 1e-12) / 448.0
    g.output("Q", y.at(n=A) * 0.125, "bf16", (M, A))
    g.output("Kq", key / scale, "e4m3", (M, A))
    g.output("Ks", scale, "f32", (M,))
    g.output("V", y.at(n=A + 2 * n), "f32", (M, A))


@operator
def product_moments(g: Graph, m: int, n: int, k: int) -> None:
    """A product in f16, means and deviations of its rows, the largest of its columns, its norm."""
    M, N, K = g.axes(m=m, n=n, k=k)
    y = contract(
        g.input("A", (M, K), "f16"), g.input("B", (K, N), "f16", values=normal(k**-0.5)), over=K
    )
    mean = reduce("sum", y, over=N) / n
    g.output("Y", y, "f16", (M, N))
    g.output("mean", mean, "f32", (M,))
    g.output("deviation", sqrt(reduce("sum", (y - mean) * (y - mean), over=N) / n), "f32", (M,))
    g.output("most", reduce("max", absolute(y), over=M), "f32", (N,))
    g.output("norm", sqrt(reduce("sum", y * y, over=(M, N))), "f32", ())


@operator
def margin(g: Graph, m: int, n: int, k: int) -> None:
    """The two likeliest words of each row, and by how much the first leads."""
    M, N, K, R = g.axes(m=m, n=n, k=k, r=2)
    w = g.input("W", (N, K), "bf16", values=normal(k**-0.5))
    z = contract(g.input("X", (M, K), "bf16"), w, over=K)
    z = 30.0 * tanh(z / 30.0)
    best, place = top(z, N, R)
    total = reduce("sum", exp(z - best.at(r=0)), over=N)
    g.output("word", place, "i32", (M, R))
    g.output("share", exp(best - best.at(r=0)) / total, "f32", (M, R))
    g.output("margin", best.at(r=0) - best.at(r=1), "f32", (M,))


@operator
def mx_product(g: Graph, m: int, n: int, k: int) -> None:
    """A product whose result leaves as e2m1 with a power of two for every 32 of a row."""
    M, B, P, K = g.axes(m=m, b=n // 32, p=32, k=k)
    w = g.tensor("W", (n, k), "bf16", values=normal(k**-0.5))[B * 32 + P, K]
    y = contract(g.input("X", (M, K), "bf16"), w, over=K)
    most = maximum(reduce("max", absolute(y), over=P), 1e-20)
    power = ((bitcast(most, "i32") >> 23) & 255) - 2
    scale = bitcast(maximum(power, 1) << 23, "f32")
    g.output("Q", y / scale, "e2m1", (M, B, P))
    g.output("S", scale, "e8m0", (M, B))


@operator
def attention_entropy(g: Graph, b: int, h: int, t: int, d: int) -> None:
    """Causal attention, the entropy of each query's weights and the largest of them."""
    B, H, I, J, D, E = g.axes(b=b, h=h, i=t, j=t, d=d, e=d)  # noqa: E741
    q, k = g.input("Q", (B, H, I, D), "bf16"), g.input("K", (B, H, J, D), "bf16")
    s = contract(q, k, over=D) * d**-0.5
    s = where(g.iota(J) <= I, s, -math.inf)
    m = reduce("max", s, over=J)
    p = exp(s - m)
    total = reduce("sum", p, over=J)
    moment = reduce("sum", where(g.iota(J) <= I, p * (s - m), 0.0), over=J)
    v = g.input("V", (B, H, J, E), "bf16")
    g.output("O", contract(cast(p, "bf16"), v, over=J) / total, "bf16", (B, H, I, E))
    g.output("entropy", log(total) - moment / total, "f32", (B, H, I))
    g.output("most", 1.0 / total, "f32", (B, H, I))


@operator
def decomposed_bias(g: Graph, b: int, h: int, y: int, x: int, d: int) -> None:
    """Attention over an image with learnt vectors for how far apart rows and columns are."""
    B, H, P, Q, R, S = g.axes(b=b, h=h, p=y, q=x, r=y, s=x)
    D, E = g.axes(d=d, e=d)
    q, k = g.input("Q", (B, H, P, Q, D), "f16"), g.input("K", (B, H, R, S, D), "f16")
    th = g.tensor("down", (2 * y - 1, d), "f16", values=normal(0.3))
    tw = g.tensor("across", (2 * x - 1, d), "f16", values=normal(0.3))
    down = contract(q, th[P - R + (y - 1), D], over=D)
    across = contract(q, tw[Q - S + (x - 1), D], over=D)
    s = contract(q, k, over=D) * d**-0.5 + down + across
    p = exp(s - reduce("max", s, over=(R, S)))
    v = g.input("V", (B, H, R, S, E), "f16")
    o = contract(cast(p, "f16"), v, over=(R, S)) / reduce("sum", p, over=(R, S))
    g.output("O", o, "f16", (B, H, P, Q, E))


@operator
def two_sets(g: Graph, b: int, h: int, t: int, n: int, d: int) -> None:
    """One softmax over a memory of many lengths and over what was said so far."""
    B, H, I, J, L, D, E = g.axes(b=b, h=h, i=t, j=t, l=n, d=d, e=d)  # noqa: E741
    q = g.input("Q", (B, I, H, D), "bf16")
    k, v = g.input("K", (B, J, H, D), "bf16"), g.input("V", (B, J, H, E), "bf16")
    mk, mv = g.input("MK", (B, L, H, D), "bf16"), g.input("MV", (B, L, H, E), "bf16")
    kept = g.input("kept", (B,), "i32", values=lengths(n, 0))
    s = where(g.iota(J) <= I, contract(q, k, over=D) * d**-0.5, -math.inf)
    u = where(g.iota(L) < kept, contract(q, mk, over=D) * d**-0.5, -math.inf)
    m = maximum(reduce("max", s, over=J), reduce("max", u, over=L))
    p, w = exp(s - m), exp(u - m)
    o = contract(cast(p, "bf16"), v, over=J) + contract(cast(w, "bf16"), mv, over=L)
    total = reduce("sum", p, over=J) + reduce("sum", w, over=L)
    g.output("O", o / total, "bf16", (B, I, H, E))


@operator
def prefix_images(g: Graph, b: int, h: int, kv: int, t: int, d: int) -> None:
    """Attention that is causal but for a prefix, and for images, which see all of themselves."""
    B, G, R, I, J, D, E = g.axes(b=b, g=kv, r=h // kv, i=t, j=t, d=d, e=d)  # noqa: E741
    image = g.tensor("image", (b, t), "i32", values=indices(7))
    prefix = g.input("prefix", (B,), "i32", values=lengths(t // 2, 1))
    q = g.input("Q", (B, G, R, I, D), "bf16")
    k, v = g.input("K", (B, G, J, D), "bf16"), g.input("V", (B, G, J, E), "bf16")
    alike = (image[B, I] == image[B, J]) & (image[B, I] > 0)
    s = contract(q, k, over=D) * d**-0.5
    s = where((g.iota(J) <= I) | (g.iota(J) < prefix) | alike, s, -math.inf)
    p = exp(s - reduce("max", s, over=J))
    o = contract(cast(p, "bf16"), v, over=J) / reduce("sum", p, over=J)
    g.output("O", o, "bf16", (B, G, R, I, E))


@operator
def paged_bytes(
    g: Graph, b: int, kv: int, r: int, pages: int, page: int, slots: int, d: int
) -> None:
    """A decoding step over pages of i8 with a scale a token, GQA, and lengths."""
    B, G, R, P, O, D, E = g.axes(b=b, g=kv, r=r, p=pages, o=page, d=d, e=d)  # noqa: E741
    table = g.input("table", (B, P), "i32", values=indices(slots))
    k, v = (g.tensor(n, (slots, page, kv, d), "i8") for n in "KV")
    ks, vs = (g.tensor(n, (slots, page, kv), "f16", values=uniform(0.01, 0.02)) for n in "ab")
    length = g.input("length", (B,), "i32", values=lengths(pages * page, 1))
    q = g.input("Q", (B, G, R, D), "f16")
    s = contract(q, cast(k[table, O, G, D], "f16"), over=D) * (ks[table, O, G] * d**-0.5)
    s = where(P * page + g.iota(O) < length, s, -math.inf)
    p = exp(s - reduce("max", s, over=(P, O)))
    o = contract(cast(p * vs[table, O, G], "f16"), cast(v[table, O, G, E], "f16"), over=(P, O))
    g.output("O", o / reduce("sum", p, over=(P, O)), "f16", (B, G, R, E))


@operator
def dropped_norm_backward(g: Graph, m: int, n: int, rate: float = 0.1) -> None:
    """Gradients of rmsnorm(dropout(X) + R) from its stored inverse root, the mask drawn again."""
    M, N = g.axes(m=m, n=n)
    dy, s = g.input("dY", (M, N), "bf16"), g.input("S", (M, N), "bf16")
    inv = g.input("inv", (M,), "f32", values=uniform(0.8, 1.2))
    gain = g.input("gain", (N,), "f32", values=uniform(0.5, 1.5))
    dy, s = cast(dy, "f32"), cast(s, "f32")
    xhat, wd = s * inv, dy * gain
    ds = (wd - xhat * (reduce("sum", wd * xhat, over=N) / n)) * inv
    kept = philox_uniform(g.coordinate(M * n + N), seed=5) >= rate
    g.output("dR", ds, "bf16", (M, N))
    g.output("dX", where(kept, ds / (1 - rate), 0.0), "bf16", (M, N))
    g.output("dgain", reduce("sum", dy * xhat, over=M), "f32", (N,))


@operator
def preference(g: Graph, b: int, t: int, d: int, v: int, beta: float = 0.1) -> None:
    """Chosen against rejected answers: sums of log-probabilities of a head against stored ones."""
    B, S, T, D, V = g.axes(b=b, s=2, t=t, d=d, v=v)
    x = g.input("X", (B, S, T, D), "bf16")
    w = g.input("W", (V, D), "bf16", values=normal(d**-0.5))
    label = g.input("label", (B, S, T), "i32", values=indices(v))
    length = g.input("length", (B, S), "i32", values=lengths(t, 1))
    before = g.input("before", (B, S), "f32", values=uniform(-20, -10))
    z = contract(x, w, over=D)
    m = reduce("max", z, over=V)
    lse = m + log(reduce("sum", exp(z - m), over=V))
    own = reduce("sum", where(label == V, z, 0.0), over=V)
    said = reduce("sum", where(g.iota(T) < length, own - lse, 0.0), over=T)
    more = said - before
    lead = beta * (more.at(s=0) - more.at(s=1))
    g.output("loss", maximum(-lead, 0.0) + log1p(exp(-absolute(lead))), "f32", (B,))
    g.output("said", said, "f32", (B, S))


@operator
def advantages(g: Graph, b: int, t: int, gamma: float = 0.99, decay: float = 0.95) -> None:
    """Generalised advantages backwards in time, cut at ends of episodes, then normalised."""
    B, T = g.axes(b=b, t=t)
    reward = g.tensor("reward", (b, t), "f32")
    value = g.tensor("value", (b, t + 1), "f32")
    ended = g.tensor("ended", (b, t), "bool")
    back = t - 1 - g.coordinate(T)
    alive = where(ended[B, back], 0.0, 1.0)
    delta = reward[B, back] + gamma * value[B, back + 1] * alive - value[B, back]
    a = recurrence(gamma * decay * alive, delta, T).at(t=t - 1 - g.coordinate(T))
    mean = reduce("sum", a, over=(B, T)) / (b * t)
    var = reduce("sum", (a - mean) * (a - mean), over=(B, T)) / (b * t)
    g.output("A", (a - mean) * rsqrt(var + 1e-8), "f32", (B, T))
    g.output("R", a + value[B, T], "f32", (B, T))


@operator
def supervised_contrast(g: Graph, n: int, d: int, classes: int, scale: float = 10.0) -> None:
    """Rows against all others of their class, itself left out."""
    I, J, D = g.axes(i=n, j=n, d=d)  # noqa: E741
    x, c = g.tensor("X", (n, d), "bf16"), g.tensor("c", (n,), "i32", values=indices(classes))

    def unit(i):
        w = cast(x[i, D], "f32")
        return cast(w * rsqrt(reduce("sum", w * w, over=D) + 1e-9), "bf16")

    s = contract(unit(I), unit(J), over=D) * scale
    s = where(g.iota(I) == J, -math.inf, s)
    m = reduce("max", s, over=J)
    lse = m + log(reduce("sum", exp(s - m), over=J))
    own = (c[I] == c[J]) & (g.iota(I) != J)
    count = reduce("sum", where(own, 1.0, 0.0), over=J)
    total = reduce("sum", where(own, s, 0.0), over=J)
    g.output("L", where(count > 0, lse - total / maximum(count, 1.0), 0.0), "f32", (I,))


@operator
def expert_choice(g: Graph, t: int, e: int, cap: int, k: int, n: int) -> None:
    """Experts choose tokens by a softmax over experts, and each multiplies those that it has."""
    T, E, C, K, N = g.axes(t=t, e=e, c=cap, k=k, n=n)
    x = g.tensor("X", (t, k), "bf16")
    r = g.input("R", (E, K), "bf16", values=normal(k**-0.5))
    z = contract(x[T, K], r, over=K)
    p = exp(z - reduce("max", z, over=E))
    p = p / reduce("sum", p, over=E)
    share, token = top(p, T, C)
    w = g.input("W", (E, N, K), "bf16", values=normal(k**-0.5))
    y = contract(x[token, K], w, over=K) * share
    g.output("Y", y, "bf16", (E, C, N))
    g.output("token", token, "i32", (E, C))


@operator
def ragged_fp8(g: Graph, t: int, e: int, n: int, k: int) -> None:
    """Rows in order of their experts, by where each begins: e4m3 with scales of experts."""
    T, N, K, E = g.axes(t=t, n=n, k=k, e=e)
    start = g.input("start", (g.axis("s", e + 1),), "i32", values=offsets(t))
    behind = start.at(s=E + 1) <= T
    expert = minimum(reduce("sum", where(behind, g.constant(1, "i32"), 0), over=E), e - 1)
    w = g.tensor("W", (e, n, k), "e4m3")
    ws = g.tensor("ws", (e, n), "f32", values=uniform(0.5, 2))
    xs = g.input("xs", (T,), "f32", values=uniform(0.5, 2))
    y = contract(g.input("X", (T, K), "e4m3"), w[expert, N, K], over=K)
    g.output("Y", y * xs * ws[expert, N], "bf16", (T, N))


@operator
def dynamic_filter(g: Graph, b: int, t: int, h: int, d: int, taps: int) -> None:
    """A causal filter for each head that each step draws from itself, through a softmax of taps."""
    B, T, H, D, W, K = g.axes(b=b, t=t, h=h, d=d, w=taps, k=h * d)
    x = g.tensor("X", (b, t, h * d), "f16", fill=0)
    made = g.input("F", (H, W, K), "f16", values=normal((h * d) ** -0.5))
    z = contract(x[B, T, K], made, over=K)
    p = exp(z - reduce("max", z, over=W))
    p = p / reduce("sum", p, over=W)
    near = cast(x[B, T - W, H * d + D], "f32")
    g.output("Y", reduce("sum", p * near, over=W), "f16", (B, T, H, D))


@operator
def real_gated(g: Graph, b: int, t: int, d: int, c: float = 8.0) -> None:
    """A real gated linear recurrence: decays by gates, what comes in by what is left of one."""
    B, T, D = g.axes(b=b, t=t, d=d)
    x = cast(g.input("X", (B, T, D), "bf16"), "f32")
    r, i = (sigmoid(cast(g.input(n, (B, T, D), "bf16"), "f32")) for n in "ri")
    rate = g.input("rate", (D,), "f32", values=uniform(0.01, 0.2))
    a = exp(-c * rate * r)
    h = recurrence(a, sqrt(maximum(1 - a * a, 1e-6)) * (i * x), T)
    g.output("H", h, "bf16", (B, T, D))
    g.output("last", h.at(t=t - 1), "f32", (B, D))


@operator
def scalar_memory(g: Graph, b: int, t: int, h: int, d: int) -> None:
    """An LSTM with exponential gates, kept stable by a running largest; a block a head."""
    B, T, H, D, K = g.axes(b=b, t=t, h=h, d=d, k=d)
    zero = g.constant(0.0, "f32")
    c, n, y = g.state(T, (B, H, D)), g.state(T, (B, H, D)), g.state(T, (B, H, D))
    m = g.state(T, (B, H, D), zero - 10.0)

    def gate(name):
        r = g.input("R" + name, (H, D, K), "f32", values=normal(0.5 * d**-0.5))
        return g.input("x" + name, (B, T, H, D), "f32") + contract(y.at(d=K), r, over=K)

    i, f, z, o = (gate(name) for name in "ifzo")
    keep = -maximum(-f, 0.0) - log1p(exp(-absolute(f)))
    most = maximum(keep + m, i)
    old, new = exp(keep + m - most), exp(i - most)
    c2 = old * c + new * tanh(z)
    n2 = old * n + new
    y2 = sigmoid(o) * c2 / maximum(n2, 1e-6)
    recur(c, c2)
    recur(n, n2)
    recur(m, most)
    recur(y, y2)
    g.output("Y", y2, "f32", (B, T, H, D))


@operator
def verified_drafts(g: Graph, b: int, k: int, v: int) -> None:
    """How many drafted tokens stand, and a token drawn from what is left of the next."""
    B, K, V = g.axes(b=b, k=k, v=v)
    p = g.tensor("P", (b, k + 1, v), "f32", values=probabilities())
    q = g.tensor("Q", (b, k + 1, v), "f32", values=probabilities())
    token = g.input("token", (B, K), "i32", values=indices(v))
    u = philox_uniform(g.coordinate(B * k + K), seed=3)
    stands = u * q[B, K, token] <= p[B, K, token]
    run = cumulative("min", where(stands, g.constant(1, "i32"), 0), K)
    count = reduce("sum", run, over=K)
    rest = where(count < k, maximum(p[B, count, V] - q[B, count, V], 0.0), p[B, count, V])
    noise = -log(maximum(philox_uniform(g.coordinate(B * v + V), 1, seed=3), 1e-9))
    g.output("count", count, "i32", (B,))
    g.output("next", argmax(rest / noise, V), "i32", (B,))


@operator
def penalised(g: Graph, b: int, v: int, n: int, share: float = 0.05) -> None:
    """A token drawn by noise among those no less likely than a share, repeated ones made less."""
    B, V, N = g.axes(b=b, v=v, n=n)
    z = cast(g.input("logits", (B, V), "bf16"), "f32")
    said = g.input("said", (B, N), "i32", values=indices(v))
    count = scatter("sum", g.constant(1, "i32") + 0 * said, {B: g.iota(B), V: said})
    z = where(count > 0, where(z > 0, z / 1.2, z * 1.2), z) - 0.1 * cast(count, "f32")
    z = z / 0.8
    most = reduce("max", z, over=V)
    noise = -log(-log(maximum(philox_uniform(g.coordinate(B * v + V), seed=9), 1e-7)))
    g.output("token", argmax(where(z >= most + math.log(share), z + noise, -1e30), V), "i32", (B,))


@operator
def group_norm_backward(g: Graph, b: int, s: int, groups: int, c: int) -> None:
    """Gradients of a group norm of channels-last images, from its statistics."""
    B, S, G, C = g.axes(b=b, s=s, g=groups, c=c)
    dy, x = (cast(g.input(n, (B, S, G, C), "f16"), "f32") for n in ("dY", "X"))
    mean = g.input("mean", (B, G), "f32", values=normal(0.1))
    inv = g.input("inv", (B, G), "f32", values=uniform(0.8, 1.2))
    gain = g.input("gain", (G, C), "f32", values=uniform(0.5, 1.5))
    xhat = (x - mean) * inv
    wd = dy * gain
    one = reduce("sum", wd, over=(S, C)) / (s * c)
    two = reduce("sum", wd * xhat, over=(S, C)) / (s * c)
    g.output("dX", (wd - one - xhat * two) * inv, "f16", (B, S, G, C))
    g.output("dgain", reduce("sum", dy * xhat, over=(B, S)), "f32", (G, C))
    g.output("dbias", reduce("sum", dy, over=(B, S)), "f32", (G, C))


@operator
def unscaled(g: Graph, m: int, n: int) -> None:
    """Gradients of e5m2 brought back to f32: whether one is no number, and rows clipped."""
    M, N = g.axes(m=m, n=n)
    x = cast(g.input("G", (M, N), "e5m2"), "f32") * (1 / 1024)
    bad = reduce(
        "max", where((absolute(x) < 3e38) & (x == x), g.constant(0, "i32"), 1), over=(M, N)
    )
    size = sqrt(reduce("sum", x * x, over=N))
    g.output("Y", where(bad > 0, 0.0, x * minimum(1.0 / (size + 1e-6), 1.0)), "f32", (M, N))
    g.output("bad", bad, "i32", ())


@operator
def conv_weights(g: Graph, n: int, h: int, w: int, c: int, f: int) -> None:
    """The gradient of a 3 x 3 convolution's weights and of its bias, channels last."""
    N, Y, X, C, F, R, S = g.axes(n=n, y=h, x=w, c=c, f=f, r=3, s=3)
    x = g.tensor("X", (n, h, w, c), "bf16", fill=0)
    dy = g.input("dY", (N, Y, X, F), "bf16", values=normal(0.05))
    g.output("dW", contract(dy, x[N, Y + R - 1, X + S - 1, C], over=(N, Y, X)), "f32", (F, R, S, C))
    g.output("db", reduce("sum", cast(dy, "f32"), over=(N, Y, X)), "f32", (F,))


EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "split_outputs": {
        "small": {"m": 13, "n": 32, "k": 48},
        "full": {"m": 16381, "n": 4096, "k": 4096},
    },
    "product_moments": {
        "small": {"m": 37, "n": 56, "k": 40},
        "full": {"m": 8192, "n": 8192, "k": 4096},
    },
    "margin": {"small": {"m": 7, "n": 101, "k": 32}, "full": {"m": 509, "n": 151936, "k": 4096}},
    "mx_product": {"small": {"m": 9, "n": 96, "k": 64}, "full": {"m": 8191, "n": 8192, "k": 4096}},
    "attention_entropy": {
        "small": {"b": 1, "h": 2, "t": 45, "d": 32},
        "full": {"b": 4, "h": 32, "t": 8192, "d": 128},
    },
    "decomposed_bias": {
        "small": {"b": 1, "h": 2, "y": 5, "x": 7, "d": 16},
        "full": {"b": 4, "h": 16, "y": 64, "x": 64, "d": 80},
    },
    "two_sets": {
        "small": {"b": 2, "h": 2, "t": 20, "n": 33, "d": 16},
        "full": {"b": 8, "h": 32, "t": 2048, "n": 16381, "d": 128},
    },
    "prefix_images": {
        "small": {"b": 2, "h": 4, "kv": 2, "t": 40, "d": 16},
        "full": {"b": 4, "h": 32, "kv": 8, "t": 8192, "d": 128},
    },
    "paged_bytes": {
        "small": {"b": 3, "kv": 2, "r": 4, "pages": 5, "page": 8, "slots": 11, "d": 32},
        "full": {"b": 64, "kv": 8, "r": 8, "pages": 1024, "page": 16, "slots": 65521, "d": 128},
    },
    "dropped_norm_backward": {"small": {"m": 11, "n": 52}, "full": {"m": 65521, "n": 4096}},
    "preference": {
        "small": {"b": 3, "t": 9, "d": 32, "v": 50},
        "full": {"b": 16, "t": 1021, "d": 4096, "v": 128256},
    },
    "advantages": {"small": {"b": 3, "t": 29}, "full": {"b": 65521, "t": 1024}},
    "supervised_contrast": {
        "small": {"n": 37, "d": 32, "classes": 5},
        "full": {"n": 32749, "d": 512, "classes": 1000},
    },
    "expert_choice": {
        "small": {"t": 40, "e": 5, "cap": 9, "k": 32, "n": 24},
        "full": {"t": 16384, "e": 64, "cap": 512, "k": 4096, "n": 2048},
    },
    "ragged_fp8": {
        "small": {"t": 41, "e": 5, "n": 32, "k": 64},
        "full": {"t": 32749, "e": 64, "n": 4096, "k": 7168},
    },
    "dynamic_filter": {
        "small": {"b": 2, "t": 19, "h": 3, "d": 8, "taps": 5},
        "full": {"b": 16, "t": 4093, "h": 16, "d": 64, "taps": 31},
    },
    "real_gated": {"small": {"b": 2, "t": 37, "d": 24}, "full": {"b": 16, "t": 8192, "d": 4096}},
    "scalar_memory": {
        "small": {"b": 2, "t": 11, "h": 2, "d": 8},
        "full": {"b": 64, "t": 1024, "h": 4, "d": 192},
    },
    "verified_drafts": {
        "small": {"b": 5, "k": 4, "v": 53},
        "full": {"b": 251, "k": 7, "v": 151936},
    },
    "penalised": {"small": {"b": 3, "v": 61, "n": 9}, "full": {"b": 256, "v": 151936, "n": 4096}},
    "group_norm_backward": {
        "small": {"b": 2, "s": 21, "groups": 3, "c": 8},
        "full": {"b": 32, "s": 16384, "groups": 32, "c": 16},
    },
    "unscaled": {"small": {"m": 13, "n": 40}, "full": {"m": 65521, "n": 8192}},
    "conv_weights": {
        "small": {"n": 2, "h": 7, "w": 9, "c": 8, "f": 16},
        "full": {"n": 64, "h": 56, "w": 56, "c": 256, "f": 256},
    },
}  # fmt: skip
