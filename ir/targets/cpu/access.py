"""Where things are in memory: affine accesses to tensors, buffers and packed operands.

An access turns a site (for each axis an origin and a constant offset inside the register tile)
into a pointer and a constant byte offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ir.targets.cpu.nest import Builder, Index, Value


@dataclass(frozen=True, slots=True)
class Position:
    """Coordinate on one axis: a run-time origin plus a constant."""

    origin: Index
    inner: int = 0


Site = Mapping[str, Position]


@dataclass(frozen=True, slots=True)
class Digit:
    """One mixed-radix digit of an axis: `unit` elements of the axis move `stride` bytes."""

    unit: int
    stride: int


@dataclass(frozen=True, slots=True)
class Access:
    """`digits` per axis, outermost first; `lows`: the axis value at the base pointer; `steps`: the
    bytes between neighbours along each dimension of a tensor, or of its padded copy."""

    base: Value
    scalar: str
    digits: Mapping[str, tuple[Digit, ...]]
    lows: Mapping[str, Index]
    constant: int = 0
    padded: bool = False  # whole vectors may be read at the edges
    steps: tuple[int, ...] = ()

    def stride(self, axis: str) -> int:
        """Bytes between neighbours on `axis` inside a register tile (0: does not vary)."""
        digits = self.digits.get(axis)
        return digits[-1].stride // digits[-1].unit if digits else 0

    def pointer(
        self, builder: Builder, site: Site, inner: str = "", skip: bool = False, anywhere: str = ""
    ) -> tuple[Value, int]:
        """Pointer and constant byte offset at `site`.

        Origins are multiples of every digit's unit, except on the axis `anywhere`.

        The origin on axis `inner` (the innermost loop's) is added last, or not at all with `skip`:
        what comes before does not change in that loop.
        """
        total: Index = 0
        at = self.constant
        for axis, digits in self.digits.items():
            at += _constant_part(site[axis].inner, digits) if axis in site else 0
            if axis == anywhere:
                total = builder.add(total, self._decomposed(builder, site, axis))
            elif axis != inner:
                total = builder.add(total, self._origin(builder, site, axis))
        pointer = builder.offset(self.base, total)
        if inner in self.digits and not skip:
            pointer = builder.offset(pointer, self._origin(builder, site, inner))
        return pointer, at

    def _decomposed(self, builder: Builder, site: Site, axis: str) -> Index:
        """Bytes of an origin digit by digit."""
        rest = builder.sub(site[axis].origin, self.lows.get(axis, 0))
        total: Index = 0
        for digit in self.digits[axis]:
            part = builder.index("idiv", rest, digit.unit)
            total = builder.add(total, builder.mul(part, digit.stride))
            rest = builder.index("irem", rest, digit.unit) if digit.unit > 1 else 0
        return total

    def _origin(self, builder: Builder, site: Site, axis: str) -> Index:
        relative = builder.sub(site[axis].origin, self.lows.get(axis, 0))
        return self._scaled(builder, relative, self.digits[axis])

    def _scaled(self, builder: Builder, relative: Index, digits: tuple[Digit, ...]) -> Index:
        """Bytes of an origin, which is a multiple of every digit's unit or below it."""
        first = digits[0]
        if len(digits) == 1 or first.stride % first.unit == 0:
            return builder.mul(relative, first.stride // first.unit)
        return builder.mul(builder.index("idiv", relative, first.unit), first.stride)


def _constant_part(inner: int, digits: tuple[Digit, ...]) -> int:
    at = 0
    for digit in digits:
        at += inner // digit.unit * digit.stride
        inner %= digit.unit
    return at
