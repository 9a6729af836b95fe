"""Operators that no other file knows: gathers, soft caps, f64, chained products, packed int4, two
readings of one tensor, scalars, copies."""

from __future__ import annotations

import math

from ir import (
    Graph,
    apply,
    cast,
    contract,
    exp,
    gelu,
    indices,
    log,
    minimum,
    operator,
    reduce,
    relu,
    rsqrt,
    tanh,
    where,
)


@operator
def embedding_bag(g: Graph, b: int, n: int, e: int, rows: int) -> None:
    """out[b, e] = sum over n of table[index[b, n], e] * weight[b, n]."""
    bag, item, column = g.axes(b=b, n=n, e=e)
    index = g.input("index", (bag, item), "i32")
    weight = g.input("weight", (bag, item), "f32")
    table = g.tensor("table", (rows, e), "f32")
    g.output("out", reduce("sum", table[index, column] * weight, item))


@operator
def softcap_attention(g: Graph, h: int, q: int, k: int, d: int) -> None:
    """Attention with a tanh soft cap on the scores and a bias for each key."""
    head, query, key, depth = g.axes(h=h, q=q, k=k, d=d)
    column = g.axis("e", d)
    queries = g.input("Q", (head, query, depth), "bf16")
    keys = g.input("K", (head, key, depth), "bf16")
    values = g.input("V", (head, key, column), "bf16")
    bias = g.input("bias", (head, key), "f32")
    score = tanh(contract(queries, keys, over=depth) * 0.02) * 50.0 + bias
    p = exp(score - reduce("max", score, key))
    mixed = contract(cast(p, "bf16"), values, over=key)
    g.output("O", mixed / reduce("sum", p, key), "bf16")


@operator
def logsumexp(g: Graph, m: int, n: int) -> None:
    """log of the sum of exponentials, in f64."""
    rows, columns = g.axes(m=m, n=n)
    x = g.input("X", (rows, columns), "f64")
    top = reduce("max", x, columns)
    g.output("Y", log(reduce("sum", exp(x - top), columns)) + top)


@operator
def two_layers(g: Graph, m: int, f: int, d: int, o: int) -> None:
    """gelu(X W) U: one product feeds the next."""
    rows, hidden, depth, out = g.axes(m=m, f=f, d=d, o=o)
    x = g.input("X", (rows, depth), "f32")
    w = g.input("W", (depth, hidden), "f32")
    u = g.input("U", (hidden, out), "f32")
    g.output("Y", contract(gelu(contract(x, w, over=depth)), u, over=hidden))


@operator
def packed_int4(g: Graph, m: int, n: int, k: int, dtype: str = "bf16") -> None:
    """Weights two to a byte (k counts bytes), unpacked, with a scale for each column."""
    rows, columns, pair = g.axes(m=m, n=n, k=k)
    half = g.axis("half", 2)
    a = g.input("A", (rows, pair, half), dtype)
    w, scale = g.input("W", (columns, pair), "u8"), g.input("scale", (columns,), "f32")
    q = apply("bitand", apply("shr", cast(w, "i32"), g.iota(half) * 4), 15) - 8
    g.output("C", contract(a, cast(q, dtype), over=(pair, half)) * scale)


@operator
def grouped_int8(g: Graph, m: int, n: int, groups: int, group: int, dtype: str = "f16") -> None:
    """i8 weights with a scale for each group of the sum, computed before they are multiplied."""
    rows, columns, part, inner = g.axes(m=m, n=n, part=groups, inner=group)
    a = g.input("A", (rows, part, inner), dtype)
    w, scale = g.input("W", (columns, part, inner), "i8"), g.input("scale", (columns, part), dtype)
    weights = cast(cast(w, "f32") * scale, dtype)
    g.output("C", contract(a, weights, over=(part, inner)), dtype)


@operator
def masked_product(g: Graph, m: int, n: int, k: int) -> None:
    """A product with the lower triangle of its first operand, which is stored transposed."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    a, b = g.input("A", (depth, rows), "bf16"), g.input("B", (depth, columns), "bf16")
    lower = where(g.iota(depth) <= g.iota(rows), a, 0.0)
    g.output("C", relu(contract(cast(lower, "bf16"), b, over=depth)), "f32")


@operator
def matmul_f64(g: Graph, m: int, n: int, k: int) -> None:
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    a, b = g.input("A", (rows, depth), "f64"), g.input("B", (depth, columns), "f64")
    g.output("C", contract(a, b, over=depth))


@operator
def gate_and_up(g: Graph, m: int, n: int, k: int) -> None:
    """gelu(X G) * (X U), where one tensor holds the rows of G and then those of U."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    x, w = g.input("X", (rows, depth), "f32"), g.tensor("W", (2 * n, k), "f32")
    gate = contract(x, w[columns, depth], over=depth)
    g.output("Y", gelu(gate) * contract(x, w[columns + n, depth], over=depth))


