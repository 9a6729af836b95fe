"""The constraint on loops that carry state: who reads a running value stands in the same loops.

Which loops are left of a loop string, and in which order, is all that matters; each such string is
tried once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ir.columns import tables_of
from ir.schedule import Value
from ir.space import Columns, Constraint
from ir.targets.cpu.decisions import Decisions
from ir.targets.cpu.meaning import Loops
from ir.targets.cpu.planner import LoopString, carried_apart, reads_running
from ir.targets.cpu.regions import Regions
from ir.targets.cpu.splitting import WHOLE, split_program


@dataclass(frozen=True)
class CarriedLoops:
    """Whether loop strings keep running values and their readers together."""

    decisions: Decisions
    known: dict[tuple[int, ...], str] = field(default_factory=dict)

    def constraints(self) -> list[Constraint]:
        """The constraint; none where no stage reads another's running values."""
        if not reads_running(self.decisions.staged):
            return []
        needs = "stages that read a running value stand in the loops that carry it"
        loops = [d.name for d in self.decisions.found if d.group in ("tile", "order", "split")]
        return [Constraint("carried", needs, self._together, self._explain, reads=tuple(loops))]

    def _together(self, columns: Columns) -> Any:
        table = self._table(columns)
        strings, where = np.unique(table, axis=0, return_inverse=True)
        problems = [self._problem(tuple(int(place) for place in string)) for string in strings]
        together = np.array([not problem for problem in problems], dtype=np.bool_)
        return together[where.reshape(-1)]

    def _explain(self, values: Mapping[str, Value]) -> str:
        found = self.decisions.found
        row = [decision.index(values[decision.name]) for decision in found]
        columns = Columns(tables_of(found), np.array([row], dtype=np.int16))
        string = tuple(int(place) for place in self._table(columns)[0])
        loops = " ".join(f"{axis}.{level}" for axis, level in self._loops(string)) or "none"
        return f"loops {loops}: {self._problem(string) or 'all together'}"

    def _table(self, columns: Columns) -> Any:
        """By row: the split, and where the outer and the inner loop of each axis stand."""
        loops = Loops(Regions(self.decisions, columns))
        split = columns.codes("split") if "split" in columns else np.zeros(columns.rows)
        places = [p[a] for a in self.axes for p in (loops.outermost, loops.innermost)]
        return np.stack([split, *places], axis=1).astype(np.int64)

    @property
    def axes(self) -> tuple[str, ...]:
        return (*self.decisions.outer, *self.decisions.blocked)

    def _loops(self, string: tuple[int, ...]) -> LoopString:
        loops = [(axis, level) for axis in self.axes for level in (1, 0)]
        placed = zip(string[1:], loops, strict=True)
        return [loop for place, loop in sorted(placed) if place]

    def _problem(self, string: tuple[int, ...]) -> str:
        if string not in self.known:
            loops, staged = self._loops(string), self.decisions.staged
            choice = self.decisions.splits[string[0]] if self.decisions.splits else WHOLE
            if choice != WHOLE:
                split = choice.partition(":")[0]
                staged = split_program(self.decisions.program, choice, self.decisions.residence)
                inside = [(f"{a}_in" if a == split else a, level) for a, level in loops]
                loops = [(f"{split}_part", 1), *inside]
            self.known[string] = carried_apart(staged, loops)
        return self.known[string]
