"""The constraints of kernels on mma.sync: vectorised checks, and words for one schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np

from ir.columns import Columns, Decision, tables_of
from ir.dtypes import dtype_of
from ir.program import Program
from ir.schedule import Value
from ir.target import Hardware
from ir.targets.cuda.build import late
from ir.targets.cuda.build.roles import Roles
from ir.targets.cuda.grid.raster import patches_fit
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.layouts.mma_operands import STEP, depth_tiles
from ir.targets.cuda.layouts.mma_stored import Stored, StoredTable, tile_bytes
from ir.targets.cuda.plans.mma_plan import COLUMNS, ROWS, SUM, depth_domain

WARPS = 16
LINE_WORDS = 4  # registers of what a thread reads of a line at a time
SPARE = 56  # registers for addresses and what the compiler needs
MOST_COPIES = 64  # that a thread starts for a tile
BUSY = 64  # most registers of a thread's share of computed operands


class MmaRules:
    """What a kernel's decisions must satisfy together."""

    program: Program
    mark: str
    hardware: Hardware
    roles: Roles
    swapped: Roles

    def name(self, stem: str) -> str:
        return f"{stem}{self.mark}"

    def decisions(self) -> list[Decision]:
        raise NotImplementedError

    def _explain(self, name: str) -> Callable[[Mapping[str, Value]], str]:
        def explain(values: Mapping[str, Value]) -> str:
            axes = (*self.roles.rows, *self.roles.columns)
            tiles = ", ".join(f"{a} {values[self.name(f'tile.{a}')]}" for a in axes)
            along = ("rows", "columns", "depth")
            warps = "x".join(str(values[self.name(f"warps.{a}")]) for a in along)
            rest = ", ".join(
                f"{k} {values[self.name(k)]}"
                for k in ("depth", "stages", "fragments", "swap", "epilogue", "raster", "resident")
            )
            tail = self._numbers(name, values)
            return f"{self.program.name}: tiles {tiles}; warps {warps}; {rest}{tail}"

        return explain

    def _numbers(self, name: str, values: Mapping[str, Value]) -> str:
        decisions = self.decisions()
        row = [decision.index(values[decision.name]) for decision in decisions]
        columns = Columns(tables_of(decisions), np.array([row], dtype=np.int16))
        if name == "shared":
            blocks = int(self._value(columns, "resident")[0])
            need, have = int(self._bytes(columns)[0]) * blocks, self.hardware["shared_bytes"]
            return f"; {need} bytes of shared memory, {have} are there"
        if name == "registers":
            used, have = int(self._registers(columns)[0]), int(self._limit(columns)[0])
            return f"; {used} registers a thread of {have}"
        return ""

    # -- numbers of many schedules at once

    def _value(self, columns: Columns, name: str) -> Any:
        return columns[self.name(name)]

    def _by_swap(self, columns: Columns, of: Callable[[Roles], Any]) -> Any:
        """`of(roles)` for the roles that each schedule has."""
        return np.where(self._value(columns, "swap") == 1, of(self.swapped), of(self.roles))

    def _side(self, columns: Columns, axes: tuple[str, ...]) -> Any:
        total: Any = np.ones(columns.rows, dtype=np.int64)
        for axis in axes:
            total = total * self._value(columns, f"tile.{axis}")
        return total

    def _rows(self, columns: Columns) -> Any:
        return self._by_swap(columns, lambda roles: self._side(columns, roles.rows))

    def _columns(self, columns: Columns) -> Any:
        return self._by_swap(columns, lambda roles: self._side(columns, roles.columns))

    def _warps(self, columns: Columns) -> Any:
        along = ("rows", "columns", "depth")
        return np.prod([self._value(columns, f"warps.{a}") for a in along], axis=0)

    @property
    def _size(self) -> int:
        return dtype_of(self.roles.dtype).bytes

    def _steps(self, columns: Columns) -> Any:
        """Instructions along the sum for one block and warp."""
        points = STEP // self._size
        return self._value(columns, "depth") // points // self._value(columns, "warps.depth")

    # -- checks

    def _rows_fit(self, columns: Columns) -> Any:
        return self._rows(columns) % (ROWS * self._value(columns, "warps.rows")) == 0

    def _columns_fit(self, columns: Columns) -> Any:
        return self._columns(columns) % (COLUMNS * self._value(columns, "warps.columns")) == 0

    def _threads_fit(self, columns: Columns) -> Any:
        return self._warps(columns) <= WARPS

    def _depth_fits(self, columns: Columns) -> Any:
        allowed = columns.lookup(self.name("depth"), self._depths)
        return (self._steps(columns) >= 1) & (allowed > 0)

    @cached_property
    def _depths(self) -> dict[int, int]:
        """1 for each depth of which not more than half lies beyond the ends of summed axes."""
        axes, walked = self.program.axes, self.roles.walked
        domain = depth_domain(self.roles.dtype)
        found = {domain[0]: 1}
        for depth in domain[1:]:
            tiles = depth_tiles(axes, walked, depth)
            covered = prod(-(-axes[axis] // tiles[axis]) * tiles[axis] for axis in walked)
            found[depth] = int(covered < 2 * prod(axes[axis] for axis in walked))
        return found

    def _registers(self, columns: Columns) -> Any:
        """Of the sums, the fragments under way and a thread's share of computed operands."""
        rows = self._rows(columns) // self._value(columns, "warps.rows")
        wide = self._columns(columns) // self._value(columns, "warps.columns")
        left = len({p.a for p in self.roles.outer})
        right = len({p.b for p in self.roles.outer})
        steps = rows // ROWS * 4, wide // COLUMNS * 2
        taken = self._by_swap_pair(columns, left, right, steps)
        return (
            self._sums(columns)
            + taken * self._value(columns, "fragments")
            + self._computed(columns)
            + SPARE
        )

    def _sums(self, columns: Columns) -> Any:
        rows = self._rows(columns) // self._value(columns, "warps.rows")
        wide = self._columns(columns) // self._value(columns, "warps.columns")
        return rows * wide // WARP * len(self.roles.outer)

    def _asked(self, columns: Columns) -> Any:
        """Of the sums, and of what an epilogue asks for before it needs it."""
        if self.name(late.NAME) not in columns:
            return np.zeros(columns.rows, dtype=np.int64)
        rows = self._rows(columns) // self._value(columns, "warps.rows")

        def words(roles: Roles) -> Any:
            wide, down = {*roles.columns}, np.maximum(rows // (ROWS // 2), LINE_WORDS)
            return late.words_of(self.program, {*roles.rows}, wide, down)

        depth = self._value(columns, late.NAME)
        return self._sums(columns) + depth * self._by_swap(columns, words) + SPARE

    def _by_swap_pair(self, columns: Columns, left: int, right: int, steps: tuple[Any, Any]) -> Any:
        a, b = steps
        swapped = self._value(columns, "swap") == 1
        return np.where(swapped, right * a + left * b, left * a + right * b)

    def _computed(self, columns: Columns) -> Any:
        """Registers of a thread's share of the operands that are not copied."""
        threads = WARP * self._warps(columns)
        total: Any = np.zeros(columns.rows, dtype=np.int64)
        for position, axes in self._operands():
            points = self._side(columns, axes) * self._value(columns, "depth")
            copied = self._stored(columns, position).copied
            total = total + np.where(copied, 0, np.maximum(1, points // threads))
        return total

    def _limit(self, columns: Columns) -> Any:
        threads = WARP * np.minimum(self._warps(columns), WARPS)
        return np.minimum(255, 65536 // (threads * self._value(columns, "resident")))

    def _registers_fit(self, columns: Columns) -> Any:
        used = np.maximum(self._registers(columns), self._asked(columns))
        fits = used <= self._limit(columns)
        return fits & (self._computed(columns) <= BUSY)

    def _operands(self) -> list[tuple[int, tuple[str, ...]]]:
        """Each operand with the axes of its rows or columns."""
        found: dict[int, tuple[str, ...]] = {}
        for product in self.roles.outer:
            found[product.a] = self.roles.rows
            found[product.b] = self.roles.columns
        return list(found.items())

    @cached_property
    def _tables(self) -> dict[int, StoredTable]:
        walked = self.roles.walked
        return {p: StoredTable(self.program, walked, p, axes) for p, axes in self._operands()}

    def _stored(self, columns: Columns, position: int) -> Stored:
        """What an operand's tile takes."""
        table = self._tables[position]
        tiles = [self._value(columns, f"tile.{axis}") for axis in table.axes]
        return table.columns([*tiles, self._value(columns, "depth")])

    @cached_property
    def raw(self) -> bool:
        """Whether some computed operand is made of what copies can fetch, in large tiles."""
        depths = depth_domain(self.roles.dtype)
        return any(
            table.one((*(16 for _ in table.axes), depth)).raw
            for table in self._tables.values()
            for depth in depths
        )

    def _is_staged(self, columns: Columns) -> Any:
        if not self.raw:
            return np.zeros(columns.rows, dtype=bool)
        return columns.is_(self.name("loads"), "staged")

    def _bytes(self, columns: Columns) -> Any:
        operands = [self._stored(columns, position) for position in self._tables]
        tiles = tile_bytes(operands, self._value(columns, "stages"), self._is_staged(columns))
        points = self._rows(columns) * self._columns(columns)
        sums = points * SUM * self._value(columns, "warps.depth")
        kept = columns.is_(self.name("epilogue"), "staged")
        return np.maximum(tiles, np.where(kept, sums * len(self.roles.outer), 0))

    def _fill_fits(self, columns: Columns) -> Any:
        """Copies of one operand by one thread, which are unrolled."""
        passed: Any = np.ones(columns.rows, dtype=bool)
        threads = WARP * self._warps(columns)
        for position, axes in self._operands():
            one = self._stored(columns, position)
            points = self._side(columns, axes) * self._value(columns, "depth")
            few = points * self._size // one.piece <= MOST_COPIES * threads
            passed &= few | ~one.copied
        return passed

    def _loads_fit(self, columns: Columns) -> Any:
        return ~self._is_staged(columns) | (self._value(columns, "stages") >= 3)

    def _shared_fits(self, columns: Columns) -> Any:
        resident = self._value(columns, "resident")
        return self._bytes(columns) * resident <= self.hardware["shared_bytes"]

    def _once(self, columns: Columns) -> Any:
        alone = self._value(columns, "warps.depth") == 1
        passed = alone | columns.is_(self.name("epilogue"), "staged")
        passed &= (self._steps(columns) > 1) | (self._value(columns, "fragments") == 1)
        rows, across = self._tiles(columns, "rows"), self._tiles(columns, "columns")
        raster = partial(columns.is_, self.name("raster"))
        passed &= ((rows > 1) & (across > 1)) | raster("rows")
        return passed & patches_fit(raster, rows, across)

    def _tiles(self, columns: Columns, along: str) -> Any:
        """Tiles along the rows or the columns of the output."""

        def count(roles: Roles) -> Any:
            total: Any = np.ones(columns.rows, dtype=np.int64)
            for axis in roles.rows if along == "rows" else roles.columns:
                total = total * -(-self.program.axes[axis] // self._value(columns, f"tile.{axis}"))
            return total

        return self._by_swap(columns, count)
