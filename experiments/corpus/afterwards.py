"""A dozen chains of contractions, reductions and maps, written down after everything else was done.

`tilewright tune experiments/corpus/afterwards.py:NAME full ...`; what they take is in README.md.
"""

from __future__ import annotations

from ir import (
    Graph,
    absolute,
    cast,
    contract,
    cos,
    exp,
    indices,
    log,
    maximum,
    minimum,
    normal,
    operator,
    reduce,
    rsqrt,
    sigmoid,
    silu,
    tanh,
    uniform,
)


@operator
def squeezed(g: Graph, b: int, y: int, x: int, c: int, r: int) -> None:
    """Channels of an image scaled by what two small layers make of their means."""
    B, Y, X, C, R, D = g.axes(b=b, y=y, x=x, c=c, r=r, d=c)
    image = g.input("X", (B, Y, X, C), "bf16")
    mean = reduce("sum", cast(image, "f32"), over=(Y, X)) * (1 / (y * x))
    hidden = silu(reduce("sum", mean * g.input("W", (R, C), "f32", values=normal(0.05)), over=C))
    gate = reduce("sum", hidden * g.input("V", (D, R), "f32", values=normal(0.2)), over=R)
    g.output("Y", cast(image, "f32") * sigmoid(gate).at(d=C), "bf16", (B, Y, X, C))


@operator
def pooled_by_attention(g: Graph, b: int, t: int, d: int, h: int) -> None:
    """Rows of a sequence averaged by a softmax of what a layer says of each."""
    B, T, D, H = g.axes(b=b, t=t, d=d, h=h)
    x = g.input("X", (B, T, D), "bf16")
    hidden = tanh(contract(x, g.input("W", (H, D), "bf16", values=normal(d**-0.5)), over=D))
    s = reduce("sum", hidden * g.input("v", (H,), "f32"), over=H)
    p = exp(s - reduce("max", s, over=T))
    mean = reduce("sum", p * x, over=T) / reduce("sum", p, over=T)
    g.output("Y", mean, "f32", (B, D))


@operator
def shared_projection(g: Graph, b: int, t: int, d: int, r: int) -> None:
    """Attention whose queries and keys are one narrow projection of what they attend to."""
    B, I, J, D, E, R = g.axes(b=b, i=t, j=t, d=d, e=d, r=r)  # noqa: E741
    x = g.tensor("X", (b, t, d), "bf16")
    w = g.input("W", (R, D), "bf16", values=normal(d**-0.5))
    q = cast(contract(x[B, I, D], w, over=D), "bf16")
    k = cast(contract(x[B, J, D], w, over=D), "bf16")
    s = contract(q, k, over=R) * r**-0.5
    p = exp(s - reduce("max", s, over=J))
    o = contract(cast(p, "bf16"), x[B, J, E], over=J) / reduce("sum", p, over=J)
    g.output("O", o, "bf16", (B, I, E))


@operator
def highway(g: Graph, m: int, d: int) -> None:
    """A layer that a gate mixes with what goes around it."""
    M, D, N = g.axes(m=m, d=d, n=d)
    x = g.tensor("X", (m, d), "bf16")
    w, v = (g.input(s, (N, D), "bf16", values=normal(d**-0.5)) for s in "WV")
    gate = sigmoid(contract(x[M, D], w, over=D) + g.input("c", (N,), "f32"))
    made = tanh(contract(x[M, D], v, over=D))
    g.output("Y", gate * made + (1 - gate) * cast(x[M, N], "f32"), "bf16", (M, N))


