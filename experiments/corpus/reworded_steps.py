"""More of what everyone knows in other words: loops for scans, sums for reads, signs, chains.

`tilewright tune experiments/corpus/reworded_steps.py:NAME full ...`; what they take: README.md.
"""

from __future__ import annotations

import math

from ir import (
    Axis,
    Graph,
    Tile,
    cast,
    contract,
    cumulative,
    decay,
    exp,
    indices,
    near_identity,
    normal,
    operator,
    popcount,
    recur,
    reduce,
    relu,
    uniform,
    where,
)


def _heads(g: Graph, b: int, t: int, h: int, d: int) -> tuple[tuple[Axis, ...], tuple[Tile, ...]]:
    axes = B, T, H, D, E = g.axes(b=b, t=t, h=h, d=d, e=d)
    q, k = (g.input(name, (B, T, H, D), "bf16", normal(d**-0.5)) for name in "QK")
    return axes, (q, k, g.input("V", (B, T, H, E), "bf16"))


@operator
def linear_attention(g: Graph, b: int, t: int, h: int, d: int) -> None:
    """A state that is let go of in part at each step, read by a sum of products."""
    (B, T, H, D, E), (q, k, v) = _heads(g, b, t, h, d)
    part = 1.0 - exp(g.input("G", (B, T, H), "f32", decay(0.5)))
    before = g.state(T, (B, H, D, E))
    after = before + cast(k, "f32") * v - part * before
    g.output("O", reduce("sum", cast(q, "f32") * after, over=D), "bf16", (B, T, H, E))
    g.output("S", recur(before, after), "f32", (B, H, D, E))


@operator
def corrections(g: Graph, b: int, t: int, h: int, d: int) -> None:
    """The delta rule with a decay for each key, from a state that it is given, in sums."""
    (B, T, H, D, E), (q, k, v) = _heads(g, b, t, h, d)
    rates = exp(g.input("G", (B, T, H, D), "f32", decay(0.5)))
    beta = g.input("beta", (B, T, H), "f32", uniform(0, min(1, 16 / t)))
    before = g.state(T, (B, H, D, E), g.input("S0", (B, H, D, E), "f32"))
    kept = rates * before
    read = reduce("sum", kept * k, over=D)
    after = kept - beta * k * read + beta * k * v
    g.output("O", contract(q, after, over=D), "bf16", (B, T, H, E))
    g.output("S", recur(before, after), "f32", (B, H, D, E))


@operator
def second_order(g: Graph, b: int, t: int) -> None:
    """A filter that knows its last two results."""
    B, T = g.axes(b=b, t=t)
    last, one_before = g.state(T, (B,)), g.state(T, (B,))
    y = g.input("X", (B, T), "f32") + 1.2 * last - 0.5 * one_before
    recur(last, y)
    recur(one_before, last)
    g.output("Y", y, "f32", (B, T))


@operator
def oscillators(g: Graph, b: int, t: int) -> None:
    """A complex number that is turned and shrunk at each step, driven by a real one."""
    B, T = g.axes(b=b, t=t)
    re, im = g.state(T, (B,)), g.state(T, (B,))
    after = 0.9 * re - 0.3 * im + g.input("X", (B, T), "f32")
    behind = 0.3 * re + 0.9 * im
    recur(re, after)
    recur(im, behind)
    g.output("Y", after * after + behind * behind, "f32", (B, T))


@operator
def chain_with_a_vector(g: Graph, n: int) -> None:
    """The sum of the columns of A B, weighed."""
    I, J, K = g.axes(i=n, j=n, k=n)  # noqa: E741
    a, b = g.input("A", (I, J), "bf16"), g.input("B", (J, K), "bf16")
    v = g.input("v", (K,), "f32")
    g.output("Y", reduce("sum", contract(a, b, over=J) * v, over=K), "f32", (I,))


@operator
def compositing(g: Graph, r: int, s: int) -> None:
    """What is left of a ray in front of each sample, and what it sees."""
    R, S, C = g.axes(r=r, s=s, c=3)
    density = relu(cast(g.input("density", (R, S), "f16"), "f32"))
    depth = density * g.input("length", (R, S), "f16", uniform(0, 0.1))
    left = cumulative("prod", exp(-depth), S).at(s=S - 1, fill=1.0)
    weights = left * (1 - exp(-depth))
    colours = cast(g.input("colours", (R, S, C), "f16"), "f32")
    g.output("Y", reduce("sum", weights * colours, over=S), "f32", (R, C))
    g.output("A", reduce("sum", weights, over=S), "f32", (R,))


@operator
def signed_sums(g: Graph, m: int, n: int) -> None:
    """A transform by Walsh and Hadamard: numbers or their opposites, summed."""
    M, N, K = g.axes(m=m, n=n, k=n)
    odd = (popcount(g.iota(N) & g.iota(K)) & 1) == 1
    x = cast(g.input("X", (M, K), "f16"), "f32")
    g.output("Y", reduce("sum", where(odd, -x, x), over=K), "f16", (M, N))


