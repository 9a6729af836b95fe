"""Parts of a sum, added by the last block to arrive: text around a kernel's accumulators.

Every block writes its partial sums to the workspace and counts itself in; the one that completes
the count adds all parts, in their order, and goes on to the epilogue. Nobody waits, the result does
not depend on the order of arrival, and the count is left as it was found: at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ir.targets.cuda.registers import Fragment
from ir.targets.cuda.writer import Writer

SHARES, ARRIVALS = "part_sums", "part_arrivals"  # kernel parameters


@dataclass(frozen=True)
class Meeting:
    """Where the parts of one tile meet. `tile` numbers the tiles, `flag` is shared memory."""

    parts: int
    part: str
    tile: str
    team: int
    sync: str
    flag: str

    @contextmanager
    def last(self, w: Writer, fragments: Sequence[tuple[Fragment, str]]) -> Iterator[None]:
        """What is written inside is done by the last block, on the whole sums.

        `fragments`: accumulators with their register type.
        """
        total = sum(fragment.count for fragment, _ in fragments)
        share = w.name("share")
        w.line(
            f"u32* const {share} = {SHARES} + ((i64){self.tile} * {self.parts * total}) * "
            f"{self.team} + thread;"
        )
        self._each(w, fragments, total, share, self._write)
        self._count(w)
        with w.block(f"if (*{self.flag} == {self.parts - 1})"):
            w.line("tw_fence_device();")
            self._each(w, fragments, total, share, self._add)
            w.line(f"if (thread == 0) {ARRIVALS}[{self.tile}] = 0;")
            yield

    def _count(self, w: Writer) -> None:
        w.line("tw_fence_device();")
        w.line(self.sync)
        w.line(f"if (thread == 0) *{self.flag} = tw_count({ARRIVALS} + {self.tile});")
        w.line(self.sync)

    def _each(
        self, w: Writer, fragments: Sequence[tuple[Fragment, str]], total: int, share: str,
        write: Callable[[Writer, Fragment, str, str], None],
    ) -> None:  # fmt: skip
        first = 0
        for fragment, kind in fragments:
            with w.unrolled("i", fragment.count):
                write(w, fragment, kind, f"{share}[(PART * {total} + {first} + i) * {self.team}]")
            first += fragment.count

    def _write(self, w: Writer, fragment: Fragment, kind: str, place: str) -> None:
        bits = "tw_bits" if kind == "f32" else "(u32)"
        w.line(f"{place.replace('PART', self.part)} = {bits}({_at(fragment)});")

    def _add(self, w: Writer, fragment: Fragment, kind: str, place: str) -> None:
        value = "tw_float" if kind == "f32" else "(i32)"
        own, sum_name = _at(fragment), w.name("sum")
        for part in range(self.parts):
            there = f"{value}({place.replace('PART', str(part))})"
            term = f"({self.part} == {part} ? {own} : {there})"
            head = f"{kind} {sum_name} =" if not part else f"{sum_name} +="
            w.line(f"{head} {term};")
        w.line(f"{own} = {sum_name};")


def _at(fragment: Fragment) -> str:
    """The accumulator of register `i`."""
    return f"{fragment.name}[i / {fragment.row}][i % {fragment.row}]"
