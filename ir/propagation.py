"""Forward error analysis of one op at a time: what its operands are off, and what it adds itself.

Every rule takes exact values with the errors of right kernels beside them, and gives the error of
the result. Works on arrays of numpy and of libraries like it. Knows no program and no lowering.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ir.at_once import StandIn
from ir.dtypes import STEPPED, holds, is_float, overflow, rounded, within
from ir.ops.base import Amount, Array, Error, TileArray
from ir.reduced import all_within, is_finite, some
from ir.roundoff import FLUSHED, FORMATS, SIGMAS, ErrorModel
from ir.scalar import ScalarFunction, scalar_function

Meaning = Callable[..., Any]
_PERIODIC = frozenset({"sin", "cos"})  # as steep as 1 at most, and within 1 of 0
_REDUCED = 1e5  # up to where they are exact whatever multiple of pi is near
_EXPONENTIAL: Mapping[str, Callable[[Array], Array]] = {  # how steep they are, by their results
    "exp": lambda y: y, "expm1": lambda y: y + 1.0, "sigmoid": lambda y: y * (1.0 - y),
}  # fmt: skip
_SHIFTED = frozenset({"add", "sub"})  # kernels may scale or shift both operands before
_LINEAR = _SHIFTED | {"mul"}  # in each operand
# slopes of functions that undo each other, and by what an error is small beside their operand
_SLOPES: dict[str, Callable[[Array, Array], tuple[Array, Array | float]]] = {
    "exp": lambda x, y: (y, 1.0),
    "log": lambda x, y: (1.0 / np.abs(x), 1.0 / np.abs(x)),
}
_EDGES = {"sqrt": 0.0, "rsqrt": 0.0, "log": 0.0, "log1p": -1.0}  # below there is no number
_SMALL = 0.4
_ALIKE = 1.5  # distances of both ends, the one over the other: a function that is nearly straight
_SLACK = 1e-6  # of what an operand is at least: constants are rounded
_COARSE = 2.0**-8  # of that roundoff: what a sine may be off, however small it is
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


def is_none(amount: Amount) -> bool:
    return isinstance(amount, float) and amount == 0.0


# --- elementwise --------------------------------------------------------------------------------


def mapped(
    function: str, args: Sequence[TileArray], result: TileArray, dtype: str, model: ErrorModel,
    meaning: Meaning | None = None, floors: Sequence[float] = (),
) -> Error | None:  # fmt: skip
    """The error of `function`, of which `result` (of `dtype`) is the exact value.

    Moved by an operand as the function is by either end of what that may be; first order in all,
    but of products whose factors are both in doubt.
    `meaning` is the function with its attributes, where it has some; `floors` are what operands
    are at least.
    """
    row, axes = scalar_function(function), result.axes
    values = [arg.aligned(axes) for arg in args]
    alike = [[p for p, a in enumerate(args) if _same(a, arg)] for arg in args]
    with np.errstate(all="ignore"):
        found = _own(row, values, result.array, dtype, model)
        beside = _beside(row, args, values, axes)
        for place, arg in enumerate(args):
            error = arg.error_over(axes)
            if error is None or place != alike[place][0]:
                continue
            if len(arg.axes) < len(axes) or len(alike[place]) > 1:
                error = shared(error)
            places = alike[place]
            straight = _scaled(row, values, places, error, result.array)
            if straight is None or isinstance(result.array, StandIn):
                size = beside if row.compares else reach(error)
                least = floors[place] if floors else -math.inf
                gap = _gap(row, meaning or row.meaning, values, places, size, result.array, least)
                if row.result == "select" and not place:
                    gap = gap + np.where(size > 0, beside, 0.0)
                moved = Error(gap) if row.steps else _moved(gap, error, result.array)
                straight = _where_finite(straight, moved, (result.array, error.wide, error.spread))
            found = both(found, straight)
        if row.name == "mul" and len(alike[0]) == 1:
            found = both(found, _together(args, values, axes))
    return found


def _together(
    args: Sequence[TileArray], values: Sequence[Array], axes: tuple[str, ...]
) -> Error | None:
    """What a product is off where both factors may be off by more than they are: the product of
    that, of which there is nothing in first order where both are 0 (choices in doubt)."""
    sizes: list[Amount] = []
    doubt: Any = True
    for arg, value in zip(args, values, strict=True):
        error = arg.error_over(axes)
        if error is None or value.dtype.kind != "f":
            return None
        sizes.append(reach(error))
        more = (sizes[-1] >= np.abs(value)) & (sizes[-1] > 0)
        doubt = more & doubt
        if not some(doubt):
            return None
    return Error(np.where(doubt, sizes[0] * sizes[1], 0.0))


def widened(arg: TileArray, dtype: str) -> TileArray:
    """An operand as the type that is computed in has it: large whole numbers are rounded there."""
    if arg.array.dtype.kind != "i" or not is_float(dtype):
        return arg
    form = FORMATS[dtype]
    large = np.abs(arg.array.astype(np.float64)) * form.unit > 1.0
    if not some(large):
        return arg
    rounding = Error(np.where(large, form.half_unit(np.abs(arg.array.astype(np.float64))), 0.0))
    return TileArray(arg.axes, arg.array, both(arg.error, rounding))


def _beside(
    row: ScalarFunction, args: Sequence[TileArray], values: Sequence[Array], axes: tuple[str, ...]
) -> Amount:
    """What moves a result together with an operand, when that alone may not: what a comparison's
    operands are off in all, and what the one is off that a choice has not taken."""
    if not (row.compares or row.result == "select"):
        return 0.0
    errors = [arg.error_over(axes) for arg in args]
    reaches = [0.0 if error is None else reach(error) for error in errors]
    if row.compares:
        return sum(reaches)
    return np.where(values[0], reaches[2], reaches[1])


def _same(one: TileArray, other: TileArray) -> bool:
    """Whether two operands are one value: what was rounded on the way has the array of what was
    not, and is another."""
    return one.array is other.array and one.error is other.error


def settled(function: str, args: Sequence[TileArray], result: TileArray) -> tuple[TileArray, Any]:
    """The exact values of `function`, and where they are no number though its operand may as well
    be where there is one (the root of what is 0 but for its rounding): nothing is known there."""
    edge, error = _EDGES.get(function), args[0].error_over(result.axes)
    if edge is None or error is None:
        return result, None
    with np.errstate(all="ignore"):
        value = args[0].aligned(result.axes)
        unsaid = (value < edge) & (value + reach(error) >= edge)
    if not some(unsaid):
        return result, None
    return TileArray(result.axes, np.where(unsaid, 0.0, result.array)), unsaid


def _scaled(
    row: ScalarFunction, values: Sequence[Array], places: Sequence[int], error: Error,
    result: Array,
) -> Error | None:  # fmt: skip
    """The error times the slope, where that is the same everywhere and all is finite (of stand-ins
    where it is, see `_where_finite`)."""
    if row.name not in _LINEAR or len(places) > 1 or result.dtype.kind != "f":
        return None
    told = isinstance(result, StandIn)
    if not told and not all(map(is_finite, (result, error.wide, error.spread))):
        return None
    if row.name in _SHIFTED:
        return error
    slope = np.abs(values[1 - places[0]])
    return Error(_times(slope, error.wide), _times(slope * slope, error.spread))


def _where_finite(straight: Error | None, moved: Error, amounts: Sequence[Amount]) -> Error:
    """Of an error that is told by a slope that one, where all `amounts` are finite; else what is
    moved."""
    if straight is None:
        return moved
    known: Any = True
    for amount in amounts:
        known = np.isfinite(amount) & known
    pairs = ((straight.wide, moved.wide), (straight.spread, moved.spread))
    return Error(*(np.where(known, one, other) for one, other in pairs))


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
    for end in ends(first, size):
        if least > -math.inf and first.dtype.kind == "f":
            end = np.maximum(end, least - abs(least) * _SLACK)
        moved = [end if place in places else value for place, value in enumerate(values)]
        gaps.append(apart(meaning(*moved), result))
    gap = _first_order(gaps)
    if small is not None:
        gap = np.where(small, straight, gap)
    if row.jumps:  # nothing is known of what lies between, if something does
        gap = np.where(size > 1, np.inf, gap)
    if row.name == "eq" and len(places) == 1 and first.dtype.kind == "f":  # inside of both ends
        near = np.abs(first - values[1 - places[0]]) <= size
        gap = np.where(near & (size > 0), 1.0, gap)
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
    if result.dtype.kind == "b" or is_none(error.spread):
        return Error(gap)
    ratio = np.where(np.isfinite(size), gap / np.where(size > 0, size, 1.0), np.inf)
    wide = _times(ratio, error.wide)
    if isinstance(error.spread, StandIn):  # there may be none of it
        wide = np.where(error.spread > 0, wide, gap)
    return Error(wide, _times(ratio * ratio, error.spread))


def ends(value: Array, size: Amount) -> list[Array]:
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
    if is_none(amount):
        return 0.0
    return np.where(amount > 0, ratio * amount, 0.0)


def apart(there: Array, result: Array) -> Array:
    """The distance of two results; none where both are the same infinity or no number."""
    if result.dtype.kind == "b":
        differ: Array = (there != result).astype(np.float64)
        return differ
    same = (there == result) | ((there != there) & (result != result))
    return np.where(same, 0.0, known_or_infinite(np.abs(there - result)))


def known_or_infinite(distance: Array) -> Array:
    """Distances, infinite where they are no number."""
    return np.where(distance == distance, distance, np.inf)


def _own(
    row: ScalarFunction, values: Sequence[Array], result: Array, dtype: str, model: ErrorModel
) -> Error | None:
    """What computing the function adds: a rounding, and the error of its approximation."""
    if row.name == "bitcast" and values[0].dtype.kind == "f":
        unsaid = np.isnan(values[0])  # which NaN it is, is not promised
        return Error(np.where(unsaid, np.inf, 0.0)) if some(unsaid) else None
    if not is_float(dtype) or row.exact:
        return None
    unit, size = model.unit(dtype), np.abs(result)
    if row.name in _SHIFTED:
        largest = np.maximum(*(np.abs(value) for value in values))
        largest = np.where(size > 0, largest, 0.0)  # of equal numbers it is 0 however scaled
        return Error(bounded(unit * largest, result, dtype))
    if row.name == "mul":
        return Error(lost(result, dtype), bounded(size * size * (unit * unit / 3), result))
    allowed = max(row.ulps * unit, _CHEAP * model.coarsest if row.ulps > 2 else 0.0)
    wide = allowed * size + row.floor * unit
    wide = wide + np.where(size > 0, FLUSHED.get(dtype, 0.0), 0.0)  # 0 is that already
    if row.name in _EXPONENTIAL:  # the argument is scaled, and rounded, before
        steepness = np.abs(_EXPONENTIAL[row.name](result))
        wide = wide + unit * _times(np.abs(values[0]), steepness)
    if row.name in _PERIODIC:  # far out the argument may be rounded once more
        far = np.abs(values[0])
        wide = wide + _COARSE * model.coarsest
        wide = wide + np.where(far > _REDUCED, np.minimum(unit * far, 2.0), 0.0)
    return Error(bounded(wide, result, dtype))


def bounded(amount: Array, result: Array, dtype: str = "f64") -> Array:
    """No error where the result is infinite or no number, as a kernel's is; any beyond `dtype`."""
    if all_within(result, FORMATS[dtype].largest):
        return amount
    if dtype != "f64":
        amount = np.where(np.abs(result) > FORMATS[dtype].largest, np.inf, amount)
    return np.where(np.isfinite(result), amount, 0.0)


