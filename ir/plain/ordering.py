"""Numbers put in order by keys: a stable radix sort, digit by digit, in a few kernels.

The least significant digit first (Knuth, The Art of Computer Programming 3, 5.2.5): each group
counts the digits of a tile of neighbours, a scan says where those of each digit begin, and each
group puts its tile in the order of the digit (`ir.plain.tile_order`) and there. Nothing depends on
who comes first. Where the keys never fall, which the first count finds out, there is nothing to do,
and nothing is done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ir.merges import NAMED, merge_of
from ir.ops.base import TensorSpec
from ir.plain.block import Block
from ir.plain.code import (
    GROUP,
    Accumulate,
    Assign,
    Call,
    Combine,
    Element,
    If,
    Loop,
    Name,
    Number,
    PlainKernel,
    Scalar,
    Spread,
    Write,
)
from ir.plain.pieces import step
from ir.plain.scalars import convert, flat, index, plus, times
from ir.plain.tile_order import Digit, TileOrder, Tiling, padded, tiling_of
from ir.plain.values import Values

_MOST_BITS = 6  # of a digit: of its counters each worker of a group has one
_SCANNED = 2048  # counters that are scanned by themselves

_MOST_SCANNED = 1 << 12  # parts of these
Row = tuple[Name, ...]
Keys = Callable[[Block, Row, Scalar], Scalar]
_ZERO, _FIRST = Number(0, "i32"), index(0)


class Ordering:
    """`count` numbers in the order of their keys, i32 from 0 to `most`; of equals the first first.

    `key` computes a number's key. There may be several `rows` of so many numbers, and any keys
    (`most` is None).
    """

    def __init__(
        self, values: Values, count: int, most: int | None, key: Keys, rows: Sequence[int] = ()
    ) -> None:
        self.values, self.count, self.key, self.rows = values, count, key, tuple(rows)
        bits = 32 if most is None else max(1, most.bit_length())
        passes = -(-bits // _MOST_BITS)
        self.bits = -(-bits // passes)
        size = math.prod(self.rows) * count
        self.tiling: Tiling = tiling_of(count, size)
        self.tiles = -(-count // self.tiling.length)
        self.falls = values.part(1, (), "bool", "falls")
        self.given = values.part(1, (size,), "i32", "keys")
        pairs = [
            (self._part(size, "keys"), self._part(size, "numbers")) for _ in range(min(2, passes))
        ]
        self.counters = counters = math.prod(self.rows) * self.tiles << self.bits
        self.counts, self.places = self._part(counters, "counts"), self._part(counters, "places")
        self.length_scanned = max(1, min(max(_SCANNED, -(-counters // _MOST_SCANNED)), counters))
        self.scanned = -(-counters // self.length_scanned)
        self.totals = self._part(self.scanned, "totals")
        self.before = self._part(self.scanned, "before")
        self.digits: list[Digit] = []
        keys, numbers = self.given, None
        for turn in range(passes):
            to_keys, to_numbers = pairs[turn % 2]
            shift = turn * self.bits
            sign = 1 << (self.bits - 1) if most is None and turn == passes - 1 else 0
            self.digits.append(Digit(keys, numbers, to_keys, to_numbers, shift, self.bits, sign))
            keys, numbers = to_keys, to_numbers

    def _part(self, size: int, stem: str) -> TensorSpec:
        return self.values.part(1, (size,), "i32", stem, partly=True)

    # --- what comes of it -------------------------------------------------------------------------

    @property
    def is_moved(self) -> Scalar:
        """Whether the order is another one than that of the numbers."""
        return Element(self.falls.name, index(0), "bool")

    def ordered_key(self, place: Scalar) -> Scalar:
        """The key at a place of the order."""
        moved = Element(self.digits[-1].to_keys.name, place, "i32")
        given = Element(self.given.name, place, "i32")
        return Call("where", (self.is_moved, moved, given), "i32")

    def ordered(self, place: Scalar, row: Row = ()) -> Scalar:
        """The number at a place of the order of a row."""
        where = self._flat(row, place)
        moved = convert(Element(self.digits[-1].to_numbers.name, where, "i32"), "i64")
        return Call("where", (self.is_moved, moved, place), "i64")

    def _flat(self, row: Row, place: Scalar) -> Scalar:
        return flat([*row, place], (*self.rows, self.count))

    def _points(self) -> tuple[Row, Name, tuple[tuple[Name, int], ...]]:
        """A row, a tile of it, and all of both."""
        names = self.values.names
        row, tile = tuple(Name(names.fresh("row")) for _ in self.rows), Name(names.fresh("tile"))
        return row, tile, (*zip(row, self.rows, strict=True), (tile, self.tiles))

    # --- kernels ----------------------------------------------------------------------------------

    def kernels(self) -> tuple[PlainKernel, ...]:
        found = [self._started()]
        for digit in self.digits:
            found += [self._counted(digit), *self._scanned(), self._placed(digit)]
        return tuple(found)

    def _started(self) -> PlainKernel:
        block = Block(self.values.names)
        block.add(Write(self.falls.name, index(0), Number(False, "bool")))
        return step(self.values, block, ())

    def _where_moved(self, inner: Block) -> Block:
        """What is done only where the keys fall somewhere."""
        outer = Block(self.values.names)
        outer.branch(self.is_moved, inner)
        return outer

    def _inside(self, block: Block, place: Scalar, inner: Block) -> None:
        """What is done with a number that there is."""
        if self.count % self.tiling.length:
            block.branch(Call("lt", (place, index(self.count)), "bool"), inner)
        else:
            block.statements.extend(inner.statements)

    def _counter(self, digit: Scalar, row: Row, tile: Name) -> Scalar:
        return flat([*row, digit, tile], (*self.rows, 1 << self.bits, self.tiles))

    def _counted(self, digit: Digit) -> PlainKernel:
        """How often each tile has each digit; the first time the keys are computed, and it is told
        whether they fall."""
        row, tile, points = self._points()
        values, first = self.values, digit.numbers is None
        block = Block(values.names)
        counts = values.array("counts", "i32", 1 << self.bits, GROUP).name
        keys = values.array("keys", "i32", self.tiling.room, GROUP).name if first else ""
        start = block.let(times(tile, self.tiling.length), "start")
        self._of_digits(block, lambda inner, one: inner.add(Write(counts, one, _ZERO)))
        own, body = block.variable("own"), block.inner()
        place = body.let(plus(start, own), "p")
        inner, where = body.inner(), self._flat(row, place)
        if first:
            key = inner.let(self.key(inner, row, place), "key")
            inner.add(Write(self.given.name, where, key))
            inner.add(Write(keys, padded(own), key))
        else:
            key = inner.let(Element(digit.keys.name, where, "i32"), "key")
        inner.add(Combine("sum", counts, digit.of(key), Number(1, "i32")))
        self._inside(body, place, inner)
        block.add(Spread(((own, self.tiling.length),), body.body))
        if first:
            self._told(block, row, start, keys)

        def write(inner: Block, one: Name) -> None:
            count = Element(counts, one, "i32")
            inner.add(Write(self.counts.name, self._counter(one, row, tile), count))

        self._of_digits(block, write)
        block = block if first else self._where_moved(block)
        return step(values, block, points, cooperative=True)

    def _of_digits(self, block: Block, make: Callable[[Block, Name], None]) -> None:
        one, inner = block.variable("digit"), block.inner()
        make(inner, one)
        block.add(Spread(((one, 1 << self.bits),), inner.body))

    def _told(self, block: Block, row: Row, start: Name, keys: str) -> None:
        """Whether a key of the tile is less than the one before it."""
        tiling = self.tiling
        worker, body = block.variable("worker"), block.inner()
        own, inner = body.variable("own"), body.inner()
        falls = body.let(Number(False, "bool"), "falls")
        at = inner.let(plus(times(worker, tiling.own), own), "at")
        there, behind, ahead = inner.inner(), inner.inner(), inner.inner()
        place = plus(start, at)
        key = there.let(Element(keys, padded(at), "i32"), "key")
        last = there.let(key, "last")
        behind.assign(last, Element(keys, padded(plus(at, index(-1))), "i32"))
        ahead.assign(last, self.key(ahead, row, plus(place, index(-1))))
        outside = Block(block.names)
        outside.branch(Call("lt", (index(0), start), "bool"), ahead)
        there.add(If(Call("lt", (index(0), at), "bool"), behind.body, outside.body))
        fall = Call("lt", (key, last), "bool")
        there.assign(falls, Call("or", (falls, fall), "bool"))
        self._inside(inner, place, there)
        body.add(Loop(own, tiling.own, inner.body))
        body.add(If(falls, (Combine("or", self.falls.name, index(0), falls),), often=0.5))
        block.add(Spread(((worker, tiling.workers),), body.body))

    def _scanned(self) -> tuple[PlainKernel, ...]:
        """Where what each counter counts begins: sums of parts, of what is before each part, and
        of what is before each counter."""
        names, size = self.values.names, self.counters
        part, at = Name(names.fresh("part")), Name(names.fresh("at"))
        state, how = Name(names.fresh("state"), "i32"), merge_of(NAMED["sum"])
        length = self.length_scanned
        place = plus(times(part, length), at)
        own = Element(self.counts.name, place, "i32")
        inside = Call("lt", (place, index(size)), "bool")
        value = Call("where", (inside, own, _ZERO), "i32") if size % length else own

        def fold(extent: int, value: Scalar, keep: tuple[Write | If, ...] = ()) -> Accumulate:
            return Accumulate(at, extent, False, (), (value,), (state,), how, keep)

        first = Block(names)
        first.add(fold(length, value))
        first.add(Write(self.totals.name, part, state))
        middle, total = Block(names), Element(self.totals.name, at, "i32")
        less = Call("sub", (state, total), "i32")
        middle.add(fold(self.scanned, total, (Write(self.before.name, at, less),)))
        last, before = Block(names), Element(self.before.name, part, "i32")
        found = Call("add", (before, Call("sub", (state, own), "i32")), "i32")
        write: Write | If = Write(self.places.name, place, found)
        last.add(fold(length, value, (If(inside, (write,)) if size % length else write,)))
        parts = ((part, self.scanned),)
        blocks = ((first, parts), (middle, ()), (last, parts))
        return tuple(step(self.values, self._where_moved(one), at) for one, at in blocks)

    def _placed(self, digit: Digit) -> PlainKernel:
        """Each tile's numbers go where those of their digit are."""
        row, tile, points = self._points()
        block = Block(self.values.names)
        start = block.let(times(tile, self.tiling.length), "start")
        order = TileOrder(self.values, self.tiling, digit, self.count)
        order.emit(
            block, start, lambda place: self._flat(row, place),
            lambda one: Element(self.places.name, self._counter(one, row, tile), "i32"),
        )  # fmt: skip
        return step(self.values, self._where_moved(block), points, cooperative=True)


def first_not(
    block: Block, most: int, precedes: Callable[[Scalar], Scalar], limit: Scalar | None = None,
    start: Scalar = _FIRST,
) -> Name:  # fmt: skip
    """Of up to `most` elements in order from `start` on, or `limit` if that is less, the place of
    the first that does not precede, or the place behind.

    By halving steps; `precedes` is asked of places inside alone.
    """
    found = block.let(start, "found")
    steps = [1 << n for n in reversed(range(most.bit_length()))]
    whole = most & (most - 1) == 0
    if whole:
        steps = [*steps[1:], 1]  # which reach as far, and no further
    bound = plus(start, index(most) if limit is None else limit)
    for length in steps:
        deeper = block.inner()
        deeper.add(Assign(found, plus(found, index(length))))
        step_on = If(precedes(plus(found, index(length - 1))), deeper.body)
        if whole and limit is None:
            block.add(step_on)
        else:
            inside = Call("le", (plus(found, index(length)), bound), "bool")
            block.add(If(inside, (step_on,)))
    return found
