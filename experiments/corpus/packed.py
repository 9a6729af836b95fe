"""Layers of new models, packed: weights of odd codes, adapters, ragged and merged tokens.

`tilewright tune experiments/corpus/packed.py:NAME full ...`; what they take is in README.md.
"""

from __future__ import annotations

import math

from ir import (
    Graph,
    argmax,
    cast,
    contract,
    exp,
    indices,
    maximum,
    minimum,
    normal,
    offsets,
    operator,
    recur,
    reduce,
    relu,
    rsqrt,
    scatter,
    sigmoid,
    top,
    uniform,
    where,
)


@operator
def two_of_four(g: Graph, m: int, n: int, k: int) -> None:
    """Weights of which two in four are kept, with their places in two bits."""
    M, N, Q, P, S = g.axes(m=m, n=n, q=k // 4, p=4, s=2)
    x = g.tensor("X", (m, k), "bf16")[M, 4 * Q + P]
    v = g.input("V", (N, Q, S), "bf16")
    meta = g.input("meta", (N, Q), "u8", values=uniform(0, 15))
    at = (meta >> (2 * g.iota(S))) & 3
    w = reduce("sum", where(at == P, cast(v, "f32"), 0.0), over=S)
    g.output("Y", contract(x, cast(w, "bf16"), over=(Q, P)), "bf16", (M, N))


@operator
def two_of_four_read(g: Graph, m: int, n: int, k: int) -> None:
    """The same, reading the operand where the kept weights are."""
    M, N, Q, S = g.axes(m=m, n=n, q=k // 4, s=2)
    x = g.tensor("X", (m, k), "bf16")
    v = g.input("V", (N, Q, S), "bf16")
    meta = g.input("meta", (N, Q), "u8", values=uniform(0, 15))
    at = 4 * g.coordinate(Q) + ((meta >> (2 * g.iota(S))) & 3)
    g.output(
        "Y", reduce("sum", cast(x[M, at], "f32") * cast(v, "f32"), over=(Q, S)), "bf16", (M, N)
    )


@operator
def oss_expert(g: Graph, blocks: int, rows: int, e: int, n: int, k: int) -> None:
    """An expert's first layer: FP4 weights by blocks of 32, interleaved gates, clamps."""
    T, R, N, K, P = g.axes(t=blocks, r=rows, n=n, k=k // 32, p=32)
    x = g.tensor("X", (blocks, rows, k), "bf16")[T, R, 32 * K + P]
    expert = g.input("expert", (T,), "i32", values=indices(e))
    w = g.tensor("W", (e, 2 * n, k // 32, 32), "e2m1")
    s = g.tensor("S", (e, 2 * n, k // 32), "e8m0")
    bias = g.tensor("bias", (e, 2 * n), "bf16")

    def half(o):
        ww = cast(
            cast(w[expert, 2 * N + o, K, P], "f32") * cast(s[expert, 2 * N + o, K], "f32"), "bf16"
        )
        return contract(x, ww, over=(K, P)) + cast(bias[expert, 2 * N + o], "f32")

    gate, up = minimum(half(0), 7.0), maximum(minimum(half(1), 7.0), -7.0)
    g.output("Y", (up + 1) * gate * sigmoid(1.702 * gate), "bf16", (T, R, N))


@operator
def manifold_streams(g: Graph, t: int, s: int, d: int, steps: int = 8) -> None:
    """Hyper-connections whose mixing matrix is made doubly stochastic."""
    T, S, R, D, U = g.axes(t=t, s=s, r=s, d=d, u=steps)
    x = g.input("X", (T, S, D), "bf16")
    w = g.input("W", (S, R, D), "bf16", values=normal(d**-0.5))
    z = reduce("sum", cast(x, "f32") * cast(w, "f32"), over=D)
    m = g.state(U, (T, S, R), exp(z))
    n = m / reduce("sum", m, over=R)
    n = n / reduce("sum", n, over=S)
    mix = recur(m, n)
    g.output("Y", reduce("sum", mix * cast(x, "f32"), over=S), "bf16", (T, R, D))


@operator
def qk_norm(g: Graph, b: int, h: int, kv: int, t: int, d: int) -> None:
    """Queries and keys are normalised and turned by their places inside the attention."""
    B, G, R, I, J, D, E = g.axes(b=b, g=kv, r=h // kv, i=t, j=t, d=d, e=d)  # noqa: E741
    q = g.tensor("Q", (b, t, h, d), "bf16")
    k = g.tensor("K", (b, t, kv, d), "bf16")
    c, s = g.tensor("cos", (t, d // 2), "f32"), g.tensor("sin", (t, d // 2), "f32")
    gain = g.tensor("gain", (d,), "f32", values=uniform(0.5, 1.5))
    half = d // 2
    e = g.coordinate(D)

    def made(x, row, *at):
        wide = cast(x[(*at, D)], "f32")
        other = cast(x[(*at, (D + half) % d if False else g.coordinate(D + half) % d)], "f32")
        inv = rsqrt(reduce("sum", wide * wide, over=D) / d + 1e-6)
        a, o = wide * inv * gain[D], other * inv * gain[(e + half) % d]
        return cast(a * c[row, e % half] + where(e < half, -o, o) * s[row, e % half], "bf16")

    z = contract(made(q, I, B, I, G * (h // kv) + R), made(k, J, B, J, G), over=D) * d**-0.5
    z = where(g.iota(J) <= I, z, -math.inf)
    p = exp(z - reduce("max", z, over=J))
    v = g.input("V", (B, J, G, E), "bf16")
    g.output(
        "O",
        contract(cast(p, "bf16"), v, over=J) / reduce("sum", p, over=J),
        "bf16",
        (B, I, G, R, E),
    )


@operator
def ragged_cross(g: Graph, b: int, h: int, sq: int, total: int, longest: int, d: int) -> None:
    """Queries of each sample meet the packed keys of its own, of lengths by offsets."""
    B, H, I, J, D, E = g.axes(b=b, h=h, i=sq, j=longest, d=d, e=d)  # noqa: E741
    start = g.input("start", (g.axis("s", b + 1),), "i32", values=offsets(total))
    q = g.input("Q", (B, H, I, D), "f16")
    k, v = (g.tensor(n, (total, h, d), "f16") for n in "KV")
    first, end = start.at(s=B), start.at(s=B + 1)
    at = first + g.iota(J)
    safe = minimum(at, total - 1)
    s = where(at < end, contract(q, k[safe, H, D], over=D) * d**-0.5, -math.inf)
    m = maximum(reduce("max", s, over=J), -1e30)
    p = exp(s - m)
    o = contract(cast(p, "f16"), v[safe, H, E], over=J)
    g.output("O", o / maximum(reduce("sum", p, over=J), 1e-30), "f16", (B, H, I, E))


@operator
def batched_lora(g: Graph, b: int, t: int, n: int, k: int, r: int, a: int) -> None:
    """Each sequence has an adapter of its own."""
    B, T, N, K, R = g.axes(b=b, t=t, n=n, k=k, r=r)
    x = g.input("X", (B, T, K), "bf16")
    w = g.input("W", (N, K), "bf16", values=normal(k**-0.5))
    which = g.input("which", (B,), "i32", values=indices(a))
    scale = g.tensor("scale", (a,), "f32")
    down, up = (
        g.tensor("A", (a, r, k), "bf16", values=normal(k**-0.5)),
        g.tensor("B", (a, n, r), "bf16"),
    )
    low = contract(x, down[which, R, K], over=K) * scale[which]
    y = contract(x, w, over=K) + contract(cast(low, "bf16"), up[which, N, R], over=R)
    g.output("Y", y, "bf16", (B, T, N))


@operator
def merged_tokens(g: Graph, b: int, n: int, d: int, r: int) -> None:
    """Even tokens most like an odd one are averaged into it."""
    B, I, J, D, R = g.axes(b=b, i=n // 2, j=n // 2, d=d, r=r)  # noqa: E741
    x = g.tensor("X", (b, n, d), "f16")
    even, odd = cast(x[B, 2 * I, D], "f32"), cast(x[B, 2 * J + 1, D], "f32")
    ne = even * rsqrt(reduce("sum", even * even, over=D) + 1e-6)
    no = odd * rsqrt(reduce("sum", odd * odd, over=D) + 1e-6)
    s = contract(cast(ne, "f16"), cast(no, "f16"), over=D)
    best, place = reduce("max", s, over=J), argmax(s, J)
    _, token = top(best, I, R)
    goal = place.at(i=token)
    add = scatter("sum", even.at(i=token), {B: g.iota(B), J: goal, D: g.iota(D)})
    count = scatter("sum", g.constant(1.0, "f32") + 0 * cast(goal, "f32"), {B: g.iota(B), J: goal})
    g.output("Y", (odd + add) / (1 + count), "f16", (B, J, D))
    g.output("gone", token, "i32", (B, R))


@operator
def indexed_latent(
    g: Graph, b: int, h: int, n: int, d: int, dr: int, hi: int, di: int, keep: int
) -> None:
    """A small indexer chooses keys of a latent cache, and attention reads these alone."""
    B, H, J, L, D, C = g.axes(b=b, h=h, j=n, l=hi, d=di, c=keep)
    qi, ki = g.input("Qi", (B, L, D), "e4m3"), g.input("Ki", (B, J, D), "e4m3")
    w = g.input("w", (B, L), "f32")
    score = reduce("sum", relu(contract(qi, ki, over=D)) * w, over=L)
    _, at = top(score, J, C)
    E, F = g.axes(e=d + dr, f=d)
    cache = g.tensor("cache", (b, n, d + dr), "bf16")
    s = contract(g.input("Q", (B, H, E), "bf16"), cache[B, at, E], over=E) * (d + dr) ** -0.5
    p = exp(s - reduce("max", s, over=C))
    o = contract(cast(p, "bf16"), cache[B, at, F], over=C) / reduce("sum", p, over=C)
    g.output("O", o, "bf16", (B, H, F))


@operator
def canon(g: Graph, b: int, t: int, d: int, taps: int = 4) -> None:
    """A causal filter along time of each channel, added to what it filters, with documents."""
    B, T, D, W = g.axes(b=b, t=t, d=d, w=taps)
    x, doc = g.tensor("X", (b, t, d), "bf16", fill=0), g.tensor("doc", (b, t), "i32", fill=-1)
    w = g.input("W", (D, W), "f32")
    own = doc[B, T]
    near = where(doc[B, T - W] == own, cast(x[B, T - W, D], "f32"), 0.0)
    g.output("Y", cast(x[B, T, D], "f32") + reduce("sum", near * w, over=W), "bf16", (B, T, D))


@operator
def kivi(g: Graph, b: int, kv: int, r: int, n: int, d: int, group: int = 32) -> None:
    """Keys of two bits by channels, values of two bits by tokens, four to a byte."""
    B, G, R, A, P, D, E = g.axes(b=b, g=kv, r=r, a=n // group, p=group, d=d, e=d)
    q = g.input("Q", (B, G, R, D), "f16")
    k, v = g.tensor("K", (b, kv, n, d // 4), "u8"), g.tensor("V", (b, kv, n, d // 4), "u8")
    at = A * group + P

    def code(x, c):
        c = g.coordinate(c)
        return cast((x[B, G, at, c // 4] >> (2 * (c % 4))) & 3, "f32")

    ks, kz = (g.input(s, (B, G, A, D), "f16", values=uniform(0.1, 0.3)) for s in ("ks", "kz"))
    vs, vz = (g.input(s, (B, G, A, P), "f16", values=uniform(0.1, 0.3)) for s in ("vs", "vz"))
    s = contract(q, cast(code(k, D) * ks - kz, "f16"), over=D) * d**-0.5
    p = exp(s - reduce("max", s, over=(A, P)))
    o = contract(cast(p, "f16"), cast(code(v, E) * vs - vz, "f16"), over=(A, P))
    g.output("O", o / reduce("sum", p, over=(A, P)), "f16", (B, G, R, E))


EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "two_of_four": {
        "small": {"m": 7, "n": 24, "k": 64},
        "full": {"m": 509, "n": 16384, "k": 16384},
    },
    "two_of_four_read": {
        "small": {"m": 7, "n": 24, "k": 64},
        "full": {"m": 509, "n": 16384, "k": 16384},
    },
    "oss_expert": {
        "small": {"blocks": 3, "rows": 16, "e": 4, "n": 24, "k": 64},
        "full": {"blocks": 128, "rows": 64, "e": 128, "n": 2880, "k": 2880},
    },
    "manifold_streams": {
        "small": {"t": 11, "s": 4, "d": 32},
        "full": {"t": 65521, "s": 4, "d": 4096},
    },
    "qk_norm": {
        "small": {"b": 1, "h": 4, "kv": 2, "t": 40, "d": 32},
        "full": {"b": 8, "h": 32, "kv": 8, "t": 8192, "d": 128},
    },
    "ragged_cross": {
        "small": {"b": 3, "h": 2, "sq": 7, "total": 60, "longest": 40, "d": 32},
        "full": {"b": 64, "h": 16, "sq": 1009, "total": 262147, "longest": 8191, "d": 64},
    },
    "batched_lora": {
        "small": {"b": 3, "t": 17, "n": 32, "k": 48, "r": 16, "a": 5},
        "full": {"b": 64, "t": 1021, "n": 8192, "k": 8192, "r": 16, "a": 97},
    },
    "merged_tokens": {
        "small": {"b": 2, "n": 48, "d": 32, "r": 5},
        "full": {"b": 128, "n": 8192, "d": 512, "r": 1024},
    },
    "indexed_latent": {
        "small": {"b": 2, "h": 16, "n": 96, "d": 32, "dr": 16, "hi": 4, "di": 32, "keep": 16},
        "full": {
            "b": 32,
            "h": 128,
            "n": 65536,
            "d": 512,
            "dr": 64,
            "hi": 64,
            "di": 128,
            "keep": 2048,
        },
    },
    "canon": {"small": {"b": 2, "t": 29, "d": 24}, "full": {"b": 16, "t": 16381, "d": 4096}},
    "kivi": {
        "small": {"b": 2, "kv": 2, "r": 4, "n": 64, "d": 32},
        "full": {"b": 64, "kv": 8, "r": 8, "n": 65536, "d": 128},
    },
}
