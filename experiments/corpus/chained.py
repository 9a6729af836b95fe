"""Chains of products that no other file foresees: two softmaxes, kernels in their place, mixed
types, gates, deeper nets.

`tilewright tune experiments/corpus/chained.py:NAME full ...`; what they take is in README.md.
"""

from __future__ import annotations

import math

from ir import (
    Graph,
    cast,
    contract,
    cos,
    exp,
    maximum,
    operator,
    reduce,
    rsqrt,
    sigmoid,
    where,
)
from ir.values import normal


@operator
def differential(g: Graph, b: int, h: int, s: int, d: int) -> None:
    """Differential attention: one softmax less another one, of the same values."""
    B, H, I, J, D, E = g.axes(b=b, h=h, i=s, j=s, d=d, e=2 * d)  # noqa: E741
    q1, q2 = (g.input(name, (B, H, I, D), "bf16") for name in ("Qa", "Qb"))
    k1, k2 = (g.input(name, (B, H, J, D), "bf16") for name in ("Ka", "Kb"))
    v = g.input("V", (B, H, J, E), "bf16")
    lam = g.input("lam", (H,), "f32")

    def mixed(q, k):
        s = where(g.iota(J) <= g.iota(I), contract(q, k, over=D) * d**-0.5, -math.inf)
        p = exp(s - reduce("max", s, over=J))
        return contract(cast(p, "bf16"), v, over=J) / reduce("sum", p, over=J)

    g.output("O", mixed(q1, k1) - lam * mixed(q2, k2), "bf16", (B, H, I, E))


@operator
def sigmoid_attention(g: Graph, b: int, h: int, s: int, d: int) -> None:
    """Scores through a sigmoid with a bias of pairs: no row has a sum of its own."""
    B, H, I, J, D, E = g.axes(b=b, h=h, i=s, j=s, d=d, e=d)  # noqa: E741
    q, k, v = (g.input(n, (B, H, *a), "bf16") for n, a in
               (("Q", (I, D)), ("K", (J, D)), ("V", (J, E))))  # fmt: skip
    bias = g.input("bias", (H, I, J), "f32")
    p = sigmoid(contract(q, k, over=D) * d**-0.5 + bias - math.log(s))
    g.output("O", contract(cast(p, "bf16"), v, over=J), "bf16", (B, H, I, E))


@operator
def polynomial(g: Graph, b: int, h: int, s: int, d: int) -> None:
    """Squares of scores in the place of exponentials, causal, over the sum of their row."""
    B, H, I, J, D, E = g.axes(b=b, h=h, i=s, j=s, d=d, e=d)  # noqa: E741
    q, k, v = (g.input(n, (B, H, *a), "bf16") for n, a in
               (("Q", (I, D)), ("K", (J, D)), ("V", (J, E))))  # fmt: skip
    s2 = contract(q, k, over=D) * d**-0.5
    p = where(g.iota(J) <= g.iota(I), s2 * s2, 0.0)
    total = reduce("sum", p, over=J) + 1e-3
    g.output("O", contract(cast(p, "bf16"), v, over=J) / total, "bf16", (B, H, I, E))


@operator
def narrow_keys(g: Graph, b: int, h: int, s: int, d: int) -> None:
    """Scores of bytes with a scale for each query and each key; values in bf16."""
    B, H, I, J, D, E = g.axes(b=b, h=h, i=s, j=s, d=d, e=d)  # noqa: E741
    q, k = g.input("Q", (B, H, I, D), "i8"), g.input("K", (B, H, J, D), "i8")
    qs, ks = g.input("qs", (B, H, I), "f32"), g.input("ks", (B, H, J), "f32")
    v = g.input("V", (B, H, J, E), "bf16")
    score = cast(contract(q, k, over=D), "f32") * (qs * ks) * (1e-4 * d**-0.5)
    p = exp(score - reduce("max", score, over=J))
    o = contract(cast(p, "bf16"), v, over=J) / reduce("sum", p, over=J)
    g.output("O", o, "bf16", (B, H, I, E))


