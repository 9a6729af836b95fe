"""Operators on tensors of the rarer element types: packed weights, scales, bits of integers."""

from __future__ import annotations

from ir import Graph, apply, cast, contract, maximum, operator, reduce, where


@operator
def w4_groups(g: Graph, m: int, n: int, parts: int, each: int, dtype: str = "i4") -> None:
    """Packed weights with a scale for each group of them; the sum runs over one plain axis."""
    rows, columns, depth = g.axes(m=m, n=n, k=parts * each)
    x = g.input("X", (rows, depth), "bf16")
    scale = g.tensor("scale", (n, parts), "f32")
    group = apply("shr", g.iota(depth), each.bit_length() - 1)
    weights = cast(g.input("W", (columns, depth), dtype), "f32") * scale[columns, group]
    g.output("Y", contract(x, cast(weights, "bf16"), over=depth), "bf16")


@operator
def w4_halves(g: Graph, m: int, n: int, pairs: int, dtype: str = "i4", zero: bool = False) -> None:
    """The same weights by pairs: the bytes are then read at plain indices."""
    rows, columns, pair = g.axes(m=m, n=n, k=pairs)
    half = g.axis("half", 2)
    x = g.tensor("X", (m, 2 * pairs), "bf16")[rows, pair * 2 + half]
    w = g.tensor("W", (n, 2 * pairs), dtype)[columns, 2 * pair + half]
    q = w - g.input("zero", (columns,), "u8") if zero else w
    scale = g.input("scale", (columns,), "f32")
    g.output("Y", contract(x, cast(q, "bf16"), over=(pair, half)) * scale, "bf16")


@operator
def fp4_blocks(g: Graph, m: int, n: int, blocks: int, block: int = 32) -> None:
    """FP4 weights with an e8m0 scale for each block of them."""
    rows, columns, part, place = g.axes(m=m, n=n, part=blocks, place=block)
    x = g.input("X", (rows, part, place), "f16")
    w = g.tensor("W", (n, blocks * block), "e2m1")[columns, part * block + place]
    scale = g.input("scale", (columns, part), "e8m0")
    g.output("Y", contract(x, cast(w * scale, "f16"), over=(part, place)), "f32")


@operator
def to_fp4(g: Graph, m: int, n: int) -> None:
    """Rows as FP4 numbers, each row with the power of two that brings it into their range."""
    rows, columns = g.axes(m=m, n=n)
    x = g.input("X", (rows, columns), "f32")
    scale = cast(reduce("max", maximum(x, -x), over=columns) * (1 / 6), "e8m0")
    g.output("scale", scale)
    g.output("Y", cast(cast(x / scale, "e2m1"), "f32") * scale, "f32")


@operator
def dotted(g: Graph, m: int, n: int, k: int, left: str, right: str, out: str = "i32") -> None:
    """A product of whole numbers of two types."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    a, b = g.input("A", (rows, depth), left), g.input("B", (columns, depth), right)
    g.output("Y", contract(a, b, over=depth), out)


@operator
def mixed_bits(g: Graph, n: int) -> None:
    """The end of a hash: products modulo 2^32, shifts, and the high half of a product."""
    place = g.axis("n", n)
    x = g.input("X", (place,), "u32")
    y = cast(x * 0x85EBCA6B, "u32")
    y = cast((y - apply("shr", y, 13)) * 0xC2B2AE35, "u32")
    g.output("low", y - apply("shr", y, 16), "u32")
    g.output("high", cast(apply("shr", x * 0xD2511F53, 32), "u32"))
    g.output("share", cast(apply("shr", y, 8), "f32") * 2.0**-24)
    g.output("larger", where(x < y, y, x), "u32")


@operator
def converted(g: Graph, m: int, n: int, source: str, target: str) -> None:
    """A sum of neighbours in one type as another, and what the rows come to."""
    rows, columns = g.axes(m=m, n=n)
    x = g.input("X", (rows, columns), source)
    g.output("Y", x + cast(x, "f32") * 0.5, target)
    g.output("top", reduce("max", x, over=columns))
    g.output("sum", reduce("sum", cast(x, target), over=columns))


@operator
def around(g: Graph, m: int, n: int, dtype: str) -> None:
    """Packed neighbours, with ones beyond the ends of the rows, and rows chosen by a table."""
    rows, columns, step = g.axes(m=m, n=n, step=3)
    x = g.tensor("X", (m, n), dtype, fill=1)
    table = g.input("table", (rows,), "i32")
    near = x[rows, columns + step - 1]
    far = g.tensor("Z", (5, n), dtype)[table, columns]
    g.output("Y", reduce("sum", near, over=step) * far, "f32")


@operator
def codebook(g: Graph, m: int, n: int, dtype: str = "u4") -> None:
    """Numbers looked up by packed codes."""
    rows, columns = g.axes(m=m, n=n)
    book = g.tensor("book", (16,), "f32")
    g.output("Y", book[g.input("codes", (rows, columns), dtype)])


@operator
def wide_addends(g: Graph, m: int, n: int, k: int, dtype: str) -> None:
    """A product on tensor cores, and numbers of 64 bits that are added to its rows and columns."""
    i, j, d = g.axes(i=m, j=n, d=k)
    product = contract(g.input("A", (i, d), "bf16"), g.input("B", (j, d), "bf16"), over=d)
    rows, columns = g.input("R", (i,), dtype), g.input("C", (j,), dtype)
    each = g.input("E", (i, j), dtype)
    for addend in (rows, columns, each):
        product = product + cast(addend, "f32")
    g.output("Y", product, "f32", (i, j))
