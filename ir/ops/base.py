"""What every op answers for: its shape rule, its numpy meaning, its cost. Knows no concrete op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ir.roundoff import ErrorModel
    from ir.values import Values

Array = NDArray[Any]
Amount = Array | float  # an array, or one number for all elements


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor in memory: row-major, `shape` in elements; role is "input" or "output".

    `values` says what an input's elements may be, where they are not normal numbers or, of
    integers, any that the program can use. The bytes of u8 may each hold several elements of a
    type that `packs` names.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: str = "input"
    values: Values | None = None
    packs: str = ""

    @property
    def element(self) -> str:
        """The dtype of what it holds."""
        return self.packs or self.dtype


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


@dataclass(slots=True)
class Environment:
    """State of one evaluation: `coordinates` holds the indices evaluated on each axis.

    `xp` is the array module of `arrays`: numpy, or one like it. With a `model`, ops are asked how
    far a right kernel may be off. With `rounds`, casts to narrow floats round. `floors` is the
    least that each operand can be.
    """

    scope: Scope
    arrays: Mapping[str, Array]
    coordinates: Mapping[str, Array]
    model: ErrorModel | None = None
    xp: Any = np
    rounds: bool = False
    types: Sequence[TileType] = ()
    floors: Sequence[float] = ()
    placed: dict[int, tuple[Array, Array]] = field(default_factory=dict)

    def points(self, axis: str) -> Array:
        """The indices evaluated on an axis as an array of `xp`; on a device once in an evaluation,
        however often it is asked for (`placed` is that of all its parts)."""
        own = self.coordinates[axis]
        if id(own) not in self.placed:
            self.placed[id(own)] = own, self.xp.asarray(own)
        return self.placed[id(own)][1]


@dataclass(frozen=True, slots=True)
class Error:
    """How far the values of a right kernel may lie from the exact ones, elementwise.

    `wide` bounds the error that elements may share, so that sums add it up. `spread` is the
    variance of the error that each has by itself. Both have the dimensions of their tile, or 1s.
    """

    wide: Amount = 0.0
    spread: Amount = 0.0


@dataclass(frozen=True, slots=True)
class TileArray:
    """An array whose dimensions are the named `axes`, in order; no `error` where it is exact."""

    axes: tuple[str, ...]
    array: Array
    error: Error | None = None

    def aligned(self, axes: tuple[str, ...]) -> Array:
        """View with one dimension per axis of `axes` (extent 1 where this tile lacks it)."""
        return aligned(self.array, self.axes, axes)

    def error_over(self, axes: tuple[str, ...]) -> Error | None:
        """The error with one dimension per axis of `axes`."""
        if self.error is None:
            return None
        return Error(
            *(
                amount if isinstance(amount, float) else aligned(amount, self.axes, axes)
                for amount in (self.error.wide, self.error.spread)
            )
        )


def aligned(array: Array, have: tuple[str, ...], axes: tuple[str, ...]) -> Array:
    """View of an array over `have` with one dimension per axis of `axes`, or extent 1."""
    if have == axes:
        return array
    order = [have.index(axis) for axis in axes if axis in have]
    moved = array.transpose(order)
    index = tuple(slice(None) if axis in have else None for axis in axes)
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

    def error(
        self, args: Sequence[TileArray], types: Sequence[TileType], result: TileArray,
        env: Environment, model: ErrorModel,
    ) -> Error | None:  # fmt: skip
        """How far a right kernel's values may be from `result`, which is this op's meaning."""
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
