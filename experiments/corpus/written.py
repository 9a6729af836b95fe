"""Programs as they are written where nobody thinks of tensor cores: scales by quotients, four bits
by their type, images with channels ahead of rows, gradients, states that are read before a step.

`tilewright tune experiments/corpus/written.py:NAME ...`; what they take is in README.md.
"""

from __future__ import annotations

import math

from ir import (
    Axis,
    Graph,
    argmax,
    cast,
    contract,
    exp,
    gelu,
    operator,
    recur,
    reduce,
    rsqrt,
    scatter,
    sigmoid,
    tanh,
    top,
)
from ir.tiles import Tile
from ir.values import decay, normal, uniform

SMALL_SCALES = uniform(0.01, 0.1)


@operator
def four_bits(g: Graph, m: int, n: int, k: int) -> None:
    """Y = X W^T of 4-bit weights, a scale for each row of them."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    x, scale = g.input("X", (rows, depth), "f16"), g.input("scale", (columns,), "f16")
    w = g.input("W", (columns, depth), "i4")
    g.output("Y", contract(x, cast(w, "f16"), over=depth) * scale, "f16")


@operator
def grouped(g: Graph, m: int, n: int, k: int, group: int) -> None:
    """The same with a scale for so many neighbours of a row."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    x, w = g.input("X", (rows, depth), "f16"), g.input("W", (columns, depth), "i4")
    scale = g.tensor("scale", (n, k // group), "f16")[columns, g.iota(depth) // group]
    g.output("Y", contract(x, cast(cast(w, "f32") * scale, "f16"), over=depth), "f16")


@operator
def block_scales(g: Graph, m: int, n: int, k: int) -> None:
    """A product of e4m3 with scales of 1 x 128 and 128 x 128 neighbours, all in one sum."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    a, b = g.input("A", (rows, depth), "e4m3"), g.input("B", (columns, depth), "e4m3")
    block, half = g.iota(depth) // 128, uniform(0.5, 1)
    left = g.tensor("sa", (m, k // 128), "f32", values=half)[rows, block]
    right = g.tensor("sb", (n // 128, k // 128), "f32", values=half)[g.iota(columns) // 128, block]
    g.output("C", contract(cast(a, "f32") * left, cast(b, "f32") * right, over=depth), "bf16")


@operator
def four_bit_cache(g: Graph, b: int, h: int, r: int, n: int, d: int) -> None:
    """Decoding over keys and values of four bits, a scale and an offset for each."""
    B, H, R, J, D, E = g.axes(b=b, h=h, r=r, j=n, d=d, e=d)
    q = g.input("Q", (B, H, R, D), "f16")

    def widened(name: str, inner: Tile) -> Tile:
        scale = g.input(f"{name}s", (B, H, J), "f16", values=SMALL_SCALES)
        return cast(cast(inner, "f32") * scale + g.input(f"{name}z", (B, H, J), "f16"), "f16")

    keys, values = g.input("K", (B, H, J, D), "u4"), g.input("V", (B, H, J, E), "u4")
    s = contract(q, widened("k", keys), over=D) * d**-0.5
    p = exp(s - reduce("max", s, over=J))
    o = contract(cast(p, "f16"), widened("v", values), over=J) / reduce("sum", p, over=J)
    g.output("O", o, "f16", (B, H, R, E))


@operator
def conv(g: Graph, n: int, h: int, w: int, c: int, f: int, taps: int = 3, stride: int = 1) -> None:
    """A convolution as torch lays it out: channels ahead of rows, taps behind channels."""
    N, Y, X = g.axes(n=n, y=h // stride, x=w // stride)
    C, F, R, S = g.axes(c=c, f=f, r=taps, s=taps)
    image, weight = g.tensor("X", (n, c, h, w), "f16", fill=0), g.input("W", (F, C, R, S), "f16")
    windows = image[N, C, stride * Y + R - taps // 2, stride * X + S - taps // 2]
    g.output("Y", contract(windows, weight, over=(C, R, S)), "f16", (N, F, Y, X))


@operator
def conv_weights(g: Graph, n: int, h: int, w: int, c: int, f: int, last: bool = True) -> None:
    """The gradient of the weights of a 3 x 3 convolution; `last`: channels behind rows."""
    N, Y, X, C, F, R, S = g.axes(n=n, y=h, x=w, c=c, f=f, r=3, s=3)
    image = g.tensor("X", (n, h, w, c) if last else (n, c, h, w), "f16", fill=0)
    above = g.input("dY", (N, Y, X, F) if last else (N, F, Y, X), "f16")
    y, x = Y + R - 1, X + S - 1
    windows = image[N, y, x, C] if last else image[N, C, y, x]
    axes = (F, R, S, C) if last else (F, C, R, S)
    g.output("dW", contract(windows, above, over=(N, Y, X)), "f32", axes)


@operator
def conv_inputs(g: Graph, n: int, h: int, w: int, c: int, f: int) -> None:
    """The gradient of a 3 x 3 convolution's input, channels last."""
    N, Y, X, C, F, R, S = g.axes(n=n, y=h, x=w, c=c, f=f, r=3, s=3)
    above, weight = g.tensor("dY", (n, h, w, f), "f16", fill=0), g.input("W", (F, R, S, C), "f16")
    g.output("dX", contract(above[N, Y - R + 1, X - S + 1, F], weight, over=(F, R, S)), "f16",
             (N, Y, X, C))  # fmt: skip


@operator
def gate_backward(g: Graph, m: int, n: int, k: int) -> None:
    """dX of silu(X W) * (X V), whose two products are computed again."""
    M, N, K, Q = g.axes(m=m, n=n, k=k, q=k)
    x, dy = g.input("X", (M, K), "bf16"), g.input("dY", (M, N), "bf16")
    w, v = g.tensor("W", (k, n), "bf16"), g.tensor("V", (k, n), "bf16")
    gate, value = contract(x, w[K, N], over=K), contract(x, v[K, N], over=K)
    soft = sigmoid(gate)
    first = cast(dy * value * soft * (1 + gate * (1 - soft)), "bf16")
    second = cast(dy * gate * soft, "bf16")
    dx = contract(first, w[Q, N], over=N) + contract(second, v[Q, N], over=N)
    g.output("dX", dx, "bf16", (M, Q))


@operator
def mlp_backward(g: Graph, m: int, h: int, k: int, o: int) -> None:
    """All gradients of gelu(X W) V, hidden values computed again."""
    M, H, K, O = g.axes(m=m, h=h, k=k, o=o)  # noqa: E741
    x, dy = g.input("X", (M, K), "bf16"), g.input("dY", (M, O), "bf16")
    w = g.input("W", (K, H), "bf16", values=normal(k**-0.5))
    v = g.input("V", (H, O), "bf16", values=normal(h**-0.5))
    z = contract(x, w, over=K)
    inner = tanh(0.7978845608 * (z + 0.044715 * z * z * z))
    slope = 0.5 * z * (1 - inner * inner) * 0.7978845608 * (1 + 3 * 0.044715 * z * z)
    hidden = cast(0.5 * z * (1 + inner), "bf16")
    below = cast(contract(dy, v, over=O) * (0.5 * (1 + inner) + slope), "bf16")
    g.output("dX", contract(below, w, over=H), "bf16", (M, K))
    g.output("dW", contract(x, below, over=M), "f32", (K, H))
    g.output("dV", contract(hidden, dy, over=M), "f32", (H, O))


def _normalised(x: Tile, n: int, over: Axis) -> Tile:
    wide = cast(x, "f32")
    mean = reduce("sum", wide, over=over) * (1 / n)
    variance = reduce("sum", (wide - mean) * (wide - mean), over=over) * (1 / n)
    return cast((wide - mean) * rsqrt(variance + 1e-5), "bf16")


@operator
def norm_linear(g: Graph, m: int, n: int, r: int) -> None:
    """A product of normalised rows."""
    M, N, R = g.axes(m=m, n=n, r=r)
    x = _normalised(g.input("X", (M, N), "bf16"), n, N)
    g.output("Y", contract(x, g.input("W", (N, R), "bf16"), over=N), "bf16", (M, R))


@operator
def adapter(g: Graph, m: int, n: int, r: int) -> None:
    """X + gelu(norm(X) W) U, of rank r."""
    M, N, R, Q = g.axes(m=m, n=n, r=r, q=n)
    x = g.tensor("X", (m, n), "bf16")
    low = contract(_normalised(x[M, N], n, N), g.input("W", (N, R), "bf16"), over=N)
    up = contract(cast(gelu(low), "bf16"), g.input("U", (R, Q), "bf16"), over=R)
    g.output("Y", up + x[M, Q], "bf16", (M, Q))


@operator
def rwkv6(g: Graph, b: int, h: int, t: int, d: int) -> None:
    """A state of matrices with decays of channels, read before each step, and a bonus for it."""
    B, H, T, K, V = g.axes(b=b, h=h, t=t, k=d, v=d)
    r, k = g.input("R", (B, H, T, K), "f32"), g.input("K", (B, H, T, K), "f32")
    v, w = g.input("V", (B, H, T, V), "f32"), g.input("W", (B, H, T, K), "f32", values=decay())
    state, bonus = g.state(T, (B, H, K, V)), g.input("u", (H, K), "f32")
    g.output("O", contract(r, state + bonus * (k * v), over=K), "f32", (B, H, T, V))
    recur(state, state * exp(w) + k * v)


@operator
def codes(g: Graph, n: int, k: int, d: int) -> None:
    """The nearest of some codes, how many have each, and their sums: a step of k-means."""
    N, K, D = g.axes(n=n, k=k, d=d)
    x, c = g.input("X", (N, D), "bf16"), g.input("C", (K, D), "bf16")
    length = reduce("sum", cast(c, "f32") * cast(c, "f32"), over=D)
    place = argmax(contract(x, c, over=D) - 0.5 * length, K)
    g.output("place", place, "i32")
    g.output("count", scatter("sum", g.constant(1, "i32") + 0 * place, {K: place}), "i32")
    g.output("sums", scatter("sum", cast(x, "f32"), {K: place, D: D}), "f32")


@operator
def largest(g: Graph, n: int, m: int, k: int) -> None:
    """The k largest of long rows, and where they stand."""
    I, J, K = g.axes(i=n, j=m, k=k)  # noqa: E741
    value, place = top(g.input("A", (I, J), "f32"), J, K)
    g.output("value", value)
    g.output("place", place, "i32")


@operator
def retrieval(g: Graph, n: int, m: int, d: int, k: int) -> None:
    """The k of m vectors that are most alike, for n queries."""
    I, J, D, K = g.axes(i=n, j=m, d=d, k=k)  # noqa: E741
    a, b = g.input("A", (I, D), "f16"), g.input("B", (J, D), "f16")
    length = rsqrt(reduce("sum", cast(b, "f32") * cast(b, "f32"), over=D))
    value, place = top(contract(a, b, over=D) * length, J, K)
    g.output("value", value, "f32")
    g.output("place", place, "i32")


@operator
def mixer(g: Graph, b: int, p: int, c: int, hidden: int) -> None:
    """Tokens mixed: a norm along channels, two products along tokens, and what went in."""
    B, P, C, H, Q = g.axes(b=b, p=p, c=c, h=hidden, q=p)
    x = g.tensor("X", (b, p, c), "bf16")
    inner = contract(_normalised(x[B, P, C], c, C), g.input("W1", (H, P), "bf16"), over=P)
    y = contract(g.input("W2", (Q, H), "bf16"), cast(gelu(inner), "bf16"), over=H)
    g.output("Y", y + x[B, Q, C], "bf16", (B, Q, C))


@operator
def sinks(g: Graph, b: int, h: int, kv: int, s: int, d: int, window: int) -> None:
    """Attention in a window, with a learned weight that goes nowhere in each denominator."""
    from ir import maximum, where

    B, K, R, I, J, D, E = g.axes(b=b, k=kv, r=h // kv, i=s, j=s, d=d, e=d)  # noqa: E741
    q, k = g.input("Q", (B, K, R, I, D), "bf16"), g.input("K", (B, K, J, D), "bf16")
    v, sink = g.input("V", (B, K, J, E), "bf16"), g.input("sink", (K, R), "f32")
    x = contract(q, k, over=D) * d**-0.5
    x = where((g.iota(J) <= g.iota(I)) & (g.iota(I) - g.iota(J) < window), x, -math.inf)
    most = maximum(reduce("max", x, over=J), sink)
    p = exp(x - most)
    total = reduce("sum", p, over=J) + exp(sink - most)
    g.output("O", contract(cast(p, "bf16"), v, over=J) / total, "bf16", (B, K, R, I, E))
