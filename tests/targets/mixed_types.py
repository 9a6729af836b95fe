"""Operators that mix element types: narrow floats stored, bytes of both signs, rows all masked."""

from __future__ import annotations

from ir import Graph, apply, cast, contract, exp, operator, reduce, relu, sigmoid, where


@operator
def gated(g: Graph, m: int, n: int, k: int, dtype: str = "f16") -> None:
    """A gated layer: silu(X U) * (X W)."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    x = g.input("X", (rows, depth), dtype)
    up, gate = (g.input(name, (columns, depth), dtype) for name in ("U", "W"))
    a = contract(x, up, over=depth)
    g.output("Y", a * sigmoid(a) * contract(x, gate, over=depth), dtype)


@operator
def masked_attention(g: Graph, h: int, q: int, k: int, d: int, dtype: str, low: float) -> None:
    """Causal attention in which every fourth query sees nothing: its weights are all equal."""
    head, query, key, depth = g.axes(h=h, q=q, k=k, d=d)
    column = g.axis("e", d)
    queries = g.input("Q", (head, query, depth), dtype)
    keys, values = g.input("K", (head, key, depth), dtype), g.input("V", (head, key, column), dtype)
    blind = apply("eq", apply("bitand", g.iota(query), 3), 3)
    score = contract(queries, keys, over=depth) * d**-0.5
    score = where(blind, low, where(g.iota(key) <= g.iota(query), score, low))
    p = exp(score - reduce("max", score, key))
    mixed = contract(cast(p, dtype), values, over=key)
    g.output("O", mixed / reduce("sum", p, key), dtype)


@operator
def masked_softmax(g: Graph, m: int, n: int, dtype: str, low: float) -> None:
    """Softmax of rows of which every fourth is masked; the mask is scaled with the rest."""
    rows, columns = g.axes(m=m, n=n)
    x = g.input("X", (rows, columns), dtype)
    blind = apply("eq", apply("bitand", g.iota(rows), 3), 3)
    score = where(blind, low, where(g.iota(columns) < 40, x, low)) * 0.3
    e = exp(score - reduce("max", score, columns))
    g.output("Y", e / reduce("sum", e, columns), dtype)


@operator
def paged_decode(g: Graph, b: int, h: int, pages: int, page: int, d: int, dtype: str) -> None:
    """One query a sequence, keys and values in pages that a table names; some see no key."""
    batch, head, place, token, depth = g.axes(b=b, h=h, p=pages, t=page, d=d)
    column = g.axis("e", d)
    table, length = g.input("table", (batch, place), "i32"), g.input("length", (batch,), "i32")
    query = g.input("Q", (batch, head, depth), dtype)
    keys, values = (g.tensor(name, (20, page, h, d), dtype) for name in "KV")
    score = contract(query, keys[table, token, head, depth], over=depth) * d**-0.5
    seen = g.iota(place) * page + g.iota(token) < apply("bitand", length, 63) - 20
    score = where(seen, score, -1e30)
    p = exp(score - reduce("max", score, (place, token)))
    mixed = contract(cast(p, dtype), values[table, token, head, column], over=(place, token))
    g.output("O", mixed / reduce("sum", p, (place, token)), dtype)


@operator
def narrow_keys(g: Graph, h: int, q: int, k: int, d: int) -> None:
    """Attention whose keys and values are e4m3, of which bf16 holds every number."""
    head, query, key, depth = g.axes(h=h, q=q, k=k, d=d)
    column = g.axis("e", d)
    queries = g.input("Q", (head, query, depth), "bf16")
    keys, values = (
        g.input("K", (head, key, depth), "e4m3"),
        g.input("V", (head, key, column), "e4m3"),
    )
    score = contract(queries, keys, over=depth) * d**-0.5
    p = exp(score - reduce("max", score, key))
    mixed = contract(cast(p, "bf16"), values, over=key)
    g.output("O", mixed / reduce("sum", p, key), "bf16")


@operator
def bytes_product(g: Graph, m: int, n: int, k: int, left: str, right: str) -> None:
    """A product of bytes, signed or not."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    a, b = g.input("A", (rows, depth), left), g.input("B", (depth, columns), right)
    g.output("C", contract(a, b, over=depth))


@operator
def quantised_rows(g: Graph, m: int, n: int, k: int) -> None:
    """Activations become u8 on the way, by the largest of their row."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    x, w = g.input("X", (rows, depth), "f32"), g.input("W", (columns, depth), "i8")
    top = reduce("max", apply("abs", x), depth)
    q = cast(apply("floor", x / top * 100.0 + 128.5), "u8")
    g.output("C", cast(contract(q, w, over=depth), "f32") * top * 0.001, "f16")


@operator
def turned_product(g: Graph, m: int, n: int, k: int) -> None:
    """relu of f16 on both sides of a product, stored as e4m3 with its axes turned."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    a, w = g.input("A", (depth, rows), "f16"), g.input("W", (columns, depth), "f16")
    product = contract(cast(relu(a), "f16"), w, over=depth)
    g.output("C", relu(product), "e4m3", (columns, rows))


@operator
def many_results(g: Graph, m: int, n: int) -> None:
    """One tensor stored in every narrow type."""
    x = g.input("X", g.axes(m=m, n=n), "f64")
    g.output("H", x, "f16")
    g.output("E", cast(x, "f16") * 0.5, "e4m3")
    g.output("T", exp(x), "tf32")
    g.output("U", cast(apply("abs", x) * 50.0, "u8"))
    g.output("N", cast(x * 25.0, "i8"))


@operator
def any_and_all(g: Graph, m: int, n: int) -> None:
    """Truth values combined along either axis, stored, and chosen by."""
    rows, columns = g.axes(m=m, n=n)
    x, flags = g.input("X", (rows, columns), "f32"), g.input("F", (rows, columns), "bool")
    large = reduce("max", x > 2.25, columns)
    g.output("A", large)
    g.output("L", reduce("min", x > -2.25, columns))
    g.output("P", reduce("prod", flags, rows))
    g.output("Y", where(large, x, where(reduce("sum", x > 2.5, rows) > 1, 1.0, 0.0)))


@operator
def repeated_operand(g: Graph, m: int, n: int, k: int, parts: int) -> None:
    """A product over two axes, of which a computed operand varies along one."""
    rows, columns, depth, part = g.axes(m=m, n=n, k=k, parts=parts)
    x = g.input("X", (depth, rows), "bf16")
    w = g.input("W", (columns, part, depth), "bf16")
    g.output("Y", contract(cast(relu(x), "bf16"), w, over=(part, depth)), "bf16")