@operator
def contrast(g: Graph, n: int, d: int, scale: float = 20.0) -> None:
    """How much each row is like its own partner among all."""
    I, J, D = g.axes(i=n, j=n, d=d)  # noqa: E741
    a, b = g.input("A", (I, D), "bf16"), g.tensor("B", (n, d), "bf16")

    def unit(x, axis):  # type: ignore[no-untyped-def]
        return rsqrt(reduce("sum", cast(x, "f32") * cast(x, "f32"), over=axis) + 1e-6)

    one, all_of_them = unit(a, D), unit(b[J, D], D)
    s = contract(a, b[J, D], over=D) * one * all_of_them * scale
    m = reduce("max", s, over=J)
    whole = log(reduce("sum", exp(s - m), over=J)) + m
    own = b[I, D]
    like = reduce("sum", cast(a, "f32") * cast(own, "f32"), over=D) * one * unit(own, D)
    g.output("L", whole - like * scale, "f32", (I,))


@operator
def covariance(g: Graph, n: int, d: int) -> None:
    """Products of all columns, less their means."""
    N, D, E = g.axes(n=n, d=d, e=d)
    x = g.tensor("X", (n, d), "bf16")
    a, b = cast(x[N, D], "f32"), cast(x[N, E], "f32")
    ma, mb = (reduce("sum", z, over=N) * (1 / n) for z in (a, b))
    g.output("C", reduce("sum", a * b, over=N) * (1 / n) - ma * mb, "f32", (D, E))


@operator
def waves_of_features(g: Graph, m: int, d: int, f: int, k: int) -> None:
    """A linear layer of cosines of random projections."""
    M, D, F, K = g.axes(m=m, d=d, f=f, k=k)
    w = g.input("W", (F, D), "bf16", values=normal(d**-0.5))
    z = cos(contract(g.input("X", (M, D), "bf16"), w, over=D) + g.input("b", (F,), "f32"))
    v = g.input("V", (K, F), "bf16", values=normal(f**-0.5))
    g.output("Y", contract(cast(z, "bf16"), v, over=F), "f32", (M, K))


@operator
def soft_clusters(g: Graph, n: int, k: int, d: int) -> None:
    """A step of a mixture of Gaussians: whose each point is, and the new centres."""
    N, K, D, E = g.axes(n=n, k=k, d=d, e=d)
    x, c = g.tensor("X", (n, d), "bf16"), g.input("C", (K, D), "bf16")
    own = reduce("sum", cast(c, "f32") * cast(c, "f32"), over=D)
    s = contract(x[N, D], c, over=D) - 0.5 * own + g.input("w", (K,), "f32")
    p = exp(s - reduce("max", s, over=K))
    r = p / reduce("sum", p, over=K)
    total = reduce("sum", r, over=N)
    g.output("M", contract(cast(r, "bf16"), x[N, E], over=N) / (total + 1e-6), "f32", (K, E))
    g.output("W", total * (1 / n), "f32", (K,))


@operator
def factored_embedding(g: Graph, t: int, v: int, r: int, d: int) -> None:
    """Narrow rows of a table, widened and normalised."""
    T, R, D = g.axes(t=t, r=r, d=d)
    place = g.input("i", (T,), "i32", values=indices(v))
    rows = g.tensor("E", (v, r), "bf16")[place, R]
    h = contract(rows, g.input("W", (D, R), "bf16", values=normal(r**-0.5)), over=R)
    mean = reduce("sum", h, over=D) * (1 / d)
    spread = reduce("sum", (h - mean) * (h - mean), over=D) * (1 / d)
    g.output("Y", (h - mean) * rsqrt(spread + 1e-5), "bf16", (T, D))


@operator
def near_bias(g: Graph, b: int, h: int, t: int, d: int, near: int) -> None:
    """Attention with a learnt bias for each distance up to some."""
    B, H, I, J, D, E = g.axes(b=b, h=h, i=t, j=t, d=d, e=d)  # noqa: E741
    q, k = (g.input(s, (B, H, a, D), "bf16") for s, a in (("Q", I), ("K", J)))
    apart = minimum(maximum(g.iota(I) - g.iota(J), -near), near) + near
    bias = g.tensor("bias", (h, 2 * near + 1), "f32")[H, apart]
    s = contract(q, k, over=D) * d**-0.5 + bias
    p = exp(s - reduce("max", s, over=J))
    v = g.input("V", (B, H, J, E), "bf16")
    o = contract(cast(p, "bf16"), v, over=J) / reduce("sum", p, over=J)
    g.output("O", o, "bf16", (B, H, I, E))


