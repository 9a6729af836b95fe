"""The top of an axis by merging, where much of the axis is held.

Inserting elements one by one takes as many moves as are held for each of them. Here the axis goes
by in blocks as long as what is held; a block is sorted by merging runs of 1, 2, 4, ... elements
(bottom-up merge sort; Knuth, The Art of Computer Programming 3, 5.2.4) and merged into what is
held. Both merges are stable: of equals the earlier one stays in front.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ir.plain.block import Block
from ir.plain.code import THREAD, Array, Call, Element, If, Loop, Name, Scalar, Write
from ir.plain.scalars import convert, index, plus, times
from ir.plain.values import Values

Precedes = Callable[[Scalar, Scalar], Scalar]
_FEWEST = 32  # elements that are held, from which merging may be worth its loops


def is_worth_merging(extent: int, held: int) -> bool:
    """Whether merging takes fewer steps than inserting does, of `extent` elements in random order.

    The i-th one is among the `held` first with chance held / i, and moves half of them.
    """
    if held < _FEWEST:
        return False
    inserted = extent + held * held * (0.25 + math.log(max(1.0, extent / held)) / 2)
    return inserted > 4.0 * extent * math.log2(held)


@dataclass(frozen=True, slots=True)
class Run:
    """Elements in order: arrays of them and of where they stood, a first place and how many."""

    values: Array
    places: Array
    first: Scalar
    count: Scalar

    def value(self, number: Scalar) -> Scalar:
        return Element(self.values.name, plus(self.first, number), self.values.dtype)

    def place(self, number: Scalar) -> Scalar:
        return Element(self.places.name, plus(self.first, number), "i32")


class Sorting:
    """The first `held` of `extent` elements in order, as statements of a plain kernel."""

    def __init__(self, values: Values, dtype: str, extent: int, held: int, axis: str) -> None:
        self.axis, self.extent, self.length = axis, extent, held
        self.blocks = -(-extent // held)
        self.run = self._arrays(values, "run", dtype)
        self.held = self._arrays(values, "held", dtype) if self.blocks > 1 else self.run

    def _arrays(self, values: Values, stem: str, dtype: str) -> tuple[Array, Array]:
        """Elements twice, since merging goes from one half to the other, and where they stood."""
        size = 2 * self.length
        return (
            values.array(stem, dtype, size, THREAD),
            values.array(f"{stem}_places", "i32", size, THREAD),
        )

    def emit(self, block: Block, element: Callable[[Block, Name], Scalar], ahead: Precedes) -> Run:
        """Sort what `element` gives; where it is then."""
        number, body = block.variable(self.axis), block.inner()
        if self.blocks == 1:
            return self._sorted(block, index(0), index(self.extent), element, ahead)
        half = block.let(index(0), "half")
        count = block.let(index(0), "count")
        first = body.let(times(number, self.length), "first")
        left = Call("sub", (index(self.extent), first), "i64")
        length = body.let(Call("min", (left, index(self.length)), "i64"), "length")
        fresh = self._sorted(body, first, length, element, ahead)
        known = Run(*self.held, half, count)
        other = body.let(Call("sub", (index(self.length), half), "i64"), "other")
        both = Call("add", (count, length), "i64")
        most = body.let(Call("min", (both, index(self.length)), "i64"), "most")
        self._merged(body, known, fresh, (*self.held, other), most, ahead)
        body.assign(half, other)
        body.assign(count, most)
        block.add(Loop(number, self.blocks, body.body))
        return Run(*self.held, half, count)

    def _sorted(
        self, block: Block, first: Scalar, length: Scalar,
        element: Callable[[Block, Name], Scalar], ahead: Precedes,
    ) -> Run:  # fmt: skip
        """Elements from `first` on, `length` of them, as one run."""
        values, places = self.run
        number, body = block.variable(self.axis), block.inner()
        inside = body.inner()
        where = inside.let(plus(first, number), "p")
        inside.add(Write(values.name, number, element(inside, where)))
        inside.add(Write(places.name, number, convert(where, "i32")))
        body.branch(Call("lt", (number, length), "bool"), inside)
        block.add(Loop(number, self.length, body.body))
        half = block.let(index(0), "from")
        width = block.let(index(1), "width")
        turns = (self.length - 1).bit_length()
        turn, once = block.variable(self.axis), block.inner()
        other = once.let(Call("sub", (index(self.length), half), "i64"), "to")
        self._pass(once, half, other, width, length, ahead)
        once.assign(half, other)
        once.assign(width, Call("add", (width, width), "i64"))
        if turns:
            block.add(Loop(turn, turns, once.body))
        return Run(values, places, half, length)

    def _pass(
        self, block: Block, half: Scalar, other: Scalar, width: Name, length: Scalar,
        ahead: Precedes,
    ) -> None:  # fmt: skip
        """Runs of `width` elements, two and two into one."""
        pairs, body = block.variable(self.axis), block.inner()
        start = block.let(index(0), "start")
        left, right = block.let(index(0), "left"), block.let(index(0), "right")
        middle, end = block.let(index(0), "middle"), block.let(index(0), "end")
        fresh, inside = body.inner(), body.inner()
        fresh.assign(left, pairs)
        fresh.assign(middle, _least(plus(pairs, width), length))
        fresh.assign(right, middle)
        fresh.assign(end, _least(plus(middle, width), length))
        fresh.assign(start, end)
        inside.branch(Call("eq", (pairs, start), "bool"), fresh)
        run = Run(*self.run, half, length)
        self._step(inside, (run, left, middle), (run, right, end), (*self.run, other), pairs, ahead)
        body.branch(Call("lt", (pairs, length), "bool"), inside)
        block.add(Loop(pairs, self.length, body.body))

    def _merged(
        self, block: Block, known: Run, fresh: Run, to: tuple[Array, Array, Scalar],
        most: Scalar, ahead: Precedes,
    ) -> None:  # fmt: skip
        """The first of two runs, those of `known` before their equals."""
        left, right = block.let(index(0), "left"), block.let(index(0), "right")
        number, body = block.variable(self.axis), block.inner()
        inside = body.inner()
        self._step(
            inside, (known, left, known.count), (fresh, right, fresh.count), to, number, ahead
        )
        body.branch(Call("lt", (number, most), "bool"), inside)
        block.add(Loop(number, self.length, body.body))

    def _step(
        self, block: Block, one: tuple[Run, Name, Scalar], two: tuple[Run, Name, Scalar],
        to: tuple[Array, Array, Scalar], number: Scalar, ahead: Precedes,
    ) -> None:  # fmt: skip
        """The next of two runs becomes element `number` of the merged one."""
        (first, left, middle), (second, right, end) = one, two
        values, places, start = to
        there = block.let(Call("lt", (left, middle), "bool"), "there")
        later = block.let(Call("lt", (right, end), "bool"), "later")
        takes = block.let(later, "takes")
        both, compared = Call("and", (there, later), "bool"), block.inner()
        compared.assign(takes, ahead(second.value(right), first.value(left)))
        block.branch(both, compared)
        at = plus(start, number)
        sides = []
        for run, cursor in ((second, right), (first, left)):
            side = block.inner()
            side.add(Write(values.name, at, run.value(cursor)))
            side.add(Write(places.name, at, run.place(cursor)))
            side.assign(cursor, plus(cursor, index(1)))
            sides.append(side.body)
        then, other = sides
        block.add(If(takes, then, other))


def _least(left: Scalar, right: Scalar) -> Scalar:
    return Call("min", (left, right), "i64")
