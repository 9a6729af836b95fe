"""Programs of pictures, rays, particles and what looks at them.

`tilewright tune experiments/corpus/pictures.py:NAME full ...`; times are in README.md.
"""

from __future__ import annotations

from ir import (
    Graph,
    cast,
    contract,
    cumulative,
    exp,
    floor,
    log,
    lookup,
    maximum,
    minimum,
    operator,
    reduce,
    rsqrt,
    scatter,
    silu,
    sqrt,
    where,
)
from ir.values import indices, normal, positive, uniform


@operator
def resize(g: Graph, b: int, c: int, h: int, w: int, oh: int, ow: int) -> None:
    """Bilinear, with corners aligned."""
    B, C, I, J = g.axes(b=b, c=c, i=oh, j=ow)  # noqa: E741
    x = g.tensor("X", (b, c, h, w), "bf16")
    y, z = g.iota(I) * ((h - 1) / (oh - 1)), g.iota(J) * ((w - 1) / (ow - 1))
    y0, z0 = cast(floor(y), "i32"), cast(floor(z), "i32")
    y1, z1 = minimum(y0 + 1, h - 1), minimum(z0 + 1, w - 1)
    fy, fz = y - y0, z - z0
    above = x[B, C, y0, z0] * (1 - fz) + x[B, C, y0, z1] * fz
    below = x[B, C, y1, z0] * (1 - fz) + x[B, C, y1, z1] * fz
    g.output("Y", above * (1 - fy) + below * fy, "bf16", (B, C, I, J))


@operator
def grid_sample(g: Graph, b: int, c: int, h: int, w: int, n: int) -> None:
    """Pixels at drawn places, with zeros outside."""
    B, C, N = g.axes(b=b, c=c, n=n)
    x = g.tensor("X", (b, h, w, c), "bf16", fill=0)
    at = [g.input(s, (B, N), "f32", values=uniform(-1, e)) for s, e in (("y", h), ("z", w))]
    low = [cast(floor(p), "i32") for p in at]
    part = [p - q for p, q in zip(at, low, strict=False)]
    total = None
    for dy in (0, 1):
        for dz in (0, 1):
            weight = (part[0] if dy else 1 - part[0]) * (part[1] if dz else 1 - part[1])
            value = weight * x[B, low[0] + dy, low[1] + dz, C]
            total = value if total is None else total + value
    g.output("Y", total, "bf16", (B, N, C))


@operator
def bilateral(g: Graph, h: int, w: int, r: int) -> None:
    """A filter that keeps edges."""
    I, J, A, C = g.axes(i=h, j=w, a=2 * r + 1, c=2 * r + 1)  # noqa: E741
    x = g.tensor("X", (h, w), "f32", fill=0)
    n, c = x[I + A - r, J + C - r], x[I, J]
    da, dc = g.iota(A) - r, g.iota(C) - r
    wt = exp(-(da * da + dc * dc) * 0.1 - (n - c) * (n - c) * 2.0)
    g.output(
        "Y", reduce("sum", wt * n, over=(A, C)) / reduce("sum", wt, over=(A, C)), "f32", (I, J)
    )


@operator
def hash_grid(g: Graph, n: int, levels: int, size: int) -> None:
    """Features of points in hashed grids of several resolutions."""
    N, L, F = g.axes(n=n, l=levels, f=2)
    p = g.tensor("P", (n, 3), "f32", values=uniform(0, 1))
    table = g.tensor("T", (levels, size, 2), "bf16")
    res = lookup([float(int(16 * 1.5**k)) for k in range(levels)], g.iota(L))
    pos = [p[N, c] * res for c in range(3)]
    low = [cast(floor(x), "i64") for x in pos]
    part = [x - y for x, y in zip(pos, low, strict=False)]
    total = None
    for corner in range(8):
        bits = [(corner >> c) & 1 for c in range(3)]
        h = (
            (low[0] + bits[0])
            ^ ((low[1] + bits[1]) * 2654435761)
            ^ ((low[2] + bits[2]) * 805459861)
        ) % size
        wt = None
        for c in range(3):
            f = part[c] if bits[c] else 1 - part[c]
            wt = f if wt is None else wt * f
        v = wt * table[L, h, F]
        total = v if total is None else total + v
    g.output("Y", total, "bf16", (N, L, F))


@operator
def rendered(g: Graph, rays: int, s: int) -> None:
    """Colours along rays by what light is left."""
    R, S, C = g.axes(r=rays, s=s, c=3)
    sigma = g.input("sigma", (R, S), "f32", values=positive(1.0))
    delta = g.input("delta", (R, S), "f32", values=uniform(0.01, 0.1))
    tau = sigma * delta
    before = cumulative("sum", tau, S) - tau
    w = exp(-before) * (1 - exp(-tau))
    g.output("C", reduce("sum", w * g.input("rgb", (R, S, C), "f32"), over=S), "f32", (R, C))
    g.output("D", reduce("sum", w * cumulative("sum", delta, S), over=S), "f32", (R,))


