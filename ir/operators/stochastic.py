"""Rounding to one of the two nearest, by chance in proportion: right on average."""

from __future__ import annotations

from ir import Graph, absolute, floor, maximum, minimum, operator, philox_uniform, reduce

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "quantise_stochastic": {
        "small": {"m": 7, "n": 53},
        "llama3-70b gradients": {"m": 8192, "n": 8192, "dtype": "bf16"},
    },
}


@operator
def quantise_stochastic(g: Graph, m: int, n: int, seed: int = 0, dtype: str = "f32") -> None:
    """Q[m, n] = floor(X[m, n] / scale[m] + u), scale[m] = max |X[m]| / 127, u between 0 and 1.

    Rows of 8-bit integers whose mean over many seeds is X / scale. u is the upper 24 bits of word
    n mod 4 of Philox 4x32-10 at the counter (n div 4, m) under the key `seed`: the same everywhere.
    """
    mm, nn = g.axes(m=m, n=n)
    x = g.input("X", (mm, nn), dtype)
    scale = maximum(reduce("max", absolute(x), over=nn) * (1 / 127), 1e-12)
    rounded = floor(x / scale + philox_uniform(g.iota(nn), g.iota(mm), seed))
    g.output("Q", maximum(minimum(rounded, 127.0), -127.0), "i8", (mm, nn))
    g.output("scale", scale, "f32", (mm,))
