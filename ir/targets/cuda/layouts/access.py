"""Addresses: where the elements of a load or a store lie for each thread and register.

Row-major tensors, affine indices over axes. Knows frames; no instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from ir.dtypes import dtype_of
from ir.ops.base import TensorSpec
from ir.ops.load import Load
from ir.ops.store import Store
from ir.targets.cuda.layouts.frame import Digit, Frame
from ir.targets.cuda.text.naming import text_name

VECTOR_BYTES = 16


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of a tensor as it is indexed: stride and extent in elements."""

    terms: tuple[tuple[str, int], ...]
    constant: int
    gather: int | None
    stride: int
    extent: int


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

    def row_first(self, digits: tuple[Digit, ...]) -> tuple[Digit, ...]:
        """The digits of a value, first that along which a thread has neighbours in memory."""
        for digit in digits:
            if digit.stride == 1 and self.stride(digit.axis) == 1:
                return (digit, *(other for other in digits if other != digit))
        return digits

    def vector(self, frame: Frame, digits: tuple[Digit, ...], tiles: Mapping[str, int]) -> int:
        """Elements that one access may take: neighbours in one thread, aligned in every tile."""
        return self.row_vector(frame, digits, tiles) if self.plain else 1

    def row_vector(
        self, frame: Frame, digits: tuple[Digit, ...], tiles: Mapping[str, int]
    ) -> int:  # fmt: skip
        """The same inside of a row, whichever row a gather takes: no index that is looked up may
        vary along it."""
        if not digits or digits[0].stride != 1:
            return 1
        axis = digits[0].axis
        if self.stride(axis) != 1:
            return 1
        width = min(digits[0].size, VECTOR_BYTES // dtype_of(self.dtype).bytes)
        while width > 1 and not self._aligned(width, frame, axis, tiles):
            width //= 2
        return max(1, width)

    def vector_inside(
        self, frame: Frame, digits: tuple[Digit, ...], tiles: Mapping[str, int],
        extents: Mapping[str, int],
    ) -> int:  # fmt: skip
        """The same, where the last tile reaches over its axis: elements that all are inside it or
        all outside."""
        width = self.row_vector(frame, digits, tiles)
        axis = digits[0].axis if digits else ""
        while width > 1 and extents[axis] % tiles[axis] and extents[axis] % width:
            width //= 2
        return width

    def _aligned(self, width: int, frame: Frame, axis: str, tiles: Mapping[str, int]) -> bool:
        if digit_misfits(frame, axis, width):
            return False
        innermost = [d for d in self.dimensions if d.stride == 1]
        if len(innermost) != 1 and not any(dict(d.terms).get(axis) for d in innermost):
            return False
        for dimension in self.dimensions:
            if dimension.gather is not None and dimension.stride % width:
                return False
            for name, coefficient in dimension.terms:
                step = dimension.stride * coefficient
                if name == axis and dimension.stride == 1:
                    step *= tiles[axis]
                    if dimension.extent % width:
                        return False
                if step % width:
                    return False
        return self.constant % width == 0


def digit_misfits(frame: Frame, axis: str, width: int) -> bool:
    """Whether vectors of `width` along `axis` would not start at multiples of it."""
    first = frame.own((axis,))[0]
    if first.size % width:
        return True
    strides = [d.stride for d in frame.own((axis,))[1:]]
    strides += [d.stride(axis) for d in frame.threads if d.stride(axis)]
    return any(stride % width for stride in strides)


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
