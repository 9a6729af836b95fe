"""Parts of a sum that the blocks of one cluster have: they meet in each other's shared memory.

Every block has the same tile for its part of the walk, and finishes as many columns of it as
there are parts. It leaves its sums of the others' columns in its shared memory, tells the others,
and adds what they left for it to its own: from the next part on, round the cluster, so that the
result is the same in every run. Where a block has one tile, the sums lie over the rings: nobody
reads or fills a ring then, as all products of the block have ended.

One thread publishes for all of a block, after a barrier: its release covers what the barrier
ordered before it (PTX ISA, causality order). Blocks stay until all have read: the kernel ends with
a barrier of the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

from ir.targets.cuda.grid.merging import QUAD, Sums
from ir.targets.cuda.plans.tensor_plan import GROUP, Plan
from ir.targets.cuda.text.registers import Fragment
from ir.targets.cuda.text.writer import Writer

BYTES = 16  # of a quad


@dataclass(frozen=True)
class Exchange:
    """The exchange of one plan's tiles."""

    plan: Plan

    @property
    def _ready(self) -> str:
        """The barrier at which others tell that their sums are there."""
        return f"smem + {self.plan.memory.offsets['arrived']}"

    @property
    def _taken(self) -> str:
        """The barrier at which others tell that they have read this block's sums."""
        return f"smem + {self.plan.memory.offsets['arrived'] + 8}"

    @property
    def _threads(self) -> int:
        return GROUP * self.plan.consumers

    def declare_part(self, w: Writer) -> None:
        """Which part this block has, and which block it is of those that share operands."""
        size = self.plan.cluster_size
        w.line(f"const i32 own_part = tw_cluster_rank() / {size};")
        if size > 1:
            w.line(f"const i32 rank = tw_cluster_rank() % {size};")

    def make_barriers(self, w: Writer) -> None:
        for barrier in (self._ready, self._taken):
            w.line(f"tw_barrier_init({barrier}, {self.plan.parts - 1});")

    def whole(self, w: Writer, sums: Sums, sync: str) -> None:
        """Leave the whole sums of this block's columns in the first registers of each row."""
        w.line(sync)
        w.line(f"tw_barrier_await({self._taken}, exchange_phase ^ 1);")
        self._leave(w, sums)
        w.line(sync)
        self._tell(w, self._ready)
        for fragment, _ in sums:
            self._move(w, fragment)
        w.line(f"tw_barrier_await({self._ready}, exchange_phase);")
        self._add(w, sums)
        w.line(sync)
        self._tell(w, self._taken)
        w.line("exchange_phase ^= 1;")

    def _tell(self, w: Writer, barrier: str) -> None:
        """Arrive at a barrier of every other block that has the tile."""
        size = self.plan.cluster_size
        other = f"(own_part + 1 + thread) % {self.plan.parts}"
        place = f"{other} * {size} + rank" if size > 1 else other
        w.line(f"if (thread < {self.plan.parts - 1}) tw_barrier_publish_at({barrier}, {place});")

    def _move(self, w: Writer, fragment: Fragment) -> None:
        """Move this block's own columns of an accumulator to the front."""
        plan, name, own = self.plan, fragment.name, self.plan.own_columns // 2
        with (
            w.unrolled("part", plan.parts),
            w.block("if (part && part == own_part)"),
            w.unrolled("i", plan.row_blocks * own),
        ):
            there = f"{name}[i / {own}][part * {own} + i % {own}]"
            w.line(f"{name}[i / {own}][i % {own}] = {there};")

    def _quads(self, sums: Sums) -> int:
        """Quads of a thread for one block's columns of all accumulators."""
        return len(sums) * self.plan.row_blocks * self.plan.own_columns // 2 // QUAD

    def _place(self, sums: Sums, slot: str, number: int, quad: str) -> str:
        """Where this thread's quad of accumulator `number` lies, for the block behind `slot`."""
        quads = self._quads(sums)
        row = f"({slot} * {quads} + {number * quads // len(sums)} + {quad})"
        start = f"smem + {self.plan.memory.offsets['exchange']} + thread * {BYTES}"
        return f"{start} + {row} * {BYTES * self._threads}"

    def _leave(self, w: Writer, sums: Sums) -> None:
        """Write the sums of the others' columns; the next part's come first."""
        plan, own = self.plan, self.plan.own_columns // 2
        with w.unrolled("part", plan.parts), w.block("if (part != own_part)"):
            slot = w.name("slot")
            w.line(f"const i32 {slot} = (part - own_part + {plan.parts - 1}) % {plan.parts};")
            for number, (fragment, kind) in enumerate(sums):
                with w.unrolled("i", plan.row_blocks * own // QUAD):
                    words = ", ".join(
                        f"{'tw_bits' if kind == 'f32' else '(u32)'}({at})"
                        for at in _registers(fragment.name, own, f"part * {own}")
                    )
                    place = self._place(sums, slot, number, "i")
                    w.line(f"tw_store_shared_16({place}, tw_vec16{{{{{words}}}}});")

    def _add(self, w: Writer, sums: Sums) -> None:
        """Add what the others left for this block, of the next part first."""
        plan, own = self.plan, self.plan.own_columns // 2
        with w.unrolled("step", plan.parts - 1):
            other = w.name("other")
            size = plan.cluster_size
            there = f"(own_part + step + 1) % {plan.parts}"
            place = f"{there} * {size} + rank" if size > 1 else there
            w.line(f"const u32 {other} = {place};")
            slot = f"({plan.parts - 2} - step)"
            for number, (fragment, kind) in enumerate(sums):
                value = "tw_float" if kind == "f32" else "(i32)"
                with w.unrolled("i", plan.row_blocks * own // QUAD):
                    words = w.name("words")
                    load = f"tw_load_cluster_16({self._place(sums, slot, number, 'i')}, {other})"
                    w.line(f"const tw_vec16 {words} = {load};")
                    for at, register in enumerate(_registers(fragment.name, own, "0")):
                        w.line(f"{register} += {value}({words}.w[{at}]);")


def _registers(name: str, own: int, first: str) -> list[str]:
    """The four registers of quad `i` of a block's columns, which begin at register `first`."""
    start = "" if first == "0" else f"{first} + "
    found = []
    for number in range(QUAD):
        at = f"(i * {QUAD} + {number})"
        found.append(f"{name}[{at} / {own}][{start}{at} % {own}]")
    return found
