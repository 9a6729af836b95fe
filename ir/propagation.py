"""Forward error analysis of one op at a time: what its operands are off, and what it adds itself.

Every rule takes exact values with the errors of right kernels beside them, and gives the error of
the result. Works on arrays of numpy and of libraries like it. Knows no program and no lowering.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ir.dtypes import STEPPED, holds, is_float, overflow, rounded, within
from ir.ops.base import Amount, Array, Error, TileArray, TileType
from ir.ops.product import product_sum
from ir.reduced import is_finite, some
from ir.roundoff import FLUSHED, FORMATS, SIGMAS, Accumulation, ErrorModel
from ir.scalar import ScalarFunction, scalar_function

Meaning = Callable[..., Any]
_PERIODIC = frozenset({"sin", "cos"})  # as steep as 1 at most, and within 1 of 0
_REDUCED = 1e5  # up to where they are exact whatever multiple of pi is near
_SHIFTED = frozenset({"add", "sub"})  # kernels may scale or shift both operands before
_LINEAR = _SHIFTED | {"mul"}  # in each operand
_BRIDGE = 0.32  # the mean size of a Brownian bridge
_LARGEST = 3.0  # times the mean size of a product: the largest of one instruction
# slopes of functions that undo each other, and by what an error is small beside their operand
_SLOPES: dict[str, Callable[[Array, Array], tuple[Array, Array | float]]] = {
    "exp": lambda x, y: (y, 1.0),
    "log": lambda x, y: (1.0 / np.abs(x), 1.0 / np.abs(x)),
}
_SMALL = 0.4
_ALIKE = 1.5  # distances of both ends, the one over the other: a function that is nearly straight
_SLACK = 1e-6  # of what an operand is at least: constants are rounded
_CHEAP = 0.0625  # of the coarsest output's roundoff: what a scalar function may be off at most


def reach(error: Error) -> Amount:
    """The largest error that an element may have: what is shared, and six standard deviations."""
    return error.wide + SIGMAS * error.spread**0.5


def shared(error: Error) -> Error:
    """The same error, said to be shared by elements that are added up."""
    return Error(reach(error))


def both(left: Error | None, right: Error | None) -> Error | None:
    if left is None or right is None:
        return left or right
    return Error(left.wide + right.wide, left.spread + right.spread)


def _none(amount: Amount) -> bool:
    return isinstance(amount, float) and amount == 0.0


# --- elementwise --------------------------------------------------------------------------------


def mapped(
    function: str, args: Sequence[TileArray], result: TileArray, dtype: str, model: ErrorModel,
    meaning: Meaning | None = None, floors: Sequence[float] = (),
) -> Error | None:  # fmt: skip
    """The error of `function`, of which `result` (of `dtype`) is the exact value.

    Moved by an operand as the function is by either end of what that may be; first order in all.
    `meaning` is the function with its attributes, where it has some; `floors` are what operands
    are at least.
    """
    row, axes = scalar_function(function), result.axes
    values = [arg.aligned(axes) for arg in args]
    alike = [[p for p, a in enumerate(args) if a.array is arg.array] for arg in args]
    with np.errstate(all="ignore"):
        found = _own(row, values, result.array, dtype, model)
        for place, arg in enumerate(args):
            error = arg.error_over(axes)
            if error is None or place != alike[place][0]:
                continue
            if len(arg.axes) < len(axes) or len(alike[place]) > 1:
                error = shared(error)
            places = alike[place]
            moved = _scaled(row, values, places, error, result.array)
            if moved is None:
                size = reach(error)
                least = floors[place] if floors else -math.inf
                gap = _gap(row, meaning or row.meaning, values, places, size, result.array, least)
                moved = _moved(gap, error, result.array)
            found = both(found, moved)
    return found


def _scaled(
    row: ScalarFunction, values: Sequence[Array], places: Sequence[int], error: Error,
    result: Array,
) -> Error | None:  # fmt: skip
    """The error times the slope, where that is the same everywhere and all is finite."""
    if row.name not in _LINEAR or len(places) > 1 or result.dtype.kind != "f":
        return None
    if not all(map(is_finite, (result, error.wide, error.spread))):
        return None
    if row.name in _SHIFTED:
        return error
    slope = np.abs(values[1 - places[0]])
    wide = error.wide if _none(error.wide) else slope * error.wide
    return Error(wide, error.spread if _none(error.spread) else slope * slope * error.spread)


def _gap(
    row: ScalarFunction, meaning: Meaning, values: Sequence[Array], places: Sequence[int],
    size: Amount, result: Array, least: float,
) -> Amount:  # fmt: skip
    """How far the result is from those at both ends of one operand, `size` away.

    `places` are those in which it stands: what is compared with itself stays equal to it."""
    if row.name in _PERIODIC:
        return np.minimum(size, 2.0)
    gaps: list[Array] = []
    first = values[places[0]]
    straight, small = _straight(row, first, result, size)
    if small is not None and small.all():
        return straight
    for end in _ends(first, size):
        if least > -math.inf and first.dtype.kind == "f":
            end = np.maximum(end, least - abs(least) * _SLACK)
        moved = [end if place in places else value for place, value in enumerate(values)]
        gaps.append(_apart(meaning(*moved), result))
    gap = _first_order(gaps)
    if small is not None:
        gap = np.where(small, straight, gap)
    if row.jumps:  # nothing is known of what lies between, if something does
        gap = np.where(size > 1, np.inf, gap)
    if row.name == "bitcast":  # bits are in the order of floats of one sign
        one_sign = first.dtype.kind == "f" and np.abs(first) > size
        gap = np.where((size > 0) & ~np.asarray(one_sign, like=result), np.inf, gap)
    return gap


def _straight(
    row: ScalarFunction, value: Array, result: Array, size: Amount
) -> tuple[Amount, Array | None]:
    """How far the slope takes an error, and where that is how far it goes; None: nowhere known."""
    if row.name not in _SLOPES:
        return 0.0, None
    slope, beside = _SLOPES[row.name](value, result)
    gap = slope * size
    return gap, (beside * size <= _SMALL) & np.isfinite(gap)


def _first_order(gaps: Sequence[Array]) -> Array:
    """The mean of both distances where they are alike, else the larger one.

    What is of second order has the other sign at the other end. A logarithm of what an exponential
    made would add it up instead of taking it back, and a recurrence of both square it.
    """
    far, near = np.maximum(gaps[0], gaps[-1]), np.minimum(gaps[0], gaps[-1])
    return np.where(far <= _ALIKE * near, (far + near) / 2, far)


def _moved(gap: Amount, error: Error, result: Array) -> Error:
    """The error of a result that moves by `gap` where an operand moves by its own error."""
    size = reach(error)
    if result.dtype.kind == "b" or _none(error.spread):
        return Error(gap)
    ratio = np.where(np.isfinite(size), gap / np.where(size > 0, size, 1.0), np.inf)
    return Error(_times(ratio, error.wide), _times(ratio * ratio, error.spread))


def _ends(value: Array, size: Amount) -> list[Array]:
    """What a value may be at most and at least; integers move by whole steps."""
    if value.dtype.kind == "b":
        return [value ^ (size > 0)]
    if value.dtype.kind == "f":
        with np.errstate(invalid="ignore"):  # infinite, and off by anything
            return [value + size, value - size]
    steps = np.clip(np.ceil(size), 0, 2.0**31).astype(np.int64)
    return [value + steps, value - steps]


def _times(ratio: Amount, amount: Amount) -> Amount:
    """The product, where no error stays none however steep the function."""
    if _none(amount):
        return 0.0
    return np.where(amount > 0, ratio * amount, 0.0)


def _apart(there: Array, result: Array) -> Array:
    """The distance of two results; none where both are the same infinity or no number."""
    if result.dtype.kind == "b":
        differ: Array = (there != result).astype(np.float64)
        return differ
    same = (there == result) | ((there != there) & (result != result))
    return np.where(same, 0.0, _known(np.abs(there - result)))


def _known(distance: Array) -> Array:
    """Distances, infinite where they are no number."""
    return np.where(distance == distance, distance, np.inf)


def _own(
    row: ScalarFunction, values: Sequence[Array], result: Array, dtype: str, model: ErrorModel
) -> Error | None:
    """What computing the function adds: a rounding, and the error of its approximation."""
    if row.name == "bitcast" and values[0].dtype.kind == "f":
        lost = np.isnan(values[0])  # which NaN it is, is not promised
        return Error(np.where(lost, np.inf, 0.0)) if some(lost) else None
    if not is_float(dtype) or row.exact:
        return None
    unit, size = model.unit(dtype), np.abs(result)
    if row.name in _SHIFTED:
        largest = np.maximum(*(np.abs(value) for value in values))
        largest = np.where(size > 0, largest, 0.0)  # of equal numbers it is 0 however scaled
        return Error(_bounded(unit * largest, result, dtype))
    if row.name == "mul":
        return Error(_lost(result, dtype), _bounded(size * size * (unit * unit / 3), result))
    allowed = max(row.ulps * unit, _CHEAP * model.coarsest if row.ulps > 2 else 0.0)
    wide = allowed * size + row.floor * unit + FLUSHED.get(dtype, 0.0)
    if row.name == "exp":  # the argument is scaled, and rounded, before
        wide = wide + unit * _times(np.abs(values[0]), size)
    if row.name in _PERIODIC:  # far out the argument may be rounded once more
        far = np.abs(values[0])
        wide = wide + np.where(far > _REDUCED, np.minimum(unit * far, 2.0), 0.0)
    return Error(_bounded(wide, result, dtype))


def _bounded(amount: Array, result: Array, dtype: str = "f64") -> Array:
    """No error where the result is infinite or no number, as a kernel's is; any beyond `dtype`."""
    if dtype != "f64":
        amount = np.where(np.abs(result) > FORMATS[dtype].largest, np.inf, amount)
    return np.where(np.isfinite(result), amount, 0.0)


