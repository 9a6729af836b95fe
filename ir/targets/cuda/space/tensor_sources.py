"""What a tensor kernel's decisions come to: tiles, operands, what they take of registers.

Columns of many schedules at a time; the constraints read them, and the costs.
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ir.columns import Columns, Decision
from ir.dtypes import dtype_of
from ir.kernel.modulo import STRAIGHT
from ir.ops.load import Load
from ir.program import Program
from ir.schedule import Value
from ir.target import Hardware
from ir.targets.cuda.bodies.tensor_order import NAME as ORDER
from ir.targets.cuda.build import late
from ir.targets.cuda.build.computed import dimensions_of, run_axes
from ir.targets.cuda.build.roles import Roles, find_roles
from ir.targets.cuda.layouts.operands import LINE
from ir.targets.cuda.plans.planning import fixed_tiles
from ir.targets.cuda.plans.tensor_memory import ALIGN
from ir.targets.cuda.plans.tensor_plan import BUFFERS, ROWS
from ir.targets.cuda.prelude.families import WGMMA_KINDS
from ir.targets.cuda.space.splits import CLUSTER, MERGE

FRAGMENT = 4  # registers of one instruction's operand
ADDRESSES = 8  # registers of where an epilogue's operands are, as they are asked for ahead


class TensorSources:
    """Sizes of a kernel's tiles and of its operands, in shared memory and in registers."""

    program: Program
    mark: str
    hardware: Hardware
    roles: Roles
    swapped: Roles | None
    streamed: Program
    computes: bool

    @cached_property
    def walked_roles(self) -> Roles:
        """The roles in the program as it is walked."""
        return find_roles(self.streamed, False, self.computes)

    def name(self, stem: str) -> str:
        return f"{stem}{self.mark}"

    def decisions(self) -> list[Decision]:
        raise NotImplementedError

    @cached_property
    def size(self) -> int:
        """Bytes of an operand's element."""
        return dtype_of(self.roles.dtype).bytes

    @property
    def step(self) -> int:
        """Summed points of one instruction."""
        return WGMMA_KINDS[self.roles.dtype].k

    @cached_property
    def free_axes(self) -> tuple[str, ...]:
        """Axes whose tile is a choice: rows and columns, and the main walked axis."""
        return tuple(axis for axis in self.program.axes if axis not in self._fixed)

    @cached_property
    def _fixed(self) -> dict[str, int]:
        return fixed_tiles(self.roles)

    def _value(self, columns: Columns, name: str) -> Any:
        return columns[self.name(name)]

    def _is(self, columns: Columns, name: str, value: Value) -> Any:
        return columns.is_(self.name(name), value)

    def _by_swap(self, columns: Columns, of: Any) -> Any:
        """`of(roles)` for the roles that each schedule has."""
        straight = of(self.roles)
        if self.swapped is None:
            return straight
        return np.where(self._value(columns, "swap") == 1, of(self.swapped), straight)

    def _tile(self, columns: Columns, axis: str) -> Any:
        known = self._fixed.get(axis)
        return self._value(columns, f"tile.{axis}") if known is None else known

    def _side(self, columns: Columns, axes: tuple[str, ...]) -> Any:
        def product(known: Columns) -> Any:
            total: Any = np.ones(known.rows, dtype=np.int64)
            for axis in axes:
                total = total * self._tile(known, axis)
            return total

        return columns.derived((self.mark, *axes), product)

    def _rows(self, columns: Columns) -> Any:
        return columns.derived((self.mark, "", "rows"), self._all_rows)

    def _all_rows(self, columns: Columns) -> Any:
        return self._by_swap(columns, lambda roles: self._side(columns, roles.rows))

    def _columns(self, columns: Columns) -> Any:
        return columns.derived((self.mark, "", "columns"), self._all_columns)

    def _all_columns(self, columns: Columns) -> Any:
        return self._by_swap(columns, lambda roles: self._side(columns, roles.columns))

    def _consumers(self, columns: Columns, partition: str) -> Any:
        """Consumers among which rows or columns are shared."""
        consumers = self._value(columns, "consumers")
        return np.where(self._is(columns, "partition", partition), consumers, 1)

    def _operands(self, roles: Roles) -> list[tuple[int, frozenset[str]]]:
        found: dict[int, frozenset[str]] = {}
        for product in roles.products:
            for operand in (product.a, product.b):
                if isinstance(self.program.nodes[operand].op, Load):
                    found[operand] = frozenset(product.over)
        for load in roles.raw:
            found.setdefault(load, frozenset(roles.walked))
        return list(found.items())

    def _run(self, columns: Columns, operand: int) -> tuple[Any, tuple[str, ...]]:
        """Points along a line of an operand's tile, and the axes that they count."""
        axes = run_axes(self.program, operand, self.roles.walk)
        return self._side(columns, axes), axes

    def _lines(self, columns: Columns, operand: int) -> list[Any]:
        """Points of an operand's tile along each dimension but that of its lines."""
        *outer, last = dimensions_of(self.program, operand, self.roles.walk)
        groups: list[tuple[str, ...]] = [(axis,) for axis, c in last.index.terms if c != 1]
        for d in outer:
            inside = tuple(axis for axis, _ in d.whole)
            groups += [(axis, *(inside if c == 1 else ())) for axis, c in d.index.terms]
        listed = self.roles.listed
        if listed in self.program.nodes[operand].axes and not any(listed in one for one in groups):
            groups.append((listed,))
        return [self._side(columns, group) for group in groups]

    def _beside_lines_fit(self, columns: Columns) -> Any:
        """Whether operands whose lines are not summed along are tiled along one other axis."""

        def one(roles: Roles) -> Any:
            fine: Any = np.ones(columns.rows, dtype=bool)
            for operand, over in self._operands(roles):
                if operand in roles.raw or self._run(columns, operand)[1][0] in over:
                    continue
                lines: Any = sum((p > 1) * 1 for p in self._lines(columns, operand))
                if roles.listed in self.program.nodes[operand].axes:  # one behind another
                    lines = lines - (self._tile(columns, roles.listed) > 1)
                fine &= lines <= 1
            return fine

        return self._by_swap(columns, one)

    def _raw_line_fits(self, columns: Columns, operand: int) -> Any:
        """Lines of a raw tile: 32 or 64 bytes, or whole panels."""
        width = self._run(columns, operand)[0] * dtype_of(self.program.nodes[operand].dtype).bytes
        return (width == LINE // 4) | (width == LINE // 2) | (width % LINE == 0)

    def _from_registers(self, columns: Columns) -> Any:
        """Where operands along the rows are loaded to registers."""
        name = self.name("source")
        if self.roles.computed or name not in columns:
            return np.full(columns.rows, bool(self.roles.computed))
        return columns.is_(name, "registers")

    def _depth(self, columns: Columns) -> Any:
        """Summed points of a block."""
        listed = (self.roles.listed,) if self.roles.listed else ()
        return self._side(columns, (self.roles.main_walk, *self.roles.whole, *listed))

    def _together(self, columns: Columns) -> Any:
        """Steps whose operands are formed together."""
        return columns.get(self.name("steps"), 1)

    def parts(self, columns: Columns) -> Any:
        """Blocks among which the sum of one tile is split."""
        if "split" not in columns:
            return np.ones(columns.rows)
        counts = {f"{axis}:{count}": count for axis in self.program.axes for count in range(2, 65)}
        return np.maximum(columns.lookup("split", counts), 1.0)

    def exchanges(self, columns: Columns) -> Any:
        """Where these blocks are a cluster, and each finishes some of the tile's columns."""
        if MERGE not in columns:
            return np.zeros(columns.rows, dtype=bool)
        return columns.is_(MERGE, CLUSTER)

    def columns_divide(self, columns: Columns, grain: int) -> Any:
        """Whether every part of a sum may finish whole groups of `grain` columns of a tile."""
        return self._columns(columns) % (grain * self.parts(columns)) == 0

    def _with_exchange(self, columns: Columns, rings: Any, roles: Roles) -> Any:
        """Bytes of rings and of the sums that a cluster exchanges: over the rings where a block
        has one tile."""
        parts = self.parts(columns)
        tile = self._side(columns, roles.rows) * self._side(columns, roles.columns)
        sums = 4 * len(roles.sums) * tile * (parts - 1) // parts
        sums = -(-sums // ALIGN) * ALIGN
        lone = self._value(columns, "processors") == 0
        both = np.where(lone, np.maximum(rings, sums), rings + sums)
        return np.where(self.exchanges(columns), both, rings).astype(np.int64)

    def _is_straight(self, columns: Columns) -> Any:
        name = self.name(ORDER)
        if name not in columns:
            return np.ones(columns.rows, dtype=bool)
        return columns.is_(name, STRAIGHT)

    def _source_fits(self, columns: Columns) -> Any:
        groups = BUFFERS * self._together(columns) * self.step
        fine = (self._depth(columns) % groups == 0) & (self._value(columns, "wait") == 0)
        return ~self._from_registers(columns) | fine

    def _asked(self, columns: Columns) -> Any:
        """Registers of a thread for what an epilogue asks for before it needs it."""
        if self.name(late.NAME) not in columns:
            return np.zeros(columns.rows, dtype=np.int64)
        depth = self._value(columns, late.NAME)

        def words(roles: Roles) -> Any:
            rows = self._side(columns, roles.rows) // self._consumers(columns, "rows")
            down = rows // (ROWS // 2)
            return late.words_of(self.program, {*roles.rows}, {*roles.columns}, down)

        return depth * self._by_swap(columns, words) + np.where(depth > 0, ADDRESSES, 0)

    def _fragment_registers(self, columns: Columns) -> Any:
        """Registers of operands for 64 rows: two steps' words, and the values of one or all.

        Where blocks overlap, ptxas (13.0) keeps up to as many words of the next one besides.
        """
        operands = len({product.a for product in self.roles.outer})
        words = operands * FRAGMENT * BUFFERS * self._together(columns)
        words = words * np.where(self._is_straight(columns), 1, 2)
        if not self.roles.computed:
            return words
        values = 0
        for load in self.roles.raw:
            axes = self.program.nodes[load].axes
            missing = prod(self.program.axes[a] for a in self.roles.whole if a not in axes)
            down = 2 if {*axes} & {*self.roles.rows} else 1  # rows that a thread has of an operand
            values += max(1, down * FRAGMENT // missing)
        now = 2 * FRAGMENT * self._together(columns)
        if not values:
            return words + now
        whole = columns.is_(self.name("read"), "block")
        return words + np.where(whole, values * (self._depth(columns) // self.step), now)
