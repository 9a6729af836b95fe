"""Addresses: where the elements of a load or a store lie for each thread and register.

Row-major tensors, affine indices over axes. Knows frames; no instruction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd, prod

from ir.dtypes import dtype_of
from ir.ops.base import TensorSpec
from ir.ops.load import Load
from ir.ops.store import Store
from ir.targets.cuda.layouts.frame import Digit, Frame
from ir.targets.cuda.layouts.vectors import VECTOR_BYTES, neighbours
from ir.targets.cuda.text.naming import text_name


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of a tensor as it is indexed: stride and extent in elements. `bent`: what is
    outside is read inside, at another index."""

    terms: tuple[tuple[str, int], ...]
    constant: int
    gather: int | None
    stride: int
    extent: int
    bent: bool = False


@dataclass(frozen=True, slots=True)
class Access:
    """All dimensions of one load or store, the slowest first."""

    tensor: str
    dtype: str
    dimensions: tuple[Dimension, ...]

    @property
    def plain(self) -> bool:
        return all(dimension.gather is None for dimension in self.dimensions)

    def stride(self, axis: str) -> int:
        """Elements from one point of `axis` to the next."""
        return sum(d.stride * dict(d.terms).get(axis, 0) for d in self.dimensions)

    @property
    def constant(self) -> int:
        return sum(d.stride * d.constant for d in self.dimensions)

    @property
    def joined(self) -> Access:
        """The same with the last dimensions, of which one place is read, in the one before them: a
        colour of pixels lies three elements from the next pixel's. Of what has no place outside."""
        if len(self.dimensions) < 2:
            return self
        *outer, before, last = self.dimensions
        looked_up = before.gather is not None or last.gather is not None
        if last.terms or looked_up or before.bent or last.bent:
            return self
        many = last.extent
        terms = tuple((axis, many * c) for axis, c in before.terms)
        place = many * before.constant + last.constant
        both = Dimension(terms, place, None, last.stride, many * before.extent)
        return Access(self.tensor, self.dtype, (*outer, both)).joined

    def row_first(self, digits: tuple[Digit, ...]) -> tuple[Digit, ...]:
        """The digits of a value, first that along which a thread has neighbours in memory."""
        for digit in digits:
            if digit.stride == 1 and self.stride(digit.axis) == 1:
                return (digit, *(other for other in digits if other != digit))
        return digits

    def vector(
        self, frame: Frame, digits: tuple[Digit, ...], tiles: Mapping[str, int],
        extents: Mapping[str, int], ragged: bool = False,
    ) -> int:  # fmt: skip
        """Elements that one access may take: neighbours in one thread, aligned in every tile, all
        inside their axis or all outside, a whole number of times in a row. They are of one row,
        whichever a gather takes: no index that is looked up may vary along it. If `ragged`, the
        last ones of a row may lie outside."""
        axis = digits[0].axis if digits else ""
        if not axis or digits[0].stride != 1 or self.stride(axis) != 1:
            return 1
        own = dict.fromkeys((*digits, *frame.own({a for d in self.dimensions for a, _ in d.terms})))
        registers = tuple((d.size, d.stride * self.stride(d.axis)) for d in own)
        threads = tuple(
            (d.size, sum(stride * self.stride(name) for name, stride in d.strides))
            for d in frame.threads
        )
        starts, row = [*self._starts(tiles)], (d for d in self.dimensions if d.stride == 1)
        if not ragged:
            starts += [d.extent for d in row if dict(d.terms).get(axis)]
        if extents[axis] % tiles[axis] and not ragged:
            starts.append(extents[axis])
        size = dtype_of(self.dtype).bytes
        alignment = gcd(VECTOR_BYTES, *(start * size for start in starts))
        return min(digits[0].size, neighbours(self.dtype, registers, threads, alignment))

    def _starts(self, tiles: Mapping[str, int]) -> Iterator[int]:
        """Elements of which the place of every tile's first element is a sum of multiples."""
        yield self.constant
        for dimension in self.dimensions:
            yield from (dimension.stride * c * tiles[axis] for axis, c in dimension.terms)
            if dimension.gather is not None:
                yield dimension.stride


def load_access(op: Load, spec: TensorSpec) -> Access:
    dimensions, stride = [], prod(spec.shape)
    for index, extent in zip(op.index, spec.shape, strict=True):
        stride //= max(extent, 1)
        dimensions.append(Dimension(index.terms, index.constant, index.gather, stride, extent))
    return Access(text_name(op.tensor), spec.dtype, tuple(dimensions))


def store_access(op: Store, spec: TensorSpec) -> Access:
    dimensions, stride = [], prod(spec.shape)
    for axis, extent in zip(op.axes, spec.shape, strict=True):
        stride //= extent
        dimensions.append(Dimension(((axis, 1),), 0, None, stride, extent))
    return Access(text_name(op.tensor), spec.dtype, tuple(dimensions))
