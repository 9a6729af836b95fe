"""read: a computed tile at other points: shifted, gathered, transposed, or under other names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ir.dtypes import dtype_of
from ir.errors import ProgramError
from ir.ops.base import Amount, Array, Environment, Error, Scope, TileArray, TileType
from ir.ops.load import Index, in_doubt
from ir.roundoff import ErrorModel


@dataclass(frozen=True, slots=True)
class Read:
    """The first argument at `index`, one for each of its axes; the others are index tiles.

    `fill` is the value outside; without it every index must be inside.
    """

    index: tuple[Index, ...]
    fill: float | None = None
    name: ClassVar[str] = "read"

    def infer(self, args: Sequence[TileType], scope: Scope) -> TileType:
        if not args or len(self.index) != len(args[0].axes):
            raise ProgramError(f"read: {len(self.index)} indices for a tile over {args[:1]}")
        axes = dict.fromkeys(axis for index in self.index for axis, _ in index.terms)
        for arg in args[1:]:
            axes.update(dict.fromkeys(arg.axes))
        reads = all(scope.extents.get(axis, 1) for axis in axes)
        for axis, index in zip(args[0].axes, self.index, strict=True):
            self._check(axis, index, args, scope, reads)
        return TileType(tuple(axes), args[0].dtype)

    def _check(
        self, axis: str, index: Index, args: Sequence[TileType], scope: Scope, reads: bool
    ) -> None:
        """Raises ProgramError for an index that is none, or that may be outside where `reads`."""
        for name, _ in index.terms:
            if name not in scope.extents:
                raise ProgramError(f"read at {axis}: unknown axis {name!r}")
        index.refuse_far(f"read at {axis}", scope)
        if index.gather is not None:
            if not 0 < index.gather < len(args):
                raise ProgramError(f"read at {axis}: no argument {index.gather}")
            if dtype_of(args[index.gather].dtype).kind not in ("int", "uint"):
                raise ProgramError(
                    f"read at {axis}: the index tile is {args[index.gather].dtype}, not whole"
                )
            if reads and self.fill is None and not scope.extents[axis]:
                raise ProgramError(f"read at {axis}: the axis has extent 0: no index is")
            return
        low, high = index.bounds(scope)
        if reads and self.fill is None and (low < 0 or high >= scope.extents[axis]):
            raise ProgramError(
                f"read at {axis}: index {index} spans {low}..{high}, the extent is "
                f"{scope.extents[axis]}; give fill= to read outside"
            )

    def moved(self, axes: Sequence[str]) -> frozenset[str]:
        """Of the axes of the tile that is read those that are not read at themselves."""
        pairs = zip(axes, self.index, strict=True)
        return frozenset(axis for axis, index in pairs if not is_itself(axis, index))

    def meaning(self, args: Sequence[TileArray], env: Environment) -> TileArray:
        place, inside, axes = self._places(args, env)
        if 0 in args[0].array.shape:  # whatever is read, is outside
            shape = tuple(len(env.coordinates[axis]) for axis in axes)
            return TileArray(axes, env.xp.full(shape, self.fill, args[0].array.dtype))
        values = args[0].array[place] if place else args[0].array[()]
        if self.fill is not None:
            values = env.xp.where(inside, values, self.fill)
        shape = tuple(len(env.coordinates[axis]) for axis in axes)
        return TileArray(axes, env.xp.broadcast_to(values, shape))

    def error(
        self, args: Sequence[TileArray], types: Sequence[TileType], result: TileArray,
        env: Environment, model: ErrorModel,
    ) -> Error | None:  # fmt: skip
        """That of what is read; at an index in doubt it may be anything."""
        found: Error | None = None
        if args[0].error is not None:
            place, inside, _ = self._places(args, env)
            found = Error(*(
                self._read(amount, args[0], place, inside, env)
                for amount in (args[0].error.wide, args[0].error.spread)
            ))  # fmt: skip
        for arg in args[1:]:
            error = arg.error_over(result.axes)
            if error is not None:
                doubt = in_doubt(error)
                found = Error(doubt) if found is None else Error(doubt + found.wide, found.spread)
        return found

    def _read(
        self, amount: Amount, source: TileArray, place: tuple[Array, ...], inside: Array,
        env: Environment,
    ) -> Amount:  # fmt: skip
        """An amount of error where it is read; none of what is filled in."""
        whole = env.xp.broadcast_to(env.xp.asarray(amount, dtype=np.float64), source.array.shape)
        values = whole[place] if place else whole[()]
        found: Array = values if self.fill is None else env.xp.where(inside, values, 0.0)
        return found

    def _places(
        self, args: Sequence[TileArray], env: Environment
    ) -> tuple[tuple[Array, ...], Array, tuple[str, ...]]:
        """For each axis of the tile the positions that are read; where these are inside; the axes
        of the result."""
        types = [TileType(arg.axes, "i64") for arg in args]
        axes = self.infer(types, env.scope).axes
        places: list[Array] = []
        inside: Array = env.xp.ones((1,) * len(axes), dtype=bool)
        for axis, index, extent in zip(args[0].axes, self.index, args[0].array.shape, strict=True):
            if is_itself(axis, index):  # of these there may be some of the coordinates only
                tile = TileArray((axis,), env.xp.arange(extent))
                places.append(tile.aligned(axes))
                continue
            position: Array = env.xp.full((1,) * len(axes), index.constant, dtype=np.int64)
            for name, coefficient in index.terms:
                tile = TileArray((name,), env.points(name))
                position = position + coefficient * tile.aligned(axes)
            if index.gather is not None:
                position = position + args[index.gather].aligned(axes).astype(np.int64)
            inside = inside & (position >= 0) & (position < extent)
            places.append(env.xp.clip(position, 0, extent - 1))
        return tuple(places), inside, axes

    def flops(self, args: Sequence[TileType], result: TileType, scope: Scope) -> int:
        return 0


def is_itself(axis: str, index: Index) -> bool:
    """Whether an axis is read at its own coordinate."""
    return index.terms == ((axis, 1),) and index.constant == 0 and index.gather is None
