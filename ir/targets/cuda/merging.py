"""Parts of a sum, added by the last block to arrive: text around a kernel's accumulators.

Every block writes its partial sums to the workspace and counts itself in; the one that completes
the count adds all parts, in their order, and goes on to the epilogue. Nobody waits, the result does
not depend on the order of arrival, and the count is left as it was found: at zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    def whole(self, w: Writer, fragments: Sequence[tuple[Fragment, str]]) -> Iterator[None]:
        """What is written inside is done by the last block, on the whole sums.

        `fragments`: accumulators with their register type.
        """
        total = sum(fragment.count for fragment, _ in fragments)
        share = w.name("share")
        w.line(
            f"u32* const {share} = {SHARES} + ((i64){self.tile} * {self.parts * total}) * "
            f"{self.team} + thread;"
        )
        places = _places(fragments, f"{share} + (i64){{}} * {total * self.team}", self.team)
        for fragment, kind, place in places:
            bits = "tw_bits" if kind == "f32" else "(u32)"
            with w.unrolled("i", fragment.count):
                w.line(f"({place.format(self.part)})[i * {self.team}] = {bits}({_at(fragment)});")
        self._count(w)
        with w.block(f"if (*{self.flag} == {self.parts - 1})"):
            w.line("tw_fence_device();")
            self._add(w, places)
            w.line(f"if (thread == 0) {ARRIVALS}[{self.tile}] = 0;")
            yield

    def _count(self, w: Writer) -> None:
        w.line("tw_fence_device();")
        w.line(self.sync)
        w.line(f"if (thread == 0) *{self.flag} = tw_count({ARRIVALS} + {self.tile});")
        w.line(self.sync)

    def _add(self, w: Writer, places: Sequence[tuple[Fragment, str, str]]) -> None:
        """All parts in their order, this block's own too: it lies in memory like the others."""
        for fragment, _, _ in places:
            with w.unrolled("i", fragment.count):
                w.line(f"{_at(fragment)} = 0;")
        w.line("#pragma unroll 1")
        with w.block(f"for (i32 one = 0; one < {self.parts}; one++)"):
            for fragment, kind, place in places:
                value = "tw_float" if kind == "f32" else "(i32)"
                with w.unrolled("i", fragment.count):
                    there = f"({place.format('one')})[i * {self.team}]"
                    w.line(f"{_at(fragment)} += {value}({there});")


def _places(
    fragments: Sequence[tuple[Fragment, str]], start: str, team: int
) -> list[tuple[Fragment, str, str]]:
    """Accumulators with their register type, and where a part's begin (`{}` is the part)."""
    found, first = [], 0
    for fragment, kind in fragments:
        found.append((fragment, kind, f"{start} + {first * team}" if first else start))
        first += fragment.count
    return found


def _at(fragment: Fragment) -> str:
    """The accumulator of register `i`."""
    return f"{fragment.name}[i / {fragment.row}][i % {fragment.row}]"
