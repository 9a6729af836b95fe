"""A stage on a matrix-tile unit (AMX): tiles of 16 rows by 64 bytes, accumulators in registers.

Products run in the unit; everything else of the stage (state, rescaling, results) is vector code
over the accumulator tiles, stored to a scratch area in L1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from ir.errors import Refusal
from ir.stages import Accumulator
from ir.targets.cpu.access import Position, Site
from ir.targets.cpu.instructions import (
    TILE_CONFIG,
    TILE_LOAD,
    TILE_RELEASE,
    TILE_STORE,
    TILE_ZERO,
)
from ir.targets.cpu.kept import KeptLanes
from ir.targets.cpu.nest import Index, Type, Value
from ir.targets.cpu.plan import main_reduction
from ir.targets.cpu.runs import RUN

if TYPE_CHECKING:
    from ir.targets.cpu.lower import Lowering

TILES = 8
ROW_BYTES = 64
TOTALS = TILES * 16 * ROW_BYTES  # where totals of long sums are, behind the tiles of a run


def configure(lowering: Lowering) -> None:
    """All eight tiles: 16 rows of 64 bytes. The configuration is built in the scratch area."""
    b, scratch = lowering.b, lowering.tile_scratch
    b.store(b.constant(0, Type("i8", 64)), scratch)
    b.store(b.constant(1, Type("i8")), scratch, 0)
    b.store(b.constant(ROW_BYTES, Type("i16", TILES)), scratch, 16)
    b.store(b.constant(16, Type("i8", TILES)), scratch, 48)
    b.intrinsic(TILE_CONFIG, None, scratch)


def release(lowering: Lowering) -> None:
    lowering.b.intrinsic(TILE_RELEASE, None)


class TileStage(KeptLanes):
    """rows: tiles of 16 rows; vectors: tiles of 16 lanes; each accumulator has rows x vectors."""

    def tile(self, site: Site, counts: dict[str, int]) -> None:
        rows = self.rows(counts)
        lane_count = counts[self.binding.lane]
        high, wide = -(-rows // 16), -(-lane_count // self.lanes)
        if len(self.stage.accumulators) * high * wide + high + 1 > TILES:
            raise Refusal("tile-registers", f"{self.stage.name}: {high} x {wide} tiles do not fit")
        self.evaluator.bound = {}
        masks = self.lane_masks(lane_count)
        if self._is_long():
            self._sums_in_runs(dict(site), rows, high, wide)
            self._epilogue(dict(site), rows, masks, TOTALS)
            return
        self._start(dict(site), rows, high, wide)
        self._products(dict(site), high, wide)
        if rows % 16 == 0 and not any(masks.values()) and self._only_state():
            self._store_state(dict(site), high, wide)
            return
        self._spill(high, wide)
        self._epilogue(dict(site), rows, masks)

    def _only_state(self) -> bool:
        """Whether all that is due are the accumulators as they are, in buffers of their type."""
        stage, last = self.stage, self.flags.last
        if stage.running or isinstance(last, Value):
            return False
        plain = all(r.tensor is None and r.node in self.own for r in stage.results)
        if last is True and not plain:
            return False
        for accumulator in stage.accumulators:
            buffer = self.plan.buffers.get(accumulator.node)
            if buffer is None or buffer.dtype != accumulator.dtype:
                return False
            if self.low.buffer_access(buffer).stride(self.binding.lane) != ROW_BYTES // 16:
                return False
        return True

    # -- tile numbering: accumulators first, then row operands, then one lane operand

    def number(self, accumulator: int, high: int, wide: int, i: int, j: int) -> int:
        return accumulator * high * wide + i * wide + j

    def scratch(self, accumulator: int, i: int, j: int, wide: int) -> int:
        """Byte offset of accumulator tile (i, j) in the scratch area."""
        high = self.binding.rows
        return ((accumulator * high + i) * wide + j) * 16 * ROW_BYTES

    # -- beginning: zero, or the rescaled state through the scratch area

    def _start(self, site: dict[str, Position], rows: int, high: int, wide: int) -> None:
        first = self.flags.first
        states = [a for a in self.stage.accumulators if self.stateful(a)]
        if not states or first is True:
            self._zero(high, wide)
        elif first is False:
            self._resume(site, rows, high, wide)
        else:
            with self.b.branch(first) as branch:
                self._zero(high, wide)
                self.b.otherwise(branch)
                self._resume(site, rows, high, wide)

    def _zero(self, high: int, wide: int) -> None:
        for tile in range(len(self.stage.accumulators) * high * wide):
            self.b.intrinsic(TILE_ZERO, None, tile)

    def _resume(self, site: dict[str, Position], rows: int, high: int, wide: int) -> None:
        for n, accumulator in enumerate(self.stage.accumulators):
            if accumulator.factor is None and accumulator.addend is None:
                self._load_state(accumulator, n, site, high, wide)
            else:
                self._rescale(accumulator, n, site, rows, wide)
                for i in range(high):
                    for j in range(wide):
                        pointer = self.b.offset(self.low.tile_scratch, self.scratch(n, i, j, wide))
                        self._load(self.number(n, high, wide, i, j), pointer, ROW_BYTES)

    def _load(self, tile: int, pointer: Value, stride: Index) -> None:
        self.b.intrinsic(TILE_LOAD, None, tile, pointer, self._wide(stride))

    def _wide(self, stride: Index) -> Value:
        return stride if isinstance(stride, Value) else self.b.constant(stride, Type("i64"))

    def _load_state(
        self, accumulator: Accumulator, n: int, site: dict[str, Position], high: int, wide: int
    ) -> None:
        for i, j, pointer, stride in self._state_tiles(accumulator, site, high, wide):
            self._load(self.number(n, high, wide, i, j), pointer, stride)

    def _store_state(self, site: dict[str, Position], high: int, wide: int) -> None:
        for n, accumulator in enumerate(self.stage.accumulators):
            for i, j, pointer, stride in self._state_tiles(accumulator, site, high, wide):
                number = self.number(n, high, wide, i, j)
                self.b.intrinsic(TILE_STORE, None, number, pointer, self._wide(stride))

    def _state_tiles(
        self, accumulator: Accumulator, site: dict[str, Position], high: int, wide: int
    ) -> Iterator[tuple[int, int, Value, int]]:
        """Accumulator tiles (i, j) in their buffer: pointer, bytes between rows."""
        access = self.low.buffer_access(self.plan.buffers[accumulator.node])
        stride = access.stride(self.binding.row)
        self.evaluator.at(site, {})
        for i in range(high):
            for j in range(wide):
                pointer, at = access.pointer(self.b, self.evaluator.place(16 * i, j))
                yield i, j, self.b.offset(pointer, at), stride

    def _rescale(
        self, accumulator: Accumulator, n: int, site: dict[str, Position], rows: int, wide: int
    ) -> None:
        def row(pointer: Value, i: int) -> None:
            for j in range(wide):
                value = self.previous(accumulator, 0, j, self.lanes)
                self.b.store(value, pointer, self.scratch(n, i, j, wide))

        self._row_loop(site, rows, row)

    def _row_loop(self, site: dict[str, Position], rows: int, body) -> None:  # type: ignore[no-untyped-def]
        """Run body(pointer to the row in scratch, tile row) for every row of the register tile."""
        axis = self.binding.row
        for i in range(-(-rows // 16)):
            count = min(16, rows - 16 * i)
            with self.b.loop("r", 0, count, 1) as loop:
                here = self.b.add(site[axis].origin, self.b.add(loop.variable, 16 * i))
                self.evaluator.at({**site, axis: Position(here)}, self.evaluator.masks)
                body(self.b.offset(self.low.tile_scratch, self.b.mul(loop.variable, ROW_BYTES)), i)

    # -- products

    def _products(self, site: dict[str, Position], high: int, wide: int) -> None:
        main = main_reduction(self.plan.staged, self.stage)
        others = [a for a in self.stage.reduce if a != main]
        self._product_loops(others, site, high, wide, main)

    def _product_loops(
        self, axes: list[str], site: dict[str, Position], high: int, wide: int, main: str
    ) -> None:
        region = self.low.regions[axes[0] if axes else main]
        if axes:
            with self.b.loop(axes[0], region.low, region.high, 1) as loop:
                inner = {**site, axes[0]: Position(loop.variable)}
                self._product_loops(axes[1:], inner, high, wide, main)
            return
        depth = self.binding.depth
        if region.exact and region.size <= depth:
            self._multiply({**site, main: Position(region.low)}, high, wide)
            return
        unroll = self.binding.unroll
        extent = self.low.program.axes[main]
        if extent % (depth * unroll) or region.size % (depth * unroll):
            unroll = 1
        self._hoist(site, main)
        self.evaluator.inner = main
        with self.b.loop(main, region.low, region.high, depth * unroll) as loop:
            for u in range(unroll):
                self._multiply({**site, main: Position(loop.variable, u * depth)}, high, wide)
        self.evaluator.inner = ""

    def _multiply(self, site: dict[str, Position], high: int, wide: int) -> None:
        """Row tiles once, then each lane tile against all of them; shared operands load once."""
        self.evaluator.at(site, {})
        loaded: dict[tuple[int, int], int] = {}
        base = len(self.stage.accumulators) * high * wide
        for j in range(wide):
            for n, accumulator in enumerate(self.stage.accumulators):
                lane_term, row_term = self.operands(accumulator)
                lane_tile = TILES - 1
                self._load_operand(lane_tile, lane_term, 0, j, lane=True)
                for i in range(high):
                    key = (row_term, i)
                    if key not in loaded:
                        loaded[key] = base + len(loaded)
                        if loaded[key] >= TILES - 1:
                            raise Refusal("tile-registers", f"{self.stage.name}: row operands")
                        self._load_operand(loaded[key], row_term, i, 0, lane=False)
                    self.b.intrinsic(
                        self.binding.dot,
                        None,
                        self.number(n, high, wide, i, j),
                        loaded[key],
                        lane_tile,
                    )

    def _load_operand(self, tile: int, term: int, i: int, j: int, lane: bool) -> None:
        access = self.access(term)
        pointer, at = access.pointer(self.b, self.evaluator.place(16 * i, j), self.evaluator.inner)
        if lane:
            main = main_reduction(self.plan.staged, self.stage)
            stride = access.digits[main][0].stride
        else:
            stride = access.stride(self.binding.row)
        self._load(tile, self.b.offset(pointer, at), stride)

    # -- long sums of floats: in bounded runs, whose totals are in scratch

    def _is_long(self) -> bool:
        """An instruction adds `depth` products to an accumulator as one."""
        terms = prod(self.low.program.axes[axis] for axis in self.stage.reduce)
        single = any(a.dtype == "f32" for a in self.stage.accumulators)
        return single and terms > RUN * self.binding.depth

    def _sums_in_runs(self, site: dict[str, Position], rows: int, high: int, wide: int) -> None:
        """The state, or zeros, and run by run what the products of it come to."""
        self._start(site, rows, high, wide)
        self._spill(high, wide, TOTALS)
        main = main_reduction(self.plan.staged, self.stage)
        region = self.low.regions[main]
        others = prod(self.low.regions[a].size for a in self.stage.reduce if a != main)
        step = max(1, RUN // (others * self.binding.unroll)) * self.binding.unroll
        with self.b.loop(main, region.low, region.high, step * self.binding.depth) as loop:
            end = self.b.add(loop.variable, step * self.binding.depth)
            end = self.b.minimum(end, region.high)
            self.low.regions[main] = replace(region, low=loop.variable, high=end, exact=False)
            self._zero(high, wide)
            self._products(site, high, wide)
            self._spill(high, wide)
            self._add_to_totals(high, wide)
            self.low.regions[main] = region

    def _add_to_totals(self, high: int, wide: int) -> None:
        type, scratch = Type("f32", self.lanes), self.low.tile_scratch
        with self.b.loop("r", 0, 16, 1) as loop:
            row = self.b.offset(scratch, self.b.mul(loop.variable, ROW_BYTES))
            for n in range(len(self.stage.accumulators)):
                for place in (
                    self.scratch(n, i, j, wide) for i in range(high) for j in range(wide)
                ):
                    total = self.b.load(type, row, TOTALS + place)
                    part = self.b.load(type, row, place)
                    self.b.store(self.b.op("fadd", total, part), row, TOTALS + place)

    # -- results

    def _spill(self, high: int, wide: int, at: int = 0) -> None:
        for n in range(len(self.stage.accumulators)):
            for i in range(high):
                for j in range(wide):
                    place = at + self.scratch(n, i, j, wide)
                    pointer = self.b.offset(self.low.tile_scratch, place)
                    self.b.intrinsic(
                        TILE_STORE,
                        None,
                        self.number(n, high, wide, i, j),
                        pointer,
                        self._wide(ROW_BYTES),
                    )

    def _epilogue(
        self, site: dict[str, Position], rows: int, masks: dict[int, int], at: int = 0
    ) -> None:
        wide = len(masks)
        self.evaluator.masks = masks

        def row(pointer: Value, i: int) -> None:
            self.evaluator.bound = {}
            points = [(0, j) for j in masks]
            for n, accumulator in enumerate(self.stage.accumulators):
                type = self.accumulator_type(accumulator, self.lanes)
                for j in masks:
                    value = self.b.load(type, pointer, at + self.scratch(n, i, j, wide))
                    self.evaluator.bound[self.evaluator.key(accumulator.node, 0, j)] = value
            self.finish(points, self.lanes)

        self._row_loop(site, rows, row)
