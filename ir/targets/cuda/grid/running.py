"""Split-K fix-up on a running sum in memory: blocks that share a tile add in order, or atomically.

Ordered (`turnstile`), a block waits for the one that has the part before: sums are the same in
every run. Parts of a tile lie on neighbouring blocks of one wave, so that a block waits for one
that was launched before it, whatever else runs on the card. Atomic, blocks add as they come to
memory that is zero, and nobody waits. Either way the last one goes on to the epilogue, and what has
to be zero for the next run is left so.

One thread counts or publishes for all of a block, after a barrier: its release covers what the
barrier ordered before it, and its acquire what the next barrier orders behind (PTX ISA, causality
order).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ir.targets.cuda.grid.merging import (
    ARRIVALS,
    Meeting,
    Sums,
    clear,
    quads_of,
    registers_of,
    stored_of,
)
from ir.targets.cuda.text.writer import Writer


class Turnstile(Meeting):
    """Blocks add to a tile's sum in the order of their parts. The count is the part to come."""

    @contextmanager
    def whole(self, w: Writer, fragments: Sums) -> Iterator[None]:
        """What is written inside is done by the block of the last part, on the whole sums."""
        place = self.declare(w, fragments, 1)
        count = f"{ARRIVALS} + {self.tile}"
        with w.block(f"if ({self.part} > 0)"):
            w.line(f"if (thread == 0) tw_await({count}, {self.part});")
            w.line(self.sync)
            add_stored(w, self, fragments, place)
        with w.block(f"if ({self.part} < {self.parts - 1})"):
            self.write(w, fragments, place)
            w.line(self.sync)
            w.line(f"if (thread == 0) tw_publish({count}, {self.part} + 1);")
        with w.block("else"):
            w.line(f"if (thread == 0) {ARRIVALS}[{self.tile}] = 0;")
            yield


class Gathering(Meeting):
    """Blocks add to a tile's sum as they come. The count is the blocks that have added."""

    @contextmanager
    def whole(self, w: Writer, fragments: Sums) -> Iterator[None]:
        """What is written inside is done by the last block to add, on the whole sums."""
        place = self.declare(w, fragments, 1)
        add_to_stored(w, self, fragments, place)
        self.count(w)
        with w.block(f"if (*{self.flag} == {self.parts - 1})"):
            clear(w, fragments)
            add_stored(w, self, fragments, place)
            leave_zero(w, self, fragments, place)
            w.line(f"if (thread == 0) {ARRIVALS}[{self.tile}] = 0;")
            yield


def add_stored(w: Writer, meeting: Meeting, fragments: Sums, place: str) -> None:
    """Add what is stored, the earlier parts, to the registers."""
    for fragment, kind, there in quads_of(w, meeting.team, fragments, place):
        for at, stored in zip(registers_of(fragment), stored_of(w, kind, there), strict=True):
            w.line(f"{at} = {stored} + {at};")


def add_to_stored(w: Writer, meeting: Meeting, fragments: Sums, place: str) -> None:
    for fragment, kind, there in quads_of(w, meeting.team, fragments, place):
        w.line(f"tw_add_16(({kind}*)({there}), {', '.join(registers_of(fragment))});")


def leave_zero(w: Writer, meeting: Meeting, fragments: Sums, place: str) -> None:
    for _, _, there in quads_of(w, meeting.team, fragments, place):
        w.line(f"tw_store_16({there}, tw_vec16{{{{0, 0, 0, 0}}}});")
