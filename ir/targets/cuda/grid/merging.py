"""Split-K fix-up by the last block to arrive: text around a kernel's accumulators.

Every block writes its partial sums to the workspace and counts itself in; the one that completes
the count adds all parts, in their order, and goes on to the epilogue. Nobody waits, the result does
not depend on the order of arrival, and the count is left as it was found: at zero.

One thread counts for all of a block, after a barrier: its release covers what the barrier ordered
before it, and its acquire what the next barrier orders behind (PTX ISA, causality order).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ir.targets.cuda.text.registers import Fragment
from ir.targets.cuda.text.writer import Writer

SHARES, ARRIVALS = "part_sums", "part_arrivals"  # kernel parameters
QUAD = 4  # registers that go to memory together
FLIGHT = 64  # registers on their way from memory at a time, roughly

Sums = Sequence[tuple[Fragment, str]]  # accumulators with their register type


@dataclass(frozen=True)
class Meeting:
    """The fix-up of the parts of one tile. `tile` numbers the tiles, `flag` is shared memory."""

    parts: int
    part: str
    tile: str
    team: int
    sync: str
    flag: str

    @contextmanager
    def whole(self, w: Writer, fragments: Sums) -> Iterator[None]:
        """What is written inside is done by the last block, on the whole sums."""
        share = self.declare(w, fragments, self.parts)
        part = f"(i64){{}} * {_total(fragments) * self.team}"
        self.write(w, fragments, f"{share} + {part.format(self.part)}")
        self.count(w)
        with w.block(f"if (*{self.flag} == {self.parts - 1})"):
            self._add(w, fragments, f"{share} + {part.format('one')}")
            w.line(f"if (thread == 0) {ARRIVALS}[{self.tile}] = 0;")
            yield

    def declare(self, w: Writer, fragments: Sums, shares: int) -> str:
        """Declare where this thread's quads of the tile's shares begin; returns the name."""
        name = w.name("share")
        size = shares * _total(fragments) * self.team
        w.line(f"u32* const {name} = {SHARES} + (i64){self.tile} * {size} + {QUAD} * thread;")
        return name

    def write(self, w: Writer, fragments: Sums, place: str) -> None:
        for fragment, kind, there in quads_of(w, self.team, fragments, place):
            bits = "tw_bits" if kind == "f32" else "(u32)"
            words = ", ".join(f"{bits}({at})" for at in registers_of(fragment))
            w.line(f"tw_store_16({there}, tw_vec16{{{{{words}}}}});")

    def count(self, w: Writer) -> None:
        """Count the block in; the flag is the number of those before it."""
        w.line(self.sync)
        w.line(f"if (thread == 0) *{self.flag} = tw_count({ARRIVALS} + {self.tile});")
        w.line(self.sync)

    def _add(self, w: Writer, fragments: Sums, place: str) -> None:
        """All parts in their order, this block's own too: it lies in memory like the others."""
        clear(w, fragments)
        w.line(f"#pragma unroll {max(1, FLIGHT // _total(fragments))}")
        with w.block(f"for (i32 one = 0; one < {self.parts}; one++)"):
            for fragment, kind, there in quads_of(w, self.team, fragments, place):
                for at, value in zip(
                    registers_of(fragment), stored_of(w, kind, there), strict=True
                ):
                    w.line(f"{at} += {value};")


def clear(w: Writer, fragments: Sums) -> None:
    """Zero, to which sums are added: ptxas would serialise products if loads replaced them."""
    for fragment, _ in fragments:
        with w.unrolled("i", fragment.count):
            w.line(f"{fragment.name}[i / {fragment.row}][i % {fragment.row}] = 0;")


def _total(fragments: Sums) -> int:
    return sum(fragment.count for fragment, _ in fragments)


def quads_of(
    w: Writer, team: int, fragments: Sums, place: str
) -> Iterator[tuple[Fragment, str, str]]:
    """Inside a loop over the quads of each accumulator: it, its type, the address of its quad."""
    first = 0
    for fragment, kind in fragments:
        with w.unrolled("i", fragment.count // QUAD):
            yield fragment, kind, f"{place} + (i + {first // QUAD}) * {QUAD * team}"
        first += fragment.count


def registers_of(fragment: Fragment) -> list[str]:
    """The four registers of quad `i`."""
    found = []
    for number in range(QUAD):
        at = f"(i * {QUAD} + {number})"
        found.append(f"{fragment.name}[{at} / {fragment.row}][{at} % {fragment.row}]")
    return found


def stored_of(w: Writer, kind: str, there: str) -> list[str]:
    """Load a quad; returns its four values as text."""
    value = "tw_float" if kind == "f32" else "(i32)"
    name = w.name("stored")
    w.line(f"const tw_vec16 {name} = tw_load_16({there});")
    return [f"{value}({name}.w[{number}])" for number in range(QUAD)]
