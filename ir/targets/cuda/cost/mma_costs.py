"""Analytic costs of kernels on mma.sync; see `costs` for those of the other kinds."""

from __future__ import annotations

from functools import cached_property
from math import prod

import numpy as np

from ir.columns import Decision
from ir.ops.map import Map
from ir.space import Columns
from ir.targets.cuda.build import late
from ir.targets.cuda.build.computed import below
from ir.targets.cuda.cost.costs import (
    FILL_CLOCKS,
    LANES_PER_CLOCK,
    MEMORY_BYTES_PER_CLOCK,
    SPLIT_CLOCKS,
    Array,
    Table,
    late_columns,
    raster_numbers,
    stored_bytes,
)
from ir.targets.cuda.cost.runs import scattered
from ir.targets.cuda.seeds.tensor_waves import L2_BYTES_PER_CLOCK, MACS_PER_CLOCK
from ir.targets.cuda.space.mma import MmaKernel
from ir.targets.cuda.space.mma_rules import MmaRules
from ir.targets.cuda.space.warp import SHARE

_UNIT = (16, 8)  # rows and columns of an instruction


class MmaCosts(MmaRules):
    """Costs of one kernel on mma.sync."""

    def __init__(self, kernel: MmaKernel) -> None:
        self.program, self.mark, self.hardware = kernel.program, kernel.mark, kernel.hardware
        self.roles, self.swapped = kernel.roles, kernel.swapped
        self._domains = kernel.decisions()

    def table(self, columns: Columns) -> Table:
        """Features of the kernel, and under "clocks" and "traffic" estimates of its time."""
        rows, wide = _floats(self._rows(columns)), _floats(self._columns(columns))
        depth = _floats(self._value(columns, "depth"))
        main = float(self.program.axes[self.roles.main_walk])
        around = prod(self.program.axes[axis] for axis in self.roles.walked) / main
        parts = self._parts(columns)
        outputs = (*self.roles.batch, *self.roles.rows, *self.roles.columns)
        points = float(prod(self.program.axes[axis] for axis in outputs))
        tiles = np.maximum(1.0, points / (rows * wide)) * parts
        steps = np.maximum(1.0, around * np.ceil(main / depth) / parts)
        table = {
            "rows": np.log2(rows), "columns": np.log2(wide), "walk": np.log2(depth),
            "tiles": np.log2(tiles), "steps": np.log2(steps), "parts": np.log2(parts),
            "swap": _floats(self._value(columns, "swap")),
            "stages": _floats(self._value(columns, "stages")),
            "resident": _floats(self._value(columns, "resident")),
            "warps": _floats(self._warps(columns)),
            "fragments": _floats(self._value(columns, "fragments")),
            "unit": np.zeros(columns.rows),
            "shared": _floats(self._bytes(columns)) / self.hardware["shared_bytes"],
            "accumulators": _floats(self._registers(columns)),
            "warps.depth": _floats(self._value(columns, "warps.depth")),
            "epilogue.staged": _floats(columns.is_(self.name("epilogue"), "staged")),
            "late": late_columns(columns, self.name(late.NAME)),
            **raster_numbers(columns, self.name("raster")),
        }  # fmt: skip
        return table | self._times(columns, rows, wide, depth, tiles, steps, parts)

    @cached_property
    def _computing(self) -> tuple[int, int]:
        """Operations on plain units for a point of the operands along the rows and the columns:
        each block computes its tiles anew, by the warps that multiply."""
        sides: list[set[int]] = [set(), set()]
        for product in self.roles.outer:
            for made, operand in zip(sides, (product.a, product.b), strict=True):
                made |= below(self.program, operand) | {operand}
        nodes = self.program.nodes
        first, second = (
            sum(1 for n in made if isinstance(nodes[n].op, Map) and own <= {*nodes[n].axes})
            for made, own in zip(sides, self._tiles_of, strict=True)
        )
        return first, second

    def _scattered(self, columns: Columns, depth: Array) -> Array:
        """How many times as long operands take that lie in short runs."""
        walked = {*self.roles.walked}

        def tile(axis: str) -> Array:
            extent = float(self.program.axes[axis])
            if axis in walked:
                return np.minimum(extent, depth)
            name = self.name(f"tile.{axis}")
            return _floats(columns[name]) if name in columns else np.ones(columns.rows)

        operands = {n for product in self.roles.outer for n in (product.a, product.b)}
        loads = operands.union(*(below(self.program, operand) for operand in operands))
        return scattered(self.program, sorted(loads), tile)

    @property
    def _tiles_of(self) -> tuple[set[str], set[str]]:
        """Of the operands' tiles, the axes along which their points differ most."""
        inside = {self.roles.main_walk}
        return inside | {*self.roles.rows[-1:]}, inside | {*self.roles.columns[-1:]}

    def decisions(self) -> list[Decision]:
        return self._domains

    def _parts(self, columns: Columns) -> Array:
        if "split" not in columns:
            return np.ones(columns.rows)
        counts = {f"{axis}:{count}": count for axis in self.program.axes for count in range(2, 65)}
        return np.maximum(columns.lookup("split", counts), 1.0)

    def _times(
        self, columns: Columns, rows: Array, wide: Array, depth: Array, tiles: Array,
        steps: Array, parts: Array,
    ) -> Table:  # fmt: skip
        """Clocks of one processor, by what they are spent on."""
        size, sms = self._size, float(self.hardware["sms"])
        products = float(len(self.roles.outer))
        whole = np.ceil(rows / _UNIT[0]) * np.ceil(wide / _UNIT[1]) * _UNIT[0] * _UNIT[1]
        macs = whole * depth * products / (SHARE * MACS_PER_CLOCK / size)
        fetched = (
            (rows + wide) * depth * size / L2_BYTES_PER_CLOCK * self._scattered(columns, depth)
        )
        first, second = self._computing
        computing = (rows * first + wide * second) * depth / LANES_PER_CLOCK
        tile = steps * (np.maximum(macs, fetched) + computing)
        stored = stored_bytes(self.roles, rows, wide) / L2_BYTES_PER_CLOCK
        waves = tiles / sms
        resident = _floats(self._value(columns, "resident"))
        rounds = np.maximum(np.ceil(waves / resident) * resident, waves)
        memory = np.full(columns.rows, self.program.bytes / MEMORY_BYTES_PER_CLOCK / sms)
        again = (parts > 1) * SPLIT_CLOCKS
        clocks = np.maximum(rounds * (tile + stored), memory) + FILL_CLOCKS + again
        return {
            "waves": np.log2(waves), "balance": waves / rounds, "bound": np.log2(macs / fetched),
            "memory": np.log2(memory / np.maximum(rounds * tile, 1.0)),
            "store": np.log2(stored / tile), "clocks": clocks,
            "traffic": np.maximum(rounds * (steps * fetched + stored), memory),
        }  # fmt: skip


def _floats(values: object) -> Array:
    return np.asarray(values, dtype=np.float64)
