"""Numpy's sum of products by axis name, arranged so that float64 BLAS does the work."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ir.ops.base import Array, TileArray
from ir.reduced import largest

_SHORT = 64  # terms of sums that a device's library for products is slow at
_EXACT = 2**53  # whole numbers up to here are exact in float64


def product_sum(left: TileArray, right: TileArray, over: Sequence[str]) -> TileArray:
    """Sum over the axes `over` of left * right; the order of the result's axes is its own."""
    left, right = _sum_own(left, right, over), _sum_own(right, left, over)
    shared = [axis for axis in left.axes if axis in right.axes]
    summed = tuple(axis for axis in shared if axis in over)
    batch = tuple(axis for axis in shared if axis not in over)
    rows = tuple(axis for axis in left.axes if axis not in right.axes)
    columns = tuple(axis for axis in right.axes if axis not in left.axes)
    if not summed:
        axes = batch + rows + columns
        return TileArray(axes, left.aligned(axes) * right.aligned(axes))
    if not rows and not columns:
        return TileArray(batch, _inner(left, right, batch, summed))
    whole, part = (left, right) if rows else (right, left)
    if batch and not (rows and columns) and isinstance(whole.array, np.ndarray):
        return _weighted(whole, part, summed)
    a, b = left.aligned(batch + rows + summed), right.aligned(batch + summed + columns)
    shape = a.shape[: len(batch)], a.shape[len(batch) :][: len(rows)], b.shape[-len(columns) :]
    extents = math.prod(shape[0]), math.prod(shape[1]), math.prod(shape[2] if columns else ())
    depth = math.prod(a.shape[len(batch) + len(rows) :])
    product = _matmul(
        a.reshape(extents[0], extents[1], depth), b.reshape(extents[0], depth, extents[2])
    )
    return TileArray(
        batch + rows + columns,
        product.reshape(shape[0] + shape[1] + (shape[2] if columns else ())),
    )


def _sum_own(tile: TileArray, other: TileArray, over: Sequence[str]) -> TileArray:
    """Sum away the axes of `over` that only `tile` has."""
    own = [axis for axis in over if axis in tile.axes and axis not in other.axes]
    if not own:
        return tile
    kept = tuple(axis for axis in tile.axes if axis not in own)
    positions = tuple(tile.axes.index(axis) for axis in own)
    return TileArray(kept, tile.array.sum(axis=positions))


def _inner(
    left: TileArray, right: TileArray, batch: tuple[str, ...], summed: tuple[str, ...]
) -> Array:
    axes = batch + summed
    letters = list(range(len(axes)))
    a, b = left.aligned(axes), right.aligned(axes)
    if not isinstance(a, np.ndarray) and math.prod(a.shape[len(batch) :]) <= _SHORT:
        terms: Array = (a * b).sum(axis=tuple(range(len(batch), len(axes))))
        return terms
    found: Array = np.einsum(a, letters, b, letters, letters[: len(batch)])
    return found


def _weighted(whole: TileArray, part: TileArray, summed: tuple[str, ...]) -> TileArray:
    """A sum of numbers times those of a tile over some of their axes, in the order in which they
    lie: matrices would have to be laid out anew for each of the axes that both keep."""
    letters = {axis: letter for letter, axis in enumerate(whole.axes)}
    kept = tuple(axis for axis in whole.axes if axis not in summed)
    with np.errstate(all="ignore"):
        found: Array = np.einsum(
            whole.array, [letters[axis] for axis in whole.axes],
            part.array, [letters[axis] for axis in part.axes], [letters[axis] for axis in kept],
        )  # fmt: skip
    return TileArray(kept, found)


def _matmul(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f" or b.dtype.kind == "f":
        with np.errstate(all="ignore"):
            return _times(a, b)
    largest = _largest(a) * _largest(b) * a.shape[-1]
    if largest >= _EXACT:
        return _times(a, b)
    product = _times(a.astype(np.float64), b.astype(np.float64))
    whole: Array = np.rint(product).astype(np.int64)
    return whole


def _times(a: Array, b: Array) -> Array:
    # by the operator, for other array libraries do not take np.matmul; a device's is at its best
    # without a batch
    product: Array = (a[0] @ b[0])[None] if len(a) == 1 else a @ b
    return product


def _largest(array: Array) -> int:
    return int(largest(np.abs(array))) if array.size else 0
