"""Numbers put in order by keys: a stable radix sort, digit by digit, in a few kernels.

The least significant digit first (Knuth, The Art of Computer Programming 3, 5.2.5): each point
counts the digits of its own neighbours, a scan says where those of each digit begin, and each point
goes through its neighbours again and puts them there. Nothing depends on who comes first. Where the
keys never fall, which the first count finds out, there is nothing to do, and nothing is done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ir.merges import NAMED, merge_of
from ir.ops.base import TensorSpec
from ir.plain.block import Block
from ir.plain.code import (
    THREAD,
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
    Write,
)
from ir.plain.pieces import step
from ir.plain.scalars import convert, flat, index, plus, times
from ir.plain.values import Values

_MOST_BITS = 6  # of a digit: counters that a thread has
_SHORTEST, _LONGEST = 16, 64  # neighbours of a point
_POINTS = 1 << 15  # that are wanted before each gets more neighbours
_SCANNED = 2048  # counters that are scanned by themselves

_MOST_SCANNED = 1 << 12  # parts of these
_LOWEST = Number(-(2**31), "i32")
Row = tuple[Name, ...]
Keys = Callable[[Block, Row, Scalar], Scalar]
_ZERO, _FIRST = Number(0, "i32"), index(0)


@dataclass(frozen=True, slots=True)
class _Digit:
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
        self.lowest = _ZERO if most is not None else _LOWEST
        passes = -(-bits // _MOST_BITS)
        self.bits = -(-bits // passes)
        self.length = min(max(count // _POINTS, _SHORTEST), _LONGEST)
        self.pieces = -(-count // self.length)
        self.falls = values.part(1, (), "bool", "falls")
        size = math.prod(self.rows) * count
        self.given = values.part(1, (size,), "i32", "keys")
        pairs = [
            (self._part(size, "keys"), self._part(size, "numbers")) for _ in range(min(2, passes))
        ]
        self.counters = counters = math.prod(self.rows) * self.pieces << self.bits
        self.counts, self.places = self._part(counters, "counts"), self._part(counters, "places")
        self.length_scanned = min(max(_SCANNED, -(-counters // _MOST_SCANNED)), counters)
        self.scanned = -(-counters // self.length_scanned)
        self.totals = self._part(self.scanned, "totals")
        self.before = self._part(self.scanned, "before")
        self.digits: list[_Digit] = []
        keys, numbers = self.given, None
        for turn in range(passes):
            to_keys, to_numbers = pairs[turn % 2]
            shift = turn * self.bits
            sign = 1 << (self.bits - 1) if most is None and turn == passes - 1 else 0
            self.digits.append(_Digit(keys, numbers, to_keys, to_numbers, shift, self.bits, sign))
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
        """A row, a piece of it, and all of both."""
        names = self.values.names
        row, piece = tuple(Name(names.fresh("row")) for _ in self.rows), Name(names.fresh("piece"))
        return row, piece, (*zip(row, self.rows, strict=True), (piece, self.pieces))

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

    def _own(self, block: Block, piece: Name, make: Callable[[Block, Scalar], None]) -> None:
        """A loop over the neighbours of a point."""
        variable, inner = block.variable("own"), block.inner()
        place = inner.let(plus(times(piece, self.length), variable), "p")
        if self.count % self.length:
            inside = inner.inner()
            make(inside, place)
            inner.branch(Call("lt", (place, index(self.count)), "bool"), inside)
        else:
            make(inner, place)
        block.add(Loop(variable, self.length, inner.body))

    def _filled(self, block: Block, array: str, value: Callable[[Name], Scalar]) -> None:
        digit = block.variable("digit")
        block.add(Loop(digit, 1 << self.bits, (Write(array, digit, value(digit)),)))

    def _counter(self, digit: Scalar, row: Row, piece: Name) -> Scalar:
        return flat([*row, digit, piece], (*self.rows, 1 << self.bits, self.pieces))

    def _counted(self, digit: _Digit) -> PlainKernel:
        """How often each point's neighbours have each digit; the first time the keys are computed,
        and it is told whether they fall."""
        row, piece, points = self._points()
        block, first = Block(self.values.names), digit.numbers is None
        held = self.values.array("held", "i32", 1 << self.bits, THREAD).name
        self._filled(block, held, lambda _: _ZERO)
        falls = block.let(Number(False, "bool"), "falls") if first else None
        last = self._last(block, row, piece) if first else None

        def count(inner: Block, place: Scalar) -> None:
            if first:
                assert falls is not None
                assert last is not None
                key = inner.let(self.key(inner, row, place), "key")
                inner.add(Write(self.given.name, self._flat(row, place), key))
                fall = Call("lt", (key, last), "bool")
                inner.assign(falls, Call("or", (falls, fall), "bool"))
                inner.assign(last, key)
            else:
                key = inner.let(Element(digit.keys.name, self._flat(row, place), "i32"), "key")
            own = inner.let(digit.of(key), "digit")
            one = Call("add", (Element(held, own, "i32"), Number(1, "i32")), "i32")
            inner.add(Write(held, own, one))

        self._own(block, piece, count)
        if falls is not None:
            block.add(If(falls, (Combine("or", self.falls.name, index(0), falls),), often=0.5))
        self._written(block, row, piece, held)
        block = block if first else self._where_moved(block)
        return step(self.values, block, points)

    def _last(self, block: Block, row: Row, piece: Name) -> Name:
        """The key before the first one of a point."""
        last, inner = block.let(self.lowest, "last"), block.inner()
        place = inner.let(plus(times(piece, self.length), index(-1)), "p")
        inner.assign(last, self.key(inner, row, place))
        block.branch(Call("lt", (index(0), piece), "bool"), inner)
        return last

    def _written(self, block: Block, row: Row, piece: Name, held: str) -> None:
        digit = block.variable("digit")
        value = Element(held, digit, "i32")
        write = Write(self.counts.name, self._counter(digit, row, piece), value)
        block.add(Loop(digit, 1 << self.bits, (write,)))

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

    def _placed(self, digit: _Digit) -> PlainKernel:
        """Each point's neighbours go where those of their digit are."""
        row, piece, points = self._points()
        block = Block(self.values.names)
        held = self.values.array("held", "i32", 1 << self.bits, THREAD).name
        self._filled(
            block, held, lambda at: Element(self.places.name, self._counter(at, row, piece), "i32")
        )

        def put(inner: Block, place: Scalar) -> None:
            where = inner.named(self._flat(row, place), "p")
            key = inner.let(Element(digit.keys.name, where, "i32"), "key")
            number = convert(place, "i32")
            if digit.numbers is not None:
                number = Element(digit.numbers.name, where, "i32")
            number = inner.let(number, "number")
            own = inner.let(digit.of(key), "digit")
            to = inner.let(Element(held, own, "i32"), "to")
            inner.add(Write(held, own, Call("add", (to, Number(1, "i32")), "i32")))
            there = convert(to, "i64")
            inner.add(Write(digit.to_keys.name, there, key))
            inner.add(Write(digit.to_numbers.name, there, number))

        self._own(block, piece, put)
        return step(self.values, self._where_moved(block), points)


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
