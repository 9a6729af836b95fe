"""top: the largest (or smallest) elements along an axis in order, or where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ir.dtypes import compute_dtype
from ir.errors import ProgramError
from ir.ops.base import Array, Environment, Error, Scope, TileArray, TileType, volume
from ir.propagation import reach
from ir.reduced import some
from ir.roundoff import ErrorModel


@dataclass(frozen=True, slots=True)
class Top:
    """Along `axis`, as many as axis `rank` is long: the largest first, of equals the first.

    With `least` the smallest first. NaN counts as larger than any number (as smaller with
    `least`). With `where` the result is their coordinates, as i32.
    """

    axis: str
    rank: str
    least: bool = False
    where: bool = False
    name: ClassVar[str] = "top"

    def infer(self, args: Sequence[TileType], scope: Scope) -> TileType:
        what = f"top over {self.axis}"
        if len(args) != 1 or self.axis not in args[0].axes:
            raise ProgramError(f"{what}: {self.axis!r} is not an axis of the operand")
        if self.rank not in scope.extents or self.rank in args[0].axes:
            raise ProgramError(f"{what}: {self.rank!r} has to be an axis that the operand lacks")
        have, wanted = scope.extents[self.axis], scope.extents[self.rank]
        if wanted > have:
            raise ProgramError(f"{what}: {wanted} of {have} elements")
        axes = tuple(self.rank if axis == self.axis else axis for axis in args[0].axes)
        return TileType(axes, "i32" if self.where else compute_dtype(args[0].dtype))

    def _order(self, arg: TileArray, env: Environment) -> Array:
        """Coordinates along the last dimension, in the order of the result."""
        values = env.xp.moveaxis(arg.array, arg.axes.index(self.axis), -1)
        if values.dtype.kind == "b":
            values = values.astype(np.int64)
        keys = values if self.least else -values
        nothing = values != values
        order = env.xp.argsort(keys, axis=-1, kind="stable")
        if some(nothing):  # sorted behind all numbers; they come first
            ranks = env.xp.take_along_axis(nothing, order, axis=-1)
            again = env.xp.argsort(~ranks, axis=-1, kind="stable")
            order = env.xp.take_along_axis(order, again, axis=-1)
        found: Array = order
        return found

    def meaning(self, args: Sequence[TileArray], env: Environment) -> TileArray:
        (arg,) = args
        place, wanted = arg.axes.index(self.axis), env.scope.extents[self.rank]
        order = self._order(arg, env)[..., :wanted]
        if not self.where:
            values = env.xp.moveaxis(arg.array, place, -1)
            order = env.xp.take_along_axis(values, order, axis=-1)
        found = env.xp.moveaxis(order, -1, place)
        axes = tuple(self.rank if axis == self.axis else axis for axis in arg.axes)
        return TileArray(axes, found if found.dtype.kind == "f" else found.astype(np.int64))

    def error(
        self, args: Sequence[TileArray], types: Sequence[TileType], result: TileArray,
        env: Environment, model: ErrorModel,
    ) -> Error | None:  # fmt: skip
        """A value moves no further than any element does; a coordinate is in doubt where its
        neighbours in the order may change places."""
        (arg,) = args
        if arg.error is None:
            return None
        place, wanted = arg.axes.index(self.axis), env.scope.extents[self.rank]
        size = env.xp.broadcast_to(env.xp.asarray(reach(arg.error)), arg.array.shape)
        most = env.xp.moveaxis(size, place, -1).max(axis=-1, keepdims=True)
        if not self.where:
            shape = result.array.shape
            wide = env.xp.moveaxis(env.xp.broadcast_to(most, (*most.shape[:-1], wanted)), -1, place)
            return Error(env.xp.broadcast_to(wide, shape))
        values = env.xp.moveaxis(arg.array, place, -1)
        ordered = env.xp.take_along_axis(values, self._order(arg, env), axis=-1)
        with np.errstate(all="ignore"):
            apart = np.abs(ordered[..., 1:] - ordered[..., :-1])
            gaps = (apart <= 2 * most) | (np.isnan(apart) & np.isinf(most))  # both out of range
        closed = env.xp.zeros((*gaps.shape[:-1], 1), dtype=bool)
        doubt = env.xp.concatenate([closed, gaps], axis=-1)
        doubt = doubt | env.xp.concatenate([gaps, closed], axis=-1)
        doubt = doubt & (most > 0)
        wide = env.xp.where(doubt[..., :wanted], np.inf, 0.0)
        return Error(env.xp.moveaxis(wide, -1, place))

    def flops(self, args: Sequence[TileType], result: TileType, scope: Scope) -> int:
        return 2 * volume(scope, args[0].axes)
