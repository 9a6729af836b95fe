"""load: read a tensor at index expressions over axes (affine), or at indices held by a tile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ir.dtypes import dtype_of, to_float
from ir.errors import ProgramError
from ir.ops.base import Amount, Array, Environment, Error, Scope, TileArray, TileType, aligned
from ir.propagation import reach
from ir.roundoff import ErrorModel

_STRETCH = 1 << 15
_LISTED = 1 << 22  # positions that the host lists for a device; it finds more by itself
_FARTHEST = 2**62  # of positions: with a tile's index on top they still fit in i64


@dataclass(frozen=True, slots=True)
class Index:
    """One dimension's index: sum of coefficient * axis, plus a constant, plus tile `gather`."""

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0
    gather: int | None = None  # position among the load's tile arguments

    def bounds(self, scope: Scope) -> tuple[int, int]:
        """Smallest and largest value of the affine part."""
        low = high = self.constant
        for axis, coefficient in self.terms:
            reach = coefficient * (scope.extents[axis] - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high

    def refuse_far(self, what: str, scope: Scope) -> None:
        """Raises ProgramError where a position has no room in i64, which kernels count in."""
        low, high = self.bounds(scope)
        if low < -_FARTHEST or high > _FARTHEST:
            raise ProgramError(f"{what}: index {self} spans {low}..{high}; 2^62 is the farthest")

    def __str__(self) -> str:
        parts = [axis if c == 1 else f"{c}*{axis}" for axis, c in self.terms]
        if self.gather is not None:
            parts.append(f"[{self.gather}]")
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")


@dataclass(frozen=True, slots=True)
class Load:
    """`fill` is the value outside the tensor; without it every index must be inside."""

    tensor: str
    index: tuple[Index, ...]
    fill: float | None = None
    name: ClassVar[str] = "load"

    def infer(self, args: Sequence[TileType], scope: Scope) -> TileType:
        spec = scope.tensors.get(self.tensor)
        if spec is None:
            raise ProgramError(f"load {self.tensor}: no such tensor")
        if len(self.index) != len(spec.shape):
            raise ProgramError(
                f"load {self.tensor}: {len(self.index)} indices for {len(spec.shape)} dimensions"
            )
        axes = dict.fromkeys(axis for index in self.index for axis, _ in index.terms)
        for arg in args:
            axes.update(dict.fromkeys(arg.axes))
        for axis in axes:
            if axis not in scope.extents:
                raise ProgramError(f"load {self.tensor}: unknown axis {axis!r}")
        reads = all(scope.extents[axis] for axis in axes)
        for dim, (index, extent) in enumerate(zip(self.index, spec.shape, strict=True)):
            self._check(dim, index, extent, args, scope, reads)
        return TileType(tuple(axes), spec.dtype)

    def _check(
        self, dim: int, index: Index, extent: int, args: Sequence[TileType], scope: Scope,
        reads: bool,
    ) -> None:  # fmt: skip
        """Raises ProgramError for an index that is none, or that may be outside where `reads`."""
        index.refuse_far(f"load {self.tensor}: dimension {dim}", scope)
        if index.gather is not None:
            if dtype_of(args[index.gather].dtype).kind not in ("int", "uint"):
                raise ProgramError(f"load {self.tensor}: index tile of dimension {dim} is not int")
            if reads and not extent:
                raise ProgramError(f"load {self.tensor}: dimension {dim} has extent 0: no index is")
            return
        low, high = index.bounds(scope)
        if reads and self.fill is None and (low < 0 or high >= extent):
            raise ProgramError(
                f"load {self.tensor}: index {index} of dimension {dim} spans {low}..{high}, "
                f"the extent is {extent}; give fill= to read outside"
            )

    def meaning(self, args: Sequence[TileArray], env: Environment) -> TileArray:
        return self._sliced(args, env) or self._windowed(env) or self._looked_up(args, env)

    def error(
        self, args: Sequence[TileArray], types: Sequence[TileType], result: TileArray,
        env: Environment, model: ErrorModel,
    ) -> Error | None:  # fmt: skip
        """What is found at an index in doubt may be anything."""
        found: Error | None = None
        for arg in args:
            error = arg.error_over(result.axes)
            if error is not None:
                doubt = in_doubt(error)
                found = Error(doubt if found is None else doubt + found.wide)
        return found

    def _looked_up(self, args: Sequence[TileArray], env: Environment) -> TileArray:
        """Any case: slices where rows of neighbours are read, arrays of indices elsewhere."""
        spec = env.scope.tensors[self.tensor]
        axes = self.infer([TileType(arg.axes, "i64") for arg in args], env.scope).axes
        shape = tuple(len(env.coordinates[axis]) for axis in axes)
        source = env.arrays[self.tensor].reshape(spec.shape)
        if not source.size and self.fill is not None:
            return TileArray(axes, env.xp.full(shape, self.fill))
        rows = self._rows(args, env)
        rest = tuple(axis for axis in axes if axis not in rows.values())
        subscripts: list[slice | Array] = []
        inside: Array = env.xp.ones((1,) * len(rest), dtype=bool)
        for dim, (index, extent) in enumerate(zip(self.index, spec.shape, strict=True)):
            if dim in rows:
                first = int(env.coordinates[rows[dim]][0]) + index.constant
                subscripts.append(slice(first, first + len(env.coordinates[rows[dim]])))
                continue
            position = self._position(index, rest, args, env)
            inside = inside & (position >= 0) & (position < extent)
            subscripts.append(np.clip(position, 0, extent - 1))
        values = to_float(source[tuple(subscripts)] if subscripts else source[()], spec.dtype)
        told = [dim for dim in range(len(self.index)) if dim not in rows]
        beside = (
            told == list(range(told[0], told[-1] + 1)) if told else True
        )  # else theirs go first
        before = tuple(axis for dim, axis in rows.items() if told and beside and dim < told[0])
        found = (*before, *rest, *(axis for axis in rows.values() if axis not in before))
        if self.fill is not None:
            values = np.where(aligned(inside, rest, found), values, self.fill)
        return TileArray(
            found, np.broadcast_to(values, [shape[axes.index(axis)] for axis in found])
        )

    def _rows(self, args: Sequence[TileArray], env: Environment) -> dict[int, str]:
        """The dimensions of which neighbours are read, all inside, along an axis of its own."""
        others = [axis for arg in args for axis in arg.axes]
        others += [axis for index in self.index for axis, _ in index.terms]
        rows: dict[int, str] = {}
        spec = env.scope.tensors[self.tensor]
        for dim, (index, extent) in enumerate(zip(self.index, spec.shape, strict=True)):
            if index.gather is not None or len(index.terms) != 1:
                continue
            (axis, factor), position = index.terms[0], env.coordinates[index.terms[0][0]]
            alone = factor == 1 and others.count(axis) == 1
            if not alone or not len(position) or not are_neighbours(position):
                continue
            if position[0] + index.constant >= 0 and position[-1] + index.constant < extent:
                rows[dim] = axis
        return rows

    def _sliced(self, args: Sequence[TileArray], env: Environment) -> TileArray | None:
        """The common case, without index arrays: one axis per dimension, all indices inside."""
        spec = env.scope.tensors[self.tensor]
        axes = tuple(axis for index in self.index for axis, _ in index.terms)
        simple = all(len(index.terms) == 1 and index.gather is None for index in self.index)
        if not simple or len(set(axes)) != len(axes):
            return None
        values = env.arrays[self.tensor].reshape(spec.shape)
        for dim, (index, extent) in enumerate(zip(self.index, spec.shape, strict=True)):
            position, factor = env.coordinates[axes[dim]], index.terms[0][1]
            if (factor, index.constant) != (1, 0):
                position = factor * position + index.constant
            row = are_neighbours(position)
            ends = (position[0], position[-1]) if row else (position.min(), position.max())
            if ends[0] < 0 or ends[1] >= extent:
                return None
            if row:
                place = slice(int(ends[0]), int(ends[1]) + 1)
                values = values[(slice(None),) * dim + (place,)]
            else:
                values = values.take(position, axis=dim)
        return TileArray(axes, to_float(values, spec.dtype))

    def _windowed(self, env: Environment) -> TileArray | None:
        """Windows and strides: no index tile, and no axis in two dimensions.

        Rows are taken along one dimension after another; numbers are widened before there are many.
        """
        spec = env.scope.tensors[self.tensor]
        axes = tuple(axis for index in self.index for axis, _ in index.terms)
        told = any(index.gather is not None for index in self.index)
        shape = tuple(len(env.coordinates[axis]) for axis in axes)
        if told or len(set(axes)) != len(axes) or not all((*spec.shape, *shape)):
            return None
        if env.xp is not np and max(self._counts(env)) > _LISTED:
            return None
        values, late = env.arrays[self.tensor].reshape(spec.shape), []
        for dim, (index, extent) in enumerate(zip(self.index, spec.shape, strict=True)):
            position = _positions(index, env)
            place = np.clip(position, 0, extent - 1)
            outside = np.flatnonzero(place != position)
            low, high = int(place.min()), int(place.max()) + 1
            if len(place) < high - low:
                values = values.take(env.xp.asarray(place), axis=dim)
                place = np.arange(len(place))
            else:
                values = values[(slice(None),) * dim + (slice(low, high),)]
                place = place - low
            late.append((place, outside))
        values = to_float(values, spec.dtype)
        for dim, (place, outside) in enumerate(late):
            if len(outside) or not are_neighbours(place):
                values = values.take(env.xp.asarray(place), axis=dim)
            if len(outside):
                values[(slice(None),) * dim + (env.xp.asarray(outside),)] = self.fill
        return TileArray(axes, values.reshape(shape))

    def _counts(self, env: Environment) -> list[int]:
        """How many positions each dimension is read at."""
        terms = (index.terms for index in self.index)
        return [math.prod(len(env.coordinates[axis]) for axis, _ in each) for each in terms]

    def _position(
        self, index: Index, axes: tuple[str, ...], args: Sequence[TileArray], env: Environment
    ) -> Array:
        position: Array = env.xp.full((1,) * len(axes), index.constant, dtype=np.int64)
        for axis, coefficient in index.terms:
            tile = TileArray((axis,), env.points(axis))
            position = position + coefficient * tile.aligned(axes)
        if index.gather is not None:
            position = position + args[index.gather].aligned(axes).astype(np.int64)
        return position

    def flops(self, args: Sequence[TileType], result: TileType, scope: Scope) -> int:
        return 0


def _positions(index: Index, env: Environment) -> Array:
    """Where a dimension is read without a tile, the last of its axes fastest."""
    found: Array = np.full((1,), index.constant, np.int64)
    for axis, coefficient in index.terms:
        along = env.coordinates[axis].astype(np.int64) * coefficient
        found = (found[:, None] + along).reshape(-1)
    return found


def in_doubt(error: Error) -> Amount:
    """Any error where an index with this one may be another."""
    off = reach(error)
    if isinstance(off, float):
        return np.inf if off > 0 else 0.0
    return np.where(off > 0, np.inf, 0.0)


def are_neighbours(position: Array) -> bool:
    """Whether indices (at least one) follow each other without a gap."""
    if position[-1] - position[0] != len(position) - 1:
        return False
    for start in range(0, len(position) - 1, _STRETCH):  # in a processor's cache
        part = position[start : start + _STRETCH + 1]
        if not (part[1:] - part[:-1] == 1).all():
            return False
    return True
