"""Analytic costs of one stage under many schedules: cycles of arithmetic, bytes into each cache,
packing, state, threads. Estimates in closed form; the learned model corrects them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from ir.rewrite.domain import live_range
from ir.rewrite.lengths import lengths_of
from ir.stages import StagedProgram
from ir.target import Hardware
from ir.targets.cpu.crowding import crowding
from ir.targets.cpu.instructions import DotRow, VectorRow
from ir.targets.cpu.operands import Operand, map_work, operands_of
from ir.targets.cpu.plan import main_reduction
from ir.targets.cpu.regions import Array, Regions, Sizes, product, traffic
from ir.targets.cpu.shape import StageShape
from ir.targets.cpu.sharing import Walk
from ir.targets.cpu.tiles import Tiles, cut, tiles_along

LATENCY = 4.0  # cycles from one multiply-add to the next on the same register
PORTS = 2.0  # vector operations, and loads, that start in one cycle
TILE_OVERHEAD = 12.0  # cycles to enter and leave a register tile
GATHER = 12.0  # cycles of a vector whose lanes lie apart
BYTES_PER_CYCLE = {"l1": 48.0, "l2": 24.0, "l3": 8.0}  # from the next level, one core
BARRIER = 2000.0  # cycles in which threads meet
MOST_L3 = 64 << 20  # what one job may expect of a shared last-level cache


@dataclass(frozen=True)
class StageFacts:
    """What of a stage no schedule changes."""

    staged: StagedProgram
    shape: StageShape
    hardware: Hardware
    vector: VectorRow

    @property
    def name(self) -> str:
        return self.shape.stage.name

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        return operands_of(self.staged, self.shape.stage)

    @cached_property
    def maps(self) -> float:
        """Elementwise operations over the whole domain."""
        return map_work(self.staged, self.shape.stage)

    @cached_property
    def points(self) -> float:
        extents = self.staged.program.axes
        return float(prod(extents[axis] for axis in self.shape.stage.domain))

    @cached_property
    def main(self) -> str:
        """The reduced axis that runs innermost."""
        return main_reduction(self.staged, self.shape.stage)

    @cached_property
    def weight(self) -> float:
        """Work by which stages are ranked: a multiply-add counts two."""
        products = sum(len(a.terms) for a in self.shape.stage.accumulators)
        return self.points * products + self.maps

    def rate(self, dot: DotRow) -> float:
        """Multiply-adds of one core in one cycle."""
        if dot.kind == "tile":
            return dot.tile * self.vector.lanes * 64 / dot.element / 16
        return PORTS * self.vector.lanes * dot.depth

    @cached_property
    def ideal(self) -> float:
        """Cycles of one core, every unit of the stage's best instruction busy."""
        rate = max(self.rate(dot) for dot in self.shape.instructions)
        count = max(1, len(self.shape.stage.accumulators))
        arithmetic = self.points * count / rate if self.shape.product else 0.0
        return arithmetic + self.maps / (PORTS * self.vector.lanes)


