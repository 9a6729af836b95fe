"""Stream-K: clusters share the blocks of tiles evenly, so that no wave is left half empty.

Osama, Merrill, Cecka, Garland and Owens, "Stream-K: Work-centric Parallel Decomposition for Dense
Matrix-Matrix Multiplication on the GPU", PPoPP 2023, with its hybrids: tiles of whole waves are
walked as ever, and only what they leave over is shared, or a wave more. Shared tiles come first.

The blocks of the shared tiles, tile by tile, are cut into a range for each cluster. Neighbouring
tiles, which share an operand, lie in lanes beside each other that are cut alike, so that it is read
from memory once for all of them. A tile's first piece is the last of its range; its other pieces
begin theirs, so they mostly are done by then. Who has another piece leaves its sums in memory and
goes on; who has the first one adds them in their order and writes the tile: sums are the same in
every run.

Ranges are numbered against the order of launch. A cluster so waits for clusters launched before it,
which hand over their piece before they wait for anybody: whatever else runs on the card, nobody
waits for ever. One thread publishes and awaits for all of a block, as in `running`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import gcd

from ir.columns import Decision
from ir.targets.cuda.grid.merging import ARRIVALS, Meeting, Sums
from ir.targets.cuda.grid.running import add_stored
from ir.targets.cuda.text.writer import Writer

NAME = "stream_k"
NONE, REST, WAVE, ALL = "none", "rest", "wave", "all"


def stream_decision(name: str, owner: str) -> Decision:
    why = (
        "tiles whose blocks all clusters share evenly: those that whole waves leave over, those "
        "and a wave more, or all"
    )
    return Decision(name, (NONE, REST, WAVE, ALL), "split", owner, why, NONE, unsaid=NONE)


@dataclass(frozen=True)
class Stream:
    """How `clusters` clusters share `shared` of `tiles` tiles of `blocks` blocks each.

    Cluster and tile number n are in lane n % `lanes`; a lane has as many ranges as clusters.
    """

    tiles: int
    blocks: int
    clusters: int
    shared: int
    lanes: int = 1

    @classmethod
    def of(cls, choice: str, tiles: int, blocks: int, clusters: int, run: int) -> Stream:
        """For a value of the decision that is not `none`; `run` neighbours share an operand."""
        rest = tiles % clusters
        shared = {REST: rest, WAVE: min(rest + clusters, tiles), ALL: tiles}[choice]
        return cls(tiles, blocks, clusters, shared, gcd(clusters, shared, run))

    @property
    def ranges(self) -> int:
        """Of a lane."""
        return self.clusters // self.lanes

    def begin(self, number: str) -> str:
        """The first block of a lane's range, as text; the first ranges have one block more."""
        each, more = divmod(self.shared // self.lanes * self.blocks, self.ranges)
        return f"{number} * {each}" + (f" + min({number}, {more})" if more else "")

    @contextmanager
    def pieces(self, w: Writer, cluster: str, turns: bool) -> Iterator[tuple[str, str]]:
        """The loop over a cluster's pieces: declares `blocks`; yields tile and first block.

        `cluster`: its number, as text. With `turns`, also whether there is one `more`.
        """
        w.reserve("range", "beside", "shared_at", "shared_end", "next", "more", "shares")
        w.line(f"const i32 range = {self.ranges - 1} - {_over(cluster, self.lanes)};")
        if self.lanes > 1:
            w.line(f"const i32 beside = {cluster} % {self.lanes};")
        w.line(f"i32 shared_at = {self.begin('range')};")
        w.line(f"const i32 shared_end = {self.begin('(range + 1)')};")
        tile, first = w.name("tile"), w.name("first_block")
        alone = self.shared == self.tiles
        going = (
            "shared_at < shared_end" if alone else f"shared_at < shared_end || next < {self.tiles}"
        )
        later = f"for (i32 next = {self.shared} + {cluster}; {going};)"
        head = f"while ({going})" if alone else later
        with w.block(head):
            if alone:
                self._shared_piece(w, tile, first)
            else:
                self._piece(w, tile, first)
            if turns:
                w.line(f"const bool more = {going};")
            yield tile, first

    @property
    def _tile(self) -> str:
        number = f"shared_at / {self.blocks}"
        return f"{number} * {self.lanes} + beside" if self.lanes > 1 else number

    def place(self, number: str) -> str:
        """The number of a range of this lane among those of all lanes, as text."""
        return f"({number} * {self.lanes} + beside)" if self.lanes > 1 else number

    def end(self, tile: str) -> str:
        """The block of its lane at which a shared tile ends, as text."""
        return f"({_over(tile, self.lanes)} + 1) * {self.blocks}"

    def _shared_piece(self, w: Writer, tile: str, first: str) -> None:
        w.line(f"const i32 {tile} = {self._tile}, {first} = shared_at % {self.blocks};")
        w.line(f"const i32 blocks = min({self.blocks} - {first}, shared_end - shared_at);")
        w.line("shared_at += blocks;")

    def _piece(self, w: Writer, tile: str, first: str) -> None:
        """A shared piece, or a whole tile behind them."""
        w.line("const bool shares = shared_at < shared_end;")
        w.line(f"const i32 {tile} = shares ? {self._tile} : next;")
        w.line(f"const i32 {first} = shares ? shared_at % {self.blocks} : 0;")
        left = f"min({self.blocks} - {first}, shared_end - shared_at)"
        w.line(f"const i32 blocks = shares ? {left} : {self.blocks};")
        w.line("shared_at += shares ? blocks : 0;")
        w.line(f"next += shares ? 0 : {self.clusters};")


@dataclass(frozen=True)
class HandOver(Meeting):
    """Where the pieces of a tile meet: a place in memory and a flag for each block of the grid.

    `tile` is the place of this block, `place` a format that gives the place of a range's block.
    """

    stream: Stream
    place: str
    number: str  # of the tile
    first: str  # block of the present piece

    @contextmanager
    def whole(self, w: Writer, fragments: Sums) -> Iterator[None]:
        """What is written inside is done by the block of the first piece, on the whole sums."""
        with w.block(f"if ({self.first} > 0)"):
            self.write(w, fragments, self.declare(w, fragments, 1))
            w.line(self.sync)
            w.line(f"if (thread == 0) tw_publish({ARRIVALS} + {self.tile}, 1);")
        with w.block("else"):
            self._add_others(w, fragments)
            yield

    def _add_others(self, w: Writer, fragments: Sums) -> None:
        """Pieces of the ranges behind this one, up to the tile's end; their flags are cleared."""
        stream, other, flag = self.stream, w.name("other"), w.name("flag")
        inside = f"blocks < {stream.blocks} && {stream.begin(other)} < {stream.end(self.number)}"
        with w.block(f"for (i32 {other} = range + 1; {inside}; {other}++)"):
            there = replace(self, tile=self.place.format(other))
            w.line(f"u32* const {flag} = {ARRIVALS} + {there.tile};")
            w.line(f"if (thread == 0) tw_await({flag}, 1);")
            w.line(self.sync)
            w.line(f"if (thread == 0) *{flag} = 0;")
            add_stored(w, self, fragments, there.declare(w, fragments, 1))


def _over(number: str, divisor: int) -> str:
    return f"{number} / {divisor}" if divisor > 1 else number
