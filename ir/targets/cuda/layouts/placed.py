"""Thread-value layouts as digits along two sides of a tile, and frames made of them.

A layout of the synthesis maps (thread, value) to the index of a tile over two axes. Here it becomes
digits, each along one of the two; a frame puts them on the axes of a kernel. Knows no instruction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ir.errors import Refusal
from ir.layout.algebra import along_axes, coalesce, composition, upcast
from ir.layout.layout import Layout
from ir.targets.cuda.layouts.frame import Digit, Frame, ThreadDigit
from ir.targets.cuda.plans.sides import Side

NOBODY = -1  # the axis of a thread digit along which all hold the same points


@dataclass(frozen=True, slots=True)
class Step:
    """A digit: `size` steps of `stride` points along axis 0 or 1 of a tile, or along none."""

    axis: int
    size: int
    stride: int


@dataclass(frozen=True, slots=True)
class ThreadValues:
    """Digits of the thread number and of the values of one thread, the fastest first."""

    threads: tuple[Step, ...]
    values: tuple[Step, ...]

    def within(self, axis: int, points: int) -> ThreadValues:
        """The digits inside the first `points` points of an axis."""
        found = []
        for step in self.values:
            size = min(step.size, points // step.stride) if step.axis == axis else step.size
            if size > 1:
                found.append(Step(step.axis, size, step.stride))
        return ThreadValues(self.threads, tuple(found))

    def divided(self, axis: int, by: int) -> ThreadValues:
        """The same where `by` neighbours along an axis are one point, which all of them hold."""
        if by == 1:
            return self
        threads = [part for step in self.threads for part in _divided(step, axis, by)]
        values = [part for step in self.values for part in _divided(step, axis, by)]
        return ThreadValues(tuple(threads), tuple(v for v in values if v.axis != NOBODY))

    @property
    def turned(self) -> ThreadValues:
        """The same with the two axes of the tile exchanged."""
        threads, values = (
            tuple(Step((1, 0, NOBODY)[step.axis], step.size, step.stride) for step in steps)
            for steps in (self.threads, self.values)
        )
        return ThreadValues(threads, values)

    def text(self, shape: tuple[int, ...]) -> str:
        """The layout in a tile of such axes, as text."""
        modes = []
        for steps in (self.threads, self.values):
            strides = [step.stride * prod(shape[: max(step.axis, 0)]) for step in steps]
            modes.append(Layout(tuple(step.size for step in steps), tuple(strides)))
        threads, values = modes
        return str(Layout((threads.shape, values.shape), (threads.stride, values.stride)))


def _divided(step: Step, axis: int, by: int) -> Iterator[Step]:
    if step.axis != axis:
        yield step
        return
    wide = upcast(Layout(step.size, step.stride), by)
    if wide.size < step.size:
        yield Step(NOBODY, step.size // wide.size, 0)
    yield from (Step(axis, size, stride) for size, stride in wide.flat() if size > 1)


@dataclass(frozen=True, slots=True)
class Placed:
    """A register tile whose two axes are sides of a kernel."""

    digits: ThreadValues
    sides: tuple[Side, Side]


@lru_cache(maxsize=1024)
def thread_values(layout: str, shape: tuple[int, ...], order: str = "") -> ThreadValues:
    """The digits of a layout (thread, value) -> index in a tile of two axes, given as text.

    `order`: a layout register -> value, if an instruction numbers registers in another order.
    """
    threads, values = Layout.parse(layout).modes
    if order:
        values = composition(values, coalesce(Layout.parse(order)))
    held, own = ([Step(*part) for part in along_axes(one, shape)] for one in (threads, values))
    return ThreadValues(tuple(held), tuple(_joined(own)))


def _joined(steps: Iterable[Step]) -> Iterator[Step]:
    """Digits that go on where the one before ends as one."""
    last: Step | None = None
    for step in steps:
        if last and (step.axis, step.stride) == (last.axis, last.size * last.stride):
            last = Step(last.axis, last.size * step.size, last.stride)
            continue
        if last:
            yield last
        last = step
    if last:
        yield last


def framed(tiles: Sequence[Placed], outer: Sequence[ThreadDigit] = ()) -> Frame:
    """The frame in which all the tiles lie as they are. They have the same first side.

    `outer` are the digits of the threads beyond those of the tiles.
    Refusal "layouts" where threads hold other points of the first side in one than in another.
    """
    rows = tiles[0].sides[0]
    registers: list[Digit] = []
    for steps in _merged([tile.digits.values for tile in tiles]):
        if len({step for _, step in steps}) == 1 and steps[0][1].axis == 0:
            steps = steps[:1]
        for number, step in steps:
            registers += tiles[number].sides[step.axis].digits(step.size, step.stride)
    threads: list[ThreadDigit] = []
    for steps in _merged([tile.digits.threads for tile in tiles]):
        (number, step), *_ = steps
        if len({(one.axis, one.size) for _, one in steps}) > 1:
            raise Refusal("layouts", f"chained products lie differently in threads: {steps}")
        if step.axis == NOBODY:
            threads.append(ThreadDigit(step.size))
        elif step.axis == 0:
            threads += rows.threads(step.size, step.stride)
        else:
            columns = [tiles[n].sides[1].threads(one.size, one.stride) for n, one in steps]
            threads += _together(columns)
    every = (*threads, *outer)
    return Frame(tuple(registers), tuple(digit for digit in every if digit.size > 1))


def _merged(lists: Sequence[Sequence[Step]]) -> Iterator[list[tuple[int, Step]]]:
    """Steps of several tiles side by side, each with the number of its tile: steps along the first
    side are of all of them."""
    left = [list(steps) for steps in lists]
    while any(left):
        own = [number for number, steps in enumerate(left) if steps and steps[0].axis == 1]
        if own:
            yield [(number, left[number].pop(0)) for number in own]
            continue
        heads = [(number, steps.pop(0)) for number, steps in enumerate(left) if steps]
        if len({step for _, step in heads}) > 1 or len(heads) < len(left):
            raise Refusal("layouts", f"chained products lie differently in threads: {heads}")
        yield heads


def _together(columns: Sequence[Sequence[ThreadDigit]]) -> list[ThreadDigit]:
    """Digits of the same threads, along an axis of each tile."""
    found = []
    for digits in zip(*columns, strict=True):
        strides = tuple(stride for digit in digits for stride in digit.strides)
        found.append(ThreadDigit(digits[0].size, strides))
    return found
