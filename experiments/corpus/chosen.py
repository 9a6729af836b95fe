"""First few of many, long rows that blocks share, and products of tensors of three axes, written
after what they need was done.

`tilewright tune experiments/corpus/chosen.py:NAME full --target cuda`
"""

from __future__ import annotations

from ir import (
    Graph,
    argmin,
    cast,
    contract,
    exp,
    log,
    maximum,
    minimum,
    operator,
    reduce,
    rsqrt,
    sigmoid,
    sqrt,
    top,
    where,
)


@operator
def grouped_router(g: Graph, t: int, groups: int, e: int, chosen: int, k: int) -> None:
    """Groups of experts by the sum of their two best, and the best within the best groups."""
    tokens, group, expert, two, of, best = g.axes(t=t, n=groups, e=e, two=2, c=chosen, k=k)
    x = sigmoid(g.input("X", (tokens, group, expert), "f32"))
    pairs, _ = top(x, expert, two)
    score = reduce("sum", pairs, over=two)
    kept, _ = top(score, group, of)
    left = where(score >= reduce("min", kept, over=of), x, 0.0)
    values, places = top(left, expert, best)
    g.output("V", values, "f32", (tokens, group, best))
    g.output("I", places, "i32", (tokens, group, best))


@operator
def quantiser(g: Graph, n: int, s: int, k: int, d: int) -> None:
    """The nearest of k codes in each of s parts of a vector."""
    nn, part, code, dd = g.axes(n=n, s=s, k=k, d=d)
    x, c = g.input("X", (nn, part, dd), "bf16"), g.input("C", (part, code, dd), "bf16")
    own = reduce("sum", cast(c, "f32") * cast(c, "f32"), over=dd)
    g.output("I", argmin(own - 2.0 * contract(x, c, over=dd), code), "i32", (nn, part))


@operator
def neighbours(g: Graph, m: int, n: int, d: int) -> None:
    """The five nearest of many, how far they are, and the mean of what they say."""
    mm, nn, dd, five = g.axes(m=m, n=n, d=d, five=5)
    x, y = g.input("X", (mm, dd), "bf16"), g.input("Y", (nn, dd), "bf16")
    own = reduce("sum", cast(y, "f32") * cast(y, "f32"), over=dd)
    far, places = top(own - 2.0 * contract(x, y, over=dd), nn, five, least=True)
    says = g.input("L", (nn,), "f32")
    g.output("D", far, "f32", (mm, five))
    g.output("S", reduce("sum", says.at({nn: places}), over=five) * 0.2, "f32", (mm,))


@operator
def mttkrp(g: Graph, i: int, j: int, k: int, r: int) -> None:
    """A tensor times the Khatri-Rao product of two factors."""
    ii, jj, kk, rr = g.axes(i=i, j=j, k=k, r=r)
    t = contract(g.input("T", (ii, jj, kk), "bf16"), g.input("C", (kk, rr), "bf16"), over=kk)
    g.output("M", reduce("sum", t * g.input("B", (jj, rr), "bf16"), over=jj), "f32", (ii, rr))


@operator
def pooled_pairs(g: Graph, b: int, s: int, c: int, d: int) -> None:
    """Sums of outer products, their signed roots, each sample divided by its norm."""
    bb, ss, cc, dd = g.axes(b=b, s=s, c=c, d=d)
    m = contract(g.input("X", (bb, ss, cc), "bf16"), g.input("Y", (bb, ss, dd), "bf16"), over=ss)
    r = where(m < 0.0, -1.0, 1.0) * sqrt(maximum(m, -m) + 1e-6)
    n = reduce("sum", r * r, over=(cc, dd))
    g.output("Z", r * rsqrt(n + 1e-12), "bf16", (bb, cc, dd))


@operator
def vlad(g: Graph, b: int, s: int, k: int, d: int) -> None:
    """Soft assignments to centres, what is left of each centre, divided by its norm."""
    bb, ss, kk, dd, ee = g.axes(b=b, s=s, k=k, d=d, e=d)
    a = contract(g.input("X", (bb, ss, dd), "bf16"), g.input("W", (kk, dd), "bf16"), over=dd)
    p = exp(a - reduce("max", a, over=kk))
    p = cast(p / reduce("sum", p, over=kk), "bf16")
    all_of_it = reduce("sum", cast(p, "f32"), over=ss) * g.input("C", (kk, ee), "f32")
    v = contract(p, g.input("Z", (bb, ss, ee), "bf16"), over=ss) - all_of_it
    norm = rsqrt(reduce("sum", v * v, over=ee) + 1e-6)
    g.output("V", v * norm, "bf16", (bb, kk, ee))


@operator
def beam(g: Graph, b: int, w: int, v: int) -> None:
    """The four likeliest next words of each beam, with what the beam has."""
    bb, ww, vv, four = g.axes(b=b, w=w, v=v, four=4)
    x = cast(g.input("X", (bb, ww, vv), "bf16"), "f32")
    most = reduce("max", x, over=vv)
    total = log(reduce("sum", exp(x - most), over=vv)) + most
    best, places = top(x - total + g.input("S", (bb, ww), "f32"), vv, four)
    g.output("P", best, "f32", (bb, ww, four))
    g.output("I", places, "i32", (bb, ww, four))