def _lost(result: Array, dtype: str) -> Amount:
    """Any error where a number is too large for `dtype`."""
    beyond = np.isfinite(result) & (np.abs(result) > FORMATS[dtype].largest)
    return np.where(beyond, np.inf, 0.0) if some(beyond) else 0.0


def converted(arg: TileArray, result: TileArray, source: str, dtype: str) -> Error | None:
    """The error of a cast on the way, which a kernel may round or not."""
    if dtype in STEPPED or not is_float(dtype):
        return _stepped(arg, result, dtype) if is_float(source) else arg.error
    if not is_float(source) or arg.error is None:
        return both(arg.error, _unheld(arg.array, source, dtype))
    narrower = FORMATS[dtype].precision < FORMATS[source].precision
    if not narrower:
        return arg.error
    off = reach(arg.error)
    kept = _saturated(arg.array, off, arg.error, dtype)
    return both(kept, rounded_to(arg.array, dtype, off))


def _saturated(value: Array, off: Amount, error: Error, dtype: str) -> Error:
    """An error behind a cast: none of what is the largest number either way."""
    form = FORMATS[dtype]
    if not form.saturates:
        return error
    with np.errstate(invalid="ignore"):
        inside = ~(np.abs(value) - off > form.largest)
    return Error(np.where(inside, error.wide, 0.0), np.where(inside, error.spread, 0.0))


