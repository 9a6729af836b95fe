"""Layers of new models: sparse and linear attention, memories, heads, latent keys.

`tilewright tune experiments/corpus/frontier.py:NAME full ...`; what they take is in README.md.
"""

from __future__ import annotations

import math

from ir import (
    Graph,
    cast,
    contract,
    exp,
    indices,
    lengths,
    log,
    maximum,
    minimum,
    normal,
    operator,
    recur,
    reduce,
    rsqrt,
    sigmoid,
    tanh,
    uniform,
    where,
)


@operator
def nsa(
    g: Graph,
    b: int,
    kv: int,
    r: int,
    t: int,
    d: int,
    block: int = 64,
    chosen: int = 4,
    window: int = 512,
) -> None:
    """Sparse attention: chosen blocks of keys, and a window, each with its own softmax and gate."""
    B, G, H, I, D, E = g.axes(b=b, g=kv, h=r, i=t, d=d, e=d)  # noqa: E741
    q = g.input("Q", (B, I, G, H, D), "bf16")
    R, P, J = g.axes(r=chosen, p=block, j=t)
    pick = g.input("pick", (B, G, I, R), "i32", values=indices(t // block))
    k, v = (g.tensor(n, (b, t, kv, d), "bf16") for n in "KV")
    gate = g.input("gate", (B, I, G, H, g.axis("two", 2)), "f32")
    at = pick * block + g.iota(P)
    s = contract(q, k[B, at, G, D], over=D) * d**-0.5
    s = where(at <= g.iota(I), s, -1e30)
    p = exp(s - reduce("max", s, over=(R, P)))
    one = contract(cast(p, "bf16"), v[B, at, G, E], over=(R, P)) / reduce("sum", p, over=(R, P))
    u = contract(q, k[B, J, G, D], over=D) * d**-0.5
    u = where((g.iota(J) <= I) & (g.coordinate(I - J) < window), u, -math.inf)
    w = exp(u - reduce("max", u, over=J))
    two = contract(cast(w, "bf16"), v[B, J, G, E], over=J) / reduce("sum", w, over=J)
    ga = sigmoid(gate)
    g.output("O", ga.at(two=0) * one + ga.at(two=1) * two, "bf16", (B, I, G, H, E))


@operator
def multi_token(g: Graph, t: int, d: int, n: int, vocab: int, heads: int) -> None:
    """Heads that predict the next tokens: each normalises the trunk by a gain of its own."""
    T, K, N, V = g.axes(t=t, k=heads, n=d, v=n)
    x = cast(g.input("X", (T, N), "bf16"), "f32")
    gain = g.input("gain", (K, N), "f32", values=uniform(0.5, 1.5))
    y = cast(x * rsqrt(reduce("sum", x * x, over=N) / d + 1e-6) * gain, "bf16")
    w = g.input("W", (V, N), "bf16", values=normal(d**-0.5))
    z = contract(y, w, over=N)
    label = g.tensor("label", (t + heads,), "i32", values=indices(n))
    want = label[T + K + 1 - 1]
    m = reduce("max", z, over=V)
    lse = m + log(reduce("sum", exp(z - m), over=V))
    g.output("L", lse - reduce("sum", where(want == V, z, 0.0), over=V), "f32", (K, T))


@operator
def rwkv7_step(g: Graph, b: int, h: int, d: int) -> None:
    """One token: the state decays, forgets along a direction, and is told a pair."""
    B, H, K, V = g.axes(b=b, h=h, k=d, v=d)
    s = g.input("S", (B, H, V, K), "f32")
    w = exp(-exp(g.input("w", (B, H, K), "f16", values=uniform(-4, -1))))
    a, kk = g.input("a", (B, H, K), "f16", values=uniform(0, 1)), g.input("kk", (B, H, K), "f16")
    kn = kk * rsqrt(reduce("sum", kk * kk, over=K) + 1e-6)
    r, k, v = (g.input(n, (B, H, ax), "f16") for n, ax in (("r", K), ("k", K), ("v", V)))
    read = reduce("sum", s * kn, over=K)
    new = s * w - read * (kn * a) + v * k
    g.output("S2", new, "f32", (B, H, V, K))
    g.output("O", reduce("sum", new * r, over=K), "f16", (B, H, V))


@operator
def rwkv7(g: Graph, b: int, h: int, t: int, d: int) -> None:
    """The same over time, its key already normalised."""
    B, H, T, K, V = g.axes(b=b, h=h, t=t, k=d, v=d)
    w = exp(-exp(g.input("w", (B, T, H, K), "bf16", values=uniform(-5, -1))))
    a = g.input("a", (B, T, H, K), "bf16", values=uniform(0, 1))
    kk = g.input("kk", (B, T, H, K), "bf16", values=normal(d**-0.5))
    r, k = (
        g.input("r", (B, T, H, K), "bf16"),
        g.input("k", (B, T, H, K), "bf16", values=normal(d**-0.5)),
    )
    v = g.input("v", (B, T, H, V), "bf16")
    s = g.state(T, (B, H, K, V))
    new = w * s - kk * a * contract(s, kk, over=K) + k * v
    g.output("O", contract(new, r, over=K), "bf16", (B, T, H, V))
    g.output("last", recur(s, new), "f32", (B, H, K, V))


@operator
def titans(g: Graph, b: int, t: int, d: int) -> None:
    """A linear memory that learns as it reads, with momentum and forgetting."""
    B, T, K, V = g.axes(b=b, t=t, k=d, v=d)
    q, k = (g.input(n, (B, T, K), "f32", values=normal(d**-0.5)) for n in "QK")
    v = g.input("V", (B, T, V), "f32")
    theta, eta, alpha = (
        sigmoid(g.input(n, (B, T), "f32", values=uniform(lo, lo + 2)))
        for n, lo in (("theta", -3), ("eta", 0), ("alpha", -6))
    )
    m, s = g.state(T, (B, K, V)), g.state(T, (B, K, V))
    wrong = contract(m, k, over=K) - v
    surprise = eta * s - theta * k * wrong
    after = (1 - alpha) * m + surprise
    recur(s, surprise)
    g.output("O", contract(after, q, over=K), "f32", (B, T, V))
    g.output("M", recur(m, after), "f32", (B, K, V))


@operator
def delta_product(g: Graph, b: int, h: int, t: int, d: int) -> None:
    """A gated state with two Householder steps a token."""
    B, H, T, K, V = g.axes(b=b, h=h, t=t, k=d, v=d)
    q = g.input("q", (B, H, T, K), "bf16", values=normal(d**-0.5))
    decay = exp(g.input("gate", (B, H, T), "f32", values=uniform(-0.2, 0)))
    s = g.state(T, (B, H, K, V))
    new = s * decay
    for n in "12":
        k = g.input("k" + n, (B, H, T, K), "bf16", values=normal(d**-0.5))
        v = g.input("v" + n, (B, H, T, V), "bf16")
        beta = 2 * sigmoid(g.input("b" + n, (B, H, T), "f32"))
        new = new + k * (beta * (v - contract(new, k, over=K)))
    recur(s, new)
    g.output("O", contract(new, q, over=K), "bf16", (B, H, T, V))


@operator
def elu_attention(g: Graph, b: int, h: int, t: int, d: int) -> None:
    """Causal linear attention with elu + 1 as feature map, and its normaliser as running sums."""
    B, T, H, K, V = g.axes(b=b, t=t, h=h, k=d, v=d)

    def phi(x):
        return where(x > 0, x + 1, exp(x))

    q = phi(cast(g.input("Q", (B, T, H, K), "f16"), "f32"))
    k = phi(cast(g.input("K", (B, T, H, K), "f16"), "f32"))
    v = g.input("V", (B, T, H, V), "f16")
    s, z = g.state(T, (B, H, K, V)), g.state(T, (B, H, K))
    s2, z2 = s + k * v, z + k
    recur(s, s2)
    recur(z, z2)
    o = contract(s2, q, over=K) / (reduce("sum", z2 * q, over=K) + 1e-6)
    g.output("O", o, "f16", (B, T, H, V))


@operator
def joined_rope(g: Graph, b: int, h: int, t: int, dn: int, dr: int) -> None:
    """Latent attention as a model file writes it: parts with and without places, concatenated."""
    B, H, I, J, E, F = g.axes(b=b, h=h, i=t, j=t, e=dn + dr, f=dn)  # noqa: E741
    qn, qr = g.tensor("Qn", (b, t, h, dn), "bf16"), g.tensor("Qr", (b, t, h, dr), "bf16")
    kn, kr = g.tensor("Kn", (b, t, h, dn), "bf16"), g.tensor("Kr", (b, t, dr), "bf16")
    e = g.coordinate(E)
    low, high = minimum(e, dn - 1), maximum(e - dn, 0)
    q = where(e < dn, qn[B, I, H, low], qr[B, I, H, high])
    k = where(e < dn, kn[B, J, H, low], kr[B, J, high])
    s = contract(q, k, over=E) * (dn + dr) ** -0.5
    s = where(g.iota(J) <= I, s, -math.inf)
    p = exp(s - reduce("max", s, over=J))
    v = g.input("V", (B, J, H, F), "bf16")
    g.output(
        "O", contract(cast(p, "bf16"), v, over=J) / reduce("sum", p, over=J), "bf16", (B, I, H, F)
    )


@operator
def everything(g: Graph, b: int, h: int, kv: int, t: int, d: int, window: int) -> None:
    """A window, sinks, a soft cap and ALiBi in one attention."""
    B, G, R, I, J, D, E = g.axes(b=b, g=kv, r=h // kv, i=t, j=t, d=d, e=d)  # noqa: E741
    q = g.input("Q", (B, G, R, I, D), "f16")
    k, v = g.input("K", (B, G, J, D), "f16"), g.input("V", (B, G, J, E), "f16")
    head = g.coordinate(G) * (h // kv) + g.iota(R)
    slope = exp(-(cast(head, "f32") + 1) * (8 * math.log(2) / h))
    s = 30.0 * tanh(contract(q, k, over=D) * (d**-0.5 / 30.0)) - slope * cast(
        g.coordinate(I - J), "f32"
    )
    s = where((g.iota(J) <= I) & (g.coordinate(I - J) < window), s, -math.inf)
    sink = g.input("sink", (G, R), "f32")
    m = maximum(reduce("max", s, over=J), sink)
    p = exp(s - m)
    g.output(
        "O",
        contract(cast(p, "f16"), v, over=J) / (reduce("sum", p, over=J) + exp(sink - m)),
        "f16",
        (B, G, R, I, E),
    )


@operator
def fp8_heads(g: Graph, b: int, kv: int, r: int, n: int, d: int) -> None:
    """A decoding step over an e4m3 cache with a scale for each head, and lengths of sequences."""
    B, G, R, J, D, E = g.axes(b=b, g=kv, r=r, j=n, d=d, e=d)
    q = g.input("Q", (B, G, R, D), "bf16")
    k, v = g.input("K", (B, J, G, D), "e4m3"), g.input("V", (B, J, G, E), "e4m3")
    ks, vs = (g.input(s, (G,), "f32", values=uniform(0.5, 2)) for s in ("ks", "vs"))
    length = g.input("length", (B,), "i32", values=lengths(n, 1))
    s = contract(q, cast(k, "bf16"), over=D) * (ks * d**-0.5)
    s = where(g.iota(J) < length, s, -math.inf)
    m = reduce("max", s, over=J)
    p = exp(s - m)
    total = reduce("sum", p, over=J)
    o = contract(cast(p, "bf16"), cast(v, "bf16"), over=J) * vs
    g.output("O", o / total, "bf16", (B, G, R, E))
    g.output("lse", m + log(total), "f32", (B, G, R))


@operator
def three_bit_planes(g: Graph, m: int, n: int, k: int, group: int = 64) -> None:
    """Weights of three bits: a plane of two, a plane of one, with scales and zeros of groups."""
    M, N, Gq, P = g.axes(m=m, n=n, g=k // group, p=group)
    x = g.tensor("X", (m, k), "f16")[M, Gq * group + P]
    two, one = g.tensor("two", (n, k // 4), "u8"), g.tensor("one", (n, k // 8), "u8")
    at = g.coordinate(Gq * group + P)
    a = (two[N, at // 4] >> (2 * (at % 4))) & 3
    c = (one[N, at // 8] >> (at % 8)) & 1
    s = g.input("scale", (N, Gq), "f16", values=uniform(0.01, 0.02))
    z = g.input("zero", (N, Gq), "f16", values=uniform(2, 5))
    w = cast((cast(a + 4 * c, "f32") - z) * s, "f16")
    g.output("Y", contract(x, w, over=(Gq, P)), "f16", (M, N))


EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "nsa": {
        "small": {
            "b": 1,
            "kv": 1,
            "r": 4,
            "t": 64,
            "d": 16,
            "block": 16,
            "chosen": 2,
            "window": 20,
        },
        "full": {
            "b": 2,
            "kv": 4,
            "r": 16,
            "t": 16384,
            "d": 128,
            "block": 64,
            "chosen": 16,
            "window": 512,
        },
    },
    "multi_token": {
        "small": {"t": 13, "d": 32, "n": 40, "vocab": 0, "heads": 3},
        "full": {"t": 16384, "d": 7168, "n": 129280, "vocab": 0, "heads": 2},
    },
    "rwkv7_step": {"small": {"b": 2, "h": 3, "d": 16}, "full": {"b": 1021, "h": 64, "d": 64}},
    "rwkv7": {
        "small": {"b": 1, "h": 2, "t": 37, "d": 16},
        "full": {"b": 8, "h": 64, "t": 4096, "d": 64},
    },
    "titans": {"small": {"b": 2, "t": 24, "d": 16}, "full": {"b": 256, "t": 2048, "d": 64}},
    "delta_product": {
        "small": {"b": 1, "h": 2, "t": 40, "d": 16},
        "full": {"b": 8, "h": 16, "t": 4096, "d": 128},
    },
    "elu_attention": {
        "small": {"b": 2, "h": 2, "t": 45, "d": 16},
        "full": {"b": 16, "h": 16, "t": 8192, "d": 64},
    },
    "joined_rope": {
        "small": {"b": 1, "h": 2, "t": 40, "dn": 32, "dr": 16},
        "full": {"b": 4, "h": 128, "t": 4096, "dn": 128, "dr": 64},
    },
    "everything": {
        "small": {"b": 1, "h": 4, "kv": 2, "t": 50, "d": 32, "window": 17},
        "full": {"b": 8, "h": 64, "kv": 8, "t": 16384, "d": 64, "window": 1024},
    },
    "fp8_heads": {
        "small": {"b": 3, "kv": 2, "r": 5, "n": 70, "d": 32},
        "full": {"b": 61, "kv": 8, "r": 7, "n": 32771, "d": 128},
    },
    "three_bit_planes": {
        "small": {"m": 5, "n": 24, "k": 128},
        "full": {"m": 61, "n": 28672, "k": 8192},
    },
}
