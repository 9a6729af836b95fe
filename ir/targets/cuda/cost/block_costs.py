"""Analytic costs of block kernels: traffic, what threads read by way of L1, arithmetic, and how
many of a processor's turns are taken. Estimates in closed form; the learned model corrects them.
"""

from __future__ import annotations

from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from ir.ops.load import Load
from ir.space import Columns
from ir.stages import is_reduction, reduced_axes
from ir.target import Hardware
from ir.targets.cuda.build.products import depends_on_reduction
from ir.targets.cuda.build.readers import loaded_late
from ir.targets.cuda.cost.alive import alive
from ir.targets.cuda.cost.block_traffic import BlockTraffic, product_of
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

Array = NDArray[np.float64]

SHUFFLES_PER_CLOCK = 32.0
SPILT = 4.0  # times as long that it takes to issue what does not fit the registers
BUSY_WARPS = 12.0  # with which a processor issues what it can
ASKED_BYTES = 16.0  # that each of 1024 threads asks memory for, to have what it gives
ACCESS = 4.0  # operations that an access of a thread comes to: its place, its condition
IN_CLUSTERS = 0.6  # the same of blocks that wait for each other
ALONE = 0.2  # of memory's time, that a processor of one block loses as it waits and stores
# How much more operations in 64 bits take, and functions of floats, as one kernel on an H200.
WIDE = {"f64": 1.0, "i64": 3.0}
WIDE_FUNCTION = 9.0
AHEAD_CLOCKS = 400.0  # of a step of a walk whose loads run ahead
NEAR_CLOCKS = 150.0  # of a step whose loads the step before has brought near
BLOCK_CLOCKS = 280.0  # of starting and ending a block: row sums of 64 threads take 317 on an H200
MEETING_CLOCKS = 80.0  # of two barriers
CLUSTER_CLOCKS = 1200.0  # of a barrier of a cluster, what its blocks wait for and read: as measured
STREAM_GAIN, PREFETCH_LOSS = 0.04, 0.06  # shares of the traffic's time, as measured on an H200


class BlockCosts:
    """Costs of one kernel on plain units."""

    def __init__(self, kernel: BlockKernel, hardware: Hardware) -> None:
        self.kernel, self.program, self.hardware = kernel, kernel.program, hardware
        self.traffic = BlockTraffic(kernel, hardware)

    def _sizes(self, columns: Columns, stem: str) -> dict[str, Array]:
        name = self.kernel.name
        return {axis: array_of(columns[name(f"{stem}.{axis}")]) for axis in self.program.axes}

    def table(self, columns: Columns) -> Table:
        """Features of the kernel, and under "clocks" and "traffic" estimates of its time."""
        tiles, own = self._sizes(columns, "tile"), self._sizes(columns, "own")
        axes, reduced = self.program.axes, self.kernel.shape.reduced
        threads = product_of([tiles[a] / own[a] for a in axes], columns.rows)
        whole = product_of([np.ceil(axes[a] / tiles[a]) for a in axes if a not in reduced],
                         columns.rows)  # fmt: skip
        steps = product_of([np.ceil(axes[a] / tiles[a]) for a in reduced], columns.rows)
        held = self._registers(columns)
        blocks, trips = self._shares(columns, whole, steps)
        resident = self._resident(columns, threads, held)
        waves = blocks / resident / self.hardware["sms"]
        moved = self.traffic.moved(columns, tiles, own) + self.traffic.read_again(
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
        work = self._work(tiles, own) + ACCESS * self.traffic.asked_for(columns, own)
        work = work / LANES_PER_CLOCK / self.hardware["sms"]
        shape = self.kernel.shape
        read = self.kernel.reads.clocks(columns, threads, shape.lanes, self.traffic.times(columns))
        read = read / self.hardware["sms"]
        met = self._met(columns, tiles, own, threads) / SHUFFLES_PER_CLOCK / self.hardware["sms"]
        chained = self._chain_clocks(own, threads)
        inside = np.maximum(
            np.maximum(work * live + met, read * live), self.traffic.parted(columns)
        )
        rounds = np.ceil(waves) / np.maximum(waves, 1e-9)
        near = {*self.kernel.shape.reduced} <= self.kernel.reads.spanned
        late = NEAR_CLOCKS if near else TRIP_CLOCKS
        wait = np.where(self._option(columns, AHEAD, 0) > 0, AHEAD_CLOCKS, late)
        meeting = np.where(self._option(columns, PARTS, 1) > 1, FILL_CLOCKS, 0.0)
        meeting = meeting + np.ceil(waves) * self._across_blocks(columns)
        inside = inside * self._uneven(blocks, resident, threads) * self._spilt(held, threads)
        once = np.minimum(traffic, traffic * self.program.bytes / moved)
        gone = np.maximum(traffic * live, once) * self._alone(columns, together, trips, chained)
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
        return product_of([alive(self.program, a, tiles, own, rows) for a in reduced], rows)

    def _alone(self, columns: Columns, together: Array, trips: Array, chained: Array) -> Array:
        """How much longer memory takes where few blocks of a processor load, meet and store in
        turns, nothing beside them: those whose loads do not run ahead, of one step or such as meet
        in every one."""
        ahead = (self._option(columns, AHEAD, 0) > 0) & (self._option(columns, WALKERS, 0) > 0)
        apart = ahead | ((trips > 1) & (chained == 0.0))
        idle = np.where(cluster_of(self.kernel, columns) > 1, IN_CLUSTERS, ALONE)
        return np.asarray(np.where(apart, 1.0, 1.0 + idle / together**2))

    def _asking(self, tiles: dict[str, Array]) -> Array:
        """The share of a tile's points along rows that are not behind their end."""
        lane = self.kernel.shape.lanes[0]
        extent = self.program.axes[lane]
        return np.asarray(extent / (np.ceil(extent / tiles[lane]) * tiles[lane]))

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
                product_of([tiles[a] / own[a] for a in reduced_axes(node)], columns.rows) / WARP
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
                kept = product_of([own[axis] for axis in nodes[n].axes], len(threads))
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

    def _work(self, tiles: dict[str, Array], own: dict[str, Array]) -> Array:
        """Operations, those on padding included, which compilers leave out of an axis that lies
        whole in one thread."""
        padding = [
            np.where(own[a] >= np.maximum(tiles[a], e), 1.0, np.ceil(e / tiles[a]) * tiles[a] / e)
            for a, e in self.program.axes.items()
        ]
        return np.asarray(self._issued * product_of(padding, len(padding[0])))

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
            "reduced.tile": log_of(product_of([tiles[a] for a in reduced], columns.rows)),
            "reduced.own": log_of(product_of([own[a] for a in reduced], columns.rows)),
        }  # fmt: skip
