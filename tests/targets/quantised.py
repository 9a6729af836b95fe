"""Products with an operand that is computed of loads: packed, scaled, cast, normed, masked."""

from __future__ import annotations

from ir import Graph, apply, cast, contract, operator, reduce, relu, rsqrt, where


@operator
def w4_grouped(
    g: Graph, m: int, n: int, groups: int, bytes: int, dtype: str = "bf16", zero: bool = False
) -> None:
    """Weights two to a byte, a scale (and a zero point) for each group of 2 * bytes of the sum."""
    rows, columns, part, pair = g.axes(m=m, n=n, part=groups, pair=bytes)
    half = g.axis("half", 2)
    a = g.input("A", (rows, part, pair, half), dtype)
    w, scale = g.input("W", (columns, part, pair), "u8"), g.input("scale", (columns, part), dtype)
    q = apply("bitand", apply("shr", cast(w, "i32"), g.iota(half) * 4), 15)
    shift = cast(g.input("zero", (columns, part), "u8"), "i32") if zero else 8
    weights = cast(cast(q - shift, "f32") * scale, dtype)
    g.output("C", contract(a, weights, over=(part, pair, half)), dtype)


@operator
def w4_flat(g: Graph, m: int, n: int, k: int) -> None:
    """The same without groups; activations are indexed by 2 * pair + half."""
    rows, columns, pair = g.axes(m=m, n=n, k=k)
    half = g.axis("half", 2)
    a = g.tensor("A", (m, 2 * k), "bf16")[rows, pair * 2 + half]
    w, scale = g.input("W", (columns, pair), "u8"), g.input("scale", (columns,), "f32")
    q = apply("bitand", apply("shr", cast(w, "i32"), g.iota(half) * 4), 15) - 8
    g.output("C", contract(a, cast(q, "bf16"), over=(pair, half)) * scale, "bf16")


@operator
def w8_rows(g: Graph, m: int, n: int, k: int, tb: bool = True, batch: int = 0) -> None:
    """i8 weights with a scale for each row of them."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    some = (g.axis("e", batch),) if batch else ()
    a = g.input("A", (*some, rows, depth), "bf16")
    w = g.input("W", (*some, columns, depth) if tb else (*some, depth, columns), "i8")
    scale = g.input("scale", (*some, columns), "f32")
    weights = cast(cast(w, "f32") * scale, "bf16")
    g.output("C", contract(a, weights, over=depth), "bf16")


@operator
def w8_float(g: Graph, m: int, n: int, k: int, dtype: str = "bf16") -> None:
    """e4m3 weights widened."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    a, w = g.input("A", (rows, depth), dtype), g.input("W", (columns, depth), "e4m3")
    g.output("C", contract(a, cast(w, dtype), over=depth), dtype)


@operator
def scaled_rows(g: Graph, m: int, n: int, k: int) -> None:
    """A with a factor for each row and a weight for each point of the sum (RMS norm, applied)."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    a, b = g.input("A", (rows, depth), "bf16"), g.input("B", (columns, depth), "bf16")
    factor, weight = g.input("factor", (rows,), "f32"), g.input("weight", (depth,), "bf16")
    g.output("C", contract(cast(a * factor * weight, "bf16"), b, over=depth), "bf16")


@operator
def normed_rows(g: Graph, m: int, n: int, k: int) -> None:
    """The same with the factor computed: a reduction, then the product."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    x, w = g.input("X", (rows, depth), "bf16"), g.input("W", (columns, depth), "bf16")
    factor = rsqrt(reduce("sum", x * x, depth) * (1.0 / k) + 1e-6)
    g.output("Y", contract(cast(x * factor, "bf16"), w, over=depth), "bf16")


@operator
def relu_product(g: Graph, m: int, n: int, k: int, ta: bool = False, tb: bool = False) -> None:
    """relu(A) B, either of them transposed."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    a = g.input("A", (depth, rows) if ta else (rows, depth), "f16")
    b = g.input("B", (columns, depth) if tb else (depth, columns), "f16")
    g.output("C", contract(cast(relu(a), "f16"), b, over=depth), "f16")


@operator
def masked_rows(g: Graph, m: int, n: int, k: int) -> None:
    """A product with the lower triangle of its first operand, which is stored transposed."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    a, b = g.input("A", (depth, rows), "bf16"), g.input("B", (depth, columns), "bf16")
    lower = where(g.iota(depth) <= g.iota(rows), a, 0.0)
    g.output("C", relu(contract(cast(lower, "bf16"), b, over=depth)), "f32")


@operator
def gated_w8(g: Graph, m: int, n: int, k: int) -> None:
    """Two products with i8 weights that share their activations."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    x = g.input("X", (rows, depth), "bf16")
    up, gate = (g.input(name, (columns, depth), "i8") for name in ("U", "G"))
    first, second = (contract(x, cast(w, "bf16"), over=depth) for w in (up, gate))
    g.output("Y", first * relu(second) * 0.001, "bf16")


@operator
def strided_product(g: Graph, m: int, n: int, k: int) -> None:
    """The square of every other column of A, which no tensor map reaches."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    a = g.tensor("A", (m, 2 * k), "bf16")[rows, depth * 2]
    b = g.input("B", (columns, depth), "bf16")
    g.output("C", contract(cast(a * a, "bf16"), b, over=depth), "bf16")