@operator
def byte_layer(g: Graph, m: int, n: int, k: int) -> None:
    """Rows that are brought to bytes, times a matrix of bytes, and a gate of the result."""
    M, N, K = g.axes(m=m, n=n, k=k)
    x = cast(g.input("X", (M, K), "bf16"), "f32")
    scale = reduce("max", absolute(x), over=K) * (1 / 127) + 1e-9
    q = cast(x / scale, "i8")
    y = contract(q, g.input("W", (N, K), "i8"), over=K)
    own = g.input("s", (N,), "f32", values=uniform(1e-3, 1e-2))
    g.output("Y", silu(cast(y, "f32") * scale * own), "bf16", (M, N))


@operator
def two_towers(g: Graph, n: int, m: int, d: int, r: int) -> None:
    """The best and the mean of what each row of one tower says of all of the other."""
    N, M, D, R, S = g.axes(n=n, m=m, d=d, r=r, s=d)
    a = contract(g.input("A", (N, D), "bf16"),
                 g.input("U", (R, D), "bf16", values=normal(d**-0.5)), over=D)  # fmt: skip
    b = contract(g.input("B", (M, S), "bf16"),
                 g.input("V", (R, S), "bf16", values=normal(d**-0.5)), over=S)  # fmt: skip
    s = contract(cast(maximum(a, 0.0), "bf16"), cast(maximum(b, 0.0), "bf16"), over=R)
    g.output("best", reduce("max", s, over=M), "f32", (N,))
    g.output("mean", reduce("sum", s, over=M) * (1 / m), "f32", (N,))


EXTENTS = {
    "squeezed": {
        "small": {"b": 2, "y": 4, "x": 4, "c": 16, "r": 4},
        "full": {"b": 128, "y": 56, "x": 56, "c": 256, "r": 16},
    },
    "pooled_by_attention": {
        "small": {"b": 2, "t": 24, "d": 32, "h": 16},
        "full": {"b": 64, "t": 2048, "d": 1024, "h": 256},
    },
    "shared_projection": {
        "small": {"b": 2, "t": 32, "d": 32, "r": 16},
        "full": {"b": 32, "t": 2048, "d": 128, "r": 64},
    },
    "highway": {"small": {"m": 24, "d": 48}, "full": {"m": 8192, "d": 4096}},
    "contrast": {"small": {"n": 40, "d": 32}, "full": {"n": 16384, "d": 512}},
    "covariance": {"small": {"n": 64, "d": 24}, "full": {"n": 262144, "d": 512}},
    "waves_of_features": {
        "small": {"m": 24, "d": 16, "f": 64, "k": 16},
        "full": {"m": 32768, "d": 256, "f": 4096, "k": 256},
    },
    "soft_clusters": {
        "small": {"n": 48, "k": 8, "d": 16},
        "full": {"n": 1048576, "k": 256, "d": 128},
    },
    "factored_embedding": {
        "small": {"t": 12, "v": 50, "r": 16, "d": 32},
        "full": {"t": 65536, "v": 128256, "r": 128, "d": 1024},
    },
    "near_bias": {
        "small": {"b": 1, "h": 2, "t": 40, "d": 16, "near": 5},
        "full": {"b": 4, "h": 16, "t": 4096, "d": 64, "near": 128},
    },
    "byte_layer": {
        "small": {"m": 24, "n": 40, "k": 64},
        "full": {"m": 8192, "n": 8192, "k": 4096},
    },
    "two_towers": {
        "small": {"n": 24, "m": 40, "d": 32, "r": 16},
        "full": {"n": 16384, "m": 65536, "d": 512, "r": 128},
    },
}
