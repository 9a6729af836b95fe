"""Narrow float formats as data: how their bits lie, and which instruction converts a vector.

Values of these types are only stored; arithmetic is in f32. Both printers convert by the same
integer arithmetic where the machine has no instruction: widening shifts a number's bits into those
of an f32 whose exponent a multiplication then corrects (exact, subnormals included); narrowing
rounds the bits to nearest even, and numbers below the format's normal ones by an addition. A format
without a sign, a scale, is the exponent of an f32 as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ir.dtypes import dtype_of, from_float
from ir.targets.cpu.instructions import CONVERSIONS, CallRow

F32_MANTISSA, F32_BIAS = 23, 127
INFINITE = 0x7F800000  # bits of an infinite f32
HALF = 1 << 22  # an f32's first bit below the exponent: 2^-127 alone, NaN beside the largest one


@dataclass(frozen=True, slots=True)
class Format:
    """`mantissa` bits below the exponent, whose value is less by `bias`. `infinite`: whether the
    largest exponent means infinity and NaN; else results saturate, and only all ones are NaN, or
    nothing is if not `undefined`. Without a sign it is an exponent alone, which has no 0."""

    name: str
    mantissa: int
    bias: int
    infinite: bool = True
    undefined: bool = True
    signed: bool = True

    @property
    def bits(self) -> int:
        return dtype_of(self.name).bits

    @property
    def width(self) -> int:
        """Bits of the integer in whose low bits it lies."""
        return 8 * dtype_of(self.name).bytes

    @property
    def integer(self) -> str:
        """The scalar whose bits it shares."""
        return f"i{self.width}"

    @property
    def shift(self) -> int:
        """Mantissa bits that an f32 has more."""
        return F32_MANTISSA - self.mantissa

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def rescaled(self) -> bool:
        """Whether exponents count from another bias than those of f32."""
        return self.bias != F32_BIAS

    @property
    def scale(self) -> float:
        """2^(difference of the biases)."""
        return 2.0 ** (F32_BIAS - self.bias)

    @property
    def moved(self) -> int:
        """The bits of a number but its sign, moved to those of an f32."""
        return (self.sign - 1) << self.shift

    @property
    def special(self) -> int:
        """From here on, moved bits mean infinity or NaN."""
        exponents = (self.sign - 1) >> self.mantissa << self.mantissa
        return (exponents if self.infinite else self.sign - 1) << self.shift

    @property
    def smallest(self) -> int:
        """Bits of the smallest normal number, as an f32."""
        return (F32_BIAS + 1 - self.bias) << F32_MANTISSA

    @property
    def largest(self) -> int:
        """Bits of the f32 from which on results are infinite, or of the largest number."""
        if self.infinite:
            return (F32_BIAS + 1 + self.bias) << F32_MANTISSA
        return (self.sign - 1 - self.undefined << self.shift) + self.offset

    @property
    def offset(self) -> int:
        """Difference of the biases in the place of an f32's exponent."""
        return (F32_BIAS - self.bias) << F32_MANTISSA

    @property
    def aligner(self) -> float:
        """A number whose last place is the format's smallest: adding it rounds to that."""
        return 2.0 ** (1 - self.bias - self.mantissa + F32_MANTISSA)

    @property
    def aligner_bits(self) -> int:
        return int(np.float32(self.aligner).view(np.uint32))

    @property
    def nan(self) -> int:
        """The pattern of a quiet NaN, or of the number that stands for it."""
        if not self.infinite:
            return self.sign - 1
        return (self.special >> self.shift) | 1 << (self.mantissa - 1)


FORMATS = {
    format.name: format
    for format in (
        Format("bf16", 7, 127),
        Format("f16", 10, 15),
        Format("e4m3", 3, 7, infinite=False),
        Format("e5m2", 2, 15),
        Format("e2m1", 1, 1, infinite=False, undefined=False),
        Format("e8m0", 0, 127, infinite=False, signed=False),
    )
}


def pattern(value: float, name: str) -> int:
    """The stored bits of the number nearest to `value`."""
    stored = from_float(np.array([value]), name)
    return int(stored.view(f"u{stored.itemsize}")[0])


def conversion(source: str, target: str, lanes: int, isa: tuple[str, ...]) -> CallRow | None:
    """The instruction that converts `lanes` of `source` at once on a machine with `isa`."""
    for row in CONVERSIONS:
        if (row.source, row.target, row.lanes) == (source, target, lanes) and row.isa in isa:
            return row
    return None
