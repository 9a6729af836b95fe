"""Numbers of every element type, held as float64: widths, rounding, data that multiply exactly.

Integers up to 32 bits and every float type named here are subsets of float64, so equality is exact.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

WIDTHS = {
    "bool": 8, "u4": 4, "i4": 4, "u8": 8, "i8": 8, "i16": 16, "i32": 32, "i64": 64,
    "e4m3": 8, "e5m2": 8, "bf16": 16, "f16": 16, "tf32": 32, "f32": 32, "f64": 64,
}  # fmt: skip

# (stored mantissa bits, smallest normal exponent, largest finite value)
_FLOATS = {
    "e4m3": (3, -6, 448.0),
    "e5m2": (2, -14, 57344.0),
    "bf16": (7, -126, 3.3895313892515355e38),
    "f16": (10, -14, 65504.0),
    "tf32": (10, -126, 3.4011621342146535e38),
    "f32": (23, -126, 3.4028234663852886e38),
}


def width(dtype: str) -> int:
    """Bits of one element."""
    return WIDTHS[dtype]


def is_integer(dtype: str) -> bool:
    return dtype[0] in "iu" or dtype == "bool"


def rounded(values: Values, dtype: str) -> Values:
    """The nearest value of `dtype`: ties to even, 8-bit floats saturate, integers are clamped."""
    if dtype == "f64":
        return values
    if is_integer(dtype):
        return _clamped(values, dtype)
    mantissa, smallest, largest = _FLOATS[dtype]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        exponent = np.maximum(np.frexp(values)[1] - 1, smallest)
        unit = np.ldexp(1.0, exponent - mantissa)
        near = np.round(values / unit) * unit
        over = np.sign(values) * (largest if dtype in ("e4m3", "e5m2") else np.inf)
        result = np.where(np.abs(near) > largest, over, near)
    keep = np.isnan(values) | (np.isinf(values) & ~np.isin(dtype, ("e4m3", "e5m2")))
    return np.where(keep, values, result)


def _clamped(values: Values, dtype: str) -> Values:
    bits, signed = width(dtype), dtype[0] == "i"
    low = -(2.0 ** (bits - 1)) if signed else 0.0
    high = 2.0 ** (bits - signed) - 1
    return np.clip(np.trunc(values), low, high)


def sample(dtype: str, count: int, generator: np.random.Generator) -> Values:
    """Values of `dtype` whose products and sums over a tile stay exact in f32 and i32."""
    if dtype == "bool":
        return generator.integers(0, 2, count).astype(np.float64)
    if dtype.startswith("u"):
        return generator.integers(0, 16, count).astype(np.float64)
    if dtype.startswith("i"):
        return generator.integers(-8, 8, count).astype(np.float64)
    steps = generator.integers(-7, 8, count).astype(np.float64)
    return rounded(steps / 2, dtype)
