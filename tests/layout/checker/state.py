"""The machine: register files by thread and value, memories by element, tiles put in and read out.

Shared and global tiles lie at addresses that are odd multiples of the alignment they were promised,
so that whoever relies on more alignment than that reads the wrong place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.layout.checker.findings import Kind, Report
from tests.layout.checker.tables import Table, grid, offsets
from tests.layout.checker.values import Values, width

Plan = Mapping[str, Any]


class Machine:
    """Contents of every tile of one block; `promised`: bytes of alignment of the global tiles."""

    def __init__(
        self, plans: list[Plan], threads: int, promised: Mapping[str, int], report: Report
    ) -> None:
        self.plans: dict[str, Plan] = {plan["name"]: plan for plan in plans}
        self.promised = promised
        self.threads = threads
        self.report = report
        self.registers: dict[str, Values] = {}
        self.memory: dict[str, Values] = {}
        self.bases: dict[str, int] = {}
        for plan in plans:
            self.admit(plan)

    def admit(self, plan: Plan) -> None:
        """Give a tile its place, empty (NaN)."""
        name = plan["name"]
        self.plans[name] = plan
        if plan["scope"] == "register":
            self.registers[name] = np.full(grid(plan["layout"], 2).shape, np.nan)
            return
        cells = int(offsets(plan["layout"]).max()) + 1
        if plan["scope"] == "shared":
            cells = max(cells, plan["bytes"] * 8 // width(plan["dtype"]))
        self.memory[name] = np.full(cells, np.nan)
        self.bases[name] = self._place(plan)

    def _place(self, plan: Plan) -> int:
        if plan["scope"] == "global":
            return self.promised[plan["of"]] * 1025
        step = max(1, plan["alignment"])
        taken = [
            self.bases[name] + self.plans[name]["bytes"] * self.plans[name]["stages"]
            for name in self.bases
            if self.plans[name]["scope"] == "shared"
        ]
        odd = -(-max(taken, default=1) // step) | 1
        return int(odd * step)

    def bits(self, name: str) -> int:
        return width(self.plans[name]["dtype"])

    def scope(self, name: str) -> str:
        return str(self.plans[name]["scope"])

    def layout(self, name: str) -> Table:
        """Tile index -> offset in elements of a tile in memory."""
        return offsets(self.plans[name]["layout"])

    def owners(self, name: str) -> Table:
        """[thread, value] -> tile index of a register tile."""
        return grid(self.plans[name]["layout"], 2)

    def addresses(self, name: str, index: Table) -> Table:
        """Bit addresses of elements by tile index; indices beyond the tile are reported."""
        layout = self.layout(name)
        bad = (index < 0) | (index >= len(layout))
        if bad.any():
            self._beyond(name, f"tile index {int(index[bad][0])} of {len(layout)} elements")
        return layout[np.where(bad, 0, index)] * self.bits(name) + self.bases[name] * 8

    def read(self, name: str, addresses: Table) -> Values:
        """Elements at bit addresses."""
        return self.memory[name][self._cells(name, addresses)]

    def write(self, name: str, addresses: Table, values: Values, where: str) -> None:
        """Store elements; different values for one element are a race and reported."""
        cells, memory = self._cells(name, addresses).reshape(-1), self.memory[name]
        memory[cells] = values.reshape(-1)
        lost = ~same(memory[cells], values.reshape(-1))
        if lost.any():
            self.report.add(
                Kind.DOUBLE_OWNERSHIP, where, f"{int(lost.sum())} stores overwrite others in {name}"
            )

    def _cells(self, name: str, addresses: Table) -> Table:
        cells = (addresses - self.bases[name] * 8) // self.bits(name)
        bad = (cells < 0) | (cells >= len(self.memory[name]))
        if bad.any():
            room = len(self.memory[name])
            self._beyond(name, f"element {int(cells[bad][0])} of an allocation of {room}")
        return np.where(bad, 0, cells)

    def _beyond(self, name: str, detail: str) -> None:
        self.report.add(Kind.OUT_OF_RANGE, name, detail)

    def put(self, name: str, flat: Values) -> None:
        """Set a tile from its values by tile index."""
        if self.scope(name) == "register":
            self.registers[name] = flat[self.owners(name)]
        else:
            self.memory[name][self.layout(name)] = flat

    def get(self, name: str) -> Values:
        """Values by tile index; NaN where nobody holds the element."""
        if self.scope(name) != "register":
            return self.memory[name][self.layout(name)]
        owners = self.owners(name)
        flat = np.full(self.size(name), np.nan)
        flat[owners.reshape(-1)] = self.registers[name].reshape(-1)
        return flat

    def size(self, name: str) -> int:
        return int(np.prod([extent for _, extent in self.plans[name]["axes"]]))


def same(left: Values, right: Values) -> Any:
    """Elementwise equality in which NaN equals NaN."""
    return (left == right) | (np.isnan(left) & np.isnan(right))
