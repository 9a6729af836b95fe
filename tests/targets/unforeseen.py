"""Programs of kinds that no other file has: tensors read in two ways, lists of tiles, Kronecker
products, carried states, scalars, whole numbers of 64 bits."""

from __future__ import annotations

from typing import Any

from ir import (
    Graph,
    absolute,
    apply,
    carry,
    cast,
    contract,
    cumulative,
    exp,
    log,
    maximum,
    minimum,
    now,
    operator,
    prior,
    recur,
    reduce,
    relu,
    rsqrt,
    scan,
    where,
)
from ir.builder import Operator
from ir.values import indices


@operator
def gram(g: Graph, m: int, k: int, dtype: str) -> None:
    """X X^T, with the norms of its rows on either side."""
    rows, columns, depth = g.axes(i=m, j=m, k=k)
    x = g.tensor("X", (m, k), dtype)
    a, b = x[rows, depth], x[columns, depth]
    norms = reduce("sum", a * a, depth) + reduce("sum", b * b, depth)
    g.output("D", maximum(norms - contract(a, b, over=depth) * 2.0, 0.0), "f32")


@operator
def neighbours(g: Graph, m: int, n: int) -> None:
    """A stencil, the transposed tensor's rows turned round, and a looked-up row."""
    i, j = g.axes(i=m, j=n)
    x, index = g.tensor("X", (m, n), "f32", fill=0), g.input("index", (i,), "i64")
    g.output("Y", x[i + 1, j] + x[i - 1, j] - x[i, n - 1 - j] * 2.0 + x[index, j])


@operator
def cosine(g: Graph, m: int, n: int, k: int, dtype: str) -> None:
    """Products over the norms of both sides: sums of squares beside a product."""
    i, j, depth = g.axes(i=m, j=n, k=k)
    x, y = g.input("X", (i, depth), dtype), g.input("Y", (j, depth), dtype)
    norms = rsqrt(reduce("sum", x * x, depth) + 1.0) * rsqrt(reduce("sum", y * y, depth) + 1.0)
    g.output("C", contract(x, y, over=depth) * norms, dtype)


@operator
def kronecker(g: Graph, m: int, a: int, b: int, dtype: str) -> None:
    """A Hadamard transform of a * b points as two of a and b."""
    r, p, q, s, t = g.axes(r=m, p=a, q=b, s=a, t=b)
    x, h = g.input("X", (r, s, t), dtype), g.tensor("H", (max(a, b),) * 2, dtype)
    first = cast(contract(x, h[s, p], over=s), dtype)
    g.output("Y", contract(first, h[t, q], over=t), dtype, (r, p, q))


@operator
def listed_tiles(g: Graph, m: int, n: int, tiles: int, depth: int, dtype: str) -> None:
    """A product with a sparse matrix of which a list names the tiles along the sum."""
    i, j, tile, k = g.axes(m=m, n=n, tile=tiles, k=depth)
    a, index = g.input("A", (i, tile, k), dtype), g.input("index", (tile,), "i32")
    b = g.tensor("B", (2 * tiles, depth, n), dtype)
    g.output("C", contract(a, b[index, k, j], over=(tile, k)), dtype)


@operator
def written_carries(g: Graph, m: int, n: int) -> None:
    """A state carried from block to block by hand, and read again behind it."""
    i, j = g.axes(i=m, j=n)
    x = g.input("X", (i, j), "f32")
    top = carry("max", x, over=j)
    factor = exp(prior(top) - now(top))
    total = carry("sum", exp(x - now(top)), over=j, factor=factor)
    g.output("L", log(total) + top)
    g.output("P", exp(x - top) / total)


@operator
def weighted_rows(g: Graph, m: int, n: int, k: int, dtype: str) -> None:
    """softmax(X) W, carried by hand: weights that vary along the rows alone."""
    i, j, depth = g.axes(i=m, j=n, k=k)
    x, w = g.input("X", (i, depth), dtype), g.input("W", (depth, j), dtype)
    top = carry("max", x, over=depth)
    weight, factor = exp(x - now(top)), exp(prior(top) - now(top))
    total = carry("sum", weight, over=depth, factor=factor)
    g.output("Y", carry("sum", weight * w, over=depth, factor=factor) / total, dtype)


