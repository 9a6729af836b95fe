"""Programs of whole numbers, bits, tables and counted random numbers."""

from __future__ import annotations

from ir import (
    Graph,
    Operator,
    bitcast,
    cast,
    contract,
    lookup,
    operator,
    philox,
    philox_uniform,
    popcount,
    reduce,
    where,
)
from ir.tiles import apply

NF4 = (
    -1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0, 0.0796, 0.1609, 0.2461, 0.3379,
    0.4407, 0.5626, 0.723, 1.0,
)  # fmt: skip


@operator
def every_whole_function(g: Graph, n: int, dtype: str = "i32") -> None:
    """Every function of one and two whole numbers, with constants on either side too."""
    (i,) = g.axes(i=n)
    x, y = g.input("X", (i,), dtype), g.input("Y", (i,), dtype)
    found = {
        "mod": x % y, "quotient": x // y, "both": x & y, "either": x | y, "one": x ^ y,
        "others": ~x, "left": x << y, "right": x >> y, "count": popcount(x), "mod7": x % 7,
        "quotient7": x // -7, "mod8": x % 8, "quotient8": x // 8, "rest": 100 % y,
        "power": 1 << (y & 15), "again": (x >> 3) ^ (x << 2), "divided": (x | 1) // (y | 1),
        "bits": philox(x, y, 12345, 2), "any": philox(x, 0, 7, i), "share": philox_uniform(x, y),
        "entry": lookup([0.5, -1, 2.25, 7], y), "byte": lookup(range(200), x, "u8"),
        "wide": lookup([1 << 40, -5], y, "i64"), "twelve": lookup(range(-7, 5), x & 15, "i32"),
        "sixteen": lookup(NF4, y & 15), "twenty": lookup([n / 4 - 2 for n in range(20)], x),
        "same": cast(x, "bool") ^ cast(y, "bool"),
    }  # fmt: skip
    for name, value in found.items():
        g.output(name, value)
    if dtype in ("i32", "i64"):
        real = bitcast(x, "f32" if dtype == "i32" else "f64")
        g.output("real", where(real == real, real, 0.0))
        g.output("back", bitcast(real, dtype))


@operator
def bits_of_floats(g: Graph, n: int) -> None:
    """Signs, exponents and fractions of floats of all widths."""
    (i,) = g.axes(i=n)
    single, double = g.input("S", (i,), "f32"), g.input("D", (i,), "f64")
    small = g.input("E", (i,), "e4m3")
    g.output("exponent", (bitcast(single, "i32") >> 23) & 255)
    g.output("fraction", bitcast(double, "i64") & ((1 << 52) - 1))
    g.output("sign", bitcast(small, "i8") >> 7)
    g.output("byte", bitcast(small, "u8") + 0)
    g.output("doubled", bitcast(cast(bitcast(small, "u8") ^ 128, "u8"), "e4m3") * 2.0)


@operator
def scattered(g: Graph, m: int, n: int) -> None:
    """Dropout by counting, and which of a hash's bits each row has."""
    i, j = g.axes(i=m, j=n)
    x = g.input("X", (i, j), "f32")
    kept = philox_uniform(g.coordinate(i * n + j), seed=11) < 0.75
    g.output("Y", where(kept, x / 0.75, 0.0))
    g.output("kept", reduce("sum", cast(kept, "i32"), j))
    g.output("hash", reduce("max", popcount(philox(g.iota(i), g.iota(j), 5) & 0xFFFF), j))


@operator
def shares(g: Graph, m: int, n: int) -> None:
    """Quotients and rests of coordinates by powers of two, and what four neighbours share."""
    i, j = g.axes(i=m, j=n)
    x, place = g.input("X", (i, j), "f32"), g.coordinate(i * n - 3 * j + 5)
    wide = cast(place, "i64") - (1 << 33)
    g.output("quotient", place >> 3)
    g.output("rest", place & 7)
    g.output("far", (wide >> 2) + (wide & 3) + (cast(wide, "i32") & 15))
    g.output("kept", where(philox_uniform(g.iota(j), g.iota(i), 5) < 0.5, x, 0.0))


BOUNDS = (-0.5, 0.0, 2.0**-24, 0.1, 0.5, 3 * 2.0**-24, 1 - 2.0**-24, 1.0, 7.0)


@operator
def draws(g: Graph, n: int) -> None:
    """Drawn numbers beside bounds that some of them are; each of a word of its own, as a number
    that several ask for is held."""
    (i,) = g.axes(i=n)
    words, other = cast(g.input("words", (i,), "u32"), "i64"), 0
    for number, bound in enumerate(BOUNDS):
        for name in ("lt", "le", "gt", "ge", "eq"):
            other += 1 << 32  # of which a drawn number has nothing
            held = getattr(apply("unit", words + other), f"__{name}__")(bound)
            g.output(f"{name}{number}", cast(held, "i32"))


@operator
def nf4_product(g: Graph, m: int, n: int, k: int) -> None:
    """Weights of four bits, two to a byte, that a table gives their values."""
    rows, columns, pair, half = g.axes(m=m, n=n, k=k, half=2)
    a = g.input("A", (rows, pair, half), "bf16")
    w, scale = g.input("W", (columns, pair), "u8"), g.input("scale", (columns,), "f32")
    code = (cast(w, "i32") >> (g.iota(half) * 4)) & 15
    weights = cast(lookup(NF4, code, "bf16"), "bf16")
    g.output("C", contract(a, weights, over=(pair, half)) * scale, "bf16")


@operator
def ring(g: Graph, n: int, size: int) -> None:
    """A ring buffer read from a position on: an index by a remainder."""
    (i,) = g.axes(i=n)
    start, x = g.tensor("start", (), "i32")[()], g.tensor("X", (size,), "f32")
    g.output("Y", x[(start + i) % size] + x[(-1 - g.iota(i)) % size])


ALL: tuple[Operator, ...] = (every_whole_function, bits_of_floats, scattered, nf4_product, ring)
