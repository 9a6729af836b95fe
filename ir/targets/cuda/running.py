"""A running sum in memory to which the blocks that share a tile add: in turn, or as they come.

In turn (a turnstile), a block waits for the one that has the part before: sums are the same in
every run. Parts of a tile lie on neighbouring blocks of one wave, so that a block waits for one
that was launched before it, whatever else runs on the card. As they come, the first to arrive
stores, and the others wait for that alone, and add atomically: nobody waits for a block that has
not arrived, and no memory has to be cleared. Either way the last one goes on to the epilogue, and
the counts are left as they were found: at zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ir.targets.cuda.merging import ARRIVALS, SHARES, Meeting
from ir.targets.cuda.registers import Fragment
from ir.targets.cuda.writer import Writer

QUAD = 4  # registers that go to memory together
Sums = Sequence[tuple[Fragment, str]]


class Turnstile(Meeting):
    """Blocks add to a tile's sum in the order of their parts. The count is the part to come."""

    @contextmanager
    def whole(self, w: Writer, fragments: Sums) -> Iterator[None]:
        """What is written inside is done by the block of the last part, on the whole sums."""
        place = declare_sum(w, self, fragments)
        count = f"{ARRIVALS} + {self.tile}"
        with w.block(f"if ({self.part} > 0)"):
            w.line(f"if (thread == 0) tw_await({count}, {self.part});")
            self.join(w)
            add_stored(w, self, fragments, place)
        with w.block(f"if ({self.part} < {self.parts - 1})"):
            store_sums(w, self, fragments, place)
            w.line("tw_fence_device();")
            w.line(self.sync)
            w.line(f"if (thread == 0) tw_publish({count}, {self.part} + 1);")
        with w.block("else"):
            w.line(f"if (thread == 0) {ARRIVALS}[{self.tile}] = 0;")
            yield

    def join(self, w: Writer) -> None:
        """All threads see what the first one waited for."""
        w.line(self.sync)
        w.line("tw_fence_device();")


class Gathering(Turnstile):
    """Blocks add to a tile's sum as they come. Two counts: blocks that came, and that added."""

    @contextmanager
    def whole(self, w: Writer, fragments: Sums) -> Iterator[None]:
        """What is written inside is done by the last block to add, on the whole sums."""
        place = declare_sum(w, self, fragments)
        self.arrive(w)
        with w.block(f"if ({self.first})"):
            store_sums(w, self, fragments, place)
        with w.block("else"):
            self.await_first(w)
            add_to_stored(w, self, fragments, place)
        w.line("tw_fence_device();")
        w.line(self.sync)
        w.line(f"if (thread == 0) ({self.flag})[1] = tw_count({self._added});")
        w.line(self.sync)
        with w.block(f"if (({self.flag})[1] == {self.parts - 1})"):
            w.line("tw_fence_device();")
            clear(w, fragments)
            add_stored(w, self, fragments, place)
            w.line(f"if (thread == 0) {self._came}[0] = {self._came}[1] = 0;")
            yield

    @property
    def _came(self) -> str:
        return f"({ARRIVALS} + 2 * {self.tile})"

    @property
    def _added(self) -> str:
        return f"{ARRIVALS} + 2 * {self.tile} + 1"

    @property
    def first(self) -> str:
        """Whether this block is the first of its tile, as text."""
        return f"({self.flag})[0] == 0"

    def arrive(self, w: Writer) -> None:
        w.line(f"if (thread == 0) ({self.flag})[0] = tw_count({self._came});")
        w.line(self.sync)

    def await_first(self, w: Writer) -> None:
        w.line(f"if (thread == 0) tw_await({self._added}, 1);")
        self.join(w)


class GatheringInPlace(Gathering):
    """The same with the outputs themselves as the sums: TMA stores the first part, adds others."""

    @contextmanager
    def whole(self, w: Writer, fragments: Sums) -> Iterator[None]:
        """What is written inside is done by every block, with its own part of the sums."""
        self.arrive(w)
        with w.block(f"if (!({self.first}))"):
            self.await_first(w)
            w.line("tw_fence_async_global();")
        yield
        with w.block(f"if ({self.first})"):
            with w.block("if (lane == 0)"):
                w.line("tw_store_wait<0>();")
                w.line("tw_fence_async_global();")
            w.line("tw_fence_device();")
        w.line(self.sync)
        with w.block(f"if (thread == 0 && tw_count({self._added}) == {self.parts - 1})"):
            w.line(f"{self._came}[0] = {self._came}[1] = 0;")


def declare_sum(w: Writer, meeting: Meeting, fragments: Sums) -> str:
    """Declare where this thread's quads of the tile's sum begin; returns the name."""
    total = sum(fragment.count for fragment, _ in fragments)
    name = w.name("sum")
    w.line(
        f"u32* const {name} = {SHARES} + (i64){meeting.tile} * {total * meeting.team} + "
        f"{QUAD} * thread;"
    )
    return name


def store_sums(w: Writer, meeting: Meeting, fragments: Sums, place: str) -> None:
    for fragment, kind, there in _quads(w, meeting, fragments, place):
        bits = "tw_bits" if kind == "f32" else "(u32)"
        words = ", ".join(f"{bits}({at})" for at in _registers(fragment))
        w.line(f"tw_store_16({there}, tw_vec16{{{{{words}}}}});")


def add_to_stored(w: Writer, meeting: Meeting, fragments: Sums, place: str) -> None:
    for fragment, kind, there in _quads(w, meeting, fragments, place):
        w.line(f"tw_add_16(({kind}*)({there}), {', '.join(_registers(fragment))});")


def add_stored(w: Writer, meeting: Meeting, fragments: Sums, place: str) -> None:
    """Add what is stored to the registers: the stored sum has the earlier parts, and is first."""
    for fragment, kind, there in _quads(w, meeting, fragments, place):
        value = "tw_float" if kind == "f32" else "(i32)"
        name = w.name("stored")
        w.line(f"const tw_vec16 {name} = tw_load_16({there});")
        for number, at in enumerate(_registers(fragment)):
            w.line(f"{at} = {value}({name}.w[{number}]) + {at};")


def clear(w: Writer, fragments: Sums) -> None:
    for fragment, _ in fragments:
        with w.unrolled("i", fragment.count):
            w.line(f"{fragment.name}[i / {fragment.row}][i % {fragment.row}] = 0;")


def _quads(
    w: Writer, meeting: Meeting, fragments: Sums, place: str
) -> Iterator[tuple[Fragment, str, str]]:
    """Inside a loop over the quads of each accumulator: it, its type, the address of its quad."""
    first = 0
    for fragment, kind in fragments:
        with w.unrolled("i", fragment.count // QUAD):
            yield fragment, kind, f"{place} + (i + {first // QUAD}) * {QUAD * meeting.team}"
        first += fragment.count


def _registers(fragment: Fragment) -> list[str]:
    """The four registers of quad `i`."""
    found = []
    for number in range(QUAD):
        at = f"(i * {QUAD} + {number})"
        found.append(f"{fragment.name}[{at} / {fragment.row}][{at} % {fragment.row}]")
    return found
