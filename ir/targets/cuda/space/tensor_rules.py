"""The constraints of kernels on tensor cores: vectorised checks, and words for one schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np

from ir.columns import Columns, tables_of
from ir.dtypes import dtype_of
from ir.kernel.turns import DONE, FREE
from ir.ops.load import Load
from ir.ops.store import Store
from ir.schedule import Value
from ir.stages import is_reduction, reduced_axes
from ir.targets.cuda.bodies.tensor_bodies import is_chained
from ir.targets.cuda.bodies.tensor_order import NAME as ORDER
from ir.targets.cuda.bodies.tensor_order import TURNS
from ir.targets.cuda.build.products import loads_of_factors
from ir.targets.cuda.build.roles import Roles
from ir.targets.cuda.grid.dealing import AS_THEY_COME, growth
from ir.targets.cuda.grid.dealing import NAME as DEAL
from ir.targets.cuda.grid.drawing import is_uneven
from ir.targets.cuda.grid.raster import patches_fit
from ir.targets.cuda.layouts.operands import LINE
from ir.targets.cuda.layouts.tensor_layouts import LEAST_ACROSS
from ir.targets.cuda.layouts.words import word_order
from ir.targets.cuda.plans.planning import FORMER_REGISTERS
from ir.targets.cuda.plans.shares import BESIDE_SUMS
from ir.targets.cuda.plans.tensor_plan import GROUP, REGISTER_SPLITS, RESIDENT, ROWS
from ir.targets.cuda.plans.tensor_rings import HELD, extra_names, rings_of
from ir.targets.cuda.seeds.tensor_seeds import RESERVED
from ir.targets.cuda.space.formed_rules import FormedRules

SPARE = RESERVED // 2  # bytes of the reserve that barriers leave to scratch
TOLD = ("consumers", "partition", "stages", "cluster", "registers", "swap", ORDER, TURNS)


class TensorRules(FormedRules):
    """What a kernel's decisions must satisfy together."""

    def _explain(self, name: str) -> Any:
        def explain(values: Mapping[str, Value]) -> str:
            return f"{described(values)}{self._numbers(name, values)}"

        def described(values: Mapping[str, Value]) -> str:
            tiles = ", ".join(f"{a} {values[self.name(f'tile.{a}')]}" for a in self.free_axes)
            rest = ", ".join(f"{k} {values[self.name(k)]}" for k in TOLD if self.name(k) in values)
            return f"{self.program.name}: tiles {tiles}; {rest}"

        return explain

    def _numbers(self, name: str, values: Mapping[str, Value]) -> str:
        """What a schedule needs and what there is, where these are two numbers."""
        found = self._columns_of(values)
        if name == "shared":
            need, have = int(self._bytes(found)[0]) + RESERVED, self.hardware["shared_bytes"]
            return f"; {need} bytes of shared memory, {have} are there"
        if name == "accumulators":
            return f"; {int(self._accumulators(found)[0])} registers of accumulators in a thread"
        if name == "source":
            depth = int(self._depth(found)[0])
            turn = int(np.max(self._together(found))) * self.step
            return (
                f"; blocks of {depth} points; from registers, two steps of {turn} alternate, "
                "and wait is 0"
            )
        if name == "layout":
            there = self._by_swap(found, lambda roles: self._layouts(found, roles))
            return f"; there are {int(there[0])}, for operands that are multiplied from there"
        if name == "rows":
            return f"; {int(self._rows(found)[0])} rows in a tile"
        if name == "columns":
            return f"; {int(self._columns(found)[0])} columns in a tile"
        return ""

    def _columns_of(self, values: Mapping[str, Value]) -> Columns:
        """One schedule as a row of columns."""
        decisions = self.decisions()
        row = [decision.index(values[decision.name]) for decision in decisions]
        return Columns(tables_of(decisions), np.array([row], dtype=np.int16))

    def _rows_fit(self, columns: Columns) -> Any:
        rows = self._rows(columns)
        groups = self._consumers(columns, "rows")
        passed = (rows % (ROWS * groups) == 0) & (rows <= 512)

        def regular(roles: Roles) -> Any:
            fine: Any = np.ones(columns.rows, dtype=bool)
            tiled: Any = np.zeros(columns.rows, dtype=np.int64)
            for axis in roles.rows:
                tiled = tiled + (self._tile(columns, axis) > 1)
            for axis in roles.rows:
                tile = self._tile(columns, axis)
                power = (tile & (tile - 1)) == 0
                fine &= ((tiled <= 1) | power) & (tile <= 256 * np.where(tiled <= 1, 2, 1))
            for together in self._counted_together:
                own = [(axis, step) for axis, step in together if axis in roles.rows]
                for axis, step in own if len(own) > 1 else ():
                    fine &= (abs(step) == 1) | (self._tile(columns, axis) == 1)
            return fine

        return passed & self._by_swap(columns, regular)

    @cached_property
    def _counted_together(self) -> frozenset[tuple[tuple[str, int], ...]]:
        """Axes that one dimension of a factor counts together: a tile has neighbours alone."""
        found = loads_of_factors(self.program)
        return frozenset(i.terms for op in found for i in op.index if len(i.terms) > 1)

    def _columns_fit(self, columns: Columns) -> Any:
        groups = self._consumers(columns, "columns")
        wide = self._columns(columns)
        own = wide // groups
        passed = (wide % (8 * groups) == 0) & (own <= 256) & (own >= 8)
        if self.roles.dtype in ("i8", "u8"):
            passed &= (own <= 24) | (own % 16 == 0)

        def one_tiled(roles: Roles) -> Any:
            tiled: Any = np.zeros(columns.rows, dtype=np.int64)
            for axis in roles.columns:
                tiled = tiled + (self._tile(columns, axis) > 1)
            return tiled <= 1

        def panels(roles: Roles) -> Any:
            """Parts of columns that start inside a panel cannot be read."""
            plain = roles.contiguous_columns
            return np.where(plain, (groups == 1) | (own * self.size % LEAST_ACROSS == 0), True)

        passed &= wide <= 256 * groups
        return passed & self._by_swap(columns, one_tiled) & self._by_swap(columns, panels)

    def _walk_fits(self, columns: Columns) -> Any:
        tile = self._tile(columns, self.roles.main_walk)
        if self.roles.inner:
            line = tile * self.size
            whole = (line % LINE == 0) | (line == LINE // 2) | (line == LINE // 4)
            fits = (tile % self.step == 0) & (whole | (not self._lines_run_along_the_walk()))
            if len(self.roles.walked) == 1:
                return fits
            again = self.program.axes[self.roles.main_walk] % tile == 0
            return fits & again & self._lists_fit(columns)
        fits = self._depth(columns) % self.step == 0
        for axis in filter(None, (self.roles.main_walk, self.roles.listed)):
            ends = self.program.axes[axis] % self._tile(columns, axis) == 0
            fits &= ends | self.roles.ends_outside(axis)
        return fits

    def _lists_fit(self, columns: Columns) -> Any:
        """Whether a block has one point of what is listed, or all else is plain: pairs in words, no
        operand shared by groups or by blocks, whole points of the main axis."""
        if not self.roles.listed:
            return np.ones(columns.rows, dtype=bool)
        whole = self._tile(columns, self.roles.main_walk) == self.program.axes[self.roles.main_walk]
        down, across = self._cluster_sides(columns)
        alone = (down == 1) & (across == 1) & ~self._is(columns, "partition", "columns")
        plain = whole & alone & (self.size == 2) & (self._depth(columns) <= 256)
        return (self._tile(columns, self.roles.listed) == 1) | plain

    def _lines_run_along_the_walk(self) -> bool:
        """Whether an operand is contiguous along the walked axis, and summed over it."""
        walk = self.roles.main_walk
        return any(
            walk in over and self._line_axis(operand) == walk
            for operand, over in self._operands(self.roles)
        )

    def _accumulators(self, columns: Columns) -> Any:
        """Registers of the accumulators and of a computed operand in one consumer thread."""
        rows = self._rows(columns) // self._consumers(columns, "rows")
        total = self._sums(columns)
        if self.roles.at_once:
            steps = np.where(self._is_straight(columns), 1, 2)
            total = total + 2 * steps * self._beside(columns)
        if self.roles.inner:
            chain, apart = self._chain_registers(columns), self._apart(columns)
            total = np.where(apart, np.maximum(total, chain), total + chain)
        fragments = self._from_registers(columns) * self._fragment_registers(columns)
        return total + rows // ROWS * fragments

    def _sums(self, columns: Columns) -> Any:
        """Registers of one consumer thread for what its tile's products come to."""
        rows = self._rows(columns) // self._consumers(columns, "rows")
        own = self._columns(columns) // self._consumers(columns, "columns")
        fresh = rows  # what is folded before the next begins
        if self.roles.at_once:
            fresh = np.where(self._is_straight(columns), 1, 2) * ROWS
        return (fresh * len(self.walked_roles.sums) + rows * self._folds) * own // GROUP

    def _beside(self, columns: Columns) -> Any:
        """Registers of a thread for what one block is folded with."""

        def held(roles: Roles) -> Any:
            operands = {x for product in roles.products for x in (product.a, product.b)}
            total: Any = np.zeros(columns.rows, dtype=np.int64)
            for position, node in enumerate(self.program.nodes):
                if position in operands or not isinstance(node.op, Load):
                    continue
                sides = [
                    self._side(columns, tuple(axis for axis in node.axes if axis in side))
                    // self._consumers(columns, partition)
                    for side, partition in ((roles.rows, "rows"), (roles.columns, "columns"))
                ]
                wide = {*roles.rows, *roles.columns} <= {*node.axes}
                if {*node.axes} & {*roles.folded} and not wide:
                    down, across = sides[0] // (ROWS // 2), sides[1] // 4
                    total = total + np.maximum(down, 1) * np.maximum(across, 1)
            return total

        return self._by_swap(columns, held)

    @cached_property
    def _folds(self) -> int:
        """Reductions along folded axes: sums beside those of the products."""
        folded = {*self.roles.folded}
        nodes = (node for node in self.program.nodes if folded and is_reduction(node))
        return sum(1 for node in nodes if folded & {*reduced_axes(node)})

    def _registers_fit(self, columns: Columns) -> Any:
        used = self._accumulators(columns) + self._read_early(columns)
        used = np.maximum(used, self._sums(columns) + self._asked(columns))
        consumers = self._value(columns, "consumers")
        limit = columns.lookup(
            self.name("registers"), {name: up for name, (_, up) in REGISTER_SPLITS.items()}
        )
        entry = self._entry_registers(columns)
        limit = np.where(limit == 0, entry, limit)
        beside = BESIDE_SUMS + 4 * self._from_registers(columns)  # of the other operand
        apart = self._apart(columns)  # whose sums are of several instructions, and all they hold
        widest = np.where(apart, self._depth(columns), self._widest(columns))
        entry_fits = widest // 2 + beside <= entry
        if not self.formed:
            entry_fits &= apart | (used <= entry + np.where(consumers == 3, -32, 64))
        spare = np.where(limit >= 232, 24, 32)
        return (used + spare <= limit) & entry_fits

    def _entry_registers(self, columns: Columns) -> Any:
        """Registers of a thread as a block begins, before groups share them out anew."""
        threads = GROUP * self._warp_groups(columns) * self._value(columns, RESIDENT)
        return np.minimum(65536 // threads // 8 * 8, 255)

    def _split_fits(self, columns: Columns) -> Any:
        """Pools of setmaxnreg: 504 registers for each of 128 threads, 512 with four groups."""
        passed: Any = np.zeros(columns.rows, dtype=bool)
        consumers = self._value(columns, "consumers")
        for name, (down, up) in REGISTER_SPLITS.items():
            here = self._is(columns, "registers", name)
            if not up:
                passed |= here
                continue
            groups = self._warp_groups(columns)
            entry = np.minimum(self._entry_registers(columns), 232)
            apart = self._apart(columns)
            others = FORMER_REGISTERS * (groups - 1 - consumers - apart)
            passed |= here & (down + others + (consumers + apart) * up <= groups * entry)
            if self.formed:  # none of which goes up
                passed &= ~here | (entry >= FORMER_REGISTERS)
        return passed

    def _bytes(self, columns: Columns) -> Any:
        return columns.derived((self.mark, "", "bytes"), self._all_bytes)

    def _all_bytes(self, columns: Columns) -> Any:
        def needed(roles: Roles) -> Any:
            cols = self._side(columns, roles.columns)
            total: Any = np.zeros(columns.rows, dtype=np.int64)
            for operand, over, slots in self._slots(columns, roles):
                size = dtype_of(self.program.nodes[operand].dtype).bytes
                inner, run = self._run(columns, operand)
                if run[0] not in over and operand not in roles.raw:
                    inner = self._padded(columns, roles, operand, run, inner)
                count = inner * size * prod(self._lines(columns, operand))
                count = -(-count // LINE) * LINE
                total = total + -(-(count * slots) // 1024) * 1024
                source = self._source_size(operand)
                if source:
                    count = -(-count // size * source // LINE) * LINE
                    total = total + -(-(count * slots) // 1024) * 1024
            own = cols // self._consumers(columns, "columns")
            own = np.where(self.exchanges(columns), own // self.parts(columns), own)
            lines = own * self._lines_of_rows() if self._output_transposed(roles) else ROWS
            buffer = -(-lines * LINE // 1024) * 1024
            use = self._is(columns, "epilogue", "tma")
            slots = self._value(columns, "epilogue_slots") * self._value(columns, "consumers")
            if roles.inner:
                total = total + self._words(columns, roles)
            total = self._with_exchange(columns, total, roles)
            return total + np.where(use, buffer * slots, 0) + self._scratch(columns, roles)

        return self._by_swap(columns, needed)

    def _slots(
        self, columns: Columns, roles: Roles
    ) -> Iterator[tuple[int, frozenset[str], Any]]:  # fmt: skip
        """Loaded operands, what is summed over, and the slots of their ring."""
        extras = dict(extra_names(self.program, self.roles))
        for name, operands in rings_of(self.program, roles).items():
            slots = 1 if name == HELD else self._value(columns, "stages")
            if name in extras:
                slots = slots + self._value(columns, extras[name])
            for operand, product in operands.items():
                yield operand, frozenset(product.over), slots

    def _scratch(self, columns: Columns, roles: Roles) -> Any:
        """Bytes through which reductions over rows, or over shared columns, cross warps."""
        rows = self._side(columns, roles.rows) // self._consumers(columns, "rows")
        own = self._side(columns, roles.columns) // self._consumers(columns, "columns")
        block = self._tile(columns, roles.main_walk)
        parted = self._consumers(columns, "columns") > 1
        most: Any = np.zeros(columns.rows, dtype=np.int64)
        products = {product.position for product in roles.products}
        for position, node in enumerate(self.program.nodes):
            if not is_reduction(node) or position in products:
                continue
            gone = set(reduced_axes(node))
            walk = {*roles.walked} if roles.inner else set()
            crosses = bool(gone & set(roles.rows)) | (bool(gone & {*roles.columns}) & parted)
            crosses = crosses | (bool(gone & walk) & parted & ~self._apart(columns))
            kept: Any = np.ones(columns.rows, dtype=np.int64)
            if set(node.axes) & set(roles.rows):
                kept = kept * np.maximum(rows // (ROWS // 2), 1)
            if set(node.axes) & set(roles.columns):
                kept = kept * np.maximum(own // 4, 1)
            if roles.inner and set(node.axes) & set(roles.walked):
                kept = kept * np.maximum(block // 4, 1)
            kept = -(-kept // 2) if dtype_of(node.dtype).bits <= 32 else kept
            most = np.maximum(most, np.where(crosses, kept, 0))
        threads = GROUP * self._value(columns, "consumers")
        return np.maximum(most * threads * 8 - SPARE, 0)

    def _holds_whole(self, columns: Columns) -> Any:
        """Whether results are combined only over axes of which a tile has all points."""
        fine: Any = np.ones(columns.rows, dtype=bool)
        kept = {*self.roles.rows, *self.roles.columns, *self.roles.batch}
        products = {product.position for product in self.roles.products}
        for position, node in enumerate(self.program.nodes):
            if is_reduction(node) and position not in products:
                for axis in kept.intersection(reduced_axes(node)):
                    fine &= self._tile(columns, axis) >= self.program.axes[axis]
        return fine

    def _line_axis(self, operand: int) -> str:
        op = self.program.nodes[operand].op
        assert isinstance(op, Load)
        terms = [axis for axis, c in op.index[-1].terms if c == 1]
        return terms[0]

    def _lines_of_rows(self) -> int:
        """Lines that 64 rows of an output make where they are contiguous."""
        stores = (node for node in self.program.nodes if isinstance(node.op, Store))
        return max(ROWS * dtype_of(node.dtype).bytes for node in stores) // LINE

    def _output_transposed(self, roles: Roles) -> bool:
        """Whether the outputs over rows and columns are contiguous along the rows."""
        wide = {*roles.rows, *roles.columns}
        return any(
            wide <= {*store.axes} and store.axes[-1] in roles.rows
            for _, store in self.program.stores()
        )

    def _shared_fits(self, columns: Columns) -> Any:
        return self._bytes(columns) + RESERVED <= self.hardware["shared_bytes"]

    def _cluster_fits(self, columns: Columns) -> Any:
        down, across = self._cluster_sides(columns)
        if self._walk_varies or self.formed:
            return (down == 1) & (across == 1)

        def fits(roles: Roles) -> Any:
            fine: Any = (across == 1) | (not roles.inner)
            for operand, _ in self._operands(roles):
                axes = set(self.program.nodes[operand].axes)
                peers = np.ones(columns.rows, dtype=np.int64)
                if not axes & set(roles.rows):
                    peers = peers * down
                if not axes & set(roles.columns):
                    peers = peers * across
                whole = self._reordered(roles, operand)
                fine &= (peers == 1) | self._lines_split(columns, operand, peers, whole)
            last, wide = self._tile(columns, roles.rows[-1]), self._side(columns, roles.columns)
            fine &= (down == 1) | (-(-self.program.axes[roles.rows[-1]] // last) >= down)
            points = prod(self.program.axes[axis] for axis in roles.columns)
            return fine & ((across == 1) | (-(-points // wide) >= across))

        return self._by_swap(columns, fits)

    @cached_property
    def _walk_varies(self) -> bool:
        """Whether tiles walk different numbers of blocks, so that clusters cannot share them."""
        return is_uneven(self.program, self.roles)

    def _reordered(self, roles: Roles, operand: int) -> int:
        """Lines that change places among each other, of an inner product's operand; 1 for none."""
        if all(product.b != operand for product in roles.inner):
            return 1
        order = word_order(self.program.nodes[roles.outer[0].a].dtype)
        return order[-1][1] if order else 1

    def _lines_split(self, columns: Columns, operand: int, peers: Any, whole: int) -> Any:
        first: Any = np.ones(columns.rows, dtype=np.int64)
        total: Any = np.ones(columns.rows, dtype=np.int64)
        for points in self._lines(columns, operand):
            first = np.where(first == 1, points, first)
            total = total * points
        alone = (total == 1) & (operand in self.roles.raw)
        split = (first % peers == 0) & (first // peers % whole == 0)
        return alone | (split & (total // peers % 8 == 0))

    def _partition_fits(self, columns: Columns) -> Any:
        consumers = self._value(columns, "consumers")
        shared_rows = self._is(columns, "partition", "rows")
        passed = shared_rows | (consumers > 1)
        if self.roles.inner:
            passed &= ~self._is(columns, "partition", "columns") | self._stores_words(columns)
        boxes = self._by_swap(columns, lambda roles: self._boxes_fit(columns, roles))
        return passed & boxes

    def _turns_fit(self, columns: Columns) -> Any:
        if not (is_chained(self.roles) or self.roles.computed):
            return np.ones(columns.rows, dtype=bool)
        if self.roles.computed:  # whose products end in the block that they begin in, or do not
            shared = ~self._is(columns, "partition", "whole")
            ends = ~self._is(columns, TURNS, DONE) | self._is_straight(columns)
            return self._is(columns, TURNS, FREE) | (
                (self._value(columns, "consumers") > 1) & shared & ends
            )
        several = self._value(columns, "consumers") > 1
        return self._is(columns, TURNS, FREE) | (several & self._is(columns, "partition", "rows"))

    def _boxes_fit(self, columns: Columns, roles: Roles) -> Any:
        """Lines of a box: up to 256 along an axis, in operands and in transposed outputs."""
        fine: Any = np.ones(columns.rows, dtype=bool)
        for operand, _ in self._operands(roles):
            lines: Any = np.ones(columns.rows, dtype=np.int64)
            for points in self._lines(columns, operand):
                fine &= points <= 256
                lines = lines * points
            raw = operand in roles.raw
            fine &= (lines % 8 == 0) | (raw & (lines == 1))
            if raw:
                fine &= self._raw_line_fits(columns, operand)
        last = self._tile(columns, roles.rows[-1]) * np.ones(columns.rows, dtype=np.int64)
        even = ((last % ROWS == 0) | (ROWS % last == 0)) & self._lines_stored(columns, roles)
        fine &= self._is(columns, "epilogue", "direct") | even
        return fine

    def _lines_stored(self, columns: Columns, roles: Roles) -> Any:
        """Whether lines of outputs run along tiled columns, or all along the 64 rows of a block;
        those over rows or columns alone are written as they are."""
        fine: Any = np.ones(columns.rows, dtype=bool)
        wide = {*roles.rows, *roles.columns}
        last = {store.axes[-1] for _, store in self.program.stores() if wide <= {*store.axes}}
        if len({axis in roles.columns for axis in last}) > 1:
            return ~fine
        for axis in last:
            if axis in roles.columns:
                fine &= self._tile(columns, axis) > 1
            else:
                fine &= (axis == roles.rows[-1]) & (self._tile(columns, axis) % ROWS == 0)
        return fine

    def _once(self, columns: Columns) -> Any:
        direct = self._is(columns, "epilogue", "direct")
        passed = ~direct | (self._value(columns, "epilogue_slots") == 1)
        beside, along = self._beside_each_other(columns)
        several = beside & (prod(self.program.axes[axis] for axis in self.roles.batch) > 1)
        if self.roles.inner or self.roles.folded:
            passed &= self._value(columns, "wait") == 0
        lone_row = self._by_swap(columns, lambda roles: self._tile_count(columns, roles.rows) == 1)
        lone_column: Any = np.ones(columns.rows, dtype=bool)
        if not self.roles.inner:
            lone_column = self._by_swap(
                columns, lambda roles: self._tile_count(columns, roles.columns) == 1
            )
        lone = (lone_row & ~(several & along)) | (lone_column & ~(several & ~along))
        passed &= ~lone | self._is(columns, "raster", "rows")
        rows, across = self._cluster_tiles(columns)
        passed &= patches_fit(partial(self._is, columns, "raster"), rows, across)
        if growth(self.streamed, self.roles):
            grows = self._by_swap(columns, lambda roles: bool(growth(self.streamed, roles)))
            dealt = self._value(columns, DEAL) != AS_THEY_COME
            passed &= ~dealt | (grows & self._is(columns, "raster", "rows"))
        for name, stem in extra_names(self.program, self.roles):
            if name == HELD:
                several = self._waits_for_its_next_tile(columns, self._stream_tiles(columns))
                passed &= several | (self._value(columns, stem) == 0)
        return passed & (~self._is(columns, "raster", "hilbert") | self._walks_a_curve(columns))
