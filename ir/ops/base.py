"""What every op answers for: its shape rule, its numpy meaning, its cost. Knows no concrete op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor in memory: row-major, `shape` in elements; role is "input" or "output"."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: str = "input"


@dataclass(frozen=True, slots=True)
class TileType:
    """The type of a tile value: the named axes it varies over (in order) and its dtype."""

    axes: tuple[str, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Scope:
    """What an op may look at: axis extents and tensors of the program."""

    extents: Mapping[str, int]
    tensors: Mapping[str, TensorSpec]

    def shape(self, axes: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.extents[axis] for axis in axes)


@dataclass(frozen=True, slots=True)
class Rounding:
    """Values as a right kernel may have them, instead of the exact ones.

    Casts to narrow floats round, tensors of tf32 are read with the bits that products see, and what
    is truncated to an integer was `shift` of its size (and of the rms of its tile) larger before.
    """

    shift: float = 0.0


@dataclass(slots=True)
class Environment:
    """State of one numpy evaluation: `coordinates` holds the indices evaluated on each axis."""

    scope: Scope
    arrays: Mapping[str, Array]
    coordinates: Mapping[str, Array]
    outputs: dict[str, Array] = field(default_factory=dict)
    rounding: Rounding | None = None


@dataclass(frozen=True, slots=True)
class TileArray:
    """A numpy array whose dimensions are the named `axes`, in order."""

    axes: tuple[str, ...]
    array: Array

    def aligned(self, axes: tuple[str, ...]) -> Array:
        """View with one dimension per axis of `axes` (extent 1 where this tile lacks it)."""
        order = [self.axes.index(axis) for axis in axes if axis in self.axes]
        moved = np.transpose(self.array, order)
        index = tuple(slice(None) if axis in self.axes else None for axis in axes)
        return moved[index]


class Op(Protocol):
    """One kind of node. Concrete ops are frozen dataclasses, so that programs compare and hash."""

    name: ClassVar[str]

    def infer(self, args: Sequence[TileType], scope: Scope) -> TileType:
        """Type of the result; raises ProgramError naming the op."""
        ...

    def meaning(self, args: Sequence[TileArray], env: Environment) -> TileArray:
        """The numpy meaning, in float64 / int64."""
        ...

    def flops(self, args: Sequence[TileType], result: TileType, scope: Scope) -> int:
        """Arithmetic operations at the whole extents."""
        ...


def union_axes(args: Sequence[TileType]) -> tuple[str, ...]:
    """Axes of all tiles, in order of first appearance: the broadcast rule by name."""
    return tuple(dict.fromkeys(axis for arg in args for axis in arg.axes))


def volume(scope: Scope, axes: Sequence[str]) -> int:
    """Number of points of the iteration domain `axes`."""
    size = 1
    for axis in axes:
        size *= scope.extents[axis]
    return size
