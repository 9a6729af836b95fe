"""Linear transforms of rows whose matrices are known: Hadamard's and Fourier's."""

from __future__ import annotations

import math

from ir import Axis, Graph, Tile, UsageError, cast, contract, cos, operator, popcount, sin, where

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "hadamard": {
        "small": {"m": 5, "n": 64},
        "quarot": {"m": 8192, "n": 4096, "dtype": "bf16"},
    },
    "dft": {
        "small": {"m": 5, "n": 30},
        "spectrogram": {"m": 3000, "n": 400},
        "fourier-mixing": {"m": 4096, "n": 1024},
    },
}


def _signs(g: Graph, i: Axis, j: Axis) -> Tile:
    """1 where i & j has an even number of bits, else -1."""
    return where(popcount(g.iota(i) & g.iota(j)) % 2 == 0, 1.0, -1.0)


@operator
def hadamard(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """Y[m, i] = sum over j of (-1)^(bits of i & j) X[m, j] / sqrt(n), n a power of two.

    The Walsh-Hadamard transform of rows, as those of the high and of the low half of the bits one
    behind the other: X and Y are (m, high, low), the same bytes.
    """
    bits = n.bit_length() - 1
    if n != 1 << bits:
        raise UsageError(f"hadamard: n={n} is no power of two")
    high, low = 1 << (bits // 2), 1 << (bits - bits // 2)
    mm, ih, il, jh, jl = g.axes(m=m, ih=high, il=low, jh=high, jl=low)
    half = contract(g.input("X", (mm, jh, jl), dtype), _signs(g, il, jl), over=jl)
    whole = contract(half, _signs(g, ih, jh), over=jh) * (1 / math.sqrt(n))
    g.output("Y", whole, dtype, (mm, ih, il))


@operator
def dft(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """Y[m, f] = sum over t of (X_re + i X_im)[m, t] exp(-2 pi i t f / n), n up to 46340.

    The discrete Fourier transform of complex rows as products with cosines and sines of type
    `dtype`. Y_re and Y_im are its parts.
    """
    if not 1 <= n <= 46340:
        raise UsageError(f"dft: n={n}; it is 1 to 46340, so that t f is a whole number of 32 bits")
    mm, t, f = g.axes(m=m, t=n, f=n)
    real, imaginary = g.input("X_re", (mm, t), dtype), g.input("X_im", (mm, t), dtype)
    angle = (g.iota(t) * g.iota(f)) % n * (2 * math.pi / n)
    cosine, sine = cast(cos(angle), dtype), cast(sin(angle), dtype)
    y_re = contract(real, cosine, over=t) + contract(imaginary, sine, over=t)
    y_im = contract(imaginary, cosine, over=t) - contract(real, sine, over=t)
    g.output("Y_re", y_re, dtype, (mm, f))
    g.output("Y_im", y_im, dtype, (mm, f))
