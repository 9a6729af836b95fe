"""Integer expressions over variables of known range, simplified as they are built.

An `Expression` is a value: it compares, hashes, prints as C, and is evaluated with numpy. Built by
the functions here, it has no division that its ranges make needless: with t < 32,
quotient(remainder(t, 32), 4) is t >> 2. Knows no layout.

>>> t = variable("t", 128)
>>> str(total(scaled(remainder(quotient(t, 4), 8), 2), remainder(t, 2)))
'((t >> 1) & 14) + (t & 1)'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.layout.errors import LayoutError

Number = int | NDArray[np.int64]


@dataclass(frozen=True)
class Expression:
    """`constant` plus the sum of all (factor, atom) of `terms`."""

    constant: int
    terms: tuple[tuple[int, Atom], ...] = ()

    @cached_property
    def low(self) -> int:
        """The least value."""
        ends = (f * (atom.low if f > 0 else atom.high) for f, atom in self.terms)
        return self.constant + sum(ends)

    @cached_property
    def high(self) -> int:
        """The largest value."""
        ends = (f * (atom.high if f > 0 else atom.low) for f, atom in self.terms)
        return self.constant + sum(ends)

    @cached_property
    def bits(self) -> int:
        """A mask of the bits that some value may have; of what may be negative all."""
        found = 0
        for factor, atom in (*self.terms, (self.constant, ONE)):
            own = _scaled_bits(factor, atom)
            if own < 0 or found & own:
                return _reached(self)
            found |= own
        return found

    @property
    def apart(self) -> bool:
        """Whether no bit can be in two terms: their sum is their XOR."""
        found = 0
        for factor, atom in (*self.terms, (self.constant, ONE)):
            own = _scaled_bits(factor, atom)
            if own < 0 or found & own:
                return False
            found |= own
        return True

    def at(self, **values: Number) -> Number:
        """The value where variables have these values (arrays broadcast)."""
        found: Number = self.constant
        for factor, atom in self.terms:
            found = found + factor * atom.at(values)
        return found

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        from ir.layout.printing import text

        return text(self)


@dataclass(frozen=True)
class Atom:
    """What a sum is made of. `low` and `high` are its least and largest value."""

    @property
    def low(self) -> int:
        return 0

    @property
    def high(self) -> int:
        raise NotImplementedError

    @property
    def bits(self) -> int:
        """A mask of the bits that some value may have."""
        return _below(self.high)

    def at(self, values: Mapping[str, Number]) -> Number:
        raise NotImplementedError


@dataclass(frozen=True)
class Variable(Atom):
    """A name for a value in [0, extent), a multiple of `step`."""

    name: str
    extent: int
    step: int = 1

    @property
    def high(self) -> int:
        return (self.extent - 1) // self.step * self.step

    @property
    def bits(self) -> int:
        return _below(self.high) & -(self.step & -self.step)

    def at(self, values: Mapping[str, Number]) -> Number:
        if self.name not in values:
            raise LayoutError("unknown-dimension", f"no value for {self.name}")
        return values[self.name]


@dataclass(frozen=True)
class Quotient(Atom):
    """`inner` // `by`, of what is never negative."""

    inner: Expression
    by: int

    @cached_property
    def high(self) -> int:
        return self.inner.high // self.by

    @cached_property
    def bits(self) -> int:
        shift = self.by.bit_length() - 1
        return self.inner.bits >> shift if self.by == 1 << shift else _below(self.high)

    def at(self, values: Mapping[str, Number]) -> Number:
        return self.inner.at(**values) // self.by


@dataclass(frozen=True)
class Remainder(Atom):
    """`inner` % `by`, of what is never negative."""

    inner: Expression
    by: int

    @cached_property
    def high(self) -> int:
        return min(self.inner.high, self.by - 1)

    @cached_property
    def bits(self) -> int:
        whole = self.by & (self.by - 1) == 0
        return self.inner.bits & (self.by - 1) if whole else _below(self.high)

    def at(self, values: Mapping[str, Number]) -> Number:
        return self.inner.at(**values) % self.by


