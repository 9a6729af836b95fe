"""Where elements that a warp takes together lie on their way: words, and a ring in shared memory.

A tile is what a warp takes at a time, of each lane `run` neighbours. Lanes lie side by side, an odd
number of words apart, so that they do not meet in a bank. Knows no text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ir.layout.layout import Layout
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.plain.plain_stream import WIDEST, Stream, Streams

LEAST = 4  # bytes of a word, below which elements go one by one


@dataclass(frozen=True, slots=True)
class Tile:
    """A warp's tile of one stream."""

    stream: Stream
    run: int

    @property
    def word(self) -> int:
        """Bytes that a lane takes at a time from shared memory; below `LEAST`: there is none."""
        return min(WIDEST, self.run * self.stream.size)

    @property
    def direct(self) -> int:
        """The same in the tensor itself."""
        return min(self.word, self.unit)

    @property
    def unit(self) -> int:
        """Bytes that may be moved at a time between a tensor and shared memory."""
        return min(self.word, self.stream.unit * self.stream.size)

    @property
    def words(self) -> int:
        return self.run * self.stream.size // self.word

    @property
    def lane_bytes(self) -> int:
        """From one lane's elements to the next one's."""
        return (self.words | 1) * self.word

    @property
    def memory(self) -> Layout:
        """(neighbour, lane) -> byte in shared memory; the index is the iteration's number."""
        return Layout((self.run, WARP), (self.stream.size, self.lane_bytes))

    @property
    def bytes(self) -> int:
        return -(-WARP * self.lane_bytes // WIDEST) * WIDEST

    @property
    def waits(self) -> bool:
        """Whether it may wait in shared memory."""
        return self.stream.beside and self.word >= LEAST


@dataclass(frozen=True, slots=True)
class Ring:
    """Shared memory of a warp: `ahead` tiles under way and the one that is used, of all that is
    read; and one tile of what is written."""

    streams: Streams
    run: int
    ahead: int

    def waiting(self, streams: Iterable[Stream]) -> tuple[Tile, ...]:
        """The tiles of streams that wait in shared memory."""
        tiles = (Tile(stream, self.run) for stream in streams)
        return tuple(tile for tile in tiles if self.ahead and tile.waits)

    @property
    def slots(self) -> int:
        return self.ahead + 1

    @property
    def slot_bytes(self) -> int:
        return sum(tile.bytes for tile in self.waiting(self.streams.reads))

    @property
    def bytes(self) -> int:
        """What is written leaves one after the other through the same place."""
        out = max((tile.bytes for tile in self.waiting(self.streams.writes)), default=0)
        return self.slots * self.slot_bytes + out
