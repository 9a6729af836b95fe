"""Lines that lie in another order than the points they are of: tensor maps that copy them so.

A box of TMA is written dimension by dimension, so that a dimension of the tensor that is seen as
several, in steps of different lengths, has its lines in any mixed-radix order. Where that makes
more dimensions than a tensor map has, those around them are counted together with the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ir.targets.cuda.build.products import MAP_RANK


@dataclass(frozen=True, slots=True)
class Count:
    """A dimension of the tensor, by its number: `times` its coordinate, over `by`."""

    dimension: int
    times: int = 1
    by: int = 1

    def text(self, coordinates: Sequence[str]) -> str:
        value = coordinates[self.dimension]
        if value == "0" or (self.times, self.by) == (1, 1):
            return value
        return f"({value}) / {self.by}" if self.by > 1 else f"({value}) * {self.times}"


@dataclass(frozen=True, slots=True)
class Way:
    """A dimension of a tensor map: points, bytes from one to the next, points of a box, and what
    its coordinate is made of."""

    extent: int
    stride: int
    box: int
    counts: tuple[Count, ...] = ()

    def coordinate(self, coordinates: Sequence[str]) -> str:
        """Where a box begins, of the coordinates in the tensor's own dimensions."""
        parts = [count.text(coordinates) for count in self.counts]
        return " + ".join(part for part in parts if part != "0") or "0"


def reordered(
    ways: Sequence[Way], at: int, order: Sequence[tuple[int, int]]
) -> tuple[Way, ...]:  # fmt: skip
    """The ways with the one numbered `at` in the digits (size, stride) of `order`, the last of
    which is the one with the longest steps."""
    lines, (*inner, (_, step)) = ways[at], order
    digits = [Way(size, lines.stride * stride, size) for size, stride in inner]
    counts = tuple(replace(count, by=step) for count in lines.counts)
    last = Way(-(-lines.extent // step), lines.stride * step, lines.box // step, counts)
    around = [*ways[at + 1 :]]
    while around and at + len(digits) + 1 + len(around) > MAP_RANK:
        last = _together(last, around.pop(0))
    return (*ways[:at], *digits, last, *around)


def _together(inner: Way, outer: Way) -> Way:
    """Two ways of which the outer one has single points, as one."""
    times = outer.stride // inner.stride
    counts = tuple(replace(count, times=count.times * times) for count in outer.counts)
    extent = times * (outer.extent - 1) + inner.extent
    return Way(extent, inner.stride, inner.box, (*inner.counts, *counts))


def reordering_problem(
    ways: Sequence[Way], at: int, order: Sequence[tuple[int, int]], whole: bool
) -> str:
    """Why a tensor map cannot have lines in that order; empty if it can.

    `whole`: whether the tensor's dimension, and what is added to its coordinate, are multiples of
    the last digit's step.
    """
    steps = [stride for _, stride in order]
    if max(steps) != steps[-1]:
        return f"lines in the order {tuple(order)}, of which the last does not step furthest"
    if not whole:
        return f"lines are exchanged within {steps[-1]}, which do not divide the dimension"
    free = MAP_RANK - (at + len(order))
    if free < 0:
        return f"{at + len(order)} dimensions; a tensor map has up to {MAP_RANK}"
    joined = ways[at + 1 : max(at + 1, len(ways) - free)]
    if any(way.box > 1 for way in joined):
        return "dimensions beside the lines have boxes of their own"
    return ""
