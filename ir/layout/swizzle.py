"""Swizzles, which XOR one field of address bits into another, and layouts followed by one.

`Swizzle(bits, base, shift)` as in CuTe: bits [base + shift, ... + bits) are XORed into
[base, base + bits). Knows layouts; chooses nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ir.layout.errors import LayoutError
from ir.layout.layout import Layout, _short
from ir.layout.tree import IntTree

_SWIZZLE = re.compile(
    r"\s*S(?:wizzle)?\s*[(<]\s*(\d{1,2})\s*,\s*(\d{1,2})\s*,\s*(-?\d{1,2})\s*[)>]"
)
_COMPOSED = re.compile(r"\s*o\s+(-?\d{1,18})\s+o\s+")
_MOST_BITS = 62
Offset = TypeVar("Offset", int, NDArray[np.int64])


@dataclass(frozen=True, slots=True)
class Swizzle:
    """x XOR (bits of x in the source field, moved to the target field); its own inverse.

    A negative shift moves upwards. Raises LayoutError (swizzle-range) where fields overlap.
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        if self.bits < 0 or self.base < 0:
            raise LayoutError("swizzle-range", f"{self}: bits and base must be 0 or more")
        if self.bits and abs(self.shift) < self.bits:
            raise LayoutError(
                "swizzle-range", f"{self}: a shift of {self.shift} is below {self.bits} bits"
            )
        if self.base + self.bits + abs(self.shift) > _MOST_BITS:
            raise LayoutError("swizzle-range", f"{self} reaches above bit {_MOST_BITS}")

    def __str__(self) -> str:
        return f"S({self.bits},{self.base},{self.shift})"

    @property
    def source(self) -> int:
        """Mask of the bits that are read."""
        return ((1 << self.bits) - 1) << (self.base + max(0, self.shift))

    @property
    def plain(self) -> bool:
        """Whether nothing is changed."""
        return self.bits == 0

    @property
    def pattern(self) -> int:
        """Offsets after which the swizzle repeats."""
        return 1 if self.plain else 1 << self.base + max(0, self.shift) + self.bits

    def __call__(self, offset: Offset) -> Offset:
        """Where an offset (or each of an array) goes."""
        field = offset & self.source
        return offset ^ (field >> self.shift if self.shift >= 0 else field << -self.shift)

    def recast(self, old_bits: int, new_bits: int) -> Swizzle:
        """The same swizzle where offsets count elements of `new_bits` instead of `old_bits`.

        Raises LayoutError (divisibility, swizzle-range) where no such swizzle exists.
        """
        if min(old_bits, new_bits) < 1 or {old_bits.bit_count(), new_bits.bit_count()} != {1}:
            raise LayoutError("divisibility", f"{old_bits} and {new_bits} bits: no powers of two")
        base = self.base + old_bits.bit_length() - new_bits.bit_length()
        if self.plain:
            return Swizzle(0, max(0, base), self.shift)
        if base < 0:
            raise LayoutError(
                "swizzle-range", f"{self} of {old_bits} bits moves parts of elements of {new_bits}"
            )
        return Swizzle(self.bits, base, self.shift)


PLAIN = Swizzle(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Composed:
    """Offsets of `layout`, plus `offset`, through `swizzle`: swizzle(offset + layout(c))."""

    swizzle: Swizzle
    offset: int
    layout: Layout

    def __str__(self) -> str:
        return f"{self.swizzle} o {self.offset} o {self.layout}"

    @property
    def size(self) -> int:
        return self.layout.size

    def __call__(self, place: IntTree) -> int:
        return self.swizzle(self.offset + self.layout(place))

    def at(self, indices: NDArray[Any]) -> NDArray[np.int64]:
        """Offsets of many indices."""
        return self.swizzle(self.layout.at(indices) + self.offset)

    def offsets(self) -> NDArray[np.int64]:
        """The whole function as a table, see `Layout.offsets`."""
        return self.swizzle(self.layout.offsets() + self.offset)


AnyLayout = Layout | Composed


def parse(text: str) -> AnyLayout:
    """Read a layout, with or without `S(B,M,S) o offset o` before it; raises LayoutError."""
    found = _SWIZZLE.match(text)
    if not found:
        return Layout.parse(text)
    middle = _COMPOSED.match(text, found.end())
    if not middle:
        raise LayoutError("parse", f"{_short(text)}: 'o <offset> o <layout>' due after the swizzle")
    swizzle = Swizzle(*map(int, found.groups()))
    return Composed(swizzle, int(middle.group(1)), Layout.parse(text[middle.end() :]))
