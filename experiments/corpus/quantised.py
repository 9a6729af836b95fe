"""Programs whose products read what is made point by point: caches and weights of 8 bits, casts.

`tilewright tune experiments/corpus/quantised.py:NAME ... --target cuda --seconds 11`; the figures
stand in the folder's README.
"""

from __future__ import annotations

import math

from ir import Graph, cast, contract, exp, gelu, operator, reduce, silu, where
from ir.values import uniform

SCALES = uniform(0.001, 0.01)


@operator
def kv8_decode(g: Graph, b: int, h: int, kv: int, n: int, d: int) -> None:
    """Decoding over keys and values of i8 with a scale for each: O = softmax(q (ks k)) (vs v)."""
    B, K, R, J, D, E = g.axes(b=b, k=kv, r=h // kv, j=n, d=d, e=d)
    q = g.input("Q", (B, K, R, D), "bf16")
    k, v = g.input("Kc", (B, K, J, D), "i8"), g.input("Vc", (B, K, J, E), "i8")
    ks, vs = (g.input(name, (B, K, J), "f32", values=SCALES) for name in ("ks", "vs"))
    s = contract(q, cast(k, "bf16"), over=D) * ks * d**-0.5
    p = exp(s - reduce("max", s, over=J))
    o = contract(cast(p * vs, "bf16"), cast(v, "bf16"), over=J) / reduce("sum", p, over=J)
    g.output("O", o, "bf16", (B, K, R, E))


@operator
def fp8_cache(g: Graph, b: int, h: int, s: int, d: int) -> None:
    """Causal attention of bf16 queries over keys and values of e4m3, a scale for each head."""
    B, H, M, J, D, E = g.axes(b=b, h=h, i=s, j=s, d=d, e=d)
    q = g.input("Q", (B, H, M, D), "bf16")
    k, v = g.input("K", (B, H, J, D), "e4m3"), g.input("V", (B, H, J, E), "e4m3")
    ks, vs = (g.input(name, (H,), "f32", values=uniform(0.5, 1)) for name in ("ks", "vs"))
    x = contract(q, cast(k, "bf16"), over=D) * ks * d**-0.5
    x = where(g.iota(J) <= g.iota(M), x, -math.inf)
    p = exp(x - reduce("max", x, over=J))
    o = contract(cast(p, "bf16"), cast(v, "bf16"), over=J) / reduce("sum", p, over=J) * vs
    g.output("O", o, "bf16", (B, H, M, E))


@operator
def channel_cache(g: Graph, b: int, h: int, kv: int, n: int, d: int) -> None:
    """Decoding over keys of i8 with a scale for each channel, as KIVI has them; values of f16."""
    B, K, R, J, D, E = g.axes(b=b, k=kv, r=h // kv, j=n, d=d, e=d)
    q = g.input("Q", (B, K, R, D), "f16")
    k, v = g.input("Kc", (B, K, J, D), "i8"), g.input("V", (B, K, J, E), "f16")
    ks = g.input("ks", (B, K, D), "f32", values=SCALES)
    s = contract(q, cast(cast(k, "f32") * ks, "f16"), over=D) * d**-0.5
    p = exp(s - reduce("max", s, over=J))
    o = contract(cast(p, "f16"), v, over=J) / reduce("sum", p, over=J)
    g.output("O", o, "f16", (B, K, R, E))


@operator
def mlp8(g: Graph, m: int, n: int, k: int, hidden: int) -> None:
    """Two layers with weights of i8 and a scale for each row: gelu(X W1) W2, hidden units few."""
    M, N, K, H = g.axes(m=m, n=n, k=k, h=hidden)
    x = g.input("X", (M, K), "bf16")
    w1, w2 = g.input("W1", (K, H), "i8"), g.input("W2", (H, N), "i8")
    s1, s2 = g.input("s1", (H,), "f32", values=SCALES), g.input("s2", (N,), "f32", values=SCALES)
    y = cast(gelu(contract(x, cast(w1, "bf16"), over=K) * s1), "bf16")
    g.output("Y", contract(y, cast(w2, "bf16"), over=H) * s2, "bf16")


@operator
def both_made(g: Graph, m: int, n: int, k: int) -> None:
    """A product of silu(A) of f16 with a matrix of i8: both operands are made on their way."""
    M, N, K = g.axes(m=m, n=n, k=k)
    a, b = g.input("A", (M, K), "f16"), g.input("B", (K, N), "i8")
    s = g.input("s", (N,), "f32", values=SCALES)
    g.output("C", contract(cast(silu(a), "bf16"), cast(b, "bf16"), over=K) * s, "bf16")


@operator
def from_f32(g: Graph, b: int, h: int, s: int, d: int) -> None:
    """Attention whose keys and values are stored in f32 and rounded to bf16 where they are read."""
    B, H, M, J, D, E = g.axes(b=b, h=h, i=s, j=s, d=d, e=d)
    q = g.input("Q", (B, H, M, D), "bf16")
    k, v = g.input("K", (B, H, J, D), "f32"), g.input("V", (B, H, J, E), "f32")
    x = contract(q, cast(k, "bf16"), over=D) * d**-0.5
    p = exp(x - reduce("max", x, over=J))
    o = contract(cast(p, "bf16"), cast(v, "bf16"), over=J) / reduce("sum", p, over=J)
    g.output("O", o, "bf16", (B, H, M, E))


@operator
def tensor_scaled(g: Graph, t: int, s: int, h: int, d: int) -> None:
    """Sums over heads of the positive of scores; keys of e4m3 are read as bf16 with a scale."""
    T, S, H, D = g.axes(t=t, s=s, h=h, d=d)
    q, k = g.input("Q", (T, H, D), "bf16"), g.input("K", (S, D), "e4m3")
    ks = g.input("ks", (S,), "f32", values=uniform(0.5, 1))
    w = g.input("w", (T, H), "f32")
    z = contract(q, cast(cast(k, "f32") * ks, "bf16"), over=D)
    g.output("I", reduce("sum", where(z > 0.0, z, 0.0) * w, over=H), "f32", (T, S))


@operator
def group_keys(g: Graph, b: int, kv: int, n: int, d: int) -> None:
    """Decoding over keys of i8 with a scale for every 32 channels, and values of bf16."""
    B, K, R, J, G, D, E = g.axes(b=b, k=kv, r=8, j=n, g=d // 32, d=32, e=d)
    q = g.input("Q", (B, K, R, G, D), "bf16")
    k, v = g.input("Kc", (B, K, J, G, D), "i8"), g.input("Vc", (B, K, J, E), "bf16")
    ks = g.input("ks", (B, K, J, G), "f32", values=SCALES)
    s = contract(q, cast(cast(k, "f32") * ks, "bf16"), over=(G, D)) * d**-0.5
    p = exp(s - reduce("max", s, over=J))
    o = contract(cast(p, "bf16"), v, over=J) / reduce("sum", p, over=J)
    g.output("O", o, "bf16", (B, K, R, E))


@operator
def window_e5m2(g: Graph, b: int, kv: int, n: int, d: int, window: int) -> None:
    """Decoding over the last keys and values of a cache of e5m2, eight queries to a head."""
    B, K, R, J, D, E = g.axes(b=b, k=kv, r=8, j=n, d=d, e=d)
    q = g.input("Q", (B, K, R, D), "bf16")
    k, v = g.input("Kc", (B, K, J, D), "e5m2"), g.input("Vc", (B, K, J, E), "e5m2")
    s = contract(q, cast(k, "bf16"), over=D) * d**-0.5
    s = where(g.iota(J) >= n - window, s, -math.inf)
    p = exp(s - reduce("max", s, over=J))
    o = contract(cast(p, "bf16"), cast(v, "bf16"), over=J) / reduce("sum", p, over=J)
    g.output("O", o, "bf16", (B, K, R, E))