@operator
def complex_product(g: Graph, m: int, n: int, k: int) -> None:
    """Both parts of a product of complex matrices in f32."""
    M, N, K = g.axes(m=m, n=n, k=k)
    ar, ai = (g.input(name, (M, K), "f32") for name in ("Ar", "Ai"))
    br, bi = (g.input(name, (N, K), "f32") for name in ("Br", "Bi"))
    g.output("R", reduce("sum", ar * br - ai * bi, over=K), "f32", (M, N))
    g.output("I", reduce("sum", ar * bi + ai * br, over=K), "f32", (M, N))


@operator
def unrounded_attention(g: Graph, b: int, h: int, t: int, d: int) -> None:
    """Attention whose weights nobody rounds."""
    B, H, I, J, D, E = g.axes(b=b, h=h, i=t, j=t, d=d, e=d)  # noqa: E741
    q, k = g.input("Q", (B, H, I, D), "bf16"), g.input("K", (B, H, J, D), "bf16")
    scores = contract(q, k, over=D) * (1 / math.sqrt(d))
    weights = exp(scores - reduce("max", scores, over=J))
    weights = weights / reduce("sum", weights, over=J)
    v = g.input("V", (B, H, J, E), "bf16")
    g.output("O", contract(weights, v, over=J), "bf16", (B, H, I, E))


@operator
def differential_attention(g: Graph, b: int, h: int, t: int, d: int) -> None:
    """What one softmax has more than a part of another, both of halves of the same rows."""
    B, H, I, J, D, E = g.axes(b=b, h=h, i=t, j=t, d=d, e=2 * d)  # noqa: E741
    q, k = (g.tensor(name, (b, h, t, 2 * d), "bf16") for name in "QK")
    part = g.input("part", (H,), "f32", uniform(0, 0.5))

    def weights(first: int) -> Tile:
        scores = contract(q[B, H, I, D + first], k[B, H, J, D + first], over=D) / math.sqrt(d)
        scores = where(g.iota(J) <= g.iota(I), scores, -math.inf)
        found = exp(scores - reduce("max", scores, over=J))
        return found / reduce("sum", found, over=J)

    v, both = g.input("V", (B, H, J, E), "bf16"), weights(0) - part * weights(d)
    g.output("O", contract(cast(both, "bf16"), v, over=J), "bf16", (B, H, I, E))


@operator
def chosen_experts(g: Graph, blocks: int, rows: int, experts: int, n: int, k: int) -> None:
    """Blocks of rows times the int4 weights of the expert that each is sent to."""
    P, R, N, K = g.axes(p=blocks, r=rows, n=n, k=k)
    expert = g.input("expert", (P,), "i32", indices(experts))
    scale = g.tensor("scale", (experts, n, k // 32), "bf16")[expert, N, g.iota(K) // 32]
    w = cast(g.tensor("W", (experts, n, k), "i4")[expert, N, K], "f32") * scale
    x = g.input("X", (P, R, K), "bf16")
    g.output("Y", contract(x, cast(w, "bf16"), over=K), "bf16", (P, R, N))


@operator
def eliminated(g: Graph, b: int, n: int) -> None:
    """Upper triangles of small matrices, read at the last step of a loop."""
    B, I, J, S = g.axes(b=b, i=n, j=n, s=n)  # noqa: E741
    left = g.state(S, (B, I, J), g.input("A", (B, I, J), "f32", near_identity(0.01)))
    below = where(g.iota(I) > g.iota(S), left.at(j=S) / left.at(i=S, j=S), 0.0)
    after = left - below * left.at(i=S)
    recur(left, after)
    g.output("U", after.at(s=n - 1), "f32", (B, I, J))


EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "linear_attention": {
        "small": {"b": 1, "t": 64, "h": 2, "d": 16},
        "full": {"b": 8, "t": 2048, "h": 8, "d": 128},
    },
    "corrections": {
        "small": {"b": 1, "t": 64, "h": 2, "d": 16},
        "full": {"b": 4, "t": 2048, "h": 8, "d": 64},
    },
    "second_order": {"small": {"b": 3, "t": 40}, "full": {"b": 4096, "t": 4096}},
    "oscillators": {"small": {"b": 3, "t": 40}, "full": {"b": 4096, "t": 4096}},
    "chain_with_a_vector": {"small": {"n": 48}, "full": {"n": 8192}},
    "compositing": {"small": {"r": 5, "s": 16}, "full": {"r": 1048576, "s": 128}},
    "signed_sums": {"small": {"m": 20, "n": 64}, "full": {"m": 65536, "n": 1024}},
    "complex_product": {
        "small": {"m": 24, "n": 40, "k": 32},
        "full": {"m": 65536, "n": 256, "k": 256},
    },
    "unrounded_attention": {
        "small": {"b": 1, "h": 2, "t": 64, "d": 16},
        "full": {"b": 4, "h": 16, "t": 4096, "d": 128},
        "narrow": {"b": 4, "h": 16, "t": 4096, "d": 64},
    },
    "differential_attention": {
        "small": {"b": 1, "h": 2, "t": 64, "d": 16},
        "full": {"b": 4, "h": 16, "t": 4096, "d": 64},
    },
    "chosen_experts": {
        "small": {"blocks": 3, "rows": 16, "experts": 2, "n": 64, "k": 64},
        "full": {"blocks": 128, "rows": 64, "experts": 64, "n": 2048, "k": 2048},
    },
    "eliminated": {"small": {"b": 3, "n": 8}, "full": {"b": 65536, "n": 32}},
}
