"""Analytic costs of block kernels: traffic, what threads read by way of L1, arithmetic, and how
many of a processor's turns are taken. Estimates in closed form; the learned model corrects them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import gcd, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.ops.store import Store
from ir.space import Columns
from ir.stages import is_reduction, reduced_axes
from ir.target import Hardware
from ir.targets.cuda.build.products import depends_on_reduction
from ir.targets.cuda.build.readers import loaded_late
from ir.targets.cuda.cost.alive import alive
from ir.targets.cuda.cost.costs import (
    FILL_CLOCKS,
    LANES_PER_CLOCK,
    MEMORY_BYTES_PER_CLOCK,
    THREADS_PER_PROCESSOR,
    TRIP_CLOCKS,
    Table,
    array_of,
    log_of,
)
from ir.targets.cuda.grid.overlap import PREFETCH
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.space.block import BlockKernel
from ir.targets.cuda.space.block_clusters import cluster_of, is_spread
from ir.targets.cuda.space.block_options import (
    AHEAD,
    FIRST,
    KEEP,
    LOADS,
    PARTS,
    REGISTERS,
    STORES,
    STREAM,
    WAITS,
    WALKERS,
)
from ir.targets.cuda.space.block_rules import REGISTERS as ALL_REGISTERS
from ir.targets.cuda.space.block_rules import RESERVED, OptionRules
from ir.targets.cuda.space.gathers import SECTOR
from ir.targets.cuda.space.reads import Group
from ir.targets.cuda.text.passes import find_passes, needed

Array = NDArray[np.float64]

SHUFFLES_PER_CLOCK = 32.0
SPILT = 4.0  # times as long that it takes to issue what does not fit the registers
BUSY_WARPS = 12.0  # with which a processor issues what it can
ASKED_BYTES = 16.0  # that each of 1024 threads asks memory for, to have what it gives
NEAR_BYTES = 131072.0  # of what a block looks up, that stay near it
ACCESS = 4.0  # operations that an access of a thread comes to: its place, its condition
ALONE = 0.2  # of memory's time, that a processor of one block loses as it waits and stores
L2_SHARE = 0.35  # of the time that a byte takes from memory, of one that L2 has
L2_KEPT = 0.6  # of L2, of what blocks are at when none of it is left as they come again
# How much more operations in 64 bits take, and functions of floats, as one kernel on an H200.
WIDE = {"f64": 1.0, "i64": 3.0}
WIDE_FUNCTION = 9.0
PARTS_PER_CLOCK = 80.0  # of sectors, that L2 takes from all processors
AHEAD_CLOCKS = 400.0  # of a step of a walk whose loads run ahead
NEAR_CLOCKS = 150.0  # of a step whose loads the step before has brought near
BLOCK_CLOCKS = 280.0  # of starting and ending a block: row sums of 64 threads take 317 on an H200
MEETING_CLOCKS = 80.0  # of two barriers
CLUSTER_CLOCKS = 1200.0  # of a barrier of a cluster, what its blocks wait for and read: as measured
STREAM_GAIN, PREFETCH_LOSS = 0.04, 0.06  # shares of the traffic's time, as measured on an H200


@dataclass(frozen=True, slots=True)
class _Moved:
    """Loads that are alike, or a store, which is no group. `last`: the axis along which points lie
    nearest to each other, where several are in a sector, `step` elements apart; "" elsewhere.
    `size`: bytes of an element. `within`: the next axes of a store, of which neighbours are
    neighbours in memory where all of the one before is stored. `row`: elements of its tensor's
    rows, where there are several."""

    group: Group | None
    axes: tuple[str, ...]
    last: str
    step: int
    size: int
    within: tuple[str, ...] = ()
    row: int = 0


class BlockCosts:
    """Costs of one kernel on plain units."""

    def __init__(self, kernel: BlockKernel, hardware: Hardware) -> None:
        self.kernel, self.program, self.hardware = kernel, kernel.program, hardware

    def _sizes(self, columns: Columns, stem: str) -> dict[str, Array]:
        name = self.kernel.name
        return {axis: array_of(columns[name(f"{stem}.{axis}")]) for axis in self.program.axes}

    def table(self, columns: Columns) -> Table:
        """Features of the kernel, and under "clocks" and "traffic" estimates of its time."""
        tiles, own = self._sizes(columns, "tile"), self._sizes(columns, "own")
        axes, reduced = self.program.axes, self.kernel.shape.reduced
        threads = _product([tiles[a] / own[a] for a in axes], columns.rows)
        whole = _product([np.ceil(axes[a] / tiles[a]) for a in axes if a not in reduced],
                         columns.rows)  # fmt: skip
        steps = _product([np.ceil(axes[a] / tiles[a]) for a in reduced], columns.rows)
        held = self._registers(columns)
        blocks, trips = self._shares(columns, whole, steps)
        resident = self._resident(columns, threads, held)
        waves = blocks / resident / self.hardware["sms"]
        moved = self._moved(columns, tiles, own) + self._read_again(
            columns, tiles, blocks, resident
        )
        live = self._alive(tiles, own, columns.rows)
        asked = np.clip(self.kernel.reads.bytes(columns) / ASKED_BYTES, 1.0, 8.0)
        share = blocks / self.hardware["sms"]
        together = np.minimum(resident, np.ceil(share))  # blocks of a processor at a time
        asked = asked * self._asking(tiles)
        busy = np.minimum(together * threads * asked / 1024.0, 1.0)
        busy = busy * np.minimum(share / together, 1.0)
        traffic = moved / MEMORY_BYTES_PER_CLOCK / self.hardware["sms"] * self._hints(columns)
        work = self._work(tiles, own) + ACCESS * self._asked_for(columns, own)
        work = work / LANES_PER_CLOCK / self.hardware["sms"]
        shape = self.kernel.shape
        read = self.kernel.reads.clocks(columns, threads, shape.lanes, self._times(columns))
        read = read / self.hardware["sms"]
        met = self._met(columns, tiles, own, threads) / SHUFFLES_PER_CLOCK / self.hardware["sms"]
        chained = self._chain_clocks(own, threads)
        inside = np.maximum(np.maximum(work * live + met, read * live), self._parted(columns))
        rounds = np.ceil(waves) / np.maximum(waves, 1e-9)
        near = {*self.kernel.shape.reduced} <= self.kernel.reads.spanned
        late = NEAR_CLOCKS if near else TRIP_CLOCKS
        wait = np.where(self._option(columns, AHEAD, 0) > 0, AHEAD_CLOCKS, late)
        meeting = np.where(self._option(columns, PARTS, 1) > 1, FILL_CLOCKS, 0.0)
        meeting = meeting + np.ceil(waves) * self._across_blocks(columns)
        inside = inside * self._uneven(blocks, resident, threads) * self._spilt(held, threads)
        once = np.minimum(traffic, traffic * self.program.bytes / moved)
        gone = np.maximum(traffic * live, once) * self._alone(columns, together, trips)
        clocks = np.maximum(gone / np.clip(busy, 0.02, 1.0), inside)
        wait = wait + np.where(trips > 1, chained, 0.0)
        steps = np.ceil(waves) * np.maximum(trips * live, 1.0)
        clocks = np.maximum(clocks, np.maximum(steps * wait, share * BLOCK_CLOCKS))
        clocks = clocks + FILL_CLOCKS + meeting
        vector = array_of(columns[self.kernel.name("vector")])
        return {
            "threads": log_of(threads), "blocks": log_of(blocks), "trips": log_of(trips),
            "held": log_of(held), "resident": resident, "waves": log_of(waves),
            "balance": 1.0 / rounds, "vector": vector, "busy": busy,
            "moved": log_of(moved / self.program.bytes), "work": log_of(work / traffic),
            **self._roles(columns, tiles, own), **self._options(columns),
            "clocks": clocks, "traffic": traffic,
        }  # fmt: skip

    def _alive(self, tiles: dict[str, Array], own: dict[str, Array], rows: int) -> Array:
        """The share of what main loops go over that masks leave."""
        reduced = self.kernel.shape.reduced
        return _product([alive(self.program, a, tiles, own, rows) for a in reduced], rows)

    def _alone(self, columns: Columns, together: Array, trips: Array) -> Array:
        """How much longer memory takes where few blocks of a processor load, meet and store in
        turns, nothing beside them: those of one step, whose loads do not run ahead."""
        ahead = (self._option(columns, AHEAD, 0) > 0) & (self._option(columns, WALKERS, 0) > 0)
        return np.asarray(np.where((trips > 1) | ahead, 1.0, 1.0 + ALONE / together**2))

    def _asking(self, tiles: dict[str, Array]) -> Array:
        """The share of a tile's points along rows that are not behind their end."""
        lane = self.kernel.shape.lanes[0]
        extent = self.program.axes[lane]
        return np.asarray(extent / (np.ceil(extent / tiles[lane]) * tiles[lane]))

    def _parted(self, columns: Columns) -> Array:
        """Clocks in which L2 takes parts of sectors: of rows that do not begin at multiples of a
        vector, each of its elements is a store of its own."""
        vector = array_of(columns[self.kernel.name("vector")])
        total = np.zeros(columns.rows)
        for node in self.program.nodes:
            if isinstance(node.op, Store) and node.op.axes:
                lengths = [self.program.axes[axis] for axis in node.op.axes]
                whole = np.gcd(vector.astype(np.int64), lengths[-1] if len(lengths) > 1 else 1 << 7)
                sectors = prod(lengths) * dtype_of(node.dtype).bytes / SECTOR
                total = total + np.where(vector > whole, sectors * vector / whole, 0.0)
        return np.asarray(total / PARTS_PER_CLOCK)

    def _uneven(self, blocks: Array, resident: Array, threads: Array) -> Array:
        """How much longer processors take for what they issue than if all had their share of it,
        and warps enough for their turns."""
        share = blocks / self.hardware["sms"]
        together = np.minimum(resident, np.ceil(share))
        rounds = np.ceil(share / together) * together / share
        return np.asarray(rounds * np.maximum(BUSY_WARPS * WARP / (together * threads), 1.0))

    def _spilt(self, held: Array, threads: Array) -> Array:
        """How much longer what is issued takes where values do not fit the registers."""
        room = np.minimum(ALL_REGISTERS / threads, 255.0)
        return np.asarray(np.where(held + 24.0 > room, SPILT * (held + 24.0) / room, 1.0))

    def _met(
        self, columns: Columns, tiles: dict[str, Array], own: dict[str, Array], threads: Array
    ) -> Array:
        """Values that lanes give each other where threads share what is reduced."""
        total = np.zeros(columns.rows)
        for node in self.program.nodes:
            if not is_reduction(node):
                continue
            turns = [np.log2(tiles[a] / own[a]) for a in reduced_axes(node)]
            warps = np.ceil(
                _product([tiles[a] / own[a] for a in reduced_axes(node)], columns.rows) / WARP
            )
            count = (sum(turns, np.zeros(columns.rows)) + np.where(warps > 1, warps, 0.0)) * threads
            for axis, extent in self.program.axes.items():
                if axis in node.axes:
                    count = count * np.ceil(extent / tiles[axis]) * own[axis]
                elif axis not in self.kernel.shape.reduced:
                    count = count * np.ceil(extent / tiles[axis])
            total = total + count
        return total

    def _chain_clocks(self, own: dict[str, Array], threads: Array) -> Array:
        """Of a step, in which reductions that depend on each other are known to all threads: warps
        write what they have to shared memory, and read what all have."""
        warps, nodes = np.ceil(threads / WARP), self.program.nodes
        total = np.zeros_like(threads)
        over = {n: {*reduced_axes(node)} for n, node in enumerate(nodes) if is_reduction(node)}
        before = {n: {b for a in nodes[n].args for b in depends_on_reduction(self.program, a)}
                  for n in over}  # fmt: skip
        for n, axes in over.items():
            others = before[n] | {m for m in over if n in before[m]}
            if any(axes & over[m] for m in others):
                kept = _product([own[axis] for axis in nodes[n].axes], len(threads))
                total = total + np.where(warps > 1, MEETING_CLOCKS + kept * warps * warps, 0.0)
        return total

    def _across_blocks(self, columns: Columns) -> Array:
        """Clocks in which the blocks of a cluster know what all have, sum after sum."""
        found = np.zeros(columns.rows)
        for axis in self.kernel.spread:
            sums = [n for n in self.program.nodes if is_reduction(n) and axis in reduced_axes(n)]
            here = array_of(is_spread(self.kernel, columns, axis))
            found = found + here * CLUSTER_CLOCKS * (1 + len(sums))
        return found

    def _option(self, columns: Columns, stem: str, otherwise: int) -> Array:
        """Values of a choice that this kernel may lack."""
        name = self.kernel.name(stem)
        return array_of(columns[name]) if name in columns else np.full(columns.rows, otherwise)

    def _options(self, columns: Columns) -> Table:
        """What is held, and when memory is asked for what; `block_options` says which is which."""
        numbers = {WALKERS: 0, AHEAD: 0, PARTS: 1, PREFETCH: 0}
        found = {stem: self._option(columns, stem, first) for stem, first in numbers.items()}
        for stem, value in ((LOADS, FIRST), (STORES, STREAM), (WAITS, REGISTERS)):
            name = self.kernel.name(stem)
            chosen = columns.is_(name, value) if name in columns else np.zeros(columns.rows)
            found[f"{stem}.{value}"] = array_of(chosen)
        spread = array_of(cluster_of(self.kernel, columns))
        return found | {KEEP: self._option(columns, KEEP, 0), "spread": np.log2(spread)}

    def _shares(self, columns: Columns, tiles: Array, steps: Array) -> tuple[Array, Array]:
        """Blocks, and the steps that each of them goes through."""
        walkers, parts = self._option(columns, WALKERS, 0), self._option(columns, PARTS, 1)
        parts = parts * array_of(cluster_of(self.kernel, columns))
        blocks = np.where(walkers > 0, walkers * self.hardware["sms"], tiles * parts)
        return blocks, np.ceil(tiles * parts / blocks) * np.ceil(steps / parts)

    @cached_property
    def _rules(self) -> OptionRules:
        return OptionRules(self.kernel)

    def _resident(self, columns: Columns, threads: Array, held: Array) -> Array:
        """Blocks of a processor at a time: its threads, registers, shared memory, or as chosen."""
        shared = self._rules.bytes(columns) + RESERVED
        room = self.hardware["shared_bytes"] + RESERVED
        found = np.minimum(THREADS_PER_PROCESSOR / threads, 65536 / (threads * (held + 32)))
        found = np.clip(np.floor(np.minimum(found, room / shared)), 1.0, 32.0)
        walkers = self._option(columns, WALKERS, 0)
        return np.asarray(np.where(walkers > 0, walkers, found))

    def _hints(self, columns: Columns) -> Array:
        """What the hints of memory accesses make of their time."""
        name = self.kernel.name(STORES)
        streams = columns.is_(name, STREAM) if name in columns else np.zeros(columns.rows)
        asks = (self._option(columns, PREFETCH, 0) > 0) & (self._option(columns, AHEAD, 0) == 0)
        return np.asarray(1.0 - STREAM_GAIN * streams + PREFETCH_LOSS * asks)

    def _registers(self, columns: Columns) -> Array:
        """Registers of the values that a thread holds: of loads that are alike all that they
        read."""
        found = array_of(self.kernel.held(columns))
        known = set[frozenset[str]]()
        name = self.kernel.name(LOADS)
        first = columns.is_(name, FIRST) if name in columns else np.zeros(columns.rows, dtype=bool)
        for group in self.kernel.reads.groups:
            own = array_of(self.kernel.count(columns, group.axes))
            elements = self.kernel.reads.elements(columns, group)
            more = np.maximum(elements - own, 0.0)
            if frozenset(group.axes) in known:
                more = np.where(first | (group.tensor not in self._late), elements, more)
            known.add(frozenset(group.axes))
            found = found + more
        return found

    @cached_property
    def _late(self) -> frozenset[str]:
        """Tensors that no reduction waits for."""
        nodes = self.program.nodes
        loads = (nodes[position].op for position in loaded_late(self.program))
        return frozenset(op.tensor for op in loads if isinstance(op, Load))

    @cached_property
    def _accesses(self) -> tuple[_Moved, ...]:
        """Of every load and store; the axis of whose points the nearest lie in one sector."""
        found: list[_Moved] = []
        for group in self.kernel.reads.groups:
            size = dtype_of(group.first.dtype).bytes
            steps = [(abs(c), a) for d in group.first.dimensions[-1:] for a, c in d.terms]
            step, last = min(steps, key=lambda one: one[0], default=(int(SECTOR), ""))
            places = {access.dimensions[-1].constant % step for access in group.accesses
                      if access.dimensions and group.first.plain}  # fmt: skip
            near = step * size < SECTOR or 2 * len(places) > step
            shape = self.program.scope.tensors[group.tensor].shape
            row = shape[-1] if prod(shape[:-1]) > 1 else 0
            found.append(_Moved(group, group.axes, last if near else "", step, size, (), row))
        for node in self.program.nodes:
            if isinstance(node.op, Store):
                size = dtype_of(node.dtype).bytes
                axes = node.op.axes
                last, within = "".join(axes[-1:]), tuple(reversed(axes[:-1]))
                row = self.program.axes[last] if within else 0
                found.append(_Moved(None, node.axes, last, 1, size, within, row))
        return tuple(found)

    def _moved(self, columns: Columns, tiles: dict[str, Array], own: dict[str, Array]) -> Array:
        """Bytes of the sectors that all blocks touch; what strides wastes the rest of a sector."""
        axes = self.program.axes
        total = np.zeros(columns.rows)
        known = set[str]()  # tensors that are read at computed indices
        for one in self._accesses:
            again = _product([np.ceil(axes[a] / tiles[a]) for a in axes if a not in one.axes],
                             columns.rows)  # fmt: skip
            if one.group is not None and one.group.apart:
                here = self._computed(columns, one.group, tiles, own, one.group.tensor in known)
                total = total + here * np.minimum(again, 64.0)
                known.add(one.group.tensor)
                continue
            volume = np.full(columns.rows, float(prod(axes[a] for a in one.axes)) * one.size)
            if one.group is not None:
                volume = self._touched(one.group, tiles, volume / one.size) * one.size
            run = np.ones(columns.rows)
            if one.last:
                along = self._side_by_side(columns, one.last, tiles, own)
                run = one.step * np.where(along, tiles[one.last], own[one.last])
                run = np.maximum(run, self._stored_run(one, tiles))
            waste = np.clip(SECTOR / np.maximum(run * one.size, 1.0), 1.0, SECTOR / one.size)
            waste = waste * self._beside_sectors(columns, one)
            total = total + volume * waste * np.minimum(again, 64.0)
        return total

    def _beside_sectors(self, columns: Columns, one: _Moved) -> Array:
        """How many more sectors the accesses of a warp touch where rows begin anywhere in one: it
        has the ends of one more each time."""
        row = one.row * one.size
        lanes = columns.is_(self.kernel.name("lanes"), one.last) if one.last else False
        vector = np.gcd(columns[self.kernel.name("vector")], max(one.row, 1))
        more = SECTOR / (WARP * vector * one.size)
        return np.asarray(np.where((row % SECTOR > 0) & lanes, 1.0 + more, 1.0))

    def _asked_for(self, columns: Columns, own: dict[str, Array]) -> Array:
        """Accesses of threads: of vectors where neighbours lie in one thread."""
        total, axes = np.zeros(columns.rows), self.program.axes
        vector = columns[self.kernel.name("vector")]
        for one in self._accesses:
            width: Any = 1
            if one.last and one.step == 1:
                lanes = columns.is_(self.kernel.name("lanes"), one.last)
                most = gcd(one.row or self.kernel.widest, self.kernel.widest)
                width = np.gcd(np.where(lanes, vector, own[one.last].astype(np.int64)), most)
            total = total + prod(axes[a] for a in one.axes) / width
        return np.asarray(total, dtype=np.float64)

    def _stored_run(self, one: _Moved, tiles: dict[str, Array]) -> Array:
        """Elements of a store that lie behind one another, of tiles that have all of its last
        axes."""
        axes, run = self.program.axes, np.ones(len(tiles[one.last]))
        whole = np.full(len(run), bool(one.within))
        for before, axis in pairwise((one.last, *one.within)):
            whole = whole & (tiles[before] >= axes[before])
            here = np.minimum(tiles[axis], axes[axis])
            run = np.where(whole, np.maximum(run, axes[before]) * here, run)
        return run

    def _side_by_side(
        self, columns: Columns, axis: str, tiles: dict[str, Array], own: dict[str, Array]
    ) -> NDArray[np.bool_]:
        """Whether neighbours of a warp lie along an axis: the lanes', or the one in a tile of which
        there are several where those have one point."""
        lanes, found = self.kernel.name("lanes"), np.zeros(columns.rows, dtype=bool)
        for lane in self.kernel.shape.lanes:
            others = (tiles[a] > own[a] for a in self.program.axes if a not in (lane, axis))
            alone = ~np.logical_or.reduce([tiles[lane] > own[lane], *others])
            found = found | (columns.is_(lanes, lane) & ((lane == axis) | alone))
        return np.asarray(found, dtype=np.bool_)

    def _computed(
        self, columns: Columns, group: Group, tiles: dict[str, Array], own: dict[str, Array],
        known: bool,
    ) -> Array:  # fmt: skip
        """Bytes of loads at indices that are computed of coordinates: of a tensor that is not
        known yet all that it has once, what else is touched of L2."""
        size, apart = dtype_of(group.first.dtype).bytes, group.apart or {}
        last = min(apart, key=lambda axis: apart[axis] or SECTOR)
        step = apart[last] or size
        along = self._side_by_side(columns, last, tiles, own)
        beside = np.where(along, tiles[last], own[last])
        each = np.clip(SECTOR / beside, step, SECTOR)  # of a point, in a row of those beside it
        points = float(prod(self.program.axes[axis] for axis in group.axes))
        touched = points * group.times * each
        once = size * float(prod(d.extent for d in group.first.dimensions))
        first = 0.0 if known else np.minimum(touched, once)
        return np.asarray(first + L2_SHARE * (touched - first))

    def _read_again(
        self, columns: Columns, tiles: dict[str, Array], blocks: Array, resident: Array
    ) -> Array:
        """Bytes of what later passes over walked axes read again, which are a part of one where L2
        has what all blocks are at."""
        axes, total = self.program.axes, np.zeros(columns.rows)
        under_way = np.minimum(blocks, resident * self.hardware["sms"])
        for looped, times in self._passes.items():
            once, held = np.zeros(columns.rows), np.zeros(columns.rows)
            for group in self.kernel.reads.groups:
                again = times.get(group.tensor, 1) - 1
                if again > 0 and looped & {*group.axes}:
                    size = dtype_of(group.first.dtype).bytes
                    once += again * size * prod(axes[a] for a in group.axes)
                    own = [array_of(axes[a]) if a in looped else tiles[a] for a in group.axes]
                    held += size * _product(own, columns.rows)
            gone = held * under_way / (L2_KEPT * self.hardware["l2_bytes"])
            share = L2_SHARE + (1.0 - L2_SHARE) * np.minimum(gone, 1.0)
            total += np.where(self._walked(columns, looped), once * share, 0.0)
        return total

    def _walked(self, columns: Columns, looped: frozenset[str]) -> NDArray[np.bool_]:
        """Whether these of the reduced axes are walked."""
        reduced = self.kernel.shape.reduced
        found = [self.kernel.short(columns, a) == (a in looped) for a in reduced]
        return np.asarray(np.logical_and.reduce(found), dtype=np.bool_)

    def _times(self, columns: Columns) -> dict[str, Array]:
        """In how many passes tensors are read, where it may be several."""
        found: dict[str, Array] = {}
        for looped, times in self._passes.items():
            here = self._walked(columns, looped)
            for tensor, count in times.items():
                known = found.get(tensor, np.ones(len(here)))
                found[tensor] = np.where(here, float(count), known)
        return found

    @cached_property
    def _passes(self) -> dict[frozenset[str], dict[str, int]]:
        """Of axes that may be walked together: in how many passes each tensor is read."""
        found: dict[frozenset[str], dict[str, int]] = {}
        for looped in self.kernel.shape.loops:
            program = self.kernel.shape.streamed(looped)
            behind = frozenset(n for n, node in enumerate(program.nodes) if is_reduction(node))
            times: dict[str, int] = {}
            for one in find_passes(program, looped).passes:
                nodes = needed(program, (*one.reductions, *one.stores), behind)
                read = {op.tensor for n in nodes if isinstance(op := program.nodes[n].op, Load)}
                for tensor in read:
                    times[tensor] = times.get(tensor, 0) + 1
            if max(times.values(), default=1) > 1:
                found[looped] = times
        return found

    def _touched(self, group: Group, tiles: dict[str, Array], points: Array) -> Array:
        """Elements of a tensor that all blocks touch, those that a neighbour has in L2 as a part of
        one; of its loads' points, if what they read does not overlap."""
        once, all_of_them = np.ones(len(points)), np.ones(len(points))
        if not group.first.plain:
            return np.minimum(points * group.times, self._looked_up(group, tiles))
        axes, reduced = self.program.axes, self.kernel.shape.reduced
        for number, d in enumerate(group.first.dimensions):
            constants = [access.dimensions[number].constant for access in group.accesses]
            spread = max(constants) - min(constants) + 1
            here, whole = np.full(len(points), float(spread)), spread
            for axis, c in d.terms:
                long = axes[axis] if axis in reduced else np.minimum(tiles[axis], axes[axis])
                here = here + abs(c) * (long - 1)
                whole += abs(c) * (axes[axis] - 1)
            once = once * min(whole, d.extent)
            all_of_them = all_of_them * np.minimum(here, d.extent)
        for axis in group.axes:
            if axis not in reduced:
                all_of_them = all_of_them * np.ceil(axes[axis] / tiles[axis])
        most = points * len(group.accesses)
        beside = np.maximum(np.minimum(all_of_them, most) - once, 0.0)
        return np.asarray(np.minimum(once, most) + L2_SHARE * beside)

    def _looked_up(self, group: Group, tiles: dict[str, Array]) -> Array:
        """The same of indices that are data, where what a tile may look up fits L1, which the next
        tiles find there: all that there is, by each processor."""
        axes, size = self.program.axes, dtype_of(group.first.dtype).bytes
        found, here = np.ones(len(tiles[group.axes[0]]) if group.axes else 1), 1.0
        for d in group.first.dimensions:
            here = here * (d.extent if d.gather is not None else 1)
            for axis, _ in d.terms if d.gather is None else ():
                found = found * np.minimum(tiles[axis], axes[axis])
        near = found * here * size <= NEAR_BYTES
        whole = float(prod(d.extent for d in group.first.dimensions)) * self.hardware["sms"]
        return np.asarray(np.where(near, whole * size / SECTOR, np.inf))

    def _work(self, tiles: dict[str, Array], own: dict[str, Array]) -> Array:
        """Operations, those on padding included, which compilers leave out of an axis that lies
        whole in one thread."""
        padding = [
            np.where(own[a] >= np.maximum(tiles[a], e), 1.0, np.ceil(e / tiles[a]) * tiles[a] / e)
            for a, e in self.program.axes.items()
        ]
        return np.asarray(self._issued * _product(padding, len(padding[0])))

    @cached_property
    def _issued(self) -> float:
        """Operations at the rate of those in 32 bits: wide ones have half of it or less, and wide
        functions are series of many."""
        program, total = self.program, float(self.program.flops)
        for node in program.nodes:
            if node.dtype not in WIDE:
                continue
            types = [program.nodes[arg].type for arg in node.args]
            flops = node.op.flops(types, node.type, program.scope)
            points = max(1, prod(program.axes[axis] for axis in node.axes))
            function = node.dtype == "f64" and flops > points and not is_reduction(node)
            total += flops * (WIDE_FUNCTION if function else WIDE[node.dtype])
        return total

    def _roles(self, columns: Columns, tiles: dict[str, Array], own: dict[str, Array]) -> Table:
        """Tiles and shares of the axis that neighbours lie along, and of the reduced axes."""
        lane_tile, lane_own = np.ones(columns.rows), np.ones(columns.rows)
        for axis in self.kernel.shape.lanes:
            here = columns.is_(self.kernel.name("lanes"), axis)
            lane_tile = np.where(here, tiles[axis], lane_tile)
            lane_own = np.where(here, own[axis], lane_own)
        reduced = self.kernel.shape.reduced
        return {
            "lane.tile": log_of(lane_tile), "lane.own": log_of(lane_own),
            "reduced.tile": log_of(_product([tiles[a] for a in reduced], columns.rows)),
            "reduced.own": log_of(_product([own[a] for a in reduced], columns.rows)),
        }  # fmt: skip


def _product(factors: list[Array], rows: int) -> Array:
    return np.asarray(prod(factors, start=np.ones(rows)), dtype=np.float64)
