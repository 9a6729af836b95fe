"""What a fold's iterations read and write in a row, a warp's tile at a time, as text.

Lanes take neighbouring iterations, in words where these lie side by side. With a ring, a warp asks
for its own tiles ahead, whole lines at a time, and meets itself alone. Iterations are numbered in
the order in which they go; `start` is the first of the tile, `mine` of the lane, `limit` behind
the last one of the warp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ir.dtypes import compute_dtype
from ir.layout.addresses import address
from ir.layout.expressions import variable
from ir.layout.printing import summand
from ir.plain.code import Accumulate, Element, Name, Scalar, Statement
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.plain.plain_ring import LEAST, Ring, Tile
from ir.targets.cuda.plain.plain_stream import Stream, Streams, kept, streamed
from ir.targets.cuda.text import scalars

if TYPE_CHECKING:
    from ir.targets.cuda.plain.plain_text import PlainText


class FoldTiles:
    """The tiles of one fold; `start` is where the rings of a block's warps begin."""

    def __init__(
        self, text: PlainText, fold: Accumulate, streams: Streams, run: int, ahead: int, start: int
    ) -> None:
        self.text, self.w, self.names, self.fold = text, text.w, text.names, fold
        self.run, self.ahead, self.start = run, ahead, start
        self.streams = Streams(streams.reads, tuple(s for s in streams.writes if s.beside))
        self.ring = Ring(self.streams, run, ahead)
        self.waiting = self.ring.waiting(self.streams.reads)
        self.leaving = self.ring.waiting(self.streams.writes)
        self.base = {stream: self.names.fresh("base") for stream in self._all}
        self.held = {stream: self._array(stream, "held") for stream in self._all}
        self.step = Name(self.names.new("number"))
        self.at, self.now = self.names.fresh("ring"), self.names.fresh("now")

    @property
    def _all(self) -> tuple[Stream, ...]:
        return (*self.streams.reads, *self.streams.writes)

    def _array(self, stream: Stream, stem: str) -> str:
        name = self.names.new(stem)
        self.text.scalars.dtypes[name] = stream.dtype
        return name

    @property
    def number(self) -> str:
        """The C++ name of a lane's iteration."""
        return self.names[self.step.name]

    # -- the fold's statements

    def body(self) -> tuple[Statement, ...]:
        """An iteration, of what is held."""
        return streamed(self.fold.body, self._reads)

    @property
    def _reads(self) -> Mapping[Scalar, Scalar]:
        found: dict[Scalar, Scalar] = {}
        for stream in self.streams.reads:
            dtype = compute_dtype(stream.dtype)
            element = Element(stream.array, stream.place, dtype)
            found[element] = Element(self.held[stream], self.step, dtype)
        return found

    def values(self) -> list[Name]:
        """What an iteration brings, of what is held."""
        return self.text.values(self.fold, self._reads)

    def keep(self, whole: bool) -> tuple[Statement, ...]:
        """What is done at the end of an iteration; outputs of a whole tile are held."""
        if not whole:
            return self.fold.keep
        return kept(
            self.fold.keep, {s.array: (self.held[s], self.step) for s in self.streams.writes}
        )

    # -- loads

    def begin(self, stride: int) -> None:
        """Where streams begin, and the first tiles asked for; `start` is known, each tile is
        `stride` iterations behind the one before."""
        w = self.w
        for stream in self._all:
            w.line(f"const i64 {self.base[stream]} = {self.text.scalars.text(stream.first)};")
        if self.ring.bytes:
            rings = f"tw_shared_address(tw_shared_base()) + {self.start}"
            w.line(f"const u32 {self.at} = {rings} + warp * {self.ring.bytes};")
        if self.waiting:
            w.line(f"i32 {self.now} = 0;")
            w.line("tw_sync_warp();")
            for number in range(self.ahead):
                self._copy(str(number), f"start + {number * stride}" if number else "start")

    def next(self, stride: int) -> None:
        """The tile is there for all lanes, and a later one is asked for."""
        if not self.waiting:
            return
        w = self.w
        w.line(f"tw_copy_async_wait<{self.ahead - 1}>();")
        w.line("tw_sync_warp();")
        slot = f"({self.now} ? {self.now} - 1 : {self.ahead})"
        self._copy(slot, f"start + {self.ahead * stride}")

    def turn(self) -> None:
        """The next tile is in the next slot."""
        if self.waiting:
            self.w.line(f"{self.now} = {self.now} == {self.ahead} ? 0 : {self.now} + 1;")

    def end(self) -> None:
        """Nothing is under way any more."""
        if self.waiting:
            self.w.line("tw_copy_async_wait<0>();")

    def _copy(self, slot: str, start: str) -> None:
        w, offset = self.w, 0
        for tile in self.waiting:
            place = f"{self.at} + {slot} * {self.ring.slot_bytes} + {offset}"
            array = self.names[tile.stream.array]
            with self._units(tile, start, place) as (here, there):
                self._move(tile.unit, array, here, there)
            offset += tile.bytes
        w.line("tw_copy_async_commit();")

    def _move(self, size: int, array: str, here: str, there: str) -> None:
        """A unit on its way from the tensor."""
        source = f"&{array}[{there}]"
        if size >= LEAST:
            self.w.line(f"tw_copy_async_{size}({here}, {source}, {size});")
        else:
            self.w.line(f"tw_store_shared_{size}({here}, tw_load_{size}({source}));")

    @contextmanager
    def _units(self, tile: Tile, start: str, place: str) -> Iterator[tuple[str, str]]:
        """A warp's loop over what is moved at a time, of what is there: gives the address in shared
        memory and the place in the tensor."""
        w, stream, run = self.w, tile.stream, tile.run
        each = tile.unit // stream.size
        here = address(tile.memory, variable("place", WARP * run, each))
        with w.unrolled("unit", run // each):
            w.line(f"const i32 place = (lane + unit * {WARP}) * {each};")
            back = "place" if stream.step > 0 else f"({WARP * run - each} - place)"
            with w.block(f"if ({start} + {back} < limit)"):
                there = self.lowest(stream, f"{start} + {back}", each)
                yield f"{place} + {summand(here)}", there

    def element(self, stream: Stream, iteration: str) -> str:
        """Where an iteration's element is."""
        step = {1: "+ ", -1: "- "}.get(stream.step, f"+ {stream.step}ll * ")
        return f"{self.base[stream]} {step}({iteration})"

    def lowest(self, stream: Stream, iteration: str, count: int) -> str:
        """Where the first in memory of the elements of so many neighbours is."""
        last = f" + {count - 1}" if stream.step < 0 and count > 1 else ""
        return self.element(stream, f"{iteration}{last}")

    def take(self, whole: bool) -> None:
        """Declare what is held of a lane's iterations; `whole`: all of them are there."""
        offset = 0
        for stream in self.streams.reads:
            tile, name = Tile(stream, self.run), self.names[self.held[stream]]
            self.w.line(f"{scalars.STORAGE[stream.dtype]} {name}[{self.run}];")
            if tile in self.waiting:
                lane = "lane" if stream.step > 0 else f"({WARP - 1} - lane)"
                place = f"{self.at} + {self.now} * {self.ring.slot_bytes} + {offset}"
                offset += tile.bytes
                self._words(tile, tile.word, "shared_", f"{place} + {lane} * {tile.lane_bytes}", "")
            elif whole and stream.beside and tile.direct >= LEAST:
                there = self.lowest(stream, "mine", self.run)
                self._words(tile, tile.direct, "", f"{self.names[stream.array]} + {there}",
                            f" / {stream.size}")  # fmt: skip
            else:
                self._one_by_one(stream, whole)

    def _one_by_one(self, stream: Stream, whole: bool) -> None:
        array, held = self.names[stream.array], self.names[self.held[stream]]
        with self.w.unrolled("step", self.run):
            inside = "" if whole else "if (mine + step < limit) "
            there = self.element(stream, "mine + step")
            self.w.line(f"{inside}{held}[step] = {array}[{there}];")

    def _words(self, tile: Tile, size: int, where: str, place: str, scale: str) -> None:
        """Load words from a place in bytes; `scale`: from one in elements."""
        w, stream = self.w, tile.stream
        each = size // stream.size
        held = self.names[self.held[stream]]
        with w.unrolled("step", self.run // each):
            kind = {16: "tw_vec16", 8: "tw_vec8", 4: "u32"}[size]
            w.line(f"const {kind} word = tw_load_{where}{size}({place} + step * {size}{scale});")
            for number in range(each):
                at = f"step * {each} + {number}"
                at = at if stream.step > 0 else f"{self.run - 1} - ({at})"
                w.line(f"{held}[{at}] = {_unpacked(stream.dtype, size, number)};")

    # -- stores

    def declare_out(self) -> None:
        for stream in self.streams.writes:
            kind = scalars.STORAGE[stream.dtype]
            self.w.line(f"{kind} {self.names[self.held[stream]]}[{self.run}];")

    def store(self) -> None:
        """Write what a whole tile left."""
        for stream in self.streams.writes:
            tile, name = Tile(stream, self.run), self.names[stream.array]
            if tile in self.leaving:
                self._leave(tile)
            elif tile.direct >= LEAST:
                there = self.lowest(stream, "mine", self.run)
                self._packed(tile, tile.direct, "", f"{name} + {there}", f" / {stream.size}")
            else:
                with self.w.unrolled("step", self.run):
                    there = self.element(stream, "mine + step")
                    self.w.line(f"{name}[{there}] = {self.names[self.held[stream]]}[step];")

    def _leave(self, tile: Tile) -> None:
        """By way of shared memory, whole lines at a time."""
        w, stream = self.w, tile.stream
        place = f"{self.at} + {self.ring.slots * self.ring.slot_bytes}"
        lane = "lane" if stream.step > 0 else f"({WARP - 1} - lane)"
        w.line("tw_sync_warp();")
        self._packed(tile, tile.word, "shared_", f"{place} + {lane} * {tile.lane_bytes}", "")
        w.line("tw_sync_warp();")
        with self._units(tile, "start", place) as (here, there):
            target = f"&{self.names[stream.array]}[{there}]"
            self._store_unit(tile.unit, target, here)

    def _store_unit(self, size: int, target: str, here: str) -> None:
        load = f"tw_load_shared_{size}({here})"
        if size == 8:
            self.w.line(f"const tw_vec8 word = {load};")
            self.w.line(f"tw_store_8({target}, word.w[0], word.w[1]);")
        else:
            self.w.line(f"tw_store_{size}({target}, {load});")

    def _packed(self, tile: Tile, size: int, where: str, place: str, scale: str) -> None:
        w, stream = self.w, tile.stream
        each, held = size // stream.size, self.names[self.held[stream]]
        with w.unrolled("step", self.run // each):
            words = []
            for word in range(size // 4):
                words.append(self._word(stream, held, each, word))
            there = f"{place} + step * {size}{scale}"
            if size == 16:
                w.line("tw_vec16 word;")
                for number, text in enumerate(words):
                    w.line(f"word.w[{number}] = {text};")
                words = ["word"]
            w.line(f"tw_store_{where}{size}({there}, {', '.join(words)});")

    def _word(self, stream: Stream, held: str, each: int, word: int) -> str:
        """Four bytes of what a lane holds."""

        def one(number: int) -> str:
            at = f"step * {each} + {number}"
            return f"{held}[{at if stream.step > 0 else f'{self.run - 1} - ({at})'}]"

        if stream.size == 8:
            bits = "tw_bits_64({})" if stream.dtype == "f64" else "(u64){}"
            text = bits.format(one(word // 2))
            return f"(u32)({text} >> 32)" if word % 2 else f"(u32){text}"
        if stream.size == 4:
            text = one(word)
            return f"tw_bits({text})" if scalars.STORAGE[stream.dtype] == "f32" else f"(u32){text}"
        count = 4 // stream.size
        kind = {1: "u8", 2: "u16"}[stream.size]
        parts = [f"(u32)({kind}){one(word * count + n)}" for n in range(count)]
        shifted = [f"{part} << {8 * stream.size * n}" for n, part in enumerate(parts)]
        return " | ".join(f"({part})" for part in shifted)


def _unpacked(dtype: str, size: int, number: int) -> str:
    """Element `number` of a word."""
    kind = scalars.STORAGE[dtype]
    words: Sequence[str] = [f"word.w[{n}]" for n in range(size // 4)] if size > 4 else ["word"]
    bytes_each = {"u8": 1, "i8": 1, "u16": 2, "i16": 2, "f64": 8, "i64": 8}.get(kind, 4)
    if bytes_each == 8:
        bits = f"((u64){words[2 * number]} | (u64){words[2 * number + 1]} << 32)"
        return f"tw_float_64({bits})" if kind == "f64" else f"(i64){bits}"
    if bytes_each == 4:
        return f"tw_float({words[number]})" if kind == "f32" else f"({kind}){words[number]}"
    count = 4 // bytes_each
    text, shift = words[number // count], 8 * bytes_each * (number % count)
    return f"({kind})({text} >> {shift})" if shift else f"({kind}){text}"
