"""How far sums of products, sums and extremes of a right kernel may be off.

See `ir.propagation`, which has what is elementwise; the sources are named in docs/checking.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ir.dtypes import is_float
from ir.ops.base import Amount, Array, Error, TileArray, TileType
from ir.ops.product import product_sum
from ir.propagation import (
    apart,
    both,
    bounded,
    ends,
    is_none,
    known_or_infinite,
    lost,
    reach,
    real_part,
    rounded_to,
    shared,
)
from ir.reduced import some
from ir.roundoff import SIGMAS, Accumulation, ErrorModel

_BRIDGE = 0.32  # the mean size of a Brownian bridge
_LARGEST = 3.0  # times the mean size of a product: the largest of one instruction


def contracted(
    args: Sequence[TileArray], types: Sequence[TileType], result: TileArray,
    over: tuple[str, ...], acc: str, terms: int, model: ErrorModel,
) -> Error | None:  # fmt: skip
    """The error of a sum of `terms` products, which see no more of tf32 than its bits."""
    left, right = (_as_read(arg, kind.dtype) for arg, kind in zip(args, types, strict=True))
    found: Error | None = None
    if is_float(acc):
        squares = product_sum(_squared(left), _squared(right), over).aligned(result.axes)
        way = model.accumulation(types[0].dtype, types[1].dtype, acc)
        found = accumulated(np.sqrt(squares), np.abs(result.array), terms, way)
        found = both(Error(lost(result.array, acc)), found)
        if "tf32" in (types[0].dtype, types[1].dtype):  # truncated where read: all shrink
            found = both(found, Error(2.0**-10 * np.abs(result.array)))
    first = _brought(left, right, result.axes, over)
    square = args[0] is args[1]  # each of its operands brings the same
    second = first if square else _brought(right, left, result.axes, over)
    return both(both(found, first), second)


def _as_read(tile: TileArray, dtype: str) -> TileArray:
    """An operand of products, with the error of reading it."""
    if dtype != "tf32":
        return tile
    return TileArray(tile.axes, tile.array, both(tile.error, rounded_to(tile.array, dtype)))


def _squared(tile: TileArray) -> TileArray:
    return TileArray(tile.axes, np.square(real_part(tile.array)))


def _brought(
    one: TileArray, other: TileArray, axes: tuple[str, ...], over: tuple[str, ...]
) -> Error | None:
    """What the error of one operand comes to, if it has any: its own adds up as random numbers do.

    Results along axes which that operand does not have share it, so it is bounded there.
    """
    error = one.error
    if error is None:
        return None
    size = np.abs(real_part(other.array))
    if other.error is not None:
        size = size + reach(other.error)
    own = _weighed(one, error.spread, TileArray(other.axes, size * size), axes, over)
    wide = _weighed(one, error.wide, TileArray(other.axes, size), axes, over)
    if not is_none(wide):
        wide = np.minimum(wide, _together(one, error.wide, other, axes, over))
    found = Error(wide, own)
    return found if set(axes) <= set(one.axes) else shared(found)


def _together(
    one: TileArray, wide: Amount, other: TileArray, axes: tuple[str, ...], over: tuple[str, ...]
) -> Amount:
    """What errors within `wide` add up to where the other operand does not depend on them.

    They may be alike for all terms, or alike as a share of them; what is left of them is random,
    anywhere between the bounds.
    """
    value = real_part(other.array)
    signs = (1.0, np.sign(one.array)) if some(one.array < 0) else (1.0,)
    found: Amount = 0.0
    with np.errstate(all="ignore"):
        for sign in signs:
            alike = _weighed(one, wide * sign, TileArray(other.axes, value), axes, over)
            found = np.maximum(found, np.abs(alike))
        squares = _weighed(one, wide * wide, TileArray(other.axes, value * value), axes, over)
        found = found + SIGMAS * (squares / 3) ** 0.5
    if other.error is None:
        return found
    doubt = TileArray(other.axes, reach(other.error) + np.zeros_like(value))
    return found + _weighed(one, wide, doubt, axes, over)


def _weighed(
    one: TileArray, amount: Amount, weights: TileArray, axes: tuple[str, ...],
    over: tuple[str, ...],
) -> Amount:  # fmt: skip
    """The sum of products of an error and weights; 0 if there is no error."""
    if is_none(amount):
        return 0.0
    if isinstance(amount, float) or amount.shape != one.array.shape:
        amount = amount + np.zeros_like(one.array, dtype=np.float64)
    tile = TileArray(one.axes, amount)
    with np.errstate(all="ignore"):
        return known_or_infinite(product_sum(tile, weights, over).aligned(axes))


def accumulated(
    root: Array, total: Array, terms: int | Array, way: Accumulation, runs: bool = True
) -> Error:
    """The roundings of a running sum, given the root of its terms' squares and its size; of each
    of several sums, if `terms` are as many.

    A sum on its way is that of a random walk that ends at the total: |total| i / n in the mean, and
    root sqrt(i / n (1 - i / n)) around it. Roundings to nearest add up as random numbers do. An
    instruction that truncates aligns its products and the sum to the largest of them: half a unit
    of that is lost of the sum each time, which does not cancel, and a part of each product.
    Long sums to nearest are added up in `runs`, but where each sum on the way is asked for.
    """
    steps, terms = np.ceil(np.divide(terms, way.terms)), np.maximum(terms, 1)
    with np.errstate(all="ignore"):
        if way.truncates:
            size = _BRIDGE * root + total / 2
            size = np.where(np.isfinite(size), size, 0.0)
            aligned = way.unit * (size + _LARGEST * root / np.sqrt(terms))
            aligned = np.where(np.isfinite(aligned), aligned, 0.0)
            return Error(way.unit / 2 * steps * size, np.square(aligned) * (terms / 3))
        count = way.in_a_row(terms) if runs else steps
        size = np.square(way.unit * (root + total)) * (count / 3)
        return Error(0.0, np.where(np.isfinite(size), size, 0.0))


def reduced(
    kind: str, arg: TileArray, result: TileArray, dtype: str, over: tuple[str, ...], terms: int,
    model: ErrorModel,
) -> Error | None:  # fmt: skip
    """The error of combining `terms` elements of a tile each."""
    where = tuple(arg.axes.index(axis) for axis in over)
    if kind in ("max", "min"):
        return _extreme(kind, arg, result, where)
    if kind == "prod":
        return _product(arg, result, where, terms, dtype, model)
    return sum_error([Summands.of(arg, dtype, over)], result, dtype, terms, model)


@dataclass(frozen=True, slots=True)
class Summands:
    """What the error of a sum is found of, of some of its terms: their squares' sum, if they are
    rounded at all, and the sum of their own errors."""

    squares: Array | None
    error: Error | None

    @classmethod
    def of(cls, arg: TileArray, dtype: str, over: tuple[str, ...]) -> Summands:
        where = tuple(arg.axes.index(axis) for axis in over)
        squares = None
        if is_float(dtype):
            with np.errstate(all="ignore"):
                squares = np.square(arg.array).sum(axis=where)
        if arg.error is None:
            return cls(squares, None)
        room = np.zeros_like(arg.array, dtype=np.float64)
        amounts = (arg.error.wide, arg.error.spread)
        sums = (0.0 if is_none(amount) else (amount + room).sum(axis=where) for amount in amounts)
        return cls(squares, Error(*sums))


def sum_error(
    parts: Sequence[Summands], result: TileArray, dtype: str, terms: int, model: ErrorModel
) -> Error | None:
    """The error of a sum of `terms` terms, which are in parts."""
    found: Error | None = None
    squares = [part.squares for part in parts if part.squares is not None]
    if squares:
        way = model.accumulation(dtype, dtype, dtype)
        with np.errstate(all="ignore"):
            root = np.sqrt(sum(squares[1:], squares[0]))
        found = accumulated(root, np.abs(result.array), terms, way)
    for part in parts:
        found = both(found, part.error)
    return found


def running_sum(
    arg: TileArray, result: TileArray, dtype: str, place: int, backward: bool, model: ErrorModel
) -> Error | None:
    """The error of the sums up to each point along dimension `place`, or from there on."""
    turn = (slice(None),) * place + (slice(None, None, -1 if backward else 1),)

    def summed(amount: Amount) -> Amount:
        if is_none(amount):
            return 0.0
        whole = np.zeros_like(arg.array, dtype=np.float64) + amount
        found: Array = np.cumsum(whole[turn], axis=place)[turn]
        return found

    found: Error | None = None
    if is_float(dtype):
        with np.errstate(all="ignore"):
            squares = summed(np.square(arg.array))
        way = model.accumulation(dtype, dtype, dtype)
        terms = arg.array.shape[place]
        found = accumulated(np.sqrt(squares), np.abs(result.array), terms, way, runs=False)
    if arg.error is None:
        return found
    return both(found, Error(summed(arg.error.wide), summed(arg.error.spread)))


def _extreme(kind: str, arg: TileArray, result: TileArray, where: tuple[int, ...]) -> Error | None:
    """Of maxima and minima, also of truth values: between those of both ends of each element."""
    if arg.error is None:
        return None
    size, best = reach(arg.error), np.max if kind == "max" else np.min
    if arg.array.dtype.kind == "b":
        both_ways = [arg.array | (size > 0), arg.array & ~(size > 0)]
    else:
        both_ways = ends(arg.array, size)
    with np.errstate(all="ignore"):
        return Error(np.maximum(*(apart(best(e, axis=where), result.array) for e in both_ways)))


def _product(
    arg: TileArray, result: TileArray, where: tuple[int, ...], terms: int, dtype: str,
    model: ErrorModel,
) -> Error:  # fmt: skip
    """Every factor at its largest, and a rounding for each."""
    size = np.abs(arg.array)
    with np.errstate(all="ignore"):
        wide = bounded(terms * model.unit(dtype) * np.abs(result.array), result.array)
        if arg.error is not None:
            most = np.prod(size + reach(arg.error), axis=where)
            wide = wide + known_or_infinite(most - np.prod(size, axis=where))
    return Error(wide)
