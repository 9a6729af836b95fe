"""Programs as people write them who think of no kernel: norms inside attention, features in place
of a softmax, convolutions of what an activation gives, shifts of what was computed, graphs, plans.

`tilewright tune experiments/corpus/everyday.py:NAME ...`; what they take is in README.md.
"""

from __future__ import annotations

import math

from ir import (
    Axis,
    Graph,
    cast,
    contract,
    cumulative,
    exp,
    maximum,
    operator,
    recur,
    reduce,
    relu,
    rsqrt,
    scatter,
    sqrt,
    where,
)
from ir.tiles import Tile
from ir.values import uniform


def _weights(score: Tile, over: Axis | tuple[Axis, ...], dtype: str = "bf16") -> tuple[Tile, Tile]:
    """Weights of a softmax before they are divided by their sum, and that sum."""
    p = exp(score - reduce("max", score, over=over))
    return cast(p, dtype), reduce("sum", p, over=over)


def _squares(x: Tile, over: Axis) -> Tile:
    return reduce("sum", cast(x, "f32") * cast(x, "f32"), over=over)


@operator
def cosine_attention(g: Graph, b: int, h: int, s: int, d: int) -> None:
    """Attention whose scores are cosines, with a temperature for each head."""
    B, H, I, J, D, E = g.axes(b=b, h=h, i=s, j=s, d=d, e=d)  # noqa: E741
    q, k = g.input("Q", (B, H, I, D), "bf16"), g.input("K", (B, H, J, D), "bf16")
    tau = g.input("tau", (H,), "f32", values=uniform(5, 10))
    score = contract(q, k, over=D) * rsqrt(_squares(q, D) + 1e-6) * rsqrt(_squares(k, D) + 1e-6)
    p, total = _weights(score * tau, J)
    o = contract(p, g.input("V", (B, H, J, E), "bf16"), over=J) / total
    g.output("O", o, "bf16", (B, H, I, E))


@operator
def performer(g: Graph, b: int, h: int, s: int, d: int, f: int) -> None:
    """Attention by positive features of queries and keys, in linear time."""
    B, H, I, J, D, E, F = g.axes(b=b, h=h, i=s, j=s, d=d, e=d, f=f)  # noqa: E741
    w = g.input("W", (F, D), "bf16")

    def features(name: str, rows: Axis) -> Tile:
        x = g.input(name, (B, H, rows, D), "bf16")
        inner = contract(x, w, over=D) * d**-0.25 - _squares(x, D) * (0.5 / math.sqrt(d))
        return cast(exp(inner) * f**-0.5, "bf16")

    q, k, v = features("Q", I), features("K", J), g.input("V", (B, H, J, E), "bf16")
    sums = cast(contract(k, v, over=J), "bf16")
    total = contract(cast(q, "f32"), reduce("sum", cast(k, "f32"), over=J), over=F)
    g.output("O", contract(q, sums, over=F) / total, "bf16", (B, H, I, E))


@operator
def forgetting(g: Graph, b: int, h: int, t: int, d: int) -> None:
    """Causal attention that forgets: what lies between two positions is subtracted, summed up."""
    B, H, I, J, D, E = g.axes(b=b, h=h, i=t, j=t, d=d, e=d)  # noqa: E741
    q, k = g.input("Q", (B, H, I, D), "bf16"), g.input("K", (B, H, J, D), "bf16")
    gate = g.tensor("F", (b, h, t), "f32", values=uniform(-0.1, 0))
    between = cumulative("sum", gate[B, H, I], I) - cumulative("sum", gate[B, H, J], J)
    score = contract(q, k, over=D) * d**-0.5 + between
    p, total = _weights(where(g.iota(J) <= g.iota(I), score, -math.inf), J)
    o = contract(p, g.input("V", (B, H, J, E), "bf16"), over=J) / total
    g.output("O", o, "bf16", (B, H, I, E))


@operator
def several_keys(g: Graph, b: int, h: int, s: int, d: int, r: int = 5) -> None:
    """Causal attention whose scores are sums of those of r keys in a row (multi-token)."""
    B, H, I, J, D, E, R = g.axes(b=b, h=h, i=s, j=s, d=d, e=d, r=r)  # noqa: E741
    q, k = g.input("Q", (B, H, I, D), "bf16"), g.tensor("K", (b, h, s, d), "bf16", fill=0)
    w, v = g.input("w", (H, R), "f32"), g.input("V", (B, H, J, E), "bf16")
    score = contract(contract(q, k[B, H, J - R, D], over=D), w, over=R) * d**-0.5
    p, total = _weights(where(g.iota(J) <= g.iota(I), score, -math.inf), J)
    g.output("O", contract(p, v, over=J) / total, "bf16", (B, H, I, E))