@dataclass(frozen=True)
class Xor(Atom):
    """The bits in which two expressions differ, neither of them ever negative."""

    left: Expression
    right: Expression

    @cached_property
    def bits(self) -> int:
        return self.left.bits | self.right.bits

    @cached_property
    def high(self) -> int:
        return self.bits

    def at(self, values: Mapping[str, Number]) -> Number:
        return self.left.at(**values) ^ self.right.at(**values)


@dataclass(frozen=True)
class _One(Atom):
    """What the constant of a sum is a multiple of."""

    @property
    def high(self) -> int:
        return 1


ONE = _One()
ZERO = Expression(0)


def _below(high: int) -> int:
    return (1 << high.bit_length()) - 1


def _scaled_bits(factor: int, atom: Atom) -> int:
    """Bits of factor * atom; -1 (all) where it may be negative."""
    if factor < 0 or atom.low < 0:
        return -1
    if factor & (factor - 1) == 0:
        return atom.bits * factor
    return _below(factor * atom.high) & -(factor & -factor) if factor * atom.high else 0


def _reached(value: Expression) -> int:
    """Bits up to the largest value, without those below the least step."""
    if value.low < 0:
        return -1
    least = 0
    for factor, atom in (*value.terms, (value.constant, ONE)):
        own = _scaled_bits(factor, atom)
        least |= own & -own
    return _below(value.high) & -(least & -least)


# -- building


def variable(name: str, extent: int, step: int = 1) -> Expression:
    """A variable in [0, extent), of multiples of `step`; LayoutError "extent" below one value."""
    if extent < 1 or step < 1:
        raise LayoutError("extent", f"{name} in [0, {extent}) by {step}: at least 1")
    if extent <= step:
        return ZERO
    whole, own = step & -step, Expression(0, ((1, Variable(name, extent, step)),))
    return own if whole == 1 else scaled(_atom(Quotient(own, whole)), whole)


def constant(value: int) -> Expression:
    return Expression(value)


def total(*parts: Expression) -> Expression:
    """The sum."""
    factors: dict[Atom, int] = {}
    for part in parts:
        for factor, atom in part.terms:
            factors[atom] = factors.get(atom, 0) + factor
    return _sum(sum(part.constant for part in parts), factors.items())


def _sum(start: int, factors: Iterable[tuple[Atom, int]]) -> Expression:
    """Terms in one order, a remainder beside its quotient joined again."""
    found = {atom: factor for atom, factor in factors if factor}
    for atom, factor in tuple(found.items()):
        if isinstance(atom, Remainder) and found.get(atom) == factor:
            whole = quotient(atom.inner, atom.by)
            if len(whole.terms) != 1 or whole.constant or whole.terms[0][0] != 1:
                continue
            other = whole.terms[0][1]
            if found.get(other) == factor * atom.by:
                del found[atom], found[other]
                return total(_sum(start, found.items()), scaled(atom.inner, factor))
    ordered = sorted(((f, a) for a, f in found.items()), key=lambda term: (-term[0], repr(term[1])))
    return Expression(start, tuple(ordered))


def scaled(value: Expression, factor: int) -> Expression:
    """factor * value."""
    if not factor:
        return ZERO
    return Expression(value.constant * factor, tuple((f * factor, a) for f, a in value.terms))


def quotient(value: Expression, by: int) -> Expression:
    """value // by; LayoutError "coordinate" where the value may be negative."""
    return _split(value, by)[0]


def remainder(value: Expression, by: int) -> Expression:
    """value % by; LayoutError "coordinate" where the value may be negative."""
    return _split(value, by)[1]