@operator
def divergence(g: Graph, m: int, n: int) -> None:
    """Kullback-Leibler divergence of the softmax of P from that of Q, for each row."""
    rows, columns = g.axes(m=m, n=n)
    p, q = (g.input(name, (rows, columns), "f32") for name in "PQ")
    top_p, top_q = reduce("max", p, columns), reduce("max", q, columns)
    log_p = p - top_p - log(reduce("sum", exp(p - top_p), columns))
    log_q = q - top_q - log(reduce("sum", exp(q - top_q), columns))
    g.output("KL", reduce("sum", exp(log_p) * (log_p - log_q), columns))


@operator
def three_sums(g: Graph, m: int, n: int) -> None:
    """Sums of the rows, of the columns, and of all squares: a scalar."""
    rows, columns = g.axes(m=m, n=n)
    x = g.input("X", (rows, columns), "f32")
    g.output("R", reduce("sum", x, columns))
    g.output("C", reduce("sum", x, rows))
    g.output("T", reduce("sum", x * x, (rows, columns)))


@operator
def turned(g: Graph, a: int, b: int, c: int) -> None:
    """A copy with its axes in another order, which computes nothing."""
    first, second, third = g.axes(a=a, b=b, c=c)
    x = g.input("X", (first, second, third), "f32")
    g.output("Y", x, dims=(third, first, second))


@operator
def norm_of_sum(g: Graph, m: int, n: int, k: int) -> None:
    """layernorm(X W + R) along n: results are combined over columns of a product."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    x, w = g.input("X", (rows, depth), "bf16"), g.input("W", (depth, columns), "bf16")
    h = contract(x, w, over=depth) + g.input("R", (rows, columns), "bf16")
    centred = h - reduce("sum", h, columns) / n
    scale = rsqrt(reduce("sum", centred * centred, columns) / n + 1e-5)
    g.output("Y", centred * scale, "bf16")


@operator
def router(g: Graph, b: int, m: int, n: int, k: int) -> None:
    """softmax over the batch axis of products, which no tile holds whole."""
    batch, rows, columns, depth = g.axes(b=b, m=m, n=n, k=k)
    x = g.input("X", (batch, rows, depth), "bf16")
    h = contract(x, g.input("W", (batch, columns, depth), "bf16"), over=depth)
    e = exp(h - reduce("max", h, batch))
    g.output("Y", e / reduce("sum", e, batch), "bf16")


@operator
def channels_first(g: Graph, b: int, n: int, c: int, f: int) -> None:
    """A convolution along the last axis, three points wide, of signals, channels first."""
    batch, place, channel, filters, tap = g.axes(b=b, p=n, c=c, f=f, r=3)
    x = g.tensor("X", (b, c, n), "bf16", fill=0)
    w = g.input("W", (filters, channel, tap), "bf16")
    y = contract(x[batch, channel, place + tap - 1], w, over=(channel, tap))
    g.output("Y", y, "bf16", (batch, filters, place))


@operator
def experts(g: Graph, blocks: int, m: int, n: int, k: int, count: int = 4) -> None:
    """Each block of rows times the matrix of its expert, which an index names."""
    block, rows, columns, depth = g.axes(b=blocks, m=m, n=n, k=k)
    chosen = g.input("chosen", (block,), "i32")
    x, w = g.input("X", (block, rows, depth), "bf16"), g.tensor("W", (count, n, k), "bf16")
    product = contract(x, w[chosen, columns, depth], over=depth)
    g.output("Y", product, "bf16", (block, rows, columns))


@operator
def read_windows(g: Graph, m: int, t: int, d: int) -> None:
    """Of each row's window of steps, which two tensors tell, a weighted sum and the largest."""
    row, step, column = g.axes(m=m, t=t, d=d)
    first = g.input("first", (row,), "i32", values=indices(t, 0))
    end = g.input("end", (row,), "i32", values=indices(t + 1, 0))
    x, w = g.input("X", (step, column), "f32"), g.input("W", (row, step), "f32")
    at = g.iota(step)
    inside = (first <= at) & (at < minimum(end, t - 1))
    g.output("sum", contract(where(inside, w, 0.0), x, over=step), dims=(row, column))
    g.output("top", reduce("max", where(inside, x + w, -math.inf), over=step), dims=(row, column))


@operator
def read_tails(g: Graph, m: int, t: int, d: int) -> None:
    """Of each row the sum of the steps from one on that a tensor tells, which may be behind all."""
    row, step, column = g.axes(m=m, t=t, d=d)
    first = g.input("first", (row,), "i32", values=indices(t + 1, 0))
    x, w = g.input("X", (step, column), "f32"), g.input("W", (row, step), "f32")
    tail = where(first <= g.iota(step), w, 0.0)
    g.output("sum", contract(tail, x, over=step), dims=(row, column))


@operator
def centres(g: Graph, b: int, h: int, w: int) -> None:
    """Where the mass of maps lies: sums over two axes of what varies along one of them alone."""
    b_, y, x = g.axes(b=b, y=h, x=w)
    z = g.input("z", (b_, y, x), "f32")
    g.output("row", reduce("sum", z * cast(g.iota(y), "f32"), over=(y, x)), "f32")
    g.output("column", reduce("sum", z * cast(g.iota(x), "f32"), over=(y, x)), "f32")