@operator
def graph_attention(g: Graph, h: int, n: int, f: int) -> None:
    """Attention over a graph's edges, by one number for each end of an edge."""
    H, I, J, F = g.axes(h=h, i=n, j=n, f=f)  # noqa: E741
    score = g.input("a", (H, I), "f32") + g.input("c", (H, J), "f32")
    edge = g.input("edges", (I, J), "f32", values=uniform(0, 1)) < 0.1
    p, total = _weights(where(edge, maximum(score, 0.2 * score), -1e9), J)
    o = contract(p, g.input("X", (H, J, F), "bf16"), over=J) / total
    g.output("O", o, "bf16", (H, I, F))


@operator
def kronecker(g: Graph, b: int, n: int, m: int) -> None:
    """A X B^T for each X."""
    B, I, J, K, L = g.axes(b=b, i=n, j=m, k=n, l=m)  # noqa: E741
    x, right = g.input("X", (B, K, L), "bf16"), g.input("B", (J, L), "bf16")
    half = cast(contract(x, right, over=L), "bf16")
    g.output("Y", contract(g.input("A", (I, K), "bf16"), half, over=K), "bf16", (B, I, J))


@operator
def soft_experts(g: Graph, b: int, t: int, d: int, e: int, p: int) -> None:
    """Slots of experts that mix all tokens, and tokens that mix all slots (Soft MoE)."""
    B, T, D, E, P, F, G = g.axes(b=b, t=t, d=d, e=e, p=p, f=d, o=d)
    x = g.tensor("X", (b, t, d), "bf16")
    score = contract(x[B, T, D], g.input("Phi", (D, E, P), "bf16"), over=D)
    into, total = _weights(score, T)
    slots = cast(contract(into, x[B, T, F], over=T) / total, "bf16")
    made = cast(contract(slots, g.input("W", (E, F, G), "bf16"), over=F), "bf16")
    back, total = _weights(score, (E, P))
    g.output("Y", contract(back, made, over=(E, P)) / total, "bf16", (B, T, G))


@operator
def activated_conv(g: Graph, n: int, h: int, w: int, c: int, f: int) -> None:
    """A 3 x 3 convolution of what a ReLU gives."""
    N, Y, X, C, F, R, S = g.axes(n=n, y=h, x=w, c=c, f=f, r=3, s=3)
    active = relu(g.input("X", (N, Y, X, C), "f16"))
    windows = active.at(y=Y + R - 1, x=X + S - 1, fill=0)
    y = contract(windows, g.input("W", (F, R, S, C), "f16"), over=(R, S, C))
    g.output("Y", y, "f16", (N, Y, X, F))


@operator
def laplacian_of_bytes(g: Graph, n: int, h: int, w: int) -> None:
    """Four neighbours of the roots of bytes."""
    N, Y, X = g.axes(n=n, y=h, x=w)
    v = sqrt(cast(g.input("X", (N, Y, X), "u8"), "f32"))
    beside = v.at(x=X - 1, fill=0) + v.at(x=X + 1, fill=0)
    g.output("Y", beside + v.at(y=Y - 1, fill=0) + v.at(y=Y + 1, fill=0) - 4 * v, "f32", (N, Y, X))


@operator
def equalised(g: Graph, b: int, n: int) -> None:
    """The distribution function of each image's bytes."""
    B, N, K = g.axes(b=b, n=n, k=256)
    x = cast(g.input("X", (B, N), "u8"), "i32")
    counts = scatter("sum", g.constant(1, "i32") + 0 * x, {B: g.iota(B), K: x})
    g.output("F", cast(cumulative("sum", counts, K), "f32") * (255.0 / n), "f32", (B, K))


@operator
def value_iteration(g: Graph, s: int, a: int, steps: int) -> None:
    """The best action's reward and what follows it in the mean, again and again."""
    T, S, A, O = g.axes(t=steps, s=s, a=a, o=s)  # noqa: E741
    p = g.input("P", (A, S, O), "f32", values=uniform(0, 2 / s))
    v = g.state(T, (S,))
    q = g.input("R", (A, S), "f32") + 0.9 * contract(p, v.at(s=O), over=O)
    g.output("V", recur(v, reduce("max", q, over=A)), "f32", (S,))


@operator
def second_order(g: Graph, b: int, t: int) -> None:
    """A filter of second order."""
    B, T = g.axes(b=b, t=t)
    one, two = g.state(T, (B,)), g.state(T, (B,))
    y = g.input("X", (B, T), "f32") * 0.2 + 1.6 * one - 0.64 * two
    recur(two, one * 1.0)
    recur(one, y)
    g.output("Y", y, "f32", (B, T))
