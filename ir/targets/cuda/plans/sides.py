"""Several axes laid end to end as one side of a matrix tile: digits and coordinates along it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ir.errors import Refusal
from ir.layout.addresses import coordinate
from ir.layout.algebra import along_axes
from ir.layout.errors import LayoutError
from ir.layout.expressions import variable
from ir.layout.layout import Layout
from ir.targets.cuda.layouts.frame import Digit, ThreadDigit


@dataclass(frozen=True, slots=True)
class Side:
    """Axes with their tiles (powers of two), the last one fastest."""

    axes: tuple[tuple[str, int], ...]

    @property
    def size(self) -> int:
        """Points of the side."""
        return prod(tile for _, tile in self.axes)

    @property
    def tiled(self) -> tuple[str, ...]:
        """Axes of which the side has more than one point."""
        return tuple(axis for axis, tile in self.axes if tile > 1)

    def spans(self) -> Iterator[tuple[str, int, int]]:
        """(axis, tile, points of the side from one of the axis to the next), the fastest first."""
        inner = 1
        for axis, tile in reversed(self.axes):
            yield axis, tile, inner
            inner *= tile

    def digits(self, size: int, stride: int) -> list[Digit]:
        """`size` steps of `stride` points as digits of the axes."""
        return list(_digits(self, size, stride))

    def threads(self, size: int, stride: int) -> list[ThreadDigit]:
        """The same as digits of the thread number."""
        return [ThreadDigit(d.size, ((d.axis, d.stride),)) for d in self.digits(size, stride)]

    def coordinates(self, point: str) -> dict[str, str]:
        """The place along each tiled axis of a point of the side, as text."""
        return dict(_coordinates(self, point))


@lru_cache(maxsize=4096)
def _digits(one: Side, size: int, stride: int) -> tuple[Digit, ...]:
    if size == 1:
        return ()
    if size * stride > one.size:
        raise Refusal("side", f"{size} steps of {stride} points leave a side of {one.size}")
    names, tiles = zip(*reversed(one.axes), strict=True)
    try:
        parts = tuple(along_axes(Layout(size, stride), tiles))
    except LayoutError as error:
        raise Refusal("side", f"{size} steps of {stride} points: {error}") from None
    return tuple(Digit(names[axis], steps, apart) for axis, steps, apart in parts)


@lru_cache(maxsize=4096)
def _coordinates(one: Side, point: str) -> tuple[tuple[str, str], ...]:
    parts = one.axes[::-1]
    places = coordinate(variable(point, one.size), tuple(tile for _, tile in parts))
    own = zip(parts, places, strict=False)  # a side may have no axes
    return tuple((axis, f"({place})") for (axis, tile), place in own if tile > 1)


def side(axes: Sequence[str], tiles: Mapping[str, int]) -> Side:
    return Side(tuple((axis, tiles[axis]) for axis in axes))
