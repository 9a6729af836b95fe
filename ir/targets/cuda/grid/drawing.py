"""Tiles that blocks draw: whoever is done with one takes the next from a counter in memory.

Blocks that stay for all tiles have every so many-th of them. Where main loops differ in length, one
block's may be the long ones, however they are dealt; drawn one by one, the longest first, none
waits for another by more than a tile (Graham, "Bounds on multiprocessing timing anomalies", 1969).
The producer draws a tile's successor as it begins and hands it to the block's other groups as it
ends, in slots that are full and empty by turns. Every tile that is done draws one number, so the
last number that is drawn is known, and whoever has it leaves the counter at zero for the next run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ir.columns import Decision
from ir.program import Program
from ir.rewrite.domain import live_gap, live_range
from ir.targets.cuda.build.roles import Roles
from ir.targets.cuda.launch import Room
from ir.targets.cuda.text.writer import Writer

NAME = "scheduler"
STATIC, DYNAMIC = "static", "dynamic"
COUNTER = "drawn"  # of a kernel: numbers that were drawn
SLOTS = 2
MOST = 1 << 29  # tiles, whose number shares a word with two bits
BYTES = SLOTS * 24  # of shared memory: two barriers and a word for each slot


def is_uneven(program: Program, roles: Roles) -> bool:
    """Whether main loops of some tiles are longer than those of others."""
    return any(
        condition.varies(walk) for walk in roles.walked for condition in live_range(program, walk)
    ) or any(live_gap(program, walk) for walk in roles.walked)


def scheduler_decision(name: str, owner: str, program: Program, roles: Roles) -> Decision | None:
    """The decision, where tiles are unequal."""
    if not is_uneven(program, roles):
        return None
    why = "whether a block that stays has every so many-th tile, or draws its next when it is done"
    return Decision(name, (STATIC, DYNAMIC), "order", owner, why, STATIC, unsaid=STATIC)


@dataclass(frozen=True, slots=True)
class Draws:
    """How the blocks of a kernel draw their `total` tiles; slots begin at byte `at` of shared
    memory, and `readers` threads are told the next tile."""

    at: int
    total: int
    readers: int

    def room(self, kernel: str) -> Room:
        """The counter."""
        return Room(f"{kernel}.{COUNTER}", 4, clean=True)

    def make_barriers(self, w: Writer) -> None:
        with w.block(f"for (i32 slot = 0; slot < {SLOTS}; slot++)"):
            w.line(f"tw_barrier_init({self._full('slot')}, 1);")
            w.line(f"tw_barrier_init({self._empty('slot')}, {self.readers});")

    @contextmanager
    def drawn(self, w: Writer, tile: str) -> Iterator[None]:
        """The loop of the producer, one thread."""
        with self._tiles(w, tile):
            number = w.name("number")
            w.line(f"const i32 {number} = tw_claim((i32*){COUNTER});")
            yield
            w.line(f"if ({number} == {self.total - 1}) {COUNTER}[0] = 0;")
            w.line(f"tw_barrier_wait({self._empty()}, told / {SLOTS} % 2 ^ 1);")
            w.line(f"const u32 next = (u32)(tw_grid_x() + {number}) << 2 | (told + 1) % 4;")
            w.line(f"*{self._word} = next;")
            w.line(f"tw_barrier_arrive({self._full()});")
            w.line("told = next;")

    @contextmanager
    def told(self, w: Writer, tile: str) -> Iterator[None]:
        """The loop of the others, each thread."""
        with self._tiles(w, tile):
            yield
            w.line(f"const u32 here = told % {SLOTS};")
            w.line(f"tw_barrier_wait({self._full()}, told / {SLOTS} % 2);")
            w.line(f"told = *{self._word};")
            w.line(f"tw_barrier_arrive({self._empty('here')});")

    @contextmanager
    def _tiles(self, w: Writer, tile: str) -> Iterator[None]:
        """A tile, and in two bits how many there were before: one register during its main loop."""
        w.reserve("told", "next", "here")
        start, more = "(u32)tw_block_x() << 2", f"told >> 2 < {self.total}"
        with w.block(f"for (u32 told = {start}; {more};)"):
            w.line(f"const i32 {tile} = told >> 2;")
            yield

    def _full(self, slot: str = f"told % {SLOTS}") -> str:
        return f"smem + {self.at} + 8 * ({slot})"

    def _empty(self, slot: str = f"told % {SLOTS}") -> str:
        return f"smem + {self.at + 8 * SLOTS} + 8 * ({slot})"

    @property
    def _word(self) -> str:
        return f"(volatile u32*)(tw_shared_base() + {self.at + 16 * SLOTS} + 4 * (told % {SLOTS}))"
