"""Windows: what one thread reads of a tensor, each element once, where its points' indices meet.

Two axes that one index adds (the taps of a convolution, the width of a moving sum) come to the same
element at several points of a thread; so do loads whose indices differ by constants (a stencil's).
What they read together is a box of the tensor in which every digit of a point moves by a fixed
number of elements. So do points that lie two or three elements apart (halves of pairs, colours of
pixels): the box has neighbours, which one access takes together. Knows frames and accesses; no
text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import gcd, prod

import numpy as np

from ir.bends import bends
from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.program import Program
from ir.targets.cuda.layouts.access import Access, Dimension
from ir.targets.cuda.layouts.bent import plain_access
from ir.targets.cuda.layouts.frame import Digit, Frame
from ir.targets.cuda.layouts.vectors import VECTOR_BYTES

MOST_ELEMENTS = 512  # of a box, those that nobody reads included


@dataclass(frozen=True, slots=True)
class Side:
    """A box along one dimension of a tensor.

    `count` elements, `unit` apart, the first of them `least` from where all digits are 0. `merged`
    are digits that move inside of it, with units a step; each of the `kept` ones moves to a box of
    its own, so many elements away.
    """

    least: int
    unit: int
    count: int
    merged: tuple[tuple[Digit, int], ...]
    kept: tuple[tuple[Digit, int], ...]

    @property
    def boxes(self) -> int:
        return prod(digit.size for digit, _ in self.kept)


@dataclass(frozen=True, slots=True)
class Window:
    """What `loads` read together; sides in the order of the tensor's dimensions."""

    loads: tuple[int, ...]
    sides: tuple[Side, ...]
    starts: tuple[tuple[int, ...], ...]  # of each load: units from the box's first element

    @property
    def count(self) -> int:
        """Registers of the box, or of all boxes."""
        return prod(side.count * side.boxes for side in self.sides)

    def weights(self) -> tuple[tuple[int, ...], dict[Digit, int]]:
        """Registers from one element to the next along each side, and of each digit's steps: along
        the last side, neighbours lie beside each other."""
        along, digits, weight = [0] * len(self.sides), dict[Digit, int](), 1
        for number in reversed(range(len(self.sides))):
            side = self.sides[number]
            along[number] = weight
            digits |= {digit: units * weight for digit, units in side.merged}
            weight *= side.count
            for digit, _ in side.kept:
                digits[digit] = weight
                weight *= digit.size
        return tuple(along), digits

    def start(self, load: int) -> int:
        """The register of a load's first point."""
        along, _ = self.weights()
        return sum(w * n for w, n in zip(along, self.starts[self.loads.index(load)], strict=True))


def alike(program: Program) -> tuple[tuple[int, ...], ...]:
    """Loads of one tensor whose indices differ by constants at most, in groups; where rows are
    looked up, those of one row."""
    found: dict[object, list[int]] = {}
    for position, node in enumerate(program.nodes):
        if not isinstance(node.op, Load) or dtype_of(node.dtype).bits < 8:
            continue
        bent = bends(program).get(position)
        dimensions = plain_access(program, position).dimensions
        if node.args and bent is None:
            *rows, last = dimensions
            if last.terms or last.gather is not None:
                continue
            key: object = (node.op.tensor, node.args, node.op.fill, tuple(rows))
        else:
            terms = tuple(d.terms for d in dimensions)
            functions = tuple((number, one.function) for number, one in (bent or {}).items())
            key = (node.op.tensor, node.axes, node.op.fill, terms, functions)
        found.setdefault(key, []).append(position)
    return tuple(map(tuple, found.values()))


def windows(
    accesses: Mapping[int, Access],
    digits: Sequence[Digit],
    pays: Callable[[Window], bool] = lambda _: False,
) -> tuple[Window, ...]:
    """Windows of loads that are alike, for a thread that has these digits of their points; of such
    loads only that are no fewer elements one by one, or of which a window `pays` all the same."""
    axes = {digit.axis for digit in digits}
    one = next(iter(accesses.values()))
    places = [{axis for axis, _ in d.terms if axis in axes} for d in one.dimensions]
    if sum(map(len, places)) > len(set().union(*places)):
        return ()  # an axis that moves along two dimensions
    parts = [_parts(d, digits) for d in one.dimensions]
    groups: dict[tuple[int, ...], list[int]] = {}
    clusters = [
        _clusters({a.dimensions[n].constant for a in accesses.values()}, _reach(merged))
        for n, (merged, _) in enumerate(parts)
    ]
    for position, access in accesses.items():
        key = tuple(c[d.constant] for c, d in zip(clusters, access.dimensions, strict=True))
        groups.setdefault(key, []).append(position)
    each = prod(digit.size for digit in digits)
    found = [_window({p: accesses[p] for p in group}, parts) for group in groups.values()]
    return tuple(
        one for one in found
        if one.count <= MOST_ELEMENTS and (_elements(one) < len(one.loads) * each or pays(one))
    )  # fmt: skip


Steps = tuple[tuple[Digit, int], ...]


