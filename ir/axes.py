"""Axes, affine indices of them, and lists of them as authors give them. Knows no tile, no graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from ir.errors import ProgramError


class _Affine:
    """What an index is not: a quotient, a rest, a condition. Each is a tile's."""

    __slots__ = ()

    def _told(self, sign: str, other: object) -> Any:
        if not is_index(other):
            return NotImplemented  # a tile knows what it means
        raise ProgramError(
            f"{described(self)} {sign} {described(other)}: an index is a sum of multiples of axes; "
            f"g.coordinate(index) makes a tile of one, as in g.coordinate(i + 1) {sign} 2"
        )

    def __floordiv__(self, other: object) -> Any:
        return self._told("//", other)

    def __mod__(self, other: object) -> Any:
        return self._told("%", other)

    def __lt__(self, other: object) -> Any:
        return self._told("<", other)

    def __le__(self, other: object) -> Any:
        return self._told("<=", other)

    def __gt__(self, other: object) -> Any:
        return self._told(">", other)

    def __ge__(self, other: object) -> Any:
        return self._told(">=", other)


@dataclass(frozen=True, slots=True)
class IndexExpression(_Affine):
    """An affine index: sum of coefficient * axis + constant."""

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0

    def __add__(self, other: IndexLike) -> IndexExpression:
        if not is_index(other):
            return NotImplemented
        right = as_index(other)
        sums = dict(self.terms)
        for axis, coefficient in right.terms:
            sums[axis] = sums.get(axis, 0) + coefficient
        kept = tuple((axis, c) for axis, c in sums.items() if c)
        return IndexExpression(kept, self.constant + right.constant)

    __radd__ = __add__

    def __sub__(self, other: IndexLike) -> IndexExpression:
        return self + as_index(other) * -1 if is_index(other) else NotImplemented

    def __rsub__(self, other: IndexLike) -> IndexExpression:
        return as_index(other) - self if is_index(other) else NotImplemented

    def __mul__(self, factor: int) -> IndexExpression:
        if isinstance(factor, float):
            raise ProgramError(
                f"an index times {factor}: indices are whole; g.coordinate(...) makes a tile of one"
            )
        if not isinstance(factor, Integral):
            return NotImplemented
        terms = tuple((axis, c * int(factor)) for axis, c in self.terms if factor)
        return IndexExpression(terms, self.constant * int(factor))

    __rmul__ = __mul__


@dataclass(frozen=True, slots=True)
class Axis(_Affine):
    """A named axis. Adding and multiplying by ints gives index expressions."""

    name: str
    extent: int

    def __add__(self, other: IndexLike) -> IndexExpression:
        return as_index(self) + other

    __radd__ = __add__

    def __sub__(self, other: IndexLike) -> IndexExpression:
        return as_index(self) - other

    def __rsub__(self, other: IndexLike) -> IndexExpression:
        return as_index(self) * -1 + other

    def __mul__(self, factor: int) -> IndexExpression:
        return as_index(self) * factor

    __rmul__ = __mul__


IndexLike = IndexExpression | Axis | int


def is_index(value: object) -> bool:
    """Whether `as_index` takes it."""
    return isinstance(value, (IndexExpression, Axis, Integral)) and not isinstance(value, bool)


def as_index(value: IndexLike) -> IndexExpression:
    """Make an index expression of an axis or an int."""
    if isinstance(value, IndexExpression):
        return value
    if isinstance(value, Axis):
        return IndexExpression(((value.name, 1),))
    if not is_index(value):
        raise ProgramError(
            f"{described(value)} is no index; axes, whole numbers, their sums and multiples, and "
            "tiles of integers are"
        )
    return IndexExpression((), int(value))


def axis_names(what: str, axes: Axis | Sequence[Axis]) -> tuple[str, ...]:
    """Names of the axes that `what` is given; raises ProgramError for anything else."""
    given = axes if isinstance(axes, (tuple, list)) else (axes,)
    for axis in given:
        if not isinstance(axis, Axis):
            raise ProgramError(f"{what}: {described(axis)} is not an axis; g.axes(...) makes them")
    return tuple(axis.name for axis in given)


def described(value: Any) -> str:
    """A value that an author put in a wrong place, in a word or two."""
    if isinstance(value, Axis):
        return f"axis {value.name}"
    if isinstance(value, IndexExpression):
        return "an index"
    plain = isinstance(value, (int, float, str, type(None)))
    return repr(value) if plain else f"a {type(value).__name__}"
