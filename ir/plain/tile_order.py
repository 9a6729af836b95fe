"""A tile of numbers put in the order of one digit by a group, in its own memory.

Neighbours are a worker's: it counts their digits, a scan of all workers' counters, digit after
digit, says where each begins in the tile, and it puts its neighbours there, the first first
(Satish, Harris and Garland, 2009, for GPUs). Then numbers of one digit are beside each other, and
so they go to memory: whole lines are written, wherever they go. Arrays have a gap behind every 32
elements, so that workers beside each other find their neighbours in different banks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ir.ops.base import TensorSpec
from ir.plain.block import Block
from ir.plain.code import GROUP, Call, Element, Loop, Name, Number, Scalar, Spread, Write
from ir.plain.scalars import convert, index, plus, times
from ir.plain.values import Values

_GAP = 5  # bits of the elements between two gaps
_ZERO, _ONE = Number(0, "i32"), Number(1, "i32")
_SIZES = ((1 << 19, 128, 16), (1 << 17, 128, 8), (1 << 15, 128, 4), (0, 32, 4))
"""Numbers from which on a tile has so many workers, each with so many neighbours."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """Workers of a group, and the neighbours of each."""

    workers: int
    own: int

    @property
    def length(self) -> int:
        return self.workers * self.own

    @property
    def room(self) -> int:
        """Elements of an array of a tile's numbers."""
        return with_gaps(self.length)


def tiling_of(count: int, whole: int) -> Tiling:
    """Of rows of `count` numbers, `whole` of them in all."""
    workers, own = next((w, n) for least, w, n in _SIZES if whole >= least)
    return Tiling(min(workers, max(32, 1 << (count - 1).bit_length() >> 2)), own)


def with_gaps(size: int) -> int:
    """Elements that `size` of them take up."""
    return size + (size >> _GAP)


def padded(place: Scalar) -> Scalar:
    """Where an element of an array with gaps is."""
    return plus(place, Call("shr", (place, index(_GAP)), "i64"))


@dataclass(frozen=True, slots=True)
class Digit:
    """One pass: where it reads keys and numbers (none: they stand where they began), the first bit,
    and how many."""

    keys: TensorSpec
    numbers: TensorSpec | None
    to_keys: TensorSpec
    to_numbers: TensorSpec
    shift: int
    bits: int
    sign: int = 0  # its highest bit, if that tells what is negative, which comes first

    def of(self, key: Scalar) -> Scalar:
        """The digit of a key, as an index."""
        shifted = Call("shr", (key, Number(self.shift, "i32")), "i32") if self.shift else key
        digit = Call("bitand", (shifted, Number((1 << self.bits) - 1, "i32")), "i32")
        if self.sign:
            digit = Call("xor", (digit, Number(self.sign, "i32")), "i32")
        return convert(digit, "i64")