@operator
def moments(g: Graph, m: int, n: int) -> None:
    """Means, variances, least of each column, and what is left without the mean."""
    i, j = g.axes(i=m, j=n)
    x = g.input("X", (i, j), "f32")
    mean = reduce("sum", x, j) / n
    g.output("mean", mean)
    g.output("var", reduce("sum", (x - mean) ** 2, j) / n)
    g.output("least", reduce("min", x, i))
    g.output("Y", cast(x - mean, "f16"))


@operator
def self_attention(g: Graph, s: int, d: int, dtype: str) -> None:
    """Queries, keys and values are one tensor."""
    q, k, e, v = g.axes(q=s, k=s, e=d, v=d)
    x = g.tensor("X", (s, d), dtype)
    score = contract(x[q, e], x[k, e], over=e) * 0.25
    p = exp(score - reduce("max", score, k))
    mixed = contract(cast(p, dtype), x[k, v], over=k)
    g.output("O", mixed / reduce("sum", p, k), dtype)


@operator
def both_scaled(g: Graph, m: int, n: int, k: int, dtype: str) -> None:
    """Both operands of a product are scaled by one vector along the sum."""
    i, j, depth = g.axes(i=m, j=n, k=k)
    a, b = g.input("A", (i, depth), dtype), g.input("B", (j, depth), dtype)
    s = g.input("s", (depth,), "f32")
    g.output("C", contract(cast(a * s, dtype), cast(relu(b) * s, dtype), over=depth), dtype)


@operator
def nearest(g: Graph, m: int, n: int, d: int) -> None:
    """The nearest of some points, and how far it is."""
    i, j, k = g.axes(i=m, j=n, k=d)
    x, y = g.input("X", (i, k), "f32"), g.input("Y", (j, k), "f32")
    distance = reduce("sum", absolute(x - y), k)
    best = reduce("min", distance, j)
    g.output("index", reduce("min", where(distance <= best, g.iota(j), n), j))
    g.output("best", best)


@operator
def scalars(g: Graph, n: int) -> None:
    """A scalar of scalars, one of sums, and a constant."""
    (i,) = g.axes(i=n)
    x = g.input("x", (i,), "f32")
    a, b = (g.tensor(name, (), "f32")[()] for name in ("a", "b"))
    g.output("y", exp(a) * b)
    g.output("z", log(reduce("sum", x * x, i) + 1.0) * reduce("max", x, i))
    g.output("c", g.constant(2.5, "f32"))


@operator
def wide_integers(g: Graph, m: int, n: int, k: int) -> None:
    """Products of 64 bits, one tensor of which is an operand and a part of another."""
    i, j, depth = g.axes(i=m, j=n, k=k)
    a, b = g.input("A", (i, depth), "i64"), g.input("B", (depth, j), "i8")
    more = cast(b, "i64") + cast(g.iota(depth), "i64")
    g.output("C", contract(a, b, over=depth, acc="i64"))
    g.output("D", contract(apply("bitand", a, 7), more, over=depth, acc="i64"))


@operator
def residual_convolution(g: Graph, n: int, c: int, dtype: str) -> None:
    """A dilated convolution with stride, and the input beside its result."""
    b, p, q, r, s, d, f = g.axes(b=2, p=n, q=n, r=3, s=3, d=c, f=c)
    x = g.tensor("X", (2, 2 * n, 2 * n, c), dtype, fill=0)
    window = x[b, 2 * p + 2 * r - 2, 2 * q + 2 * s - 2, d]
    y = contract(window, g.input("W", (r, s, d, f), dtype), over=(r, s, d))
    g.output("Y", relu(y) + x[b, p, q, f], dtype, (b, p, q, f))


@operator
def entropy(g: Graph, m: int, v: int, d: int, dtype: str) -> None:
    """Cross entropy of a product that is never stored, with the label's row looked up."""
    i, j, k = g.axes(i=m, j=v, k=d)
    x, w = g.input("X", (i, k), dtype), g.tensor("W", (v, d), dtype)
    z, label = contract(x, w[j, k], over=k), g.input("label", (i,), "i32")
    top = reduce("max", z, j)
    total = log(reduce("sum", exp(z - top), j)) + top
    g.output("L", total - contract(x, w[label, k], over=k))


