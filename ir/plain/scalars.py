"""Scalars of plain kernels with their types: functions of converted operands, and indices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from ir.dtypes import compute_dtype, is_float
from ir.merges import CAST, Merge
from ir.ops.base import Scope, TileType
from ir.ops.map import Map
from ir.plain.code import Call, Convert, Element, Number, Scalar
from ir.scalar import scalar_function

LOGICAL = ("and", "or", "not")
_OF_TRUTH = {"add": "or", "mul": "and", "max": "or", "min": "and"}  # numpy's meaning on bools


def number(value: float | int | bool, dtype: str) -> Number:
    """A constant of a compute type."""
    if dtype == "bool":
        return Number(bool(value), dtype)
    return Number(float(value) if is_float(dtype) else int(value), dtype)


def rebuilt(scalar: Scalar, change: Callable[[Scalar], Scalar | None]) -> Scalar:
    """A scalar with what `change` makes of those in it, the outer ones first; None leaves one."""
    found = change(scalar)
    if found is not None:
        return found
    if isinstance(scalar, Call):
        return replace(scalar, args=tuple(rebuilt(arg, change) for arg in scalar.args))
    if isinstance(scalar, Convert):
        return replace(scalar, arg=rebuilt(scalar.arg, change))
    if isinstance(scalar, Element):
        return replace(scalar, index=rebuilt(scalar.index, change))
    return scalar


def replaced(scalar: Scalar, by: Mapping[Scalar, Scalar]) -> Scalar:
    """A scalar with others in the place of some in it."""
    return rebuilt(scalar, by.get)


def convert(scalar: Scalar, to: str) -> Scalar:
    """A scalar of compute type `to`."""
    if scalar.dtype == to:
        return scalar
    if isinstance(scalar, Number) and scalar.dtype in ("i32", "bool") and to != "bool":
        return number(scalar.value, to)
    return Convert(scalar, to, to)


def cast(scalar: Scalar, source: str, to: str) -> Scalar:
    """What a tile of dtype `source` has, as dtype `to` has it."""
    if source == to or scalar.dtype == to:
        return scalar
    return Convert(scalar, to, compute_dtype(to))


def call(function: str, *args: Scalar) -> Scalar:
    """A function of scalars, which are converted to what it computes in."""
    types = [arg.dtype for arg in args]
    dtype = Map(function).infer([TileType((), kind) for kind in types], Scope({}, {})).dtype
    row = scalar_function(function)
    if row.result == "select":
        return Call(function, (args[0], *(convert(arg, dtype) for arg in args[1:])), dtype)
    if function in LOGICAL:
        return Call(function, tuple(convert(arg, "bool") for arg in args), "bool")
    of = dtype if row.result in ("promote", "float") else row.operand(types)
    if of == "bool" and function in _OF_TRUTH:
        return Call(_OF_TRUTH[function], args, "bool")
    of = "i32" if of == "bool" else of
    kind = of if row.result in ("promote", "float") else dtype
    return convert(Call(function, tuple(convert(arg, of) for arg in args), kind), dtype)


def special(op: Map, arg: Scalar, source: str) -> Scalar:
    """A function with attributes (lookup, bitcast) of a tile of dtype `source`."""
    assert op.dtype is not None
    return Call(op.function, (arg,), compute_dtype(op.dtype), op, source)


def merged(merge: Merge, left: Sequence[Scalar], right: Sequence[Scalar]) -> list[Scalar]:
    """The states that `merge` makes of those on the left, which came before, and on the right."""

    def apply(function: str, args: list[Scalar]) -> Scalar:
        if function.startswith(CAST):
            return cast(args[0], args[0].dtype, function[len(CAST) :])
        return call(function, *args)

    def constant(value: float | int) -> Scalar:
        return number(value, "i32" if type(value) is int else "f32")

    found = merge.merged(left, right, apply, constant)
    pairs = _Pairs(found)
    return [convert(pairs.once(new), old.dtype) for new, old in zip(found, left, strict=True)]


class _Pairs:
    """exp(x - max(x, y)) and exp(y - max(x, y)), of which one is the exponential of 0 (or of NaN):
    one exponential for both, to the very bits.

    Where x < y, the second is 1 + (y - max(x, y)), else the first is 1 + (x - max(x, y)): what is
    added is 0, or NaN where the exponential is.
    """

    def __init__(self, scalars: Sequence[Scalar]) -> None:
        self._made: dict[Scalar, Scalar] = {}
        self._known: dict[Scalar, Scalar] = {}
        found = list(dict.fromkeys(call for scalar in scalars for call in self._calls(scalar)))
        exps = {one for one in found if one.function == "exp"}
        for largest in found:
            if largest.function == "max" and is_float(largest.dtype):
                self._pair(largest, exps)

    def _calls(self, scalar: Scalar) -> Iterator[Call]:
        if isinstance(scalar, Call):
            yield scalar
            for arg in scalar.args:
                yield from self._calls(arg)
        elif isinstance(scalar, Convert):
            yield from self._calls(scalar.arg)

    def _pair(self, largest: Call, exps: set[Call]) -> None:
        left, right = largest.args
        dtype = largest.dtype
        apart = [Call("sub", (one, largest), dtype) for one in (left, right)]
        first, second = (Call("exp", (one,), dtype) for one in apart)
        if first == second or not {first, second} <= exps:
            return
        less = Call("lt", (left, right), "bool")
        one = number(1.0, dtype)
        small = Call("exp", (Call("where", (less, *apart), dtype),), dtype)
        near = [Call("add", (one, distance), dtype) for distance in apart]
        self._known[first] = Call("where", (less, small, near[0]), dtype)
        self._known[second] = Call("where", (less, near[1], small), dtype)

    def once(self, scalar: Scalar) -> Scalar:
        """The scalar, with what there is for its exponentials."""
        if not self._known:
            return scalar
        if scalar not in self._made:
            self._made[scalar] = self._replaced(scalar)
        return self._made[scalar]

    def _replaced(self, scalar: Scalar) -> Scalar:
        if scalar in self._known:
            return self._known[scalar]
        if isinstance(scalar, Call):
            return replace(scalar, args=tuple(self.once(arg) for arg in scalar.args))
        return replace(scalar, arg=self.once(scalar.arg)) if isinstance(scalar, Convert) else scalar


def index(value: int) -> Number:
    return Number(value, "i64")


def plus(left: Scalar, right: Scalar) -> Scalar:
    """The sum of two indices."""
    if isinstance(left, Number) and isinstance(right, Number):
        return index(int(left.value) + int(right.value))
    if isinstance(left, Number) and left.value == 0:
        return right
    if isinstance(right, Number) and right.value == 0:
        return left
    return Call("add", (left, right), "i64")


def times(left: Scalar, factor: int) -> Scalar:
    """An index by a number."""
    if isinstance(left, Number):
        return index(int(left.value) * factor)
    return left if factor == 1 else Call("mul", (left, index(factor)), "i64")


def flat(places: Sequence[Scalar], shape: Sequence[int]) -> Scalar:
    """The row-major index of an element."""
    found: Scalar = index(0)
    step = 1
    for place, extent in zip(reversed(places), reversed(shape), strict=True):
        if extent > 1:
            found = plus(times(place, step), found)
        step *= extent
    return found


def inside(place: Scalar, extent: int, low: bool = True, high: bool = True) -> Scalar | None:
    """Whether an index is not below 0 (if `low`) and below the extent (if `high`)."""
    above = Call("le", (index(0), place), "bool") if low else None
    below = Call("lt", (place, index(extent)), "bool") if high else None
    return both(above, below)


def both(left: Scalar | None, right: Scalar | None) -> Scalar | None:
    """Both of two conditions, of which there may be none."""
    if left is None or right is None:
        return left or right
    return Call("and", (left, right), "bool")