def _split(value: Expression, by: int) -> tuple[Expression, Expression]:
    """Quotient and remainder."""
    _not_negative(value)
    if by < 1:
        raise LayoutError("extent", f"division by {by}: at least 1")
    if by == 1:
        return value, ZERO
    if value.high < by:
        return ZERO, value
    for step in sorted({gcd(by, factor) for factor, _ in value.terms} | {by}, reverse=True):
        inside, outside = _parted(value, step)
        if step > 1 and inside.low >= 0 and inside.high < step:
            if step == by:
                return outside, inside
            whole, rest = _split(outside, by // step)
            return whole, total(scaled(rest, step), inside)
    if len(value.terms) == 1 and value.terms[0][0] == 1 and not value.constant:
        return _split_atom(value, value.terms[0][1], by)
    outside, inside = _out_of(value, by)
    if outside != ZERO:
        whole, rest = _split(inside, by)
        return total(outside, whole), rest
    return _atom(Quotient(value, by)), _atom(Remainder(value, by))


def _parted(value: Expression, step: int) -> tuple[Expression, Expression]:
    """What is no multiple of `step`, and a `step`-th of what is."""
    inside = tuple((f, a) for f, a in value.terms if f % step)
    outside = tuple((f // step, a) for f, a in value.terms if f % step == 0)
    return Expression(value.constant % step, inside), Expression(value.constant // step, outside)


def _out_of(value: Expression, by: int) -> tuple[Expression, Expression]:
    """Multiples of `by`, divided, and the rest; all in the rest where that may be negative."""
    inside, outside = _parted(value, by)
    return (outside, inside) if min(inside.low, outside.low) >= 0 else (ZERO, value)


def _split_atom(value: Expression, atom: Atom, by: int) -> tuple[Expression, Expression]:
    if isinstance(atom, Quotient):
        whole = quotient(atom.inner, atom.by * by)
        return whole, _atom(Remainder(value, by))
    if isinstance(atom, Remainder) and atom.by % by == 0:
        first, rest = _split(atom.inner, by)
        return remainder(first, atom.by // by), rest
    return _atom(Quotient(value, by)), _atom(Remainder(value, by))


def _atom(atom: Atom) -> Expression:
    return Expression(0, ((1, atom),)) if atom.bits else ZERO


def exclusive(left: Expression, right: Expression) -> Expression:
    """left ^ right; a sum where no bit can be in both."""
    _not_negative(left)
    _not_negative(right)
    if left == right:
        return ZERO
    if left.bits & right.bits == 0:
        return total(left, right)
    if not left.terms and not right.terms:
        return constant(left.constant ^ right.constant)
    if not (left.apart and right.apart):
        return _atom(Xor(left, right))
    shared = left.bits & right.bits
    free, one = _without(left, shared)
    more, other = _without(right, shared)
    step = _common_step(one, other)
    one, other = _parted(one, step)[1], _parted(other, step)[1]
    if not one.terms and not other.terms:
        met = constant(one.constant ^ other.constant)
    else:
        met = _atom(Xor(*sorted((one, other), key=lambda side: (not side.terms, repr(side)))))
    return total(free, more, scaled(met, step))


def _without(value: Expression, bits: int) -> tuple[Expression, Expression]:
    """Terms that have none of these bits, and the others."""
    out = tuple((f, a) for f, a in value.terms if not _scaled_bits(f, a) & bits)
    kept = tuple((f, a) for f, a in value.terms if _scaled_bits(f, a) & bits)
    return (
        Expression(value.constant & ~bits, out),
        Expression(value.constant & bits, kept),
    )


def _common_step(*values: Expression) -> int:
    """The largest power of two that divides all factors."""
    every = 0
    for value in values:
        every |= value.constant
        for factor, _ in value.terms:
            every |= factor
    return every & -every


def _not_negative(value: Expression) -> None:
    if value.low < 0:
        raise LayoutError("coordinate", f"{value} may be {value.low}: at least 0")


def evaluated(value: Expression, **values: Any) -> NDArray[np.int64]:
    """The value at arrays of points, as an array of their common shape."""
    arrays = {name: np.asarray(own, dtype=np.int64) for name, own in values.items()}
    shape = np.broadcast_shapes(*(own.shape for own in arrays.values()))
    return np.broadcast_to(np.asarray(value.at(**arrays), dtype=np.int64), shape)