@operator
def gated_net(g: Graph, m: int, d: int, hidden: int) -> None:
    """(silu(X W) * X V) U + X, with a hidden layer that a block holds."""
    M, K, H, N = g.axes(m=m, k=d, h=hidden, n=d)
    x, w, u = (
        g.tensor("X", (m, d), "bf16"),
        g.input("W", (H, K), "bf16"),
        g.input("V", (H, K), "bf16"),
    )
    down = g.input("U", (N, H), "bf16")
    gate, up = contract(x[M, K], w, over=K), contract(x[M, K], u, over=K)
    hidden_layer = cast(gate * sigmoid(gate) * up, "bf16")
    g.output("Y", contract(hidden_layer, down, over=H) + x[M, N], "bf16", (M, N))


@operator
def fields(g: Graph, m: int, f: int, o: int) -> None:
    """A network of Fourier features: cos(X W) U, then a second layer."""
    M, K, F, N = g.axes(m=m, k=16, f=f, n=o)
    x, w = g.input("X", (M, K), "bf16"), g.input("W", (F, K), "bf16")
    u = g.input("U", (N, F), "bf16")
    g.output("Y", maximum(contract(cast(cos(contract(x, w, over=K)), "bf16"), u, over=F), 0.0),
             "bf16", (M, N))  # fmt: skip


@operator
def slots(g: Graph, b: int, n: int, k: int, d: int) -> None:
    """Slot attention: weights are a softmax over slots, then a mean over the points."""
    B, S, N, D, E = g.axes(b=b, s=k, n=n, d=d, e=d)
    q, x = g.input("Q", (B, S, D), "bf16"), g.tensor("X", (b, n, d), "bf16")
    score = contract(q, x[B, N, D], over=D) * d**-0.5
    p = exp(score - reduce("max", score, over=S))
    w = p / reduce("sum", p, over=S) + 1e-6
    total = reduce("sum", w, over=N)
    g.output("U", contract(cast(w, "bf16"), x[B, N, E], over=N) / total, "bf16", (B, S, E))


@operator
def cosine_attention(g: Graph, b: int, h: int, s: int, d: int) -> None:
    """Queries and keys over their lengths, a temperature for each head."""
    B, H, I, J, D, E = g.axes(b=b, h=h, i=s, j=s, d=d, e=d)  # noqa: E741
    q, k = g.input("Q", (B, H, I, D), "bf16"), g.input("K", (B, H, J, D), "bf16")
    v, t = g.input("V", (B, H, J, E), "bf16"), g.input("t", (H,), "f32", values=normal(scale=0.5))
    a = rsqrt(reduce("sum", cast(q, "f32") * cast(q, "f32"), over=D) + 1e-6)
    c = rsqrt(reduce("sum", cast(k, "f32") * cast(k, "f32"), over=D) + 1e-6)
    score = contract(q, k, over=D) * (a * c) * exp(t)
    p = exp(score - reduce("max", score, over=J))
    o = contract(cast(p, "bf16"), v, over=J) / reduce("sum", p, over=J)
    g.output("O", o, "bf16", (B, H, I, E))


EXTENTS = {
    "differential": {"small": {"b": 1, "h": 2, "s": 100, "d": 32},
                     "full": {"b": 2, "h": 16, "s": 4096, "d": 64}},
    "sigmoid_attention": {"small": {"b": 1, "h": 2, "s": 77, "d": 48},
                          "full": {"b": 2, "h": 16, "s": 4096, "d": 128}},
    "polynomial": {"small": {"b": 1, "h": 2, "s": 133, "d": 40},
                   "full": {"b": 4, "h": 16, "s": 4096, "d": 64}},
    "narrow_keys": {"small": {"b": 1, "h": 2, "s": 90, "d": 64},
                    "full": {"b": 4, "h": 16, "s": 4096, "d": 128}},
    "gated_net": {"small": {"m": 90, "d": 96, "hidden": 64},
                  "full": {"m": 65536, "d": 256, "hidden": 128}},
    "fields": {"small": {"m": 100, "f": 48, "o": 24},
               "full": {"m": 262144, "f": 256, "o": 128}},
    "slots": {"small": {"b": 2, "n": 200, "k": 7, "d": 32},
              "full": {"b": 256, "n": 4096, "k": 11, "d": 64}},
    "cosine_attention": {"small": {"b": 1, "h": 2, "s": 60, "d": 32},
                         "full": {"b": 4, "h": 16, "s": 4096, "d": 64}},
}  # fmt: skip
