"""Indices that are computed in 32 bits, in 64: an index is inside of its array, so that these are
the same numbers, and how they grow along an axis can be told. Knows no target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ir.plain.accesses import assigned, every, names_in
from ir.plain.code import (
    Accumulate,
    Assign,
    Between,
    Call,
    Combine,
    Convert,
    Element,
    If,
    Let,
    Loop,
    Name,
    Number,
    PlainKernel,
    Scalar,
    Spread,
    Statement,
    Write,
)
from ir.plain.scalars import index, rebuilt


def with_long_indices(kernel: PlainKernel) -> PlainKernel:
    """The kernel with the sums and multiples in its reads' and writes' indices as numbers of 64
    bits."""
    return replace(kernel, body=_Long(kernel).block(kernel.body))


class _Long:
    def __init__(self, kernel: PlainKernel) -> None:
        changed = assigned(kernel.body)
        lets = [s for s in every(kernel.body) if isinstance(s, Let) and s.name.dtype == "i32"]
        self.known: Mapping[str, Scalar] = {
            s.name.name: s.value for s in lets
            if not changed & {s.name.name, *(name.name for name in names_in(s.value))}
        }  # fmt: skip

    def block(self, statements: Sequence[Statement]) -> tuple[Statement, ...]:
        return tuple(map(self._statement, statements))

    def _statement(self, s: Statement) -> Statement:
        if isinstance(s, Let | Assign):
            return replace(s, value=self._reads(s.value))
        if isinstance(s, Write | Combine):
            return replace(s, index=self._long_inside(self._reads(s.index)),
                           value=self._reads(s.value))  # fmt: skip
        if isinstance(s, If):
            condition = self._reads(s.condition)
            return replace(s, condition=condition, body=self.block(s.body),
                           other=self.block(s.other))  # fmt: skip
        if isinstance(s, Accumulate):
            values = tuple(map(self._reads, s.values))
            return replace(s, values=values, body=self.block(s.body), keep=self.block(s.keep))
        if isinstance(s, Loop | Between | Spread):
            return replace(s, body=self.block(s.body))
        return s

    def _reads(self, scalar: Scalar) -> Scalar:
        """A scalar whose reads have long indices."""

        def change(one: Scalar) -> Scalar | None:
            if not isinstance(one, Element):
                return None
            return replace(one, index=self._long_inside(self._reads(one.index)))

        return rebuilt(scalar, change)

    def _long_inside(self, place: Scalar) -> Scalar:
        """An index with its conversions from 32 bits moved inwards."""

        def change(one: Scalar) -> Scalar | None:
            if isinstance(one, Element):
                return one
            if isinstance(one, Convert) and (one.to, one.arg.dtype) == ("i64", "i32"):
                return self._long(one.arg)
            return None

        return rebuilt(place, change)

    def _long(self, scalar: Scalar) -> Scalar:
        """A number of 32 bits in 64, made of numbers of 64 as far as it is a sum or a multiple."""
        if isinstance(scalar, Number):
            return index(int(scalar.value))
        if isinstance(scalar, Convert) and (scalar.to, scalar.arg.dtype) == ("i32", "i64"):
            return scalar.arg
        if isinstance(scalar, Name) and self._is_even(self.known.get(scalar.name)):
            return self._long(self.known[scalar.name])
        if isinstance(scalar, Call) and self._is_even(scalar):
            return Call(scalar.function, tuple(map(self._long, scalar.args)), "i64")
        return Convert(scalar, "i64", "i64")

    @staticmethod
    def _is_even(scalar: Scalar | None) -> bool:
        """Whether it is a coordinate, a sum or a multiple."""
        if isinstance(scalar, Convert):
            return (scalar.to, scalar.arg.dtype) == ("i32", "i64")
        if not isinstance(scalar, Call):
            return False
        factor = scalar.function == "mul" and isinstance(scalar.args[1], Number)
        return factor or scalar.function in ("add", "sub")
