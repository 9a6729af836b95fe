"""Rounding to one of the two nearest, by chance in proportion: right on average."""

from __future__ import annotations

from ir import Graph, absolute, apply, cast, maximum, minimum, operator, reduce

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "quantise_stochastic": {
        "small": {"m": 7, "n": 53},
        "llama3-70b gradients": {"m": 8192, "n": 8192, "dtype": "bf16"},
    },
}


@operator
def quantise_stochastic(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """Q[m, n] = floor(X[m, n] / scale[m] + u), scale[m] = max |X[m]| / 127, u between 0 and 1.

    Rows of 8-bit integers whose mean over many roundings is X / scale. u are the lower 24 of 32
    random bits, an input.
    """
    mm, nn = g.axes(m=m, n=n)
    x, bits = g.input("X", (mm, nn), dtype), g.input("bits", (mm, nn), "i32")
    scale = maximum(reduce("max", absolute(x), over=nn) * (1 / 127), 1e-12)
    chance = cast(apply("bitand", bits, (1 << 24) - 1), "f32") * 2.0**-24
    rounded = apply("floor", x / scale + chance)
    g.output("Q", maximum(minimum(rounded, 127.0), -127.0), "i8", (mm, nn))
    g.output("scale", scale, "f32", (mm,))