@operator
def edit_distance(g: Graph, b: int, n: int, m: int) -> None:
    """Distances of pairs of strings: each row's minima run along it."""
    i, t, j = g.axes(b=b, t=n, j=m + 1)
    x = g.tensor("X", (b, n), "u8", values=indices(4))
    y = g.tensor("Y", (b, m), "u8", values=indices(4), fill=255)
    before = g.state(t, (i, j), g.iota(j))
    changed = where(x[i, t] == y[i, j - 1], g.constant(0, "i32"), 1)
    best = minimum(before.at(j=j - 1, fill=1 << 20) + changed, before + 1)
    best = where(g.iota(j) == 0, g.iota(t) + 1, best) - g.iota(j)
    g.output("D", recur(before, cumulative("min", best, j) + g.iota(j)), "i32", (i, j))


@operator
def running_states(g: Graph, steps: int, rows: int, n: int) -> None:
    """What runs along each row of a state, of two kinds and from both ends, makes the next."""
    t, r, j = g.axes(t=steps, r=rows, j=n)
    state = g.state(t, (r, j), g.input("X", (r, j), "f32"))
    largest, total = scan(lambda a, b: (maximum(a[0], b[0]), a[1] + b[1]), (state, state * 0.5), j)
    rest = cumulative("sum", state, j, backward=True)
    turned = state.at(r=(g.iota(r) + 1) % rows)
    after = 0.5 * state - 0.1 * largest + (total + rest) * (0.1 / n) + 0.01 * turned
    g.output("Y", recur(state, after), "f32", (r, j))


@operator
def zero_points(g: Graph, m: int, n: int, k: int) -> None:
    """Unsigned by signed bytes, with zero points of rows and of columns."""
    i, j, depth = g.axes(i=m, j=n, k=k)
    a, b = g.input("A", (i, depth), "u8"), g.input("B", (j, depth), "i8")
    za = g.input("za", (i,), "i32", values=indices(200))
    zb = g.input("zb", (j,), "i32", values=indices(5))
    rows, columns = (reduce("sum", cast(x, "i32"), depth) for x in (a, b))
    total = contract(a, b, over=depth) - za * columns - zb * rows + za * zb * k
    g.output("C", cast(total, "f32") * 0.01, "bf16", (i, j))


SMALL: tuple[tuple[Operator, dict[str, Any]], ...] = (
    (gram, {"m": 29, "k": 16, "dtype": "f32"}),
    (gram, {"m": 64, "k": 64, "dtype": "bf16"}),
    (neighbours, {"m": 31, "n": 47}),
    (cosine, {"m": 60, "n": 70, "k": 64, "dtype": "bf16"}),
    (kronecker, {"m": 40, "a": 8, "b": 8, "dtype": "bf16"}),
    (kronecker, {"m": 7, "a": 5, "b": 3, "dtype": "f32"}),
    (listed_tiles, {"m": 64, "n": 64, "tiles": 3, "depth": 32, "dtype": "bf16"}),
    (written_carries, {"m": 13, "n": 60}),
    (weighted_rows, {"m": 64, "n": 64, "k": 64, "dtype": "bf16"}),
    (moments, {"m": 20, "n": 33}),
    (self_attention, {"s": 64, "d": 32, "dtype": "bf16"}),
    (both_scaled, {"m": 128, "n": 128, "k": 512, "dtype": "bf16"}),
    (nearest, {"m": 30, "n": 20, "d": 12}),
    (scalars, {"n": 53}),
    (wide_integers, {"m": 23, "n": 19, "k": 31}),
    (residual_convolution, {"n": 8, "c": 16, "dtype": "f16"}),
    (entropy, {"m": 20, "v": 64, "d": 32, "dtype": "bf16"}),
    (edit_distance, {"b": 3, "n": 6, "m": 70}),
    (running_states, {"steps": 3, "rows": 3, "n": 75}),
    (running_states, {"steps": 3, "rows": 40, "n": 9}),
    (zero_points, {"m": 37, "n": 45, "k": 64}),
)
NAMES = tuple(f"{number}-{one.name}" for number, (one, _) in enumerate(SMALL))