@operator
def standardised(g: Graph, o: int, n: int) -> None:
    """Weights of a layer standardised and scaled, and the largest of each row."""
    oo, nn = g.axes(o=o, n=n)
    w = g.input("W", (oo, nn), "f32")
    mean = reduce("sum", w, over=nn) * (1 / n)
    v = reduce("sum", (w - mean) * (w - mean), over=nn) * (1 / n)
    y = (w - mean) * rsqrt(v + 1e-5) * g.input("gain", (oo,), "f32")
    g.output("Y", y, "bf16", (oo, nn))
    g.output("M", reduce("max", maximum(y, -y), over=nn), "f32", (oo,))


@operator
def vocabulary(g: Graph, m: int, n: int) -> None:
    """Softmax of few rows as long as a vocabulary."""
    mm, nn = g.axes(m=m, n=n)
    x = g.input("X", (mm, nn), "f32")
    e = exp(x - reduce("max", x, over=nn))
    g.output("Y", e / reduce("sum", e, over=nn), "f32", (mm, nn))


@operator
def instances(g: Graph, b: int, c: int, s: int) -> None:
    """Instance norm of large images."""
    bb, cc, ss = g.axes(b=b, c=c, s=s)
    x = cast(g.input("X", (bb, cc, ss), "bf16"), "f32")
    mean = reduce("sum", x, over=ss) * (1 / s)
    v = reduce("sum", (x - mean) * (x - mean), over=ss) * (1 / s)
    y = (x - mean) * rsqrt(v + 1e-5) * g.input("W", (cc,), "f32")
    g.output("Y", y, "bf16", (bb, cc, ss))


@operator
def channels_last(g: Graph, b: int, s: int, n: int, c: int) -> None:
    """Group norm and SiLU of images whose channels are neighbours."""
    bb, ss, nn, cc = g.axes(b=b, s=s, n=n, c=c)
    x = cast(g.input("X", (bb, ss, nn, cc), "bf16"), "f32")
    mean = reduce("sum", x, over=(ss, cc)) * (1 / (s * c))
    v = reduce("sum", x * x, over=(ss, cc)) * (1 / (s * c)) - mean * mean
    y = (x - mean) * rsqrt(v + 1e-5) * g.input("W", (nn, cc), "f32") + g.input("b", (nn, cc), "f32")
    g.output("Y", y * sigmoid(y), "bf16", (bb, ss, nn, cc))


@operator
def limited(g: Graph, t: int, n: int) -> None:
    """Gradients no longer than one, tensor by tensor, and the largest of each."""
    tt, nn = g.axes(t=t, n=n)
    x = g.input("G", (tt, nn), "f32")
    s = reduce("sum", x * x, over=nn)
    g.output("Y", x * minimum(1.0, rsqrt(s + 1e-12)), "f32", (tt, nn))
    g.output("M", reduce("max", maximum(x, -x), over=nn), "f32", (tt,))


@operator
def few_rows(g: Graph, m: int, n: int) -> None:
    """Few rows as fp8, each with a scale."""
    mm, nn = g.axes(m=m, n=n)
    x = cast(g.input("X", (mm, nn), "bf16"), "f32")
    a = maximum(reduce("max", maximum(x, -x), over=nn), 1e-6)
    g.output("Q", cast(x * (448.0 / a), "e4m3"), "e4m3", (mm, nn))
    g.output("S", a * (1 / 448.0), "f32", (mm,))


EXTENTS = {
    "grouped_router": {
        "small": {"t": 5, "groups": 4, "e": 8, "chosen": 2, "k": 3},
        "full": {"t": 16384, "groups": 8, "e": 32, "chosen": 4, "k": 4},
    },
    "quantiser": {
        "small": {"n": 37, "s": 2, "k": 24, "d": 16},
        "full": {"n": 262144, "s": 8, "k": 256, "d": 16},
    },
    "neighbours": {
        "small": {"m": 19, "n": 40, "d": 32},
        "full": {"m": 8192, "n": 65536, "d": 128},
    },
    "mttkrp": {
        "small": {"i": 17, "j": 12, "k": 20, "r": 16},
        "full": {"i": 1024, "j": 512, "k": 512, "r": 64},
    },
    "pooled_pairs": {
        "small": {"b": 2, "s": 33, "c": 24, "d": 40},
        "full": {"b": 64, "s": 784, "c": 512, "d": 512},
    },
    "vlad": {
        "small": {"b": 2, "s": 45, "k": 16, "d": 32},
        "full": {"b": 64, "s": 1200, "k": 64, "d": 512},
    },
    "beam": {"small": {"b": 2, "w": 3, "v": 700}, "full": {"b": 16, "w": 4, "v": 128256}},
    "standardised": {"small": {"o": 3, "n": 900}, "full": {"o": 512, "n": 18432}},
    "vocabulary": {"small": {"m": 3, "n": 2000}, "full": {"m": 64, "n": 151936}},
    "instances": {"small": {"b": 2, "c": 3, "s": 1500}, "full": {"b": 4, "c": 64, "s": 65536}},
    "channels_last": {
        "small": {"b": 2, "s": 700, "n": 4, "c": 16},
        "full": {"b": 8, "s": 4096, "n": 32, "c": 20},
    },
    "limited": {"small": {"t": 2, "n": 3000}, "full": {"t": 48, "n": 262144}},
    "few_rows": {"small": {"m": 3, "n": 2048}, "full": {"m": 16, "n": 53248}},
}
