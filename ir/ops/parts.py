"""Tiles with their errors, part by part: cut, put together, filled up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ir.ops.base import Amount, Array, Error, TileArray


def whole(amount: Amount, shape: tuple[int, ...], xp: Any) -> Array:
    """An amount at every point of a shape."""
    found: Array = xp.broadcast_to(xp.asarray(amount, dtype=np.float64), shape)
    return found


def part_of(tile: TileArray, axis: str, part: slice) -> TileArray:
    """Some points of a tile along an axis, if it has that."""
    if axis not in tile.axes:
        return tile
    place = tile.axes.index(axis)
    where = (slice(None),) * place + (part,)
    return _mapped(tile, tile.axes, lambda array: _cut(array, place, where))


def _cut(array: Array, place: int, where: tuple[slice, ...]) -> Array:
    """Part of an array, or all of it where it has one point for all."""
    return array if array.ndim <= place or array.shape[place] == 1 else array[where]


def first_part(tile: TileArray, part: slice | Array) -> TileArray:
    """Some points of a tile along its first axis."""
    return _mapped(tile, tile.axes, lambda array: array[part])


def without_first(tile: TileArray) -> TileArray:
    """A tile whose first axis has one point, without that axis."""
    return _mapped(tile, tile.axes[1:], lambda array: array[0])


def in_groups(tile: TileArray, size: int, xp: Any) -> TileArray:
    """A tile whose first axis is cut into groups of so many points: first the place in a group."""

    def change(array: Array) -> Array:
        groups = array.reshape(-1, size, *array.shape[1:])
        found: Array = xp.ascontiguousarray(groups.swapaxes(0, 1))
        return found

    return _mapped(tile, ("", *tile.axes), change)


def neighbours(tile: TileArray) -> TileArray:
    """The tile that was cut `in_groups`."""
    rest = tile.array.shape[2:]
    return _mapped(tile, tile.axes[1:], lambda array: array.swapaxes(0, 1).reshape(-1, *rest))


def _mapped(tile: TileArray, axes: tuple[str, ...], change: Any) -> TileArray:
    error = tile.error
    if error is not None:
        amounts = (error.wide, error.spread)
        error = Error(*(a if isinstance(a, float) else change(a) for a in amounts))
    return TileArray(axes, change(tile.array), error)


def joined(parts: Sequence[TileArray], axis: str, axes: tuple[str, ...], xp: Any) -> TileArray:
    """Tiles one behind the other along an axis, as a tile over `axes`."""
    order = (axis, *(name for name in axes if name != axis))
    arrays = [part.aligned(order) for part in parts]
    array = xp.concatenate(arrays)
    error = None
    if any(part.error is not None for part in parts):
        errors = [part.error_over(order) or Error() for part in parts]
        pairs = list(zip(errors, arrays, strict=True))
        error = Error(
            xp.concatenate([whole(e.wide, a.shape, xp) for e, a in pairs]),
            xp.concatenate([whole(e.spread, a.shape, xp) for e, a in pairs]),
        )
    found = TileArray(order, array, error)
    return TileArray(axes, found.aligned(axes), found.error_over(axes))
