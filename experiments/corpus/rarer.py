"""Programs of memories, graphs, physics, training and sampling that no other file foresees.

`tilewright tune experiments/corpus/rarer.py:NAME full ...`; what they take is in README.md.
"""

from __future__ import annotations

import math

from ir import (
    Graph,
    absolute,
    argmax,
    argmin,
    cast,
    contract,
    cos,
    cumulative,
    exp,
    indices,
    log,
    maximum,
    minimum,
    normal,
    operator,
    philox_uniform,
    positive,
    recur,
    reduce,
    rsqrt,
    scan,
    scatter,
    sigmoid,
    silu,
    sin,
    sqrt,
    tanh,
    top,
    uniform,
    where,
)


@operator
def mlstm(g: Graph, b: int, h: int, t: int, d: int) -> None:
    """Linear attention under exponential gates, made stable by the largest weight of each row."""
    B, H, I, J, D, E = g.axes(b=b, h=h, i=t, j=t, d=d, e=d)  # noqa: E741
    q, k = g.input("Q", (B, H, I, D), "bf16"), g.input("K", (B, H, J, D), "bf16")
    forget = g.input("f", (B, H, I), "f32", values=uniform(1.0, 5.0))
    kept = cumulative("sum", log(sigmoid(forget)), I)
    weight = kept - kept.at(i=J) + g.input("g", (B, H, J), "f32")
    weight = where(g.iota(J) <= I, weight, -math.inf)
    m = reduce("max", weight, over=J)
    s = contract(q, k, over=D) * d**-0.5 * exp(weight - m)
    o = contract(cast(s, "bf16"), g.input("V", (B, H, J, E), "bf16"), over=J)
    n = maximum(absolute(reduce("sum", s, over=J)), exp(-m))
    g.output("O", o / n, "bf16", (B, H, I, E))


@operator
def minimal_gru(g: Graph, b: int, t: int, d: int) -> None:
    """A gated average along time, between projections of a layer."""
    B, T, K, D, N = g.axes(b=b, t=t, k=d, d=d, n=d)
    x = g.input("X", (B, T, K), "bf16")
    w, v = (g.input(s, (D, K), "bf16", values=normal(d**-0.5)) for s in ("Wz", "Wh"))
    z = sigmoid(contract(x, w, over=K))
    new = contract(x, v, over=K)
    new = where(new >= 0, new + 0.5, sigmoid(new))
    h = scan("affine", (1 - z, z * new), T)[1]
    o = g.input("Wo", (N, D), "bf16", values=normal(d**-0.5))
    g.output("Y", contract(cast(h, "bf16"), o, over=D), "bf16", (B, T, N))