def lost(result: Array, dtype: str) -> Amount:
    """Any error where a number is too large for `dtype`."""
    if all_within(result, FORMATS[dtype].largest):
        return 0.0
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
    real = real_part(value)
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
        if dtype == "bool":  # whether it is anything but zero
            return Error(np.where((size > 0) & (np.abs(arg.array) <= size), 1.0, 0.0))
        ends = (nearest(arg.array + size, dtype), nearest(arg.array - size, dtype))
        return Error(np.maximum(*(apart(end, result.array) for end in ends)))


def rounded_to(value: Array, dtype: str, off: Amount = 0.0) -> Error:
    """The error of rounding to the neighbouring numbers of `dtype`, independent at each element.

    Values may be `off`: one beside the largest number is infinite, or is not. Types with the
    exponents of f32 may have its range where they are held in registers.
    """
    form, size = FORMATS[dtype], np.abs(value)
    with np.errstate(all="ignore"):
        half = form.half_unit(size)
    spread = bounded(half * half / 3, value)
    if form.saturates:
        return Error(0.0, np.where(size > form.largest, 0.0, spread))
    end = form.largest if form.lowest == FORMATS["f32"].lowest else np.inf
    with np.errstate(all="ignore"):
        astray = np.abs(size - overflow(dtype)) <= off + FORMATS["f32"].unit * size
        lost = np.where(astray | (size > end), np.inf, 0.0)
    return Error(bounded(lost, value), spread)


def real_part(array: Array) -> Array:
    return array.astype(np.float64, copy=False)