class TileOrder:
    """The statements of one tile; `count`: numbers of a row, whose last tile may lack some."""

    def __init__(self, values: Values, tiling: Tiling, digit: Digit, count: int) -> None:
        self.tiling, self.digit, self.count = tiling, digit, count
        self.digits = 1 << digit.bits
        self.keys = values.array("keys", "i32", tiling.room, GROUP).name
        self.numbers = ""
        if digit.numbers is not None:
            self.numbers = values.array("numbers", "i32", tiling.room, GROUP).name
        counters = with_gaps(tiling.workers * self.digits)
        self.counts = values.array("counts", "i32", counters, GROUP).name
        self.sums = [values.array("sums", "i32", tiling.workers, GROUP).name for _ in range(2)]
        self.shifts = values.array("shifts", "i32", self.digits, GROUP).name
        self.in_order = [values.array("ordered", "i32", tiling.length, GROUP).name
                         for _ in range(2)]  # fmt: skip

    def emit(
        self, block: Block, start: Name, where: Callable[[Scalar], Scalar],
        begins: Callable[[Scalar], Scalar],
    ) -> None:  # fmt: skip
        """`where` a number of the row is in memory, and where those of a digit begin there."""
        self._read(block, start, where)
        self._counted(block, start)
        self._scanned(block)
        one, body = block.variable("digit"), block.inner()
        first = Element(self.counts, padded(times(one, self.tiling.workers)), "i32")
        body.add(Write(self.shifts, one, Call("sub", (begins(one), first), "i32")))
        block.add(Spread(((one, self.digits),), body.body))
        self._moved(block, start)
        self._written(block, start)

    def _inside(self, block: Block, place: Scalar, inner: Block) -> None:
        if self.count % self.tiling.length:
            block.branch(Call("lt", (place, index(self.count)), "bool"), inner)
        else:
            block.statements.extend(inner.statements)

    def _each(self, block: Block, start: Name, make: Callable[[Block, Name, Scalar], None]) -> None:
        """What is done with every number of the tile: its place there, and in the row."""
        own, body = block.variable("own"), block.inner()
        place = body.let(plus(start, own), "p")
        inner = body.inner()
        make(inner, own, place)
        self._inside(body, place, inner)
        block.add(Spread(((own, self.tiling.length),), body.body))

    def _of_workers(
        self, block: Block, start: Name, make: Callable[[Block, Name, Scalar], None]
    ) -> None:
        """What each worker does with its neighbours, one after the other: the counter of the key's
        digit, and its place in the tile."""
        worker, body = block.variable("worker"), block.inner()
        own, turn = body.variable("own"), body.inner()
        at = turn.let(plus(times(worker, self.tiling.own), own), "at")
        inner = turn.inner()
        key = inner.let(Element(self.keys, padded(at), "i32"), "key")
        counter = inner.let(plus(times(self.digit.of(key), self.tiling.workers), worker), "c")
        make(inner, inner.let(padded(counter), "counter"), at)
        self._inside(turn, plus(start, at), inner)
        body.add(Loop(own, self.tiling.own, turn.body))
        block.add(Spread(((worker, self.tiling.workers),), body.body))

    def _read(self, block: Block, start: Name, where: Callable[[Scalar], Scalar]) -> None:
        def read(inner: Block, own: Name, place: Scalar) -> None:
            there, here = inner.let(where(place), "there"), inner.let(padded(own), "here")
            inner.add(Write(self.keys, here, Element(self.digit.keys.name, there, "i32")))
            if self.digit.numbers is not None:
                number = Element(self.digit.numbers.name, there, "i32")
                inner.add(Write(self.numbers, here, number))

        self._each(block, start, read)

    def _counted(self, block: Block, start: Name) -> None:
        counters = with_gaps(self.tiling.workers * self.digits)
        one = block.variable("counter")
        block.add(Spread(((one, counters),), (Write(self.counts, one, _ZERO),)))

        def count(inner: Block, counter: Name, at: Scalar) -> None:
            more = Call("add", (Element(self.counts, counter, "i32"), _ONE), "i32")
            inner.add(Write(self.counts, counter, more))

        self._of_workers(block, start, count)

    def _scanned(self, block: Block) -> None:
        """Every counter becomes what all before it count: sums of as many as there are digits, what
        is before each of these (Hillis and Steele, 1986), and before each counter."""
        here, there = self.sums
        self._of_counters(block, here, False)
        length = 1
        while length < self.tiling.workers:
            worker, body = block.variable("worker"), block.inner()
            total, more = body.let(Element(here, worker, "i32"), "total"), body.inner()
            other = Element(here, plus(worker, index(-length)), "i32")
            more.assign(total, Call("add", (other, total), "i32"))
            body.branch(Call("le", (index(length), worker), "bool"), more)
            body.add(Write(there, worker, total))
            block.add(Spread(((worker, self.tiling.workers),), body.body))
            here, there, length = there, here, 2 * length
        self._of_counters(block, here, True)

    def _of_counters(self, block: Block, sums: str, before: bool) -> None:
        """Sums of each worker's share of all counters; or what is before each of these."""
        worker, body = block.variable("worker"), block.inner()
        total = body.let(_ZERO, "total")
        if before:
            first = body.inner()
            first.assign(total, Element(sums, plus(worker, index(-1)), "i32"))
            body.branch(Call("lt", (index(0), worker), "bool"), first)
        one, inner = body.variable("counter"), body.inner()
        at = inner.let(padded(plus(times(worker, self.digits), one)), "at")
        count = inner.let(Element(self.counts, at, "i32"), "count")
        if before:
            inner.add(Write(self.counts, at, total))
        inner.assign(total, Call("add", (total, count), "i32"))
        body.add(Loop(one, self.digits, inner.body))
        if not before:
            body.add(Write(sums, worker, total))
        block.add(Spread(((worker, self.tiling.workers),), body.body))

    def _moved(self, block: Block, start: Name) -> None:
        keys, numbers = self.in_order

        def move(inner: Block, counter: Name, at: Scalar) -> None:
            to = inner.let(Element(self.counts, counter, "i32"), "to")
            inner.add(Write(self.counts, counter, Call("add", (to, _ONE), "i32")))
            number = convert(plus(start, at), "i32")
            if self.numbers:
                number = Element(self.numbers, padded(at), "i32")
            there = inner.let(convert(to, "i64"), "there")
            inner.add(Write(keys, there, Element(self.keys, padded(at), "i32")))
            inner.add(Write(numbers, there, number))

        self._of_workers(block, start, move)

    def _written(self, block: Block, start: Name) -> None:
        keys, numbers = self.in_order

        def write(inner: Block, own: Name, place: Scalar) -> None:
            key = inner.let(Element(keys, own, "i32"), "key")
            shift = Element(self.shifts, self.digit.of(key), "i32")
            to = inner.let(plus(convert(shift, "i64"), own), "to")
            inner.add(Write(self.digit.to_keys.name, to, key))
            inner.add(Write(self.digit.to_numbers.name, to, Element(numbers, own, "i32")))

        self._each(block, start, write)
