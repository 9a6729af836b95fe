"""Transforms of rows in log n steps, each of which reads the one before it at pairs of places."""

from __future__ import annotations

import math

from ir import Axis, Graph, Tile, UsageError, cos, operator, sin, where

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "fft": {
        "small": {"m": 3, "n": 16},
        "audio": {"m": 3000, "n": 512},
        "long convolution": {"m": 768, "n": 16384},
    },
    "hadamard_steps": {
        "small": {"m": 5, "n": 32},
        "quarot": {"m": 8192, "n": 4096, "dtype": "bf16"},
    },
}


def _bits(what: str, n: int) -> int:
    if n < 1 or n & (n - 1):
        raise UsageError(f"{what}: n={n} is no power of two")
    return n.bit_length() - 1


@operator
def fft(g: Graph, m: int, n: int) -> None:
    """Y[m, f] = sum over t of (X_re + i X_im)[m, t] exp(-2 pi i t f / n), n a power of two.

    The fast Fourier transform of rows (Stockham, 1966): after step s, x[q, p] is frequency p of the
    2^s elements q, q + n / 2^s, ... X is (m, n, 1), Y_re and Y_im are (m, 1, n), the same bytes.
    """
    bits = _bits("fft", n)
    mm, q, p = g.axes(m=m, q=n, p=1)
    real, imaginary = (g.input(name, (mm, q, p), "f32") for name in ("X_re", "X_im"))
    for step in range(bits):
        half = 1 << step
        rest, frequency = g.axes(**{f"q{step}": n // (2 * half), f"p{step}": 2 * half})
        same = g.iota(frequency) % half
        even_re, even_im = (x.at({q: rest, p: same}) for x in (real, imaginary))
        odd_re, odd_im = (x.at({q: rest + rest.extent, p: same}) for x in (real, imaginary))
        angle = g.iota(frequency) * (math.pi / half)
        c, s = cos(angle), sin(angle)
        real = even_re + odd_re * c + odd_im * s
        imaginary = even_im + odd_im * c - odd_re * s
        q, p = rest, frequency
    g.output("Y_re", real, dims=(mm, q, p))
    g.output("Y_im", imaginary, dims=(mm, q, p))


def _paired(x: Tile, axis: Axis, half: int) -> Tile:
    """Sums where a bit of the coordinate is 0, differences where it is 1, of the two beside it."""
    place = x.graph.iota(axis)
    bit = place & half
    first, second = x.at({axis: place - bit}), x.at({axis: place - bit + half})
    return where(bit == 0, first + second, first - second)


@operator
def hadamard_steps(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """Y[m, i] = sum over j of (-1)^(bits of i & j) X[m, j] / sqrt(n), n a power of two; in steps.

    The Walsh-Hadamard transform of rows by sums and differences of pairs, n log n of them.
    """
    mm, nn = g.axes(m=m, n=n)
    x = g.input("X", (mm, nn), dtype)
    for step in range(_bits("hadamard_steps", n)):
        x = _paired(x, nn, 1 << step)
    g.output("Y", x * (1 / math.sqrt(n)), dtype, (mm, nn))