def _unheld(value: Array, source: str, dtype: str) -> Error | None:
    """The error of rounding exact numbers, where a float type does not have them."""
    if holds(dtype, source):
        return None
    real = _real(value)
    found = rounded_to(real, dtype)
    with np.errstate(all="ignore"):
        inexact = (rounded(real, dtype) != real) & (np.abs(real) <= FORMATS[dtype].largest)
    if not some(inexact | (found.wide > 0)):
        return None
    return Error(found.wide, np.where(inexact, found.spread, 0.0))


def _stepped(arg: TileArray, result: TileArray, dtype: str) -> Error | None:
    """A value just beside a step may fall to either side of it."""
    if arg.error is None:
        return None
    size, nearest = reach(arg.error), rounded if dtype in STEPPED else within
    with np.errstate(all="ignore"):
        ends = (nearest(arg.array + size, dtype), nearest(arg.array - size, dtype))
        return Error(np.maximum(*(_apart(end, result.array) for end in ends)))


def rounded_to(value: Array, dtype: str, off: Amount = 0.0) -> Error:
    """The error of rounding to the neighbouring numbers of `dtype`, independent at each element.

    Values may be `off`: one beside the largest number is infinite, or is not. Types with the
    exponents of f32 may have its range where they are held in registers.
    """
    form, size = FORMATS[dtype], np.abs(value)
    with np.errstate(all="ignore"):
        half = form.half_unit(size)
    spread = _bounded(half * half / 3, value)
    if form.saturates:
        return Error(0.0, np.where(size > form.largest, 0.0, spread))
    end = form.largest if form.lowest == FORMATS["f32"].lowest else np.inf
    with np.errstate(all="ignore"):
        astray = np.abs(size - overflow(dtype)) <= off + FORMATS["f32"].unit * size
        lost = np.where(astray | (size > end), np.inf, 0.0)
    return Error(_bounded(lost, value), spread)


# --- sums ---------------------------------------------------------------------------------------


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
        found = both(Error(_lost(result.array, acc)), found)
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
    return TileArray(tile.axes, np.square(_real(tile.array)))


