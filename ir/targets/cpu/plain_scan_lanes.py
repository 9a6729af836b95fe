"""What is folded up to each point of a stretch in memory, in lanes: first each run of neighbours by
itself, then all of a run behind what comes before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ir.targets.cpu.nest import Index, Value
from ir.targets.cpu.plain_held import MOST_LANES, HeldLanes

ROOM = 4 * MOST_LANES * MOST_LANES  # elements behind a stretch


class ScanLanes(HeldLanes):
    """The states of a stretch of `size` points, in the place of what is folded there."""

    size = 0

    @property
    def run_length(self) -> int:
        return self.size // self.wide

    def fits(self) -> bool:
        whole = self.size % (self.wide * self.lanes) == 0
        return whole and self.merging.values_fit(self.new)

    def scan(self, before: Sequence[Value]) -> tuple[Value, ...]:
        """Emit it, behind some states; the states in the end."""
        states = self._block(0, None)
        with self.b.loop("block", 1, self.run_length // self.lanes, 1, states) as loop:
            loop.block.yields = self._block(loop.variable, loop.carried)
        found = self._before(before)
        self._behind()
        return found

    def _turned(self, number: Index, count: int) -> Index:
        """Where the n-th of so many is in memory."""
        return self.b.sub(count - 1, number) if self.s.backward else number

    # --- each run by itself -------------------------------------------------------------------

    def _block(self, number: Index, states: Sequence[Value] | None) -> tuple[Value, ...]:
        """The next few neighbours of each run."""
        place = self.b.mul(self._turned(number, self.run_length // self.lanes), self.lanes)
        for group in range(self.groups):
            slots = [self.b.add(place, start) for start in self._starts(group)]
            for state in range(self.count):
                self.turn_over(state, slots, self.size + group * self.square)
        begun = int(states is None)
        if states is None:
            first = self._turned(0, self.lanes)
            states = [v for group in range(self.groups) for v in self.row(self._row(group, first))]
        with self.b.loop("next", begun, self.lanes, 1, states) as loop:
            at = self._turned(loop.variable, self.lanes)
            loop.block.yields = self._stepped(at, loop.carried)
        for group in range(self.groups):
            slots = [self.b.add(place, start) for start in self._starts(group)]
            self._back(group, slots)
        return loop.results

    def _starts(self, group: int) -> list[int]:
        """Where the runs of a vector begin."""
        runs = range(group * self.lanes, (group + 1) * self.lanes)
        return [run * self.run_length for run in runs]

    def _row(self, group: int, at: Index) -> Index:
        return self.b.add(self.size + group * self.square, self.b.mul(at, self.lanes))

    def _stepped(self, at: Index, states: Sequence[Value]) -> tuple[Value, ...]:
        """All runs one point further."""
        found = list[Value]()
        for group in range(self.groups):
            slot = self._row(group, at)
            more = self.merged_lanes(states[group * self.count :][: self.count], self.row(slot))
            for number, value in enumerate(more):
                self.store(number, value, slot)
            found += more
        return tuple(found)

    def _back(self, group: int, slots: Sequence[Index]) -> None:
        """A square's columns to where its rows came from."""
        start = self.size + group * self.square
        rows = [start + row * self.lanes for row in range(self.lanes)]
        for state in range(self.count):
            self.turn_over(state, rows, start)
            for row, slot in zip(rows, slots, strict=True):
                self.store(state, self.load(state, row, self.lanes), slot)

    # --- behind those before ------------------------------------------------------------------

    def _before(self, before: Sequence[Value]) -> tuple[Value, ...]:
        """What comes before each run, and the states in the end."""
        last = 0 if self.s.backward else self.run_length - 1
        with self.b.loop("lane", 0, self.wide, 1, before) as loop:
            run = self._turned(loop.variable, self.wide)
            self.hold(loop.carried, self.b.add(self.size, run))
            end = self.b.add(self.b.mul(run, self.run_length), last)
            loop.block.yields = tuple(self.merged(loop.carried, self.held_at(end)))
        return loop.results

    def _behind(self) -> None:
        """Every run behind what comes before it."""
        with self.b.loop("lane", 0, self.wide, 1) as run:
            held = self.held_at(self.b.add(self.size, run.variable))
            before = [self.b.splat(self.stored(value), self.lanes) for value in held]
            first = self.b.mul(run.variable, self.run_length)
            with self.b.loop("place", 0, self.run_length, self.lanes) as loop:
                slot = self.b.add(first, loop.variable)
                found = self.merged_lanes(before, self.row(slot))
                for number, value in enumerate(found):
                    self.store(number, value, slot)
