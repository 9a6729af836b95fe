"""Programs whose outputs are of every kind: truth values, whole numbers, infinities, e4m3."""

from __future__ import annotations

from ir import (
    Graph,
    absolute,
    cast,
    contract,
    exp,
    log,
    maximum,
    operator,
    reduce,
    relu,
    rsqrt,
    sqrt,
    tanh,
    where,
)
from ir.values import lengths, offsets, probabilities, uniform


@operator
def above_mean(g: Graph, m: int, n: int, dtype: str) -> None:
    """Which elements exceed the mean of their row."""
    i, j = g.axes(m=m, n=n)
    x = g.input("X", (i, j), dtype)
    g.output("above", x > reduce("sum", x, j) / n, "bool")


@operator
def quantised_rows(g: Graph, m: int, n: int) -> None:
    """Rows as bytes, with the scale of each."""
    i, j = g.axes(m=m, n=n)
    x = g.input("X", (i, j), "f32")
    top = maximum(reduce("max", x, j), -1.0 * reduce("min", x, j))
    g.output("Q", cast(x * (127.0 / top), "i8"), "i8")
    g.output("scale", top / 127.0)


@operator
def counted(g: Graph, m: int, n: int) -> None:
    """How many elements of each column are positive, and how many of all above one."""
    i, j = g.axes(m=m, n=n)
    x = g.input("X", (i, j), "f32")
    g.output("count", reduce("sum", where(x > 0.0, 1, 0), i))
    g.output("rows", reduce("sum", where(x > 1.0, 1, 0), j))


@operator
def logarithms(g: Graph, m: int, n: int) -> None:
    """Logarithms of what may be zero, and shares of rows that may be empty: infinities and NaNs."""
    i, j = g.axes(m=m, n=n)
    x = relu(g.input("X", (i, j), "f32"))
    some = where(g.iota(i) < m - 3, x, 0.0)
    g.output("L", log(x))
    g.output("P", some / reduce("sum", some, j), "bf16")


@operator
def ragged_mean(g: Graph, b: int, n: int, d: int, dtype: str) -> None:
    """Means over sequences of different lengths."""
    i, t, e = g.axes(b=b, t=n, e=d)
    x = g.input("X", (i, t, e), dtype)
    length = g.input("length", (i,), "i32", values=lengths(n, 1))
    seen = where(g.iota(t) < length, cast(x, "f32"), 0.0)
    g.output("Y", reduce("sum", seen, t) / cast(length, "f32"), dtype)


@operator
def narrow_norm(g: Graph, m: int, n: int) -> None:
    """RMS norm with a weight, into e4m3."""
    i, j = g.axes(m=m, n=n)
    x, w = g.input("X", (i, j), "bf16"), g.input("w", (j,), "bf16")
    g.output("Y", x * w * rsqrt(reduce("sum", x * x, j) / n + 1e-6), "e4m3")


@operator
def cross_entropy(g: Graph, m: int, n: int) -> None:
    """Of given distributions, under a softmax."""
    i, j = g.axes(m=m, n=n)
    x = g.input("X", (i, j), "bf16")
    p = g.input("P", (i, j), "f32", values=probabilities())
    top = reduce("max", x, j)
    total = log(reduce("sum", exp(x - top), j)) + top
    g.output("loss", total - reduce("sum", p * x, j))


@operator
def gathered_rows(g: Graph, m: int, n: int, rows: int, dtype: str) -> None:
    """Rows of a table, scaled, added to others."""
    i, j = g.axes(m=m, n=n)
    index, s = g.input("index", (i,), "i32"), g.input("s", (i,), "f32")
    table, x = g.tensor("T", (rows, n), dtype), g.input("X", (i, j), dtype)
    g.output("Y", table[index, j] * s + x, dtype)


@operator
def mean_and_deviation(g: Graph, m: int, n: int, dtype: str) -> None:
    """Of columns far from zero."""
    i, j = g.axes(m=m, n=n)
    x = g.input("X", (i, j), dtype, values=uniform(1.0, 3.0))
    mean = reduce("sum", x, i) / m
    g.output("mean", mean)
    g.output("deviation", sqrt(reduce("sum", (x - mean) ** 2, i) / m))


@operator
def segment_sizes(g: Graph, n: int, total: int) -> None:
    """Differences of neighbouring offsets."""
    (i,) = g.axes(i=n)
    bound = g.tensor("bounds", (n + 1,), "i32", values=offsets(total))
    g.output("size", bound[i + 1] - bound[i])


@operator
def nearest_point(g: Graph, m: int, n: int, d: int) -> None:
    """The nearest of some points, up to a part in ten thousand, and how far it is."""
    i, j, k = g.axes(i=m, j=n, k=d)
    x, y = g.input("X", (i, k), "f32"), g.input("Y", (j, k), "f32")
    distance = reduce("sum", absolute(x - y), k)
    best = reduce("min", distance, j)
    g.output("index", reduce("min", where(distance <= best * 1.0001, g.iota(j), n), j))
    g.output("best", best)


@operator
def masked_softmax(g: Graph, m: int, n: int, dtype: str) -> None:
    """Softmax of rows of which every fourth is masked, and of each another part."""
    i, j = g.axes(m=m, n=n)
    x = g.input("X", (i, j), dtype)
    seen = (g.iota(j) < n - g.iota(i)) & (g.iota(i) < m - m // 4)
    score = where(seen, x, -1e4)
    e = exp(score - reduce("max", score, j))
    g.output("Y", e / reduce("sum", e, j), dtype)


@operator
def softcap_attention(g: Graph, h: int, q: int, k: int, d: int) -> None:
    """Attention with a cap on the scores and a bias for each key."""
    head, query, key, depth = g.axes(h=h, q=q, k=k, d=d)
    queries, keys = (
        g.input("Q", (head, query, depth), "bf16"),
        g.input("K", (head, key, depth), "bf16"),
    )
    column = g.axis("e", d)
    values, bias = g.input("V", (head, key, column), "bf16"), g.input("bias", (head, key), "f32")
    score = tanh(contract(queries, keys, over=depth) * (0.2 * d**-0.5)) * 5.0 + bias
    p = exp(score - reduce("max", score, key))
    mixed = contract(cast(p, "bf16"), values, over=key)
    g.output("O", mixed / reduce("sum", p, key), "bf16")


@operator
def banded(g: Graph, m: int, k: int, dtype: str) -> None:
    """A product of which only a band is kept, with a bias for each column."""
    i, j, depth = g.axes(i=m, j=m, k=k)
    a, b = g.input("A", (i, depth), dtype), g.input("B", (j, depth), dtype)
    score = contract(a, b, over=depth) + g.input("bias", (j,), "f32")
    inside = (g.iota(i) - g.iota(j) < 9) & (g.iota(j) - g.iota(i) < 9)
    g.output("C", where(inside, score, 0.0), dtype)