@operator
def product_keys(g: Graph, t: int, h: int, n: int, d: int, best: int, v: int) -> None:
    """A memory of n^2 values: the best sums of two halves' best keys, and their values weighed."""
    T, H, N, D, P, Q, E = g.axes(t=t, h=h, n=n, d=d, p=best, q=best, e=v)
    R = g.axis("r", best)
    half = []
    for s, rank in (("1", P), ("2", Q)):
        x = g.input(f"X{s}", (T, H, D), "bf16")
        c = g.input(f"C{s}", (H, N, D), "bf16")
        half.append(top(contract(x, c, over=D), N, rank))
    (s1, i1), (s2, i2) = half
    L = g.axis("l", best * best)
    both = s1.at(p=g.coordinate(L) // best) + s2.at(q=g.coordinate(L) % best)
    score, place = top(both, L, R)
    row = i1.at(p=place // best) * n + i2.at(q=place % best)
    w = exp(score - reduce("max", score, over=R))
    w = w / reduce("sum", w, over=R)
    values = g.tensor("V", (n * n, v), "bf16")
    g.output("Y", reduce("sum", w * values[row, E], over=(R, H)), "bf16", (T, E))


@operator
def graph_steps(g: Graph, n: int, near: int, steps: int) -> None:
    """Ranks of pages after some steps: each gives its own to those that it names."""
    T, N, K = g.axes(t=steps, n=n, k=near)
    at = g.input("at", (N, K), "i32", values=indices(n))
    share = g.input("share", (N, K), "f32", values=uniform(0, 1 / near))
    x = g.state(T, (N,), 1.0)
    g.output("X", recur(x, 0.15 + 0.85 * reduce("sum", share * x.at(n=at), over=K)), "f32", (N,))


@operator
def landmarks(g: Graph, b: int, h: int, t: int, m: int, d: int) -> None:
    """Attention through a few landmarks: three softmaxes, the middle one inverted by iteration."""
    B, H, I, J, D, E, L, M = g.axes(b=b, h=h, i=t, j=t, d=d, e=d, l=m, m=m)  # noqa: E741
    N = g.axis("n", m)
    q, k = g.input("Q", (B, H, I, D), "bf16"), g.input("K", (B, H, J, D), "bf16")
    ql, kl = g.input("Ql", (B, H, L, D), "bf16"), g.input("Kl", (B, H, M, D), "bf16")

    def softmax(a, c, axis):
        s = contract(a, c, over=D) * d**-0.5
        p = exp(s - reduce("max", s, over=axis))
        return p / reduce("sum", p, over=axis)

    first, a, last = softmax(q, kl, M), softmax(ql, kl, M), softmax(ql, k, J)
    eye = where(g.iota(L) == M, 1.0, 0.0)
    z = a.at(l=M, m=L) / reduce("max", reduce("sum", a, over=L), over=M)
    for _ in range(3):  # z is over (m, l): an inverse of a, over (l, m)
        az = contract(a.at(m=N), z.at(m=N, l=M), over=N)
        z = contract(z.at(l=N), (2 * eye - az).at(l=N, m=L), over=N)
    v = g.input("V", (B, H, J, E), "bf16")
    mean = contract(cast(last, "bf16"), v, over=J)
    mean = contract(z, mean, over=L)
    g.output("O", contract(cast(first, "bf16"), cast(mean, "bf16"), over=M), "bf16", (B, H, I, E))


@operator
def coupled(g: Graph, b: int, u: int, w: int) -> None:
    """Channels of two kinds of vectors, multiplied by coefficients of rotations and mixed."""
    B, U, V, W, I, J, K = g.axes(b=b, u=u, v=u, w=w, i=3, j=3, k=5)  # noqa: E741
    x, y = g.input("X", (B, U, I), "f32"), g.input("Y", (B, V, J), "f32")
    c = g.input("C", (I, J, K), "f32")
    m = g.input("W", (U, V, W), "bf16", values=normal(1 / u))
    pair = reduce("sum", reduce("sum", x * c, over=I) * y, over=J)
    g.output("Z", contract(cast(pair, "bf16"), m, over=(U, V)), "bf16", (B, K, W))


@operator
def short_forces(g: Graph, n: int, near: int, side: float = 12.0) -> None:
    """Forces and energy of atoms from lists of neighbours, within a cut and a periodic box."""
    N, K = g.axes(n=n, k=near)
    t = g.tensor("X", (3, n), "f32", values=uniform(0, side))
    at = g.input("at", (N, K), "i32", values=indices(n))
    away = []
    for i in range(3):
        r = t[i, N] - t[i, at]
        away.append(r - side * cast(cast(r * (1 / side) + 16.5, "i32") - 16, "f32"))
    r2 = maximum(away[0] * away[0] + away[1] * away[1] + away[2] * away[2], 0.64)
    r6 = 1 / (r2 * r2 * r2)
    inside = (r2 < 9.0) & (at != g.iota(N))
    force = where(inside, (48 * r6 * r6 - 24 * r6) / r2, 0.0)
    for i, name in enumerate("xyz"):
        g.output(f"F{name}", reduce("sum", force * away[i], over=K), "f32", (N,))
    energy = reduce("sum", where(inside, 4 * (r6 * r6 - r6), 0.0), over=K)
    g.output("E", energy, "f32", (N,))


@operator
def clipped_step(g: Graph, m: int, n: int) -> None:
    """A step of Adam under gradients clipped by their norm, in bf16 beside masters in f32."""
    M, N = g.axes(m=m, n=n)
    d = cast(g.input("G", (M, N), "bf16"), "f32")
    norm = sqrt(reduce("sum", d * d, over=(M, N)))
    d = d * minimum(1.0 / (norm + 1e-6), 1.0)
    w, a = g.input("W", (M, N), "f32"), g.input("A", (M, N), "f32")
    s = g.input("S", (M, N), "f32", values=positive())
    first, second = 0.9 * a + 0.1 * d, 0.95 * s + 0.05 * d * d
    new = w * (1 - 3e-5) - 3e-4 * first / (sqrt(second) + 1e-8)
    for name, value, dtype in (
        ("master", new, "f32"),
        ("first", first, "f32"),
        ("second", second, "f32"),
        ("weights", new, "bf16"),
    ):
        g.output(name, value, dtype, (M, N))
    g.output("norm", norm, "f32", ())


@operator
def monarch(g: Graph, m: int, b: int, p: int) -> None:
    """A matrix of two sums of blocks, columns shuffled between them."""
    M, B, P, Q, S = g.axes(m=m, b=b, p=p, q=p, s=b)
    x = g.tensor("X", (m, b * p), "bf16")
    left = g.input("L", (B, Q, P), "bf16", values=normal(p**-0.5))
    y = contract(x[M, B * p + P], left, over=P)
    right = g.input("R", (Q, S, B), "bf16", values=normal(b**-0.5))
    g.output("Y", contract(cast(y, "bf16"), right, over=B), "bf16", (M, S, Q))


@operator
def scaled_linear(g: Graph, m: int, n: int, k: int) -> None:
    """A layer of e4m3 that stores e4m3 by the last scale, and the largest for the next."""
    M, N, K = g.axes(m=m, n=n, k=k)
    x, w = g.input("X", (M, K), "e4m3"), g.input("W", (N, K), "e4m3")
    a = contract(x, w, over=K) * g.input("scale", (), "f32", values=uniform(1, 3)) * k**-0.5
    y = a * sigmoid(1.702 * a)
    held = minimum(maximum(y * g.input("out", (), "f32", values=uniform(2, 8)), -448.0), 448.0)
    g.output("Y", cast(held, "e4m3"), "e4m3", (M, N))
    g.output("largest", reduce("max", absolute(y), over=(M, N)), "f32", ())


@operator
def embedded(g: Graph, b: int, t: int, n: int, d: int) -> None:
    """Words, places and kinds looked up, added and normalised."""
    B, T, D = g.axes(b=b, t=t, d=d)
    word = g.input("word", (B, T), "i32", values=indices(n))
    kind = g.input("kind", (B, T), "i8", values=uniform(0, 2))
    x = cast(g.tensor("words", (n, d), "bf16")[word, D], "f32") + g.input("place", (T, D), "bf16")
    x = x + g.tensor("kinds", (2, d), "bf16")[cast(kind, "i32") & 1, D]
    mean = reduce("sum", x, over=D) * (1 / d)
    y = (x - mean) * rsqrt(reduce("sum", (x - mean) * (x - mean), over=D) * (1 / d) + 1e-5)
    y = y * g.input("gamma", (D,), "bf16") + g.input("beta", (D,), "bf16")
    g.output("Y", y, "bf16", (B, T, D))


@operator
def head_gradient(g: Graph, m: int, n: int, k: int) -> None:
    """What flows back from a smoothed cross entropy through the head, and the head's gradient."""
    M, N, K, L = g.axes(m=m, n=n, k=k, l=k)
    x, w = g.input("X", (M, K), "bf16"), g.input("W", (N, K), "bf16", values=normal(k**-0.5))
    z = contract(x, w, over=K)
    p = exp(z - reduce("max", z, over=N))
    p = p / reduce("sum", p, over=N)
    own = g.iota(N) == g.input("label", (M,), "i32", values=indices(n))
    d = cast(p - where(own, 0.9, 0.0) - 0.1 / n, "bf16")
    g.output("dX", contract(d, w.at(k=L), over=N), "bf16", (M, L))
    g.output("dW", contract(d, x.at(k=L), over=M), "bf16", (N, L))


@operator
def neighbourhood(g: Graph, b: int, h: int, y: int, x: int, d: int) -> None:
    """Each pixel attends to the seven by seven around it, with a bias for each place."""
    B, H, Y, X, R, S, D, E = g.axes(b=b, h=h, y=y, x=x, r=7, s=7, d=d, e=d)
    q = g.input("Q", (B, H, Y, X, D), "bf16")
    k, v = (g.tensor(n, (b, h, y, x, d), "bf16") for n in "KV")
    py, px = g.iota(Y) + g.iota(R) - 3, g.iota(X) + g.iota(S) - 3
    inside = (py >= 0) & (py < y) & (px >= 0) & (px < x)
    cy, cx = minimum(maximum(py, 0), y - 1), minimum(maximum(px, 0), x - 1)
    s = contract(q, k[B, H, cy, cx, D], over=D) * d**-0.5 + g.input("bias", (H, R, S), "f32")
    s = where(inside, s, -math.inf)
    p = exp(s - reduce("max", s, over=(R, S)))
    o = reduce("sum", p * v[B, H, cy, cx, E], over=(R, S))
    g.output("O", o / reduce("sum", p, over=(R, S)), "bf16", (B, H, Y, X, E))


@operator
def viterbi(g: Graph, b: int, t: int, n: int) -> None:
    """The likeliest path of states: scores and pointers forward, then followed back."""
    T, B, I, J, U = g.axes(t=t, b=b, i=n, j=n, u=t)  # noqa: E741
    move = g.input("A", (I, J), "f32")
    seen = g.input("E", (T, B, J), "f32")
    score = g.state(T, (B, I), 0.0)
    ways = score + move
    new = reduce("max", ways, over=I) + seen
    back = argmax(ways, I)
    last = recur(score, new.at(j=I))
    g.output("score", reduce("max", last, over=I), "f32", (B,))
    end = argmax(last, I)
    at = g.state(U, (B,), end)
    before = back.at(t=t - 1 - U, j=at)
    g.output("path", at, "i32", (U, B))
    g.output("first", recur(at, before), "i32", (B,))


@operator
def example_norms(g: Graph, b: int, t: int, n: int, k: int) -> None:
    """Norms of every example's own gradient of a layer, without one of these gradients."""
    B, I, J, N, K = g.axes(b=b, i=t, j=t, n=n, k=k)  # noqa: E741
    x, d = g.input("X", (B, I, K), "bf16"), g.input("D", (B, I, N), "bf16")
    alike = contract(x, x.at(i=J), over=K) * contract(d, d.at(i=J), over=N)
    g.output("norm", sqrt(maximum(reduce("sum", alike, over=(I, J)), 0.0)), "f32", (B,))


@operator
def squared_gradients(g: Graph, b: int, n: int, k: int) -> None:
    """The diagonal of Fisher's information of a layer: squares of gradients, summed and decayed."""
    B, N, K = g.axes(b=b, n=n, k=k)
    x, d = cast(g.input("X", (B, K), "bf16"), "f32"), cast(g.input("D", (B, N), "bf16"), "f32")
    new = contract(cast(d * d, "bf16"), cast(x * x, "bf16"), over=B) / b
    old = g.input("F", (N, K), "f32", values=positive())
    g.output("new", 0.95 * old + 0.05 * new, "f32", (N, K))


@operator
def drawn_token(g: Graph, m: int, n: int, k: int) -> None:
    """A token drawn from the head's softmax by noise added to scores, which nobody stores."""
    M, N, K = g.axes(m=m, n=n, k=k)
    z = contract(g.input("X", (M, K), "bf16"), g.input("W", (N, K), "bf16"), over=K)
    z = z * (1 / (0.8 * k**0.5))
    u = philox_uniform(g.coordinate(M * n + N), seed=g.input("seed", (), "i32"))
    z = z - log(-log(u + 1e-10) + 1e-10)
    g.output("token", argmax(z, N), "i32", (M,))


@operator
def rotated_projection(g: Graph, m: int, h: int, kv: int, d: int, k: int) -> None:
    """Queries and keys of a layer, projected, normalised by head and rotated by their places."""
    M, H, G, D, E, K = g.axes(m=m, h=h, g=kv, d=d // 2, e=2, k=k)
    x = g.input("X", (M, K), "bf16")
    place = g.input("place", (M,), "i32", values=indices(8192))
    angle = cast(place, "f32") * exp(g.iota(D) * (-2 * math.log(1e4) / d))
    for name, axis in (("Q", H), ("K", G)):
        w = g.input(f"W{name}", (axis, E, D, K), "bf16", values=normal(k**-0.5))
        p = contract(x, w, over=K)
        p = p * rsqrt(reduce("sum", p * p, over=(D, E)) * (1 / d) + 1e-6)
        sign = where(g.iota(E) == 0, -1.0, 1.0)
        y = p * cos(angle) + sign * p.at(e=1 - E) * sin(angle)
        g.output(name, y, "bf16", (axis, M, E, D))


@operator
def transported(g: Graph, n: int, d: int) -> None:
    """Particles pulled to where scores point and pushed apart, by Gaussian kernels of all pairs."""
    I, J, D, E = g.axes(i=n, j=n, d=d, e=d)  # noqa: E741
    x, s = g.input("X", (I, D), "bf16"), g.input("S", (J, E), "bf16")
    y = x.at(i=J)
    r = reduce("sum", cast(x, "f32") * x, over=D)
    far = r + r.at(i=J) - 2 * contract(x, y, over=D)
    w = exp(far * (-0.5 / d))
    pull = contract(cast(w, "bf16"), s, over=J)
    push = reduce("sum", w, over=J) * x.at(d=E) - contract(cast(w, "bf16"), y.at(d=E), over=J)
    g.output("V", (pull + push / d) / n, "bf16", (I, E))


@operator
def routed_depth(g: Graph, b: int, t: int, chosen: int, d: int, f: int) -> None:
    """The tokens of each sequence that a router ranks first go through a layer, the rest around."""
    B, T, C, D, F, E = g.axes(b=b, t=t, c=chosen, d=d, f=f, e=d)
    x = g.input("X", (B, T, D), "bf16")
    score = reduce("sum", cast(x, "f32") * g.input("r", (D,), "f32"), over=D) * d**-0.5
    weight, place = top(score, T, C)
    up = g.input("U", (F, D), "bf16", values=normal(d**-0.5))
    down = g.input("W", (E, F), "bf16", values=normal(f**-0.5))
    hidden = cast(silu(contract(x.at(t=place), up, over=D)), "bf16")
    y = contract(hidden, down, over=F) * sigmoid(weight)
    sent = scatter("sum", y, {B: B, T: place, E: E})
    g.output("Y", cast(x.at(d=E), "f32") + sent, "bf16", (B, T, E))


@operator
def spread_points(g: Graph, b: int, n: int, chosen: int) -> None:
    """Points chosen one by one, each the farthest from those before."""
    T, B, N = g.axes(t=chosen, b=b, n=n)
    t = g.tensor("X", (b, 3, n), "f32")
    last, least = g.state(T, (B,), 0, "i32"), g.state(T, (B, N), 1e30)
    far = [t[B, i, N] - t[B, i, last] for i in range(3)]
    near = minimum(least, far[0] * far[0] + far[1] * far[1] + far[2] * far[2])
    g.output("at", last, "i32", (T, B))
    g.output("end", recur(last, argmax(near, N)), "i32", (B,))
    g.output("near", recur(least, near), "f32", (B, N))


@operator
def rollout(g: Graph, b: int, n: int, layers: int) -> None:
    """Attention of all layers, each averaged with staying, multiplied into one."""
    B, I, J, K, T = g.axes(b=b, i=n, j=n, k=n, t=layers)  # noqa: E741
    a = g.input("A", (B, T, I, K), "bf16", values=uniform(0, 2 / n))
    r = g.state(T, (B, K, J), where(g.iota(K) == g.iota(J), 1.0, 0.0))
    new = 0.5 * (contract(a, cast(r, "bf16"), over=K) + r.at(k=I))
    g.output("R", recur(r, new.at(i=K)), "f32", (B, K, J))


@operator
def assigned_means(g: Graph, n: int, k: int, d: int) -> None:
    """A step of k-means: where points belong, sums and counts of each centre, and the spread."""
    N, K, D = g.axes(n=n, k=k, d=d)
    x, c = g.input("X", (N, D), "bf16"), g.input("C", (K, D), "bf16")
    size = reduce("sum", cast(c, "f32") * c, over=D)
    far = size - 2 * contract(x, c, over=D)
    own = argmin(far, K)
    g.output("own", own, "i32", (N,))
    one = cast(where(g.iota(K) == own, 1.0, 0.0), "bf16")
    g.output("sums", contract(one, x, over=N), "f32", (K, D))
    g.output("counts", reduce("sum", where(g.iota(K) == own, 1, 0), over=N), "i32", (K,))
    least = reduce("min", far, over=K) + reduce("sum", cast(x, "f32") * x, over=D)
    g.output("spread", reduce("sum", tanh(least), over=N), "f32", ())


EXTENTS = {
    "mlstm": {
        "small": {"b": 1, "h": 2, "t": 40, "d": 16},
        "full": {"b": 2, "h": 16, "t": 4096, "d": 128},
    },
    "minimal_gru": {"small": {"b": 2, "t": 12, "d": 32}, "full": {"b": 8, "t": 4096, "d": 1024}},
    "product_keys": {
        "small": {"t": 5, "h": 2, "n": 12, "d": 16, "best": 4, "v": 24},
        "full": {"t": 8192, "h": 4, "n": 512, "d": 128, "best": 32, "v": 1024},
    },
    "graph_steps": {
        "small": {"n": 30, "near": 3, "steps": 4},
        "full": {"n": 1048576, "near": 16, "steps": 50},
    },
    "landmarks": {
        "small": {"b": 1, "h": 2, "t": 32, "m": 8, "d": 16},
        "full": {"b": 4, "h": 16, "t": 8192, "m": 64, "d": 64},
    },
    "coupled": {"small": {"b": 5, "u": 6, "w": 8}, "full": {"b": 16384, "u": 32, "w": 64}},
    "short_forces": {
        "small": {"n": 40, "near": 7},
        "full": {"n": 2097152, "near": 48, "side": 100.0},
    },
    "clipped_step": {"small": {"m": 12, "n": 40}, "full": {"m": 16384, "n": 8192}},
    "monarch": {"small": {"m": 12, "b": 16, "p": 8}, "full": {"m": 8192, "b": 64, "p": 64}},
    "scaled_linear": {
        "small": {"m": 16, "n": 48, "k": 64},
        "full": {"m": 8192, "n": 8192, "k": 4096},
    },
    "embedded": {
        "small": {"b": 2, "t": 7, "n": 50, "d": 24},
        "full": {"b": 128, "t": 512, "n": 30522, "d": 1024},
    },
    "head_gradient": {
        "small": {"m": 24, "n": 48, "k": 32},
        "full": {"m": 4096, "n": 32000, "k": 4096},
    },
    "neighbourhood": {
        "small": {"b": 1, "h": 2, "y": 9, "x": 11, "d": 16},
        "full": {"b": 8, "h": 12, "y": 56, "x": 56, "d": 32},
    },
    "viterbi": {"small": {"b": 2, "t": 6, "n": 5}, "full": {"b": 256, "t": 512, "n": 64}},
    "example_norms": {
        "small": {"b": 3, "t": 20, "n": 24, "k": 32},
        "full": {"b": 32, "t": 1024, "n": 2048, "k": 2048},
    },
    "squared_gradients": {
        "small": {"b": 40, "n": 24, "k": 32},
        "full": {"b": 8192, "n": 4096, "k": 4096},
    },
    "drawn_token": {
        "small": {"m": 6, "n": 80, "k": 32},
        "full": {"m": 256, "n": 128256, "k": 4096},
    },
    "rotated_projection": {
        "small": {"m": 12, "h": 4, "kv": 2, "d": 16, "k": 32},
        "full": {"m": 8192, "h": 32, "kv": 8, "d": 128, "k": 4096},
    },
    "transported": {"small": {"n": 40, "d": 16}, "full": {"n": 16384, "d": 64}},
    "routed_depth": {
        "small": {"b": 2, "t": 24, "chosen": 6, "d": 16, "f": 32},
        "full": {"b": 8, "t": 4096, "chosen": 512, "d": 2048, "f": 8192},
    },
    "spread_points": {
        "small": {"b": 2, "n": 30, "chosen": 5},
        "full": {"b": 64, "n": 8192, "chosen": 512},
    },
    "rollout": {
        "small": {"b": 2, "n": 24, "layers": 3},
        "full": {"b": 64, "n": 576, "layers": 24},
    },
    "assigned_means": {
        "small": {"n": 60, "k": 10, "d": 16},
        "full": {"n": 1048576, "k": 1024, "d": 128},
    },
}