def _parts(dimension: Dimension, digits: Iterable[Digit]) -> tuple[Steps, Steps]:
    """Digits that move along a dimension, with the elements of a step: those that come to places
    which others reach as well, and the rest."""
    terms = dict(dimension.terms)
    steps = [(d, d.stride * terms[d.axis]) for d in digits if d.axis in terms]
    merged: list[tuple[Digit, int]] = []
    kept: list[tuple[Digit, int]] = []
    for digit, step in sorted(steps, key=lambda one: abs(one[1])):
        into = merged if not merged or abs(step) <= _reach(merged) else kept
        into.append((digit, step))
    return tuple(merged), tuple(kept)


def _reach(merged: Iterable[tuple[Digit, int]]) -> int:
    return sum((digit.size - 1) * abs(step) for digit, step in merged)


def _clusters(constants: Iterable[int], reach: int) -> dict[int, int]:
    """Constants by the number of their cluster: from one to the next, points still meet."""
    found: dict[int, int] = {}
    last, number = None, 0
    for constant in sorted(constants):
        number += last is not None and constant - last > reach
        found[constant] = number
        last = constant
    return found


def _window(accesses: Mapping[int, Access], parts: Sequence[tuple[Steps, Steps]]) -> Window:
    sides, loads = [], tuple(accesses)
    constants = [[d.constant for d in accesses[p].dimensions] for p in loads]
    for number, (merged, kept) in enumerate(parts):
        here = [row[number] for row in constants]
        unit = gcd(*(step for _, step in merged), *(c - here[0] for c in here)) or 1
        below = sum((digit.size - 1) * min(step, 0) for digit, step in merged)
        count = (_reach(merged) + max(here) - min(here)) // unit + 1
        units = tuple((digit, step // unit) for digit, step in merged)
        sides.append(Side(min(here) + below, unit, count, units, kept))
    starts = tuple(
        tuple(
            (c - side.least) // side.unit for c, side in zip(row, sides, strict=True)
        )
        for row in constants
    )  # fmt: skip
    return Window(loads, tuple(sides), starts)


def _elements(window: Window) -> int:
    """Elements of a box that some load reads."""
    if window.count > MOST_ELEMENTS:
        return window.count
    seen = np.zeros([side.count for side in window.sides], dtype=bool)
    for start in window.starts:
        seen[np.ix_(*map(_reached, window.sides, start))] = True
    return int(seen.sum()) * prod(side.boxes for side in window.sides)


def _reached(side: Side, start: int) -> list[int]:
    """Elements along a side at which a load's points are."""
    found = {start}
    for digit, units in side.merged:
        found = {at + units * n for at in found for n in range(digit.size)}
    return sorted(found)


def places_of(accesses: Sequence[Access]) -> list[tuple[int, int]]:
    """Constant places of one row, which a thread looks up, as accesses of neighbours: where each
    begins, and how many it takes, of which as many as possible are wanted."""
    size, last = dtype_of(accesses[0].dtype).bytes, accesses[0].dimensions[-1]
    wanted = sorted({access.dimensions[-1].constant for access in accesses})
    aligned = gcd(VECTOR_BYTES // size, last.extent) if size <= 4 else 1
    found: list[tuple[int, int]] = []
    while wanted:
        first, width = wanted[0], aligned
        while width > 1 and (
            width * size < 4 or 2 * sum(first // width == one // width for one in wanted) <= width
        ):
            width = width // 2 if width * size > 4 else 1
        begin = first // width * width
        found.append((begin, width))
        wanted = [one for one in wanted if one >= begin + width]
    return found


def accesses_of(window: Window, width: int) -> int:
    """Accesses of a window that take so many neighbours at a time."""
    along = len(spans(window, width))
    return (
        along
        * prod(side.count for side in window.sides[:-1])
        * prod(side.boxes for side in window.sides)
    )


def width_of(window: Window, access: Access, frame: Frame, tiles: Mapping[str, int]) -> int:
    """Neighbours along the last side that one access may take: they begin at multiples of their
    number, and all lie inside a row or outside."""
    size = dtype_of(access.dtype).bytes
    *outer, row = zip(access.dimensions, window.sides, strict=True)
    if size > 4 or row[1].unit != 1:
        return 1
    steps = [row[0].extent]
    for d in access.dimensions:
        steps += [d.stride * c * tiles[axis] for axis, c in d.terms]
    steps += [
        stride * access.stride(axis) for digit in frame.threads for axis, stride in digit.strides
    ]
    steps += [d.stride * n for d, side in outer for n in (side.unit, side.least)]
    steps += [d.stride * step for d, side in (*outer, row) for _, step in side.kept]
    width = gcd(VECTOR_BYTES // size, *steps)
    return width if width * size >= 4 else 1


def spans(window: Window, width: int) -> list[tuple[int, list[int]]]:
    """Accesses along the last side: where each begins, from where all digits are 0, and which
    elements of the box it brings; one alone, where no more than one of a vector is read."""
    row = window.sides[-1]
    found = []
    for _, group in groupby(range(row.count), lambda n: (row.least + n) // width):
        numbers = list(group)
        first = (row.least + numbers[0]) // width * width
        if width > 1 and len(numbers) > 1:
            found.append((first, numbers))
        else:
            found += [(row.least + row.unit * n, [n]) for n in numbers]
    return found
