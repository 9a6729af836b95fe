"""A fold along a loop by one thread, which loads what several iterations read before it uses any of
it: that much of memory is under way at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ir.plain.code import Accumulate
from ir.targets.cuda.plain.plain_stream import Streams, streams_of
from ir.targets.cuda.plain.plain_tiles import FoldTiles

if TYPE_CHECKING:
    from ir.targets.cuda.plain.plain_text import PlainText


class OwnFold:
    """Writes one fold. The states are declared."""

    def __init__(self, text: PlainText, fold: Accumulate, run: int) -> None:
        self.text, self.w, self.names, self.fold = text, text.w, text.names, fold
        self.run = run
        streams = Streams(streams_of(text.kernel, fold).reads, ())
        self.tiles = FoldTiles(text, fold, streams, run, 0, 0)

    def write(self) -> None:
        w, whole = self.w, self.fold.extent // self.run * self.run
        with w.block(""):
            w.line(f"const i64 limit = {self.fold.extent};")
            self.tiles.begin(self.run)
            w.line("i64 mine = 0;")
            if whole:
                with w.block(f"for (; mine < {whole}; mine += {self.run})"):
                    self._iterations(True)
            if whole < self.fold.extent:
                self._iterations(False)

    def _iterations(self, whole: bool) -> None:
        w, step = self.w, self.tiles.number
        self.tiles.take(whole)
        with w.unrolled(step, self.run), w.block("" if whole else f"if (mine + {step} < limit)"):
            at = f"mine + {step}"
            if self.fold.backward:
                at = f"{self.fold.extent - 1} - ({at})"
            w.line(f"const i64 {self.names[self.fold.variable.name]} = {at};")
            self.text.run(self.tiles.body(), False)
            values = self.tiles.values()
            with w.block(f"if ({step} == 0 && mine == 0)"):
                self.text.assign(self.fold.states, values)
            with w.block("else"):
                self.text.merge(self.fold, self.fold.states, self.fold.states, values)
            self.text.run(self.fold.keep, False)