@operator
def boltzmann(g: Graph, h: int, w: int) -> None:
    """One step of a lattice of nine velocities."""
    I, J = g.axes(i=h, j=w)  # noqa: E741
    cy = [0, 0, 1, 0, -1, 1, 1, -1, -1]
    cx = [0, 1, 0, -1, 0, 1, -1, -1, 1]
    wt = [4 / 9] + [1 / 9] * 4 + [1 / 36] * 4
    x = g.tensor("F", (9, h, w), "f32", values=uniform(0.05, 0.15))
    y = [x[q, g.coordinate(I - cy[q]) % h, g.coordinate(J - cx[q]) % w] for q in range(9)]
    rho = sum(y[1:], y[0])
    u = sum((y[q] * cx[q] for q in range(1, 9)), y[0] * 0.0) / rho
    v = sum((y[q] * cy[q] for q in range(1, 9)), y[0] * 0.0) / rho
    s = u * u + v * v
    for q in range(9):
        c = u * cx[q] + v * cy[q]
        e = rho * wt[q] * (1 + 3 * c + 4.5 * c * c - 1.5 * s)
        g.output(f"G{q}", y[q] + (e - y[q]) * 0.6, "f32", (I, J))


@operator
def norm_conv(g: Graph, b: int, h: int, w: int, c: int, groups: int, f: int) -> None:
    """Group norm, SiLU, a convolution of three by three."""
    B, I, J, G, D, F, R, S = g.axes(b=b, i=h, j=w, g=groups, d=c // groups, f=f, r=3, s=3)  # noqa: E741
    x = cast(g.input("X", (B, I, J, G, D), "bf16"), "f32")
    mean = reduce("sum", x, over=(I, J, D)) / (h * w * c // groups)
    x = x - mean
    var = reduce("sum", x * x, over=(I, J, D)) / (h * w * c // groups)
    y = x * rsqrt(var + 1e-5) * g.input("gamma", (G, D), "f32") + g.input("beta", (G, D), "f32")
    y = cast(silu(y), "bf16")
    taps = y.at(i=I + R - 1, j=J + S - 1, fill=0)
    o = contract(
        taps, g.input("W", (R, S, G, D, F), "bf16", values=normal(0.05)), over=(R, S, G, D)
    )
    g.output("Y", o, "bf16", (B, I, J, F))


@operator
def modulated(g: Graph, b: int, t: int, d: int, f: int) -> None:
    """Layer norm, scale and shift of the batch, a product, its gate and a residual."""
    B, T, D, F = g.axes(b=b, t=t, d=d, f=f)
    x = cast(g.input("X", (B, T, D), "bf16"), "f32")
    mean = reduce("sum", x, over=D) / d
    var = reduce("sum", (x - mean) * (x - mean), over=D) / d
    y = (x - mean) * rsqrt(var + 1e-6)
    y = y * (1 + g.input("scale", (B, D), "bf16")) + g.input("shift", (B, D), "bf16")
    o = contract(cast(y, "bf16"), g.input("W", (D, F), "bf16", values=normal(0.02)), over=D)
    r = g.input("R", (B, T, F), "bf16")
    g.output("Y", r + g.input("gate", (B, F), "bf16") * o, "bf16", (B, T, F))


@operator
def overlaps_suppressed(g: Graph, n: int) -> None:
    """How many better boxes each box overlaps by more than half."""
    I, J = g.axes(i=n, j=n)  # noqa: E741
    box = g.tensor("box", (n, 4), "f32", values=uniform(0, 1))
    score = g.tensor("score", (n,), "f32")
    a, b = [box[I, c] for c in range(4)], [box[J, c] for c in range(4)]
    h = maximum(minimum(a[0] + a[2], b[0] + b[2]) - maximum(a[0], b[0]), 0.0)
    w = maximum(minimum(a[1] + a[3], b[1] + b[3]) - maximum(a[1], b[1]), 0.0)
    inter = h * w
    union = a[2] * a[3] + b[2] * b[3] - inter
    bad = (inter > union * 0.5) & (score[J] > score[I])
    g.output("C", reduce("sum", where(bad, 1, 0), over=J), "i32", (I,))


@operator
def gravity(g: Graph, n: int) -> None:
    """What all bodies do to each."""
    I, J, C = g.axes(i=n, j=n, c=3)  # noqa: E741
    p = g.tensor("P", (n, 3), "f32")
    m = g.tensor("M", (n,), "f32")
    d = p[J, C] - p[I, C]
    r = rsqrt(reduce("sum", d * d, over=C) + 1e-3)
    g.output("A", reduce("sum", m[J] * r * r * r * d, over=J), "f32", (I, C))


@operator
def col2im(g: Graph, b: int, h: int, c: int, k: int, stride: int) -> None:
    """An image of its patches, added where they overlap."""
    B, I, J, R, S, C, Y, X = g.axes(  # noqa: E741
        b=b, i=h, j=h, r=k, s=k, c=c, y=(h - 1) * stride + k, x=(h - 1) * stride + k
    )
    p = g.input("P", (B, I, J, R, S, C), "bf16")
    g.output(
        "O",
        scatter("sum", p, {B: g.iota(B), Y: I * stride + R, X: J * stride + S, C: g.iota(C)}),
        "f32",
        (B, Y, X, C),
    )


@operator
def upsampled(g: Graph, n: int, k: int) -> None:
    """A value at every few places, and nothing between them."""
    N, T = g.axes(n=n, t=k * n)
    g.output("Y", scatter("sum", exp(g.input("X", (N,), "f32")), {T: k * N + 1}), "f32", (T,))


@operator
def focal(g: Graph, n: int, c: int) -> None:
    """The focal loss of labels and its gradient."""
    N, C = g.axes(n=n, c=c)
    x = cast(g.input("X", (N, C), "bf16"), "f32")
    label = g.input("label", (N,), "i32", values=indices(c))
    m = reduce("max", x, over=C)
    e = exp(x - m)
    p = e / reduce("sum", e, over=C)
    hot = where(g.iota(C) == label, 1.0, 0.0)
    pt = reduce("sum", p * hot, over=C)
    rest = 1.0 - pt
    slope = rest * (2.0 * pt * log(maximum(pt, 1e-12)) - rest)
    g.output(
        "L", reduce("sum", -rest * rest * log(maximum(pt, 1e-12)), over=N) * (1 / n), "f32", ()
    )
    g.output("G", slope * (hot - p) * (1 / n), "bf16", (N, C))


@operator
def triplet(g: Graph, n: int, d: int) -> None:
    """The hardest positive and negative of each row among all."""
    I, J, D = g.axes(i=n, j=n, d=d)  # noqa: E741
    x, label = g.tensor("X", (n, d), "bf16"), g.tensor("label", (n,), "i32", values=indices(100))
    s = contract(x[I, D], x[J, D], over=D)
    n1 = reduce("sum", cast(x[I, D], "f32") * x[I, D], over=D)
    n2 = reduce("sum", cast(x[J, D], "f32") * x[J, D], over=D)
    dist = sqrt(maximum(n1 + n2 - 2.0 * s, 0.0))
    same = label[I] == label[J]
    far = reduce("max", where(same, dist, 0.0), over=J)
    near = reduce("min", where(same, 1e9, dist), over=J)
    g.output("L", maximum(far - near + 0.3, 0.0), "f32", (I,))


EXTENTS = {
    "resize": {
        "small": {"b": 2, "c": 3, "h": 7, "w": 9, "oh": 13, "ow": 17},
        "full": {"b": 16, "c": 64, "h": 128, "w": 128, "oh": 256, "ow": 256},
    },
    "grid_sample": {
        "small": {"b": 2, "c": 5, "h": 7, "w": 9, "n": 33},
        "full": {"b": 8, "c": 256, "h": 64, "w": 64, "n": 16384},
    },
    "bilateral": {"small": {"h": 13, "w": 19, "r": 2}, "full": {"h": 2160, "w": 3840, "r": 3}},
    "hash_grid": {
        "small": {"n": 65, "levels": 4, "size": 128},
        "full": {"n": 1048576, "levels": 16, "size": 524288},
    },
    "rendered": {"small": {"rays": 37, "s": 29}, "full": {"rays": 262144, "s": 128}},
    "boltzmann": {"small": {"h": 9, "w": 21}, "full": {"h": 4096, "w": 4096}},
    "norm_conv": {
        "small": {"b": 2, "h": 7, "w": 9, "c": 32, "groups": 4, "f": 32},
        "full": {"b": 8, "h": 64, "w": 64, "c": 320, "groups": 32, "f": 320},
    },
    "modulated": {
        "small": {"b": 2, "t": 37, "d": 64, "f": 96},
        "full": {"b": 8, "t": 4096, "d": 1152, "f": 1152},
    },
    "overlaps_suppressed": {"small": {"n": 97}, "full": {"n": 16384}},
    "gravity": {"small": {"n": 77}, "full": {"n": 32768}},
    "col2im": {
        "small": {"b": 2, "h": 5, "c": 6, "k": 3, "stride": 2},
        "full": {"b": 16, "h": 56, "c": 64, "k": 3, "stride": 1},
    },
    "upsampled": {"small": {"n": 9, "k": 3}, "full": {"n": 4194304, "k": 4}},
    "focal": {"small": {"n": 37, "c": 53}, "full": {"n": 32768, "c": 4096}},
    "triplet": {"small": {"n": 83, "d": 32}, "full": {"n": 8192, "d": 256}},
}
