"""The top of an axis by a group of threads: what is good enough is collected, sorted and cut off.

An element and where it stands are one whole number, its key: no two are alike, and they rise in the
order of the result, so that it does not matter who puts what where. An axis goes by in chunks. Only
keys that precede the last one that is held are collected; when they are many they are sorted
together with those that are held, and the first ones stay. Sorting is by merging: runs of eight in
registers, then two runs into one, in which each key finds its place by counting, by halves, how
many of the other run precede it; where runs have become as long as what is held, only that much
of two is kept. A short axis is one chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ir.dtypes import compute_dtype
from ir.ops.map import Map
from ir.plain.block import Block
from ir.plain.code import (
    GROUP,
    Assign,
    Call,
    Claim,
    Element,
    If,
    Loop,
    Name,
    Number,
    Scalar,
    Spread,
    Write,
)
from ir.plain.ordering import first_not
from ir.plain.scalars import both, convert, index, plus, times
from ir.plain.values import Values

_RUN = 8  # keys that are sorted in registers
_NETWORK = (
    (0, 1), (2, 3), (4, 5), (6, 7), (0, 2), (1, 3), (4, 6), (5, 7), (1, 2), (5, 6),
    (0, 4), (1, 5), (2, 6), (3, 7), (2, 4), (3, 5), (1, 2), (3, 4), (5, 6),
)  # fmt: skip
"""Comparisons that sort eight (Batcher's odd-even merge sort)."""
_AT_ONCE = 4  # elements of a chunk that a thread reads at a time
_BEGUN, _CHUNK = 256, 1024
"""Elements that are sorted at the beginning, and those of a chunk, at least."""
_WHOLE = 4096  # elements up to which an axis is one chunk where much of it is held
_LOW = -(2**31)
_HIGHEST = Number(2**63 - 1, "i64")
_NAN = 0x7FC00000
_OFTEN = 0.3  # of the room for keys, what is sorted at a time
_FARTHER = 2**31  # than any place that an element has


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of elements of a compute type of 32 bits or less; NaN first, of equals the first."""

    dtype: str
    least: bool

    @staticmethod
    def exist(dtype: str) -> bool:
        return compute_dtype(dtype) in ("f32", "i32", "bool")

    def of(self, block: Block, value: Scalar, place: Scalar) -> Scalar:
        """The key of an element that stands somewhere."""
        return _packed(self.rank(block, value), place)

    def rank(self, block: Block, value: Scalar) -> Scalar:
        """A number of 32 bits for an element, the same for equals, in the order of the result."""
        if self.dtype != "f32":
            return self._turned(convert(value, "i32"))
        bits = block.let(_bits(value, "f32", "i32"), "bits")
        rising = _where(_less(bits, 0), _sub(_LOW, bits), bits)  # -0 becomes 0
        return _where(Call("eq", (value, value), "bool"), self._turned(rising), _i32(_LOW))

    @staticmethod
    def beyond(place: Scalar) -> Scalar:
        """A key for where there is no element, behind those of all that there are."""
        return _packed(_i32(2**31 - 1), place)

    def _turned(self, rank: Scalar) -> Scalar:
        return rank if self.least else _sub(-1, rank)

    def value(self, block: Block, key: Scalar) -> Scalar:
        """The element of a key."""
        rank = block.let(convert(Call("shr", (key, index(32)), "i64"), "i32"), "rank")
        rising = block.let(self._turned(rank), "rising")
        if self.dtype != "f32":
            return convert(rising, self.dtype)
        bits = _where(_less(rising, 0), _sub(_LOW, rising), rising)
        nothing = Call("eq", (rank, _i32(_LOW)), "bool")
        return _bits(_where(nothing, _i32(_NAN), bits), "i32", "f32")

    @staticmethod
    def place(key: Scalar) -> Scalar:
        """Where the element of a key stands, as i32."""
        return convert(Call("bitand", (key, index(2**32 - 1)), "i64"), "i32")


def _packed(rank: Scalar, place: Scalar) -> Scalar:
    high = Call("mul", (convert(rank, "i64"), index(2**32)), "i64")
    return Call("add", (high, place), "i64")


def _i32(value: int) -> Number:
    return Number(value, "i32")


def _sub(left: int, right: Scalar) -> Scalar:
    return Call("sub", (_i32(left), right), "i32")


def _less(left: Scalar, right: int) -> Scalar:
    return Call("lt", (left, _i32(right)), "bool")


def _where(condition: Scalar, then: Scalar, other: Scalar) -> Scalar:
    return Call("where", (condition, then, other), "i32")


def _bits(value: Scalar, source: str, to: str) -> Scalar:
    return Call("bitcast", (value,), to, Map("bitcast", to), source)


def _left(count: int, width: int) -> int:
    """How many keys there are when two runs of `width` are the first `width` of both."""
    pairs, rest = divmod(count, 2 * width)
    return pairs * width + min(rest, width)


class Selecting:
    """The first `held` of `extent` keys in order, as statements of a group.

    `key` gives the key of an element that there is, by its number among them.
    """

    def __init__(
        self, values: Values, axis: str, extent: int, held: int,
        key: Callable[[Block, Scalar], Scalar],
    ) -> None:  # fmt: skip
        self.axis, self.extent, self.held, self.key = axis, extent, held, key
        self.begun = max(_BEGUN, 1 << (2 * held - 1).bit_length())
        self.whole = extent <= max(_CHUNK, self.begun) or (extent <= _WHOLE and 4 * held >= extent)
        self.chunk = max(_CHUNK, 1 << (held - 1).bit_length())
        self.waits = max(held, self.chunk // 4)
        room = max(self.begun, held + self.chunk + self.waits)
        self.room = -(-extent // _RUN) * _RUN if self.whole else room
        self.keys = values.array("keys", "i64", 2 * self.room, GROUP).name
        self.count = "" if self.whole else values.array("count", "i32", 1, GROUP).name

    def emit(self, block: Block) -> Scalar:
        """Search; where in `keys` the first one stands then."""
        return self._begin(block, self.room) if self.whole else self._collected(block)

    def at(self, first: Scalar, rank: Scalar) -> Scalar:
        """A key of the result."""
        return Element(self.keys, plus(first, rank), "i64")

    def _inside(self, block: Block, place: Scalar, fits: bool) -> Scalar:
        """The key of an element, or one beyond all others where there is none."""
        if fits:
            return block.let(self.key(block, place), "key")
        last = index(self.extent - 1)
        there = block.let(Call("min", (place, last), "i64"), "p")
        key, none = self.key(block, there), Keys.beyond(plus(place, index(_FARTHER)))
        inside = Call("le", (place, last), "bool")
        return block.let(Call("where", (inside, key, none), "i64"), "key")

    # --- the first elements -----------------------------------------------------------------------

    def _begin(self, block: Block, count: int) -> Scalar:
        """The first `count` elements sorted, of which eight are read by a thread; where they are.

        There may be up to seven fewer.
        """
        group, body = block.variable(self.axis), block.inner()
        groups = count // _RUN
        found = []
        for turn in range(_RUN):
            place = body.named(plus(group, index(turn * groups)), "p")
            fits = (turn + 1) * groups <= self.extent
            found.append(self._inside(body, place, fits))
        for turn, key in enumerate(self._network(body, found)):
            body.add(Write(self.keys, plus(times(group, _RUN), index(turn)), key))
        block.add(Spread(((group, groups),), body.body))
        half, width = 0, _RUN
        while width < count:
            cut = self._cuts(width)
            self._merged(block, index(half), index(self.room - half), width, index(count), cut)
            half = self.room - half
            width, count = (width, _left(count, width)) if cut else (2 * width, count)
        return index(half)

    def _cuts(self, width: int) -> bool:
        """Whether of two runs of `width` keys the first `width` are enough."""
        return width >= self.held

    @staticmethod
    def _network(block: Block, keys: list[Scalar]) -> list[Scalar]:
        found = list(keys)
        for left, right in _NETWORK:
            pair = (found[left], found[right])
            found[left] = block.let(Call("min", pair, "i64"), "low")
            found[right] = block.let(Call("max", pair, "i64"), "high")
        return found

    # --- chunks -----------------------------------------------------------------------------------

    def _collected(self, block: Block) -> Scalar:
        half = block.let(self._begin(block, self.begun), "half")
        bar = block.let(self.at(half, index(self.held - 1)), "bar")
        chunk, body = block.variable("chunk"), block.inner()
        chunks = -(-(self.extent - self.begun) // self.chunk)
        self._emptied(block)
        self._chunk(body, chunk, plus(half, index(self.held)), bar)
        read = Element(self.count, index(0), "i32")
        pending = body.let(convert(read, "i64"), "pending")
        sort = body.inner()
        count = sort.let(plus(pending, index(self.held)), "count")
        self._sorted(sort, half, count)
        sort.assign(bar, self.at(half, index(self.held - 1)))
        self._emptied(sort)
        many = Call("lt", (index(self.waits), pending), "bool")
        last = both(
            Call("eq", (chunk, index(chunks - 1)), "bool"),
            Call("lt", (index(0), pending), "bool"),
        )
        assert last is not None
        body.add(If(Call("or", (many, last), "bool"), sort.body, often=min(1.0, 3 / chunks)))
        block.add(Loop(chunk, chunks, body.body))
        return half

    def _emptied(self, block: Block) -> None:
        block.add(Spread((), (Write(self.count, index(0), _i32(0)),)))

    def _chunk(self, block: Block, chunk: Name, free: Scalar, bar: Name) -> None:
        """What precedes the bar stands behind what is held."""
        own, body = block.variable(self.axis), block.inner()
        share = self.chunk // _AT_ONCE
        start = block.let(plus(times(chunk, self.chunk), index(self.begun)), "start")
        free = block.let(free, "free")
        fits = (self.extent - self.begun) % self.chunk == 0
        keys = []
        for turn in range(_AT_ONCE):
            place = body.let(plus(start, plus(own, index(turn * share))), "p")
            keys.append(self._inside(body, place, fits))
        for key in keys:
            slot, taken = Name(block.names.fresh("slot"), "i32"), body.inner()
            taken.add(Claim(slot, self.count, index(0)))
            taken.add(Write(self.keys, plus(free, convert(slot, "i64")), key))
            body.add(If(Call("lt", (key, bar), "bool"), taken.body, often=0.1))
        block.add(Spread(((own, share),), body.body))

    def _sorted(self, block: Block, half: Name, count: Name) -> None:
        """The first `count` keys from `half` on in order; `half` is where they stand then."""
        group, body = block.variable(self.axis), block.inner()
        groups = -(-self.room // _RUN)
        some, first = body.inner(), body.let(times(group, _RUN), "first")
        found: list[Scalar] = []
        for turn in range(_RUN):
            place = plus(first, index(turn))
            key, there = some.let(_HIGHEST, "key"), some.inner()
            there.assign(key, self.at(half, place))
            some.branch(Call("lt", (place, count), "bool"), there)
            found.append(key)
        for turn, ordered in enumerate(self._network(some, found)):
            place, write = plus(first, index(turn)), some.inner()
            write.add(Write(self.keys, plus(half, place), ordered))
            some.branch(Call("lt", (place, count), "bool"), write)
        body.add(If(Call("lt", (first, count), "bool"), some.body, often=_OFTEN))
        block.add(Spread(((group, groups),), body.body))
        width, most = _RUN, self.room
        while width < most:
            inner, cut = block.inner(), self._cuts(width)
            other = inner.let(Call("sub", (index(self.room), half), "i64"), "other")
            self._merged(inner, half, other, width, count, cut, most)
            inner.add(Assign(half, other))
            if cut:
                inner.assign(count, self._fewer(inner, count, width))
            block.branch(Call("lt", (index(width), count), "bool"), inner)
            width, most = (width, _left(most, width)) if cut else (2 * width, most)

    @staticmethod
    def _fewer(block: Block, count: Scalar, width: int) -> Scalar:
        """`_left` of a count that is known when the kernel runs."""
        pairs = block.let(Call("floordiv", (count, index(2 * width)), "i64"), "pairs")
        rest = Call("sub", (count, times(pairs, 2 * width)), "i64")
        return plus(times(pairs, width), Call("min", (rest, index(width)), "i64"))

    def _merged(
        self, block: Block, half: Scalar, other: Scalar, width: int, count: Scalar,
        cut: bool = False, most: int = 0,
    ) -> None:  # fmt: skip
        """Runs of `width` keys from `half` on, two and two into one, from `other` on; `cut`: into
        their first `width` keys. `most`: how many there may be where that is not known."""
        pair, side, own = (block.variable(stem) for stem in ("pair", "side", "own"))
        body = block.inner()
        start = body.let(times(pair, 2 * width), "start")
        place = body.let(plus(start, plus(times(side, width), own)), "p")
        even = isinstance(count, Number) and int(count.value) % (2 * width) == 0
        inner = body if even else body.inner()
        key = inner.let(self.at(half, place), "key")
        opposite = Call("sub", (index(width), times(side, width)), "i64")
        sibling = inner.let(plus(start, opposite), "sibling")
        limit: Scalar | None = None
        if not even:
            left = Call("sub", (count, sibling), "i64")
            limit = inner.let(Call("min", (left, index(width)), "i64"), "limit")
        base = inner.let(plus(half, sibling), "base")
        into = inner.let(plus(other, times(pair, width) if cut else start), "into")
        to = inner.let(Call("sub", (plus(into, own), base), "i64"), "to")

        def precedes(at: Scalar) -> Scalar:
            return Call("lt", (Element(self.keys, at, "i64"), key), "bool")

        there = plus(to, first_not(inner, width, precedes, limit, base))
        if cut:
            found, kept = inner.let(there, "found"), inner.inner()
            kept.add(Write(self.keys, found, key))
            end = plus(into, index(width))
            inner.add(If(Call("lt", (found, end), "bool"), kept.body, often=0.5))
        else:
            inner.add(Write(self.keys, there, key))
        if not even:
            often = 1.0 if isinstance(count, Number) else _OFTEN
            body.add(If(Call("lt", (place, count), "bool"), inner.body, often=often))
        most = int(count.value) if isinstance(count, Number) else most
        pairs = -(-most // (2 * width))
        variables = ((pair, pairs), (side, 2), (own, width))
        block.add(Spread(variables, body.body))