def _real(array: Array) -> Array:
    return array.astype(np.float64, copy=False)


def _brought(
    one: TileArray, other: TileArray, axes: tuple[str, ...], over: tuple[str, ...]
) -> Error | None:
    """What the error of one operand comes to, if it has any: its own adds up as random numbers do.

    Results along axes which that operand does not have share it, so it is bounded there.
    """
    error = one.error
    if error is None:
        return None
    size = np.abs(_real(other.array))
    if other.error is not None:
        size = size + reach(other.error)
    own = _weighed(one, error.spread, TileArray(other.axes, size * size), axes, over)
    wide = _weighed(one, error.wide, TileArray(other.axes, size), axes, over)
    if not _none(wide):
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
    value = _real(other.array)
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
    if _none(amount):
        return 0.0
    if isinstance(amount, float) or amount.shape != one.array.shape:
        amount = amount + np.zeros_like(one.array, dtype=np.float64)
    tile = TileArray(one.axes, amount)
    with np.errstate(all="ignore"):
        return _known(product_sum(tile, weights, over).aligned(axes))


def accumulated(root: Array, total: Array, terms: int | Array, way: Accumulation) -> Error:
    """The roundings of a running sum, given the root of its terms' squares and its size; of each
    of several sums, if `terms` are as many.

    A sum on its way is that of a random walk that ends at the total: |total| i / n in the mean, and
    root sqrt(i / n (1 - i / n)) around it. Roundings to nearest add up as random numbers do. An
    instruction that truncates aligns its products and the sum to the largest of them: half a unit
    of that is lost of the sum each time, which does not cancel, and a part of each product.
    """
    steps, terms = np.ceil(terms / way.terms), np.maximum(terms, 1)
    with np.errstate(all="ignore"):
        if way.truncates:
            size = _BRIDGE * root + total / 2
            size = np.where(np.isfinite(size), size, 0.0)
            aligned = way.unit * (size + _LARGEST * root / np.sqrt(terms))
            aligned = np.where(np.isfinite(aligned), aligned, 0.0)
            return Error(way.unit / 2 * steps * size, np.square(aligned) * (terms / 3))
        size = np.square(way.unit * (root + total)) * (steps / 3)
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
    found: Error | None = None
    if is_float(dtype):
        with np.errstate(all="ignore"):
            squares = np.square(arg.array).sum(axis=where)
        way = model.accumulation(dtype, dtype, dtype)
        found = accumulated(np.sqrt(squares), np.abs(result.array), terms, way)
    if arg.error is None:
        return found
    room = np.zeros_like(arg.array, dtype=np.float64)
    parts = (
        0.0 if _none(amount) else (amount + room).sum(axis=where)
        for amount in (arg.error.wide, arg.error.spread)
    )
    return both(found, Error(*parts))


def running_sum(
    arg: TileArray, result: TileArray, dtype: str, place: int, backward: bool, model: ErrorModel
) -> Error | None:
    """The error of the sums up to each point along dimension `place`, or from there on."""
    turn = (slice(None),) * place + (slice(None, None, -1 if backward else 1),)

    def summed(amount: Amount) -> Amount:
        if _none(amount):
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
        found = accumulated(np.sqrt(squares), np.abs(result.array), terms, way)
    if arg.error is None:
        return found
    return both(found, Error(summed(arg.error.wide), summed(arg.error.spread)))


def _extreme(kind: str, arg: TileArray, result: TileArray, where: tuple[int, ...]) -> Error | None:
    """Of maxima and minima, also of truth values: between those of both ends of each element."""
    if arg.error is None:
        return None
    size, best = reach(arg.error), np.max if kind == "max" else np.min
    if arg.array.dtype.kind == "b":
        ends = [arg.array | (size > 0), arg.array & ~(size > 0)]
    else:
        ends = _ends(arg.array, size)
    with np.errstate(all="ignore"):
        return Error(np.maximum(*(_apart(best(end, axis=where), result.array) for end in ends)))


def _product(
    arg: TileArray, result: TileArray, where: tuple[int, ...], terms: int, dtype: str,
    model: ErrorModel,
) -> Error:  # fmt: skip
    """Every factor at its largest, and a rounding for each."""
    size = np.abs(arg.array)
    with np.errstate(all="ignore"):
        wide = _bounded(terms * model.unit(dtype) * np.abs(result.array), result.array)
        if arg.error is not None:
            most = np.prod(size + reach(arg.error), axis=where)
            wide = wide + _known(most - np.prod(size, axis=where))
    return Error(wide)
