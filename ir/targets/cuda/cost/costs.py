"""Analytic costs of kernels under many schedules: waves, traffic through L2 and from memory,
arithmetic, shared memory, registers. Estimates in closed form; the learned model corrects them.
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.dtypes import dtype_of
from ir.ops.map import Map
from ir.ops.store import Store
from ir.program import Program
from ir.scalar import FUNCTIONS
from ir.space import Columns
from ir.stages import is_reduction, reduced_axes
from ir.target import Hardware
from ir.targets.cuda.build import late
from ir.targets.cuda.build.computed import below
from ir.targets.cuda.build.products import Product, depends_on_reduction, volume
from ir.targets.cuda.build.readers import loaded_late
from ir.targets.cuda.build.roles import Roles
from ir.targets.cuda.grid import drawing
from ir.targets.cuda.grid.batching import sharers
from ir.targets.cuda.grid.dealing import NAME as DEAL
from ir.targets.cuda.grid.dealing import busiest, growth
from ir.targets.cuda.grid.raster import PATCHES
from ir.targets.cuda.layouts.frame import GROUP
from ir.targets.cuda.layouts.operands import LINE
from ir.targets.cuda.plans.planning import FORMERS
from ir.targets.cuda.plans.tensor_plan import REGISTER_SPLITS, RESIDENT, ROWS
from ir.targets.cuda.plans.tensor_rings import HELD, extra_names
from ir.targets.cuda.seeds.tensor_waves import L2_BYTES_PER_CLOCK, MACS_PER_CLOCK
from ir.targets.cuda.space.gathers import SECTOR
from ir.targets.cuda.space.splits import ATOMICS, CLUSTER, LAST, MERGE, TURNSTILE
from ir.targets.cuda.space.tensor import TensorKernel
from ir.targets.cuda.space.tensor_streams import TensorStreams
from ir.targets.cuda.space.tensor_tiles import PAIR, whole_groups

Array = NDArray[np.float64]
Table = dict[str, Array]
LANES_PER_CLOCK = 128.0  # of one processor's plain units
MEMORY_BYTES_PER_CLOCK = 20.0  # a processor's share
FILL_CLOCKS = 1500.0  # from a kernel's start, or a tile's, to its first product
SPLIT_CLOCKS = 6000.0  # of the kernels that clear the partial sums and put them together
MEET_CLOCKS = 2500.0  # from a block's count to another one's next step
CHAIN_CLOCKS = 700.0  # of a block of chained products at least, as measured on an H200
INSTRUCTION_BYTES = 32.0  # of an instruction's operands along the sum
SHARED_BYTES_PER_CLOCK = 128.0
COMPUTED = 1.5  # clocks of what computes operands, for one of a warp's lanes (this and the next two
STEP_CLOCKS = 350.0  # as measured on an H200, 536 schedules of eight kernels): of a step beside
RING_CLOCKS = 1400.0  # from an empty slot of a ring to its next tile
LAST_TILE = 0.1  # of a mean one, that the last blocks wait for each other
STREAM_LOSS = 0.05  # share of a stream's time that its cut tiles cost, as measured on an H200
EXCHANGE_CLOCKS = 600.0  # of barriers between the blocks of a cluster that exchange sums
EXCHANGE_FACTOR = 3.5  # their bytes take as many times those of L2, as measured on an H200
THREADS_PER_PROCESSOR = 2048.0
FORM_WORK = 1.0  # operations for a point of an operand that is formed, beside its own
FORM_CLOCKS = 2.0  # from one of a warp to its next
COLUMNS = 8  # of a matrix, of which a thread has neighbours
HAND_CLOCKS = 1000.0  # of a state: its products end, its factor is read, it is scaled
TRIP_CLOCKS = 600.0  # of a step of a walk: its loads' latency


def late_columns(columns: Columns, name: str) -> Array:
    """How many columns ahead an epilogue asks for its operands."""
    return array_of(columns[name]) if name in columns else np.zeros(columns.rows)


def least_clocks(program: Program, hardware: Hardware) -> float:
    """Clocks that a program takes at least: tensor cores busy, or every tensor moved once."""
    size = min(dtype_of(spec.dtype).bytes for spec in program.tensors)
    arithmetic = program.flops / 2 / (MACS_PER_CLOCK / size)
    moved = program.bytes / MEMORY_BYTES_PER_CLOCK
    return max(arithmetic, moved) / hardware["sms"] + FILL_CLOCKS


def stored_bytes(roles: Roles, rows: Array, wide: Array) -> Array:
    """Bytes that a tile takes to be written, of what has no columns those of its rows: a sector for
    each element where what lies last in memory is none of the axes that tiles have neighbours
    along."""
    found, along = np.zeros_like(rows), {*roles.rows[-1:], *roles.columns}
    for node in roles.program.nodes:
        if isinstance(node.op, Store):
            size, last = dtype_of(node.dtype).bytes, "".join(node.op.axes[-1:])
            apart = last not in along and roles.program.axes.get(last, 1) > 1
            points = rows * wide if {*roles.columns} & {*node.op.axes} else rows
            found = found + points * (SECTOR if apart else float(size))
    return found


class TensorCosts(TensorStreams):
    """Costs of one kernel on tensor cores."""

    def __init__(self, kernel: TensorKernel) -> None:
        self.program, self.mark, self.hardware = kernel.program, kernel.mark, kernel.hardware
        self.roles, self.swapped = kernel.roles, kernel.swapped
        self.streamed, self.computes = kernel.streamed, kernel.computes
        self.grows = growth(kernel.streamed, kernel.roles) != 0
        self.formed, self.moved, self.rate = kernel.formed, kernel.moved, kernel.rate

    def table(self, columns: Columns) -> Table:
        """Features of the kernel, and under "clocks" and "traffic" estimates of its time."""
        rows, wide = array_of(self._rows(columns)), array_of(self._columns(columns))
        walk = array_of(self._depth(columns)) * np.ones(columns.rows)
        table = self._choices(columns)
        table |= {"rows": log_of(rows), "columns": log_of(wide), "walk": log_of(walk)}
        tiles = self._tiles(columns)
        steps = self._length() / walk / self.parts(columns)
        own = wide / array_of(self._consumers(columns, "columns"))
        table |= {"tiles": log_of(tiles), "steps": log_of(steps), "own": log_of(own)}
        table |= self._resources(columns)
        return table | self._times(columns, rows, wide, walk, tiles, steps)

    def _choices(self, columns: Columns) -> Table:
        """Decisions as numbers that mean the same for every program."""
        found: Table = {}
        for name in ("swap", "consumers", "stages", "wait", "epilogue_slots"):
            found[name] = array_of(self._value(columns, name))
        for name in ("rows", "columns", "whole"):
            found[f"partition.{name}"] = array_of(self._is(columns, "partition", name))
        found["epilogue.tma"] = array_of(self._is(columns, "epilogue", "tma"))
        found["persistent"] = array_of(self._value(columns, "processors") > 0)
        found["registers"] = columns.lookup(
            self.name("registers"), {name: up for name, (_, up) in REGISTER_SPLITS.items()}
        )
        found |= raster_numbers(columns, self.name("raster"))
        found["parts"] = log_of(self.parts(columns))
        found["promotion"] = array_of(self._value(columns, "promotion"))
        for side in ("rows", "columns"):
            found[f"streams.{side}"] = array_of(self._is(columns, "stream", side))
        for way in (LAST, ATOMICS, TURNSTILE):
            found[f"merges.{way}"] = self._merges(columns, way)
        for number in (HELD, "streamed"):
            found[f"extra.{number}"] = np.zeros(columns.rows)
        for ring, stem in extra_names(self.program, self.roles):
            found[f"extra.{HELD if ring == HELD else 'streamed'}"] += self._value(columns, stem)
        found["unit"] = np.ones(columns.rows)
        found["blocks"] = array_of(self._value(columns, RESIDENT))
        found["late"] = late_columns(columns, self.name(late.NAME))
        found["weights"] = array_of(self._left_slots(columns))
        found["drawn"] = np.zeros(columns.rows)
        if self.name(drawing.NAME) in columns:
            found["drawn"] = array_of(columns.is_(self.name(drawing.NAME), drawing.DYNAMIC))
        ahead = np.where(self._reads_blocks(columns), array_of(self._depth(columns)) / self.step, 2)
        found["fragments"] = np.where(self._from_registers(columns), ahead, np.nan)
        return found

    def _merges(self, columns: Columns, way: str) -> Array:
        return array_of(columns.is_(MERGE, way)) if MERGE in columns else np.zeros(columns.rows)

    def _merging(self, columns: Columns, rows: Array, wide: Array) -> Array:
        """Clocks from the end of a tile's products to its whole sums."""
        parts = self.parts(columns)
        once = 4.0 * rows * wide * len(self.roles.sums) / L2_BYTES_PER_CLOCK
        ways = {
            LAST: (1.0 + parts) * once + MEET_CLOCKS,
            ATOMICS: 2.0 * once + 2.0 * MEET_CLOCKS,
            TURNSTILE: parts * (2.0 * once + MEET_CLOCKS),
            CLUSTER: once * (1.0 - 1.0 / parts) * EXCHANGE_FACTOR + EXCHANGE_CLOCKS,
        }
        kernel = np.full(columns.rows, SPLIT_CLOCKS)
        found = sum(
            (self._merges(columns, way) * (clocks - kernel) for way, clocks in ways.items()), kernel
        )
        pieces = array_of(self.pieces(columns))
        handed = np.where(pieces > 0, pieces * once + MEET_CLOCKS, 0.0)
        return np.where(parts > 1, found, handed)

    def _reads_blocks(self, columns: Columns) -> Any:
        name = self.name("read")
        return columns.is_(name, "block") if name in columns else np.zeros(columns.rows, dtype=bool)

    @cached_property
    def _row_bytes(self) -> float:
        """Bytes that are fetched for a point of the operands along the rows."""
        if not self.roles.computed:
            return float(self.size)
        points = volume(self.program, (*self.roles.rows, *self.roles.walked, *self.roles.batch))
        nodes = [self.program.nodes[load] for load in self.roles.raw]
        moved = sum(volume(self.program, n.axes) * dtype_of(n.dtype).bytes for n in nodes)
        return moved / points / len(self.roles.outer)

    def _bytes_of(self, product: Product) -> int:
        """Of an operand's element: as many times longer its multiplication takes."""
        return dtype_of(self.roles.dtype_of(product)).bytes

    def _computing(self, columns: Columns, rows: Array, walk: Array) -> Array:
        """Clocks that a block's operands are computed in, by all groups that have the rows."""
        again = array_of(self._consumers(columns, "columns"))
        return COMPUTED * rows * walk * self._made_work * again / LANES_PER_CLOCK

    def _alone(self, columns: Columns, macs: Array, computing: Array) -> Array:
        """Clocks of a block of the sum at least, however little else there is to do: what one group
        of consumers does one after the other, and how long a slot of a ring waits for its tile."""
        if not self.roles.computed:
            return np.full(columns.rows, CHAIN_CLOCKS if self.roles.inner else 0.0)
        consumers = array_of(self._value(columns, "consumers"))
        others = np.maximum(array_of(self._value(columns, "stages")) - 1.0, 1.0)
        return np.maximum((macs + computing) / consumers + STEP_CLOCKS, RING_CLOCKS / others)

    @cached_property
    def _made_work(self) -> float:
        """Operations of threads for a point of the operands that are computed: a thread has two
        rows of them, for which what is the same for all rows is computed once."""
        inside, rows = {self.roles.main_walk, *self.roles.whole}, {*self.roles.rows}
        made = {n for position in self.roles.computed for n in below(self.program, position)}
        work = 0.0
        for node in (self.program.nodes[n] for n in made):
            if inside & {*node.axes}:
                each = FUNCTIONS[node.op.function].flops if isinstance(node.op, Map) else 1
                work += each if rows & {*node.axes} else 0.5 * each
        return work

    def _forming(self, columns: Columns, walk: Array) -> Array:
        """Clocks that a block's operands are formed in, by groups of their own."""
        if not self.formed:
            return np.zeros(columns.rows)
        work = 0.0
        for former in self.formed:
            ((_, store),) = former.program.stores()
            fixed = {*self.roles.walked, *self.roles.batch}
            points = volume(self.program, tuple(a for a in store.axes if a not in fixed))
            made = (n for n in former.program.nodes if not isinstance(n.op, Store))
            work += points * (FORM_WORK + sum({*n.axes} == {*store.axes} for n in made))
        lanes = GROUP * array_of(self._value(columns, FORMERS))
        return walk * work * FORM_CLOCKS / lanes

    def _cluster(self, columns: Columns) -> tuple[Array, Array]:
        down, across = self._cluster_sides(columns)
        return np.asarray(down), np.asarray(across)

    def _side_by_side(self, columns: Columns) -> Array:
        """Processors that blocks in such clusters surely have at a time."""
        down, across = self._cluster(columns)
        sms = int(self.hardware["sms"])
        return np.asarray(np.where(down * across > PAIR, whole_groups(sms), sms), dtype=np.float64)

    def _length(self) -> float:
        """Points of all walked axes."""
        return float(prod(self.program.axes[axis] for axis in self.roles.walked))

    def _tiles(self, columns: Columns) -> Array:
        """Tiles of the outputs, over batches and parts of split sums."""
        down, across = self._cluster(columns)
        rows = self._by_swap(columns, lambda r: self._tile_count(columns, r.rows))
        wide: Any = 1
        if not self.roles.inner:
            wide = self._by_swap(columns, lambda r: self._tile_count(columns, r.columns))
        sides = np.ceil(rows / down) * down * np.ceil(wide / across) * across
        batches = prod(self.program.axes[axis] for axis in self.roles.batch)
        return np.asarray(array_of(sides) * batches * self.parts(columns))

    def _resources(self, columns: Columns) -> Table:
        shared = array_of(self._bytes(columns)) / self.hardware["shared_bytes"]
        down, across = self._cluster(columns)
        return {
            "shared": shared,
            "resident": np.floor(np.minimum(1.0 / np.maximum(shared, 0.05), 4.0)),
            "accumulators": array_of(self._accumulators(columns)),
            "cluster.down": down,
            "cluster.across": across,
        }

    def _times(
        self, columns: Columns, rows: Array, wide: Array, walk: Array, tiles: Array, steps: Array
    ) -> Table:
        """Clocks of one processor, by what they are spent on."""
        sms = float(self.hardware["sms"])
        down, across = self._cluster(columns)
        multiplied = wide * sum(map(self._bytes_of, self.roles.outer)) + self._inside(columns)
        macs = rows * walk * multiplied / (self.rate * MACS_PER_CLOCK)
        moved = rows * self._row_bytes / across + wide * self.size / down
        fetched = moved * walk / L2_BYTES_PER_CLOCK
        computing = self._computing(columns, rows, walk)
        folding = rows * wide * walk * self._fold_work / LANES_PER_CLOCK
        busy = macs + np.where(self._is_straight(columns), folding, folding / 2)  # one of two waits
        busy = busy + self._between(columns)
        blocks = array_of(self._value(columns, RESIDENT))
        made = self._forming(columns, walk)
        step = blocks * np.maximum(np.maximum(busy, fetched), np.maximum(computing, made))
        tile = steps * np.maximum(step, self._alone(columns, macs, computing))
        stored = stored_bytes(self.roles, rows, wide) / L2_BYTES_PER_CLOCK
        waves = tiles / sms / blocks
        turns = np.ceil(tiles / self._side_by_side(columns) / blocks)
        turns = self._uneven(columns, tiles / blocks, turns)
        streamed = array_of(self.streamed_rounds(columns))
        rounds = np.where(streamed > 0, streamed * (1.0 + STREAM_LOSS), turns)
        memory = self._from_memory(columns, rows, wide, tiles) / MEMORY_BYTES_PER_CLOCK / sms
        hidden = (self._value(columns, "processors") > 0) & self._is(columns, "epilogue", "tma")
        per_tile = tile + np.where(hidden, 0.3 * stored, stored + 0.5 * FILL_CLOCKS)
        if self.roles.handed is not None:  # of each point, while other blocks multiply
            points = float(volume(self.program, self.roles.around))
            stored = points * blocks * stored
            per_tile = tile + stored + points * HAND_CLOCKS
        per_tile = per_tile + self._epilogue(columns, rows, wide)
        merging = self._merging(columns, rows, wide)
        clocks = np.maximum(rounds * per_tile, memory) + FILL_CLOCKS + merging
        return {
            "merging": merging / clocks,
            "waves": log_of(waves),
            "balance": np.minimum(waves / rounds, 1.0),
            "bound": log_of(macs / fetched),
            "memory": log_of(memory / np.maximum(rounds * tile, 1.0)),
            "store": log_of(stored / tile),
            "clocks": clocks,
            "traffic": np.maximum(rounds * (steps * fetched + stored), memory),
        }

    def _inside(self, columns: Columns) -> Array:
        """Bytes that the inner products of a chain sum for each point of a block: as many times
        more as their instructions wait for their rows, where groups make narrow parts each."""
        if not self.roles.inner:
            return np.zeros(columns.rows)
        axes = self.program.axes
        summed = sum(
            prod(axes[axis] for axis in one.over) * self._bytes_of(one) for one in self.roles.inner
        )
        own = array_of(self._depth(columns)) / array_of(self._makers(columns))
        read = (ROWS + own) * INSTRUCTION_BYTES / SHARED_BYTES_PER_CLOCK
        multiplied = ROWS * own / (MACS_PER_CLOCK / INSTRUCTION_BYTES)
        waits = np.maximum(read / multiplied, 1.0)
        return summed * np.where(self._consumers(columns, "columns") > 1, waits, 1.0)

    def _between(self, columns: Columns) -> Array:
        """Clocks of a block that groups that share columns do not multiply in: they meet, or wait
        for what another leaves them."""
        shared = self._consumers(columns, "columns") > 1
        if not self.roles.inner:
            return np.zeros(columns.rows)
        return array_of(shared) * np.where(self._apart(columns), CHAIN_CLOCKS / 2, CHAIN_CLOCKS)

    def _uneven(self, columns: Columns, tiles: Array, turns: Array) -> Array:
        """Turns in tiles of mean length, where main loops grow or shrink along the rows: those of
        the busiest block if each has every so many-th tile, hardly more than its share if whoever
        is done has the next. `tiles` are those that do not run beside others on a processor."""
        if not self.grows:
            return turns
        batches = prod(self.program.axes[axis] for axis in self.roles.batch)
        down, _ = self._cluster(columns)
        steps = -(-self._tile_count(columns, self.roles.rows[-1:]) // down)
        side = self._side_by_side(columns) * np.ones(columns.rows)
        stays = self._value(columns, "processors") > 0
        if self.name(drawing.NAME) in columns:
            stays = stays & columns.is_(self.name(drawing.NAME), drawing.STATIC)
        together = self._value(columns, DEAL) if self.name(DEAL) in columns else 0 * stays
        found = np.maximum(tiles / side, 2.0) + LAST_TILE
        for row in np.flatnonzero(stays):
            blocks = max(1, int(min(side[row], tiles[row])))
            others = max(1, round(tiles[row] / (batches * steps[row])))
            found[row] = busiest(int(steps[row]), others, batches, int(together[row]), blocks)
        return found

    @cached_property
    def _late_work(self) -> float:
        """Operations behind the products for each point of the outputs."""
        return self._work_behind(False) / volume(self.program, self._kept)

    @cached_property
    def _fold_work(self) -> float:
        """Operations of threads that fold products, for each that is multiplied and added."""
        inside = (axis for axis in self.roles.walked if axis not in self.roles.folded)
        points = volume(self.program, (*self._kept, *self.roles.folded))
        return self._work_behind(True) / points / volume(self.program, tuple(inside))

    def _work_behind(self, folded: bool) -> float:
        """Operations behind the products, at points of the folded axes or behind these."""
        along, work = {*self.roles.folded}, 0.0
        products = {product.position for product in self.roles.products}
        for position, node in enumerate(self.program.nodes):
            if folded and is_reduction(node) and position not in products:
                axes = (*node.axes, *reduced_axes(node))
                work += volume(self.program, axes) if along & {*axes} else 0
            if not isinstance(node.op, Map) or bool(along & {*node.axes}) != folded:
                continue
            if depends_on_reduction(self.program, position):
                work += FUNCTIONS[node.op.function].flops * volume(self.program, node.axes)
        return work

    @property
    def _kept(self) -> tuple[str, ...]:
        return (*self.roles.rows, *self.roles.columns, *self.roles.batch)

    def _epilogue(self, columns: Columns, rows: Array, wide: Array) -> Array:
        """Clocks from the last product of a tile to what is stored: arithmetic, and waits for
        memory. Where whole tiles go round, other products run meanwhile."""
        each = rows * wide / array_of(self._value(columns, "consumers")) / ROWS
        direct = self._is(columns, "epilogue", "direct")  # loads do not pass stores to memory
        times = each / np.where(direct, float(COLUMNS), LINE / self.size)
        times = times / (1.0 + late_columns(columns, self.name(late.NAME)))
        waits = times * (TRIP_CLOCKS if loaded_late(self.program) else 0.0)
        if self.roles.inner:
            return np.asarray(waits)
        work = self._late_work * rows * wide / LANES_PER_CLOCK
        return np.where(self._is(columns, "partition", "whole"), 0.0, work + waits)

    def _from_memory(self, columns: Columns, rows: Array, wide: Array, tiles: Array) -> Array:
        """Bytes from memory: operands again for every wave that L2 does not hold together. Tiles of
        different parts of a sum read nothing in common, and of each operand a part."""
        together, parts = np.minimum(tiles, float(self.hardware["sms"])), self.parts(columns)
        in_flight = np.maximum(together / parts, 1.0)  # of one part
        length = self._length() * together / in_flight / parts
        raster = np.abs(columns.lookup(self.name("raster"), _GROUPS))
        across = columns.lookup(self.name("raster"), _ACROSS)
        raster = np.where(
            across > 0, np.minimum(raster, in_flight / np.maximum(across, 1.0)), raster
        )
        deep = np.where(raster > 1, np.minimum(raster, in_flight), np.sqrt(in_flight))
        down, lines = self._grid_tiles(columns)
        deep = np.where(self._is(columns, "raster", "rows"), np.minimum(down, in_flight), deep)
        single = in_flight / np.minimum(lines, in_flight)
        deep = np.where(self._is(columns, "raster", "columns"), single, deep)
        operands = self._in_flight(columns, rows, wide, in_flight, deep)
        wave = operands * length
        fits = wave <= 0.7 * self.hardware["l2_bytes"]
        again = np.ceil(tiles / together) * wave
        least = float(self.moved)
        most = 8 * least if not self.roles.batch else 64 * least
        found = np.where(fits, np.minimum(again, 2 * least), np.minimum(again, most)) + least
        if self.roles.inner:  # the tiles of a batch go through its columns side by side
            down, _ = self._grid_tiles(columns)
            found = np.where(down <= in_flight, least, found)
        return np.asarray(found)

    def _grid_tiles(self, columns: Columns) -> tuple[Array, Array]:
        """Tiles along the rows and along the columns that the raster goes over."""
        (down, across), (rows, lines) = self._cluster(columns), self._cluster_tiles(columns)
        return array_of(rows) * down, array_of(lines) * across

    def _in_flight(
        self, columns: Columns, rows: Array, wide: Array, in_flight: Array, deep: Array
    ) -> Array:
        """Bytes of operands for a point of the sum, of tiles that run at a time: `deep` of them
        share columns, as far as a batch, or batches that share them, have so many."""
        if not self.roles.batch or self.roles.inner:
            return deep * rows * self._row_bytes + in_flight / deep * wide * self.size
        beside, along = self._beside_each_other(columns)
        batches = prod(self.program.axes[axis] for axis in self.roles.batch)
        shared = sharers(self.program, self.roles)
        down, across = self._grid_tiles(columns)
        down = np.where(beside & along, down * shared / batches, down)
        across = np.where(beside & ~along, across * shared / batches, across)
        deep = np.maximum(np.minimum(deep, down), 1.0)
        first = np.maximum(deep, in_flight / np.maximum(across, 1.0))
        return first * rows * self._row_bytes + in_flight / deep * wide * self.size


_GROUPS = {"rows4": 4, "rows8": 8, "rows16": 16, "hilbert": 12,
           "columns4": 4, "columns8": 8, "columns16": 16}  # fmt: skip
_GROUPS |= {name: rows for name, (rows, _) in PATCHES.items()}
_ACROSS = {name: across for name, (_, across) in PATCHES.items()}
_RASTERS = {"rows": 1, "rows4": 4, "rows8": 8, "rows16": 16, "hilbert": 12,
            "columns": -1, "columns4": -4, "columns8": -8, "columns16": -16}  # fmt: skip
_RASTERS |= {name: rows for name, (rows, _) in PATCHES.items()}


def raster_numbers(columns: Columns, name: str) -> Table:
    """Tiles down (negative where columns come first) and across of the groups of an order."""
    return {
        "raster": columns.lookup(name, _RASTERS),
        "raster.across": columns.lookup(name, _ACROSS),
    }


def array_of(values: Any) -> Array:
    return np.asarray(values, dtype=np.float64)


def log_of(values: Array) -> Array:
    """log2, with what is 0 far below everything."""
    return np.asarray(np.log2(np.maximum(values, 2.0**-20)), dtype=np.float64)