class StageCosts:
    """Costs of one stage for the schedules of `regions`. Arrays have one entry for each."""

    def __init__(self, facts: StageFacts, regions: Regions) -> None:
        self.facts, self.regions = facts, regions
        self.stage, self.shape = facts.shape.stage, facts.shape
        self.rows_count = regions.columns.rows
        self.domain = self.stage.domain

    def number(self, stem: str, default: float = 1.0) -> Array:
        return self.regions.number(f"{stem}.{self.facts.name}", default)

    def along(self, stem: str, axis: str) -> Array:
        """1 where the lane (or row) axis is this one."""
        return self.regions.flag(f"{stem}.{self.facts.name}", axis)

    # -- the register tile

    @cached_property
    def instruction(self) -> dict[str, Array]:
        """Facts of the chosen instruction: rate, depth, whether it multiplies tiles, and whether it
        sums the lanes beside."""
        name = f"instruction.{self.facts.name}"
        found = {}
        for what, table in (
            ("rate", {dot.name: self.facts.rate(dot) for dot in self.shape.instructions}),
            ("depth", {dot.name: float(dot.depth) for dot in self.shape.instructions}),
            ("tiled", {dot.name: float(dot.kind == "tile") for dot in self.shape.instructions}),
            ("moved", {dot.name: float(dot.moved) for dot in self.shape.instructions}),
        ):
            default = float(table[self.shape.instructions[0].name])
            if name in self.regions.names:
                found[what] = self.regions.columns.lookup(name, table)
            else:
                found[what] = np.full(self.rows_count, default)
        return found

    @cached_property
    def lane_step(self) -> Array:
        return self.number("vectors") * self.facts.vector.lanes

    @cached_property
    def rows(self) -> Array:
        """Rows of the register tile; one where no axis gives it rows."""
        return np.where(self.along("row", "") > 0, 1.0, self.number("rows"))

    @cached_property
    def row_step(self) -> Array:
        return self.rows * np.where(self.instruction["tiled"] > 0, 16.0, 1.0)

    @cached_property
    def folded(self) -> Array:
        """1 where lanes run over a reduced axis."""
        found = [self.along("lane", a) for a in self.shape.lanes if a in self.stage.reduce]
        return np.asarray(sum(found, np.zeros(self.rows_count)))

    @cached_property
    def depths(self) -> tuple[Sizes, ...]:
        """Sizes at every depth of the loops, then inside the loops over register tiles."""
        loops = self.regions.depths
        block = {axis: loops[-1][axis] for axis in self.domain}
        outer_first = self.regions.flag(f"micro.{self.facts.name}", "lanes")
        single, first, last = dict(block), dict(block), dict(block)
        for axis in self.stage.parallel:
            lane, row = self.along("lane", axis), self.along("row", axis)
            step = lane * self.lane_step + row * self.row_step + (1 - lane - row)
            last[axis] = np.minimum(block[axis], np.maximum(step, 1.0))
            single[axis] = np.where(lane + row > 0, block[axis], 1.0)
            leads = np.where(outer_first > 0, row, lane) > 0
            first[axis] = np.where(leads, last[axis], single[axis])
        return (*loops, single, first, last)

    @cached_property
    def trips(self) -> tuple[Array, ...]:
        """How often a region of each depth runs."""
        whole = self.depths[0]
        return tuple(
            product([np.ceil(whole[a] / sizes[a]) for a in self.domain], self.rows_count)
            for sizes in self.depths
        )

    def parts(self) -> Array:
        """Parts of the stage's domain that run side by side, each as `depths` says."""
        found = [self.regions.parts[a] for a in self.domain if a in self.regions.parts]
        return product(found, self.rows_count)

    # -- arithmetic

    def passes(self) -> Array:
        """Blocks of the reduced axes, each of which loads and stores the state."""
        sizes, whole = self.depths[-1], self.depths[0]
        found = [np.ceil(whole[a] / sizes[a]) for a in self.stage.reduce]
        return product(found, self.rows_count)

    def arithmetic(self) -> dict[str, Array]:
        """Cycles in register tiles, and what slows them."""
        rows, vectors = self.rows, self.number("vectors")
        count = float(max(1, len(self.stage.accumulators)))
        sizes, lanes = self.depths[-1], float(self.facts.vector.lanes)
        steps = product([sizes[a] for a in self.stage.reduce], self.rows_count)
        steps = np.ceil(steps / np.where(self.folded > 0, self.lane_step, self._depth_step()))
        tiled = self.instruction["tiled"] > 0
        waits = np.where(tiled, 0.0, LATENCY if self.stage.reduce else 0.0)
        down, across = self._along_rows(), self._along_lanes()
        cycles, entered = np.zeros(self.rows_count), np.zeros(self.rows_count)
        for tall, tiles_down in zip((rows, down.tail), (down.full, down.tails), strict=True):
            for wide, tiles_across in zip(
                (vectors, np.ceil(across.tail / lanes)), (across.full, across.tails), strict=True
            ):
                tiles = tiles_down * tiles_across
                bound = np.maximum(self._bound(tall, wide, count), waits)
                cycles = cycles + tiles * bound
                entered = entered + tiles * (TILE_OVERHEAD + 2 * count * tall * wide)
        alone = self._points_apart() * self.passes()
        cycles = cycles * self._steps() * self._points_apart() * self._gone_over
        maps = self.facts.maps / (PORTS * lanes) * self._scalar_penalty()
        loads = np.where(self.folded > 0, rows * vectors, rows + vectors) / PORTS
        per_step = count * rows * vectors * self._macs_of_vector() / self.instruction["rate"]
        return {
            "cycles": cycles + maps,
            "entered": entered * alone,
            "chains": count * rows * vectors,
            "loads": loads / np.maximum(per_step, 1e-6),
            "steps": steps,
            "full": self._full(),
            "down": down.filled,
            "across": across.filled,
            "waits": waits / np.maximum(self._bound(rows, vectors, count), 1e-6),
        }

    def _bound(self, rows: Array, vectors: Array, count: float) -> Array:
        """Cycles of one step of a register tile: multiply-adds, or loads."""
        beside = self.regions.flag(f"micro.{self.facts.name}", "lanes")
        summed = rows + self.instruction["moved"] * beside  # the lanes too
        per_step = count * summed * vectors * self._macs_of_vector() / self.instruction["rate"]
        loads = np.where(self.folded > 0, rows * vectors, rows + vectors) / PORTS
        return np.maximum(per_step, loads) if self.shape.product else loads

    def _along_rows(self) -> Tiles:
        return tiles_along(
            self.regions, self.stage, "row", self.row_step, self.rows / self.row_step
        )

    def _along_lanes(self) -> Tiles:
        """Register tiles along the lanes; one where the lanes run over a reduced axis."""
        found = tiles_along(
            self.regions, self.stage, "lane", self.lane_step, np.ones(self.rows_count)
        )
        folded = self.folded > 0
        one, none = np.ones(self.rows_count), np.zeros(self.rows_count)
        return Tiles(
            np.where(folded, one, found.full), np.where(folded, none, found.tails),
            np.where(folded, none, found.tail), np.where(folded, one, found.filled),
        )  # fmt: skip

    def _steps(self) -> Array:
        """Steps of the innermost loop over the whole reduction, those of tails included."""
        depth = np.where(self.folded > 0, self.lane_step, self._depth_step())
        found = []
        for axis in self.stage.reduce:
            here = self.along("lane", axis) if self.shape.lanes else np.zeros(self.rows_count)
            stepped = np.where(self.folded > 0, here, float(axis == self.facts.main)) > 0
            full, tails = cut(self.regions, axis, depth)
            found.append(np.where(stepped, full + tails, self.regions.span(axis)))
        return product(found, self.rows_count)

    def _points_apart(self) -> Array:
        """Points of the kept axes that are neither lanes nor rows."""
        found = []
        for axis in self.stage.parallel:
            tiled = self.along("lane", axis) + self.along("row", axis) > 0
            found.append(np.where(tiled, 1.0, self.regions.span(axis)))
        return product(found, self.rows_count)

    def _depth_step(self) -> Array:
        depth = self.instruction["depth"]
        return np.where(self.instruction["tiled"] > 0, 16.0 * depth, depth)

    def _macs_of_vector(self) -> Array:
        """Multiply-adds of one vector of the tile in one step."""
        lanes = float(self.facts.vector.lanes)
        depth = np.where(self.folded > 0, 1.0, self._depth_step())
        return lanes * depth * np.where(self.instruction["tiled"] > 0, 16.0, 1.0)

    def _scalar_penalty(self) -> Array:
        """How much of a vector the lane axis leaves empty."""
        lanes = float(self.facts.vector.lanes)
        total = np.ones(self.rows_count)
        for axis in filter(None, self.shape.lanes):
            size = self.depths[len(self.regions.depths) - 1][axis]
            waste = np.ceil(size / lanes) * lanes / size
            total = np.where(self.along("lane", axis) > 0, waste, total)
        return total

    def _full(self) -> Array:
        """Share of the points in whole register tiles."""
        total = np.ones(self.rows_count)
        block = self.regions.depths[-1]
        for stem, step in (("lane", self.lane_step), ("row", self.row_step)):
            for axis in self.domain:
                whole = np.floor(block[axis] / step) * step / block[axis]
                total = total * np.where(self.along(stem, axis) > 0, whole, 1.0)
        return total

    def ragged(self, axis: str) -> Array:
        """1 where the blocks of an axis are not all alike."""
        regions = self.regions
        outer, inner = regions.outer[axis], regions.inner[axis]
        whole = (regions.span(axis) % outer == 0) & (outer % inner == 0)
        return np.where(whole, 0.0, 1.0)

    # -- memory

    @cached_property
    def volumes(self) -> tuple[tuple[Array, ...], ...]:
        """Footprint of every operand at every depth."""
        return tuple(
            tuple(np.broadcast_to(operand.bytes(sizes), self.rows_count) for sizes in self.depths)
            for operand in self.facts.operands
        )

    @cached_property
    def sums(self) -> tuple[Array, ...]:
        """Room that all operands take in a cache, by depth: footprints, and what crowds them."""
        program = self.facts.staged.program
        found = [np.zeros(self.rows_count) for _ in self.depths]
        for operand, volumes in zip(self.facts.operands, self.volumes, strict=True):
            unpacked = self.unpacked(operand)
            for depth, sizes in enumerate(self.depths):
                crowded = unpacked * (crowding(program, operand, sizes) - 1.0)
                found[depth] = found[depth] + volumes[depth] * (1.0 + crowded)
        return tuple(found)

    def capacities(self) -> dict[str, float]:
        hardware = self.facts.hardware
        return {
            "l1": float(hardware["l1_bytes"]),
            "l2": float(hardware["l2_bytes"]),
            "l3": float(min(hardware["l3_bytes"], MOST_L3)),
        }

    def moved(self) -> dict[str, Array]:
        """Bytes into each level, all parts together; what is written moves twice."""
        found = {}
        for level, capacity in self.capacities().items():
            total = np.zeros(self.rows_count)
            for operand, volumes in zip(self.facts.operands, self.volumes, strict=True):
                bytes_in = traffic(volumes, self.sums, self.trips, 0.75 * capacity)
                total = total + bytes_in * (2.0 if operand.written else 1.0)
            found[level] = total * self.parts()
        return found

    def apart(self) -> Array:
        """Cycles of accesses whose lanes lie apart, where nothing packs them."""
        lanes = float(self.facts.vector.lanes)
        total = np.zeros(self.rows_count)
        for operand, volumes in zip(self.facts.operands, self.volumes, strict=True):
            scattered = self._scattered(operand) * (1.0 - self._packed(operand))
            elements = volumes[-1] / operand.element
            if operand.shares:  # what is there once is gathered for every point that reads it
                elements = operand.reads(self.depths[-1]) / self._reuse(operand)
            vectors = elements / lanes * self.trips[-1]
            total = total + scattered * vectors * GATHER * lanes / 4
        return total * self.parts() * self._gone_over

    @cached_property
    def _gone_over(self) -> Array:
        """The share of the reduced axes' points that loops go over, where what is read ends them:
        of one row at a time, or up to the longest of those that a register tile has."""
        program, share = self.facts.staged.program, np.ones(self.rows_count)
        for axis in self.stage.reduce:
            for condition in live_range(program, axis):
                along = {a for node, _ in condition.reads for a in program.nodes[node].axes}
                lengths = lengths_of(program, condition, axis) if along else None
                if lengths is None:
                    continue
                several = np.ones(self.rows_count)
                for other in along:
                    rows = self.along("row", other) * (self.rows > 1)
                    several = several * np.where(rows > 0, self.rows, 1.0)
                    several = several * np.where(self.along("lane", other) > 0, self.lane_step, 1.0)
                most = _longest(lengths, several) / program.axes[axis]
                share = share * np.clip(most, 1.0 / program.axes[axis], 1.0)
        return share

    def _reuse(self, operand: Operand) -> Array:
        """How many rows of the register tile use what was read for one."""
        own = [self.along("row", axis) for axis in self.shape.rows if axis in operand.axes]
        return np.where(sum(own, np.zeros(self.rows_count)) > 0, 1.0, self.rows)

    def _scattered(self, operand: Operand) -> Array:
        """1 where the lane axis strides through an operand."""
        total = np.zeros(self.rows_count)
        for axis in self.shape.lanes:
            if axis not in operand.axes:
                continue
            near: Array | float = float(operand.contiguous(axis))
            if operand.producer and operand.producer != self.facts.name:
                near = self.regions.flag(f"lane.{operand.producer}", axis)
            elif operand.producer:
                near = 1.0
            total = total + self.along("lane", axis) * (1.0 - near)
        return total

    def unpacked(self, operand: Operand) -> Array:
        """1 where an operand is used in place."""
        return 1.0 - self._packed(operand)

    def _packed(self, operand: Operand) -> Array:
        name = f"pack.{self.facts.name}.{operand.name}"
        if name not in self.regions.names:
            return np.zeros(self.rows_count)
        return 1.0 - self.regions.flag(name, "no")

    def packing(self) -> dict[str, Array]:
        """Bytes that are packed, cycles of packing across strides, and operands packed."""
        total, cycles = np.zeros(self.rows_count), np.zeros(self.rows_count)
        count = np.zeros(self.rows_count)
        loops = len(self.regions.depths)
        for operand, volumes in zip(self.facts.operands, self.volumes, strict=True):
            packed = self._packed(operand)
            if operand.written or not packed.any():
                continue
            depth = self._pack_depth(operand)
            trips = self.regions.at(depth, self.trips[:loops])
            volume = self.regions.at(depth, volumes[:loops]) * trips * self.parts() * packed
            total, count = total + volume, count + packed
            across = self._scattered(operand)
            depth_of = self.instruction["depth"]
            turned = np.maximum(across, (depth_of > 1) & (self._lane_in(operand) > 0))
            cycles = cycles + volume / 64 * (2.0 + GATHER * turned)
        return {"bytes": total, "cycles": cycles, "count": count}

    def _lane_in(self, operand: Operand) -> Array:
        found = [self.along("lane", a) for a in self.shape.lanes if a in operand.axes]
        return np.asarray(sum(found, np.zeros(self.rows_count)))

    def packings(self, operand: Operand) -> Array:
        """How often an operand's elements are packed; 0 where it is used in place."""
        if f"pack.{self.facts.name}.{operand.name}" not in self.regions.names:
            return np.zeros(self.rows_count)
        depth, loops = self._pack_depth(operand), len(self.regions.depths)
        volumes = [operand.bytes(sizes) for sizes in self.depths[:loops]]
        moved = self.regions.at(depth, volumes) * self.regions.at(depth, self.trips[:loops])
        return moved / volumes[0] * self._packed(operand)

    def _pack_depth(self, operand: Operand) -> Array:
        """Depth of the loops inside which an operand is packed."""
        name = f"pack.{self.facts.name}.{operand.name}"
        depth = np.zeros(self.rows_count)
        for level in (0, 1):
            inside = [self.regions.loop_depth(axis, level) for axis in operand.axes]
            deepest = np.max(np.stack(inside), axis=0) if inside else depth
            depth = np.where(self.regions.columns.is_(name, str(level)), deepest, depth)
        return depth

    # -- threads

    def threads(self) -> dict[str, Array]:
        """How many threads work at a time, how often they meet, and into how many tasks the work
        falls."""
        walked = Walk(self.regions, self.stage)
        count = float(self.facts.hardware.threads)
        split = self.parts() > 1
        return {
            "speed": np.where(split, np.minimum(self.parts(), count), walked.speed(count)),
            "meets": np.where(split, 1.0, walked.meets),
            "tasks": np.where(split, self.parts(), walked.tasks),
        }


def _longest(lengths: Array, several: Array) -> Array:
    """The longest of so many rows in the mean, by an even sample of their lengths."""
    shares = np.arange(len(lengths) + 1) / len(lengths)
    below = shares[None, :] ** several[:, None]
    longest: Array = np.diff(below, axis=1) @ np.sort(lengths)
    return longest
