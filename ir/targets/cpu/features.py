"""What a learned model sees of a schedule on the CPU: numbers that mean the same for every program.

The two heaviest stages have a slot each, the others share one; costs over all stages are relative
to what the program needs at least. Logarithms to base 2, vectorised over schedules.
"""

from __future__ import annotations

from functools import cached_property
from math import log2

import numpy as np
from numpy.typing import NDArray

from ir.dtypes import dtype_of
from ir.space import Columns
from ir.targets.cpu.costs import BARRIER, BYTES_PER_CYCLE, StageCosts, StageFacts
from ir.targets.cpu.decisions import Decisions
from ir.targets.cpu.joint import JointCosts, strides
from ir.targets.cpu.regions import Array, Regions
from ir.targets.cpu.roles import ROLE_NAMES, role_table

SLOTS = 2
CLOCK = 2.6e9  # cycles a second, nominally: only ratios matter
LEVELS = ("l1", "l2", "l3")
Table = dict[str, Array]


class Features:
    """Callable: columns -> (names, float32 matrix). The names are the same for every program."""

    def __init__(self, decisions: Decisions, least: float | None = None) -> None:
        self.decisions, self.least = decisions, least
        self.hardware = decisions.hardware
        self.program = decisions.staged.program

    @cached_property
    def facts(self) -> tuple[StageFacts, ...]:
        """Stages, the heaviest first."""
        decisions = self.decisions
        found = [
            StageFacts(decisions.staged, shape, decisions.hardware, decisions.vector)
            for shape in decisions.shapes
        ]
        return tuple(sorted(found, key=lambda stage: -stage.weight))

    @cached_property
    def ideal(self) -> float:
        """Cycles that the program takes at least, all threads busy."""
        if self.least is not None:
            return self.least
        arithmetic = sum(stage.ideal for stage in self.facts) / self.hardware.threads
        moved = self.program.bytes / BYTES_PER_CYCLE["l3"] / self.hardware.threads
        return max(arithmetic, moved, 1.0)

    def __call__(self, columns: Columns) -> tuple[tuple[str, ...], NDArray[np.float32]]:
        regions = Regions(self.decisions, columns)
        stages = [_Stage(StageCosts(facts, regions)) for facts in self.facts]
        table = self._workload(columns.rows)
        table |= self._estimates(stages, columns)
        for number in range(SLOTS):
            here = stages[number].table() if number < len(stages) else {}
            for name in SLOT_NAMES:
                table[f"stage{number}.{name}"] = here.get(name, np.full(columns.rows, np.nan))
        matrix = np.empty((columns.rows, len(table)), dtype=np.float32)
        for number, values in enumerate(table.values()):
            matrix[:, number] = values
        return tuple(table), matrix

    def _workload(self, rows: int) -> Table:
        """Facts of the program and the machine: the same for every schedule."""
        facts, hardware, program = self.facts, self.hardware, self.program
        narrow = min(dtype_of(spec.dtype).bytes for spec in program.tensors)
        values: dict[str, float] = {
            "seconds.ideal": log2(self.ideal / CLOCK),
            "program.flops": log2(max(1, program.flops)),
            "program.bytes": log2(program.bytes),
            "program.intensity": log2(max(1, program.flops) / program.bytes),
            "program.stages": len(facts),
            "program.products": sum(stage.shape.product for stage in facts),
            "program.narrowest": narrow,
            "program.heaviest": facts[0].weight / max(1.0, sum(stage.weight for stage in facts)),
            "machine.threads": hardware.threads,
            "machine.lanes": self.decisions.vector.lanes,
            "machine.l1": log2(hardware["l1_bytes"]),
            "machine.l2": log2(hardware["l2_bytes"]),
        }
        return {name: np.full(rows, float(value)) for name, value in values.items()}

    def _estimates(self, stages: list[_Stage], columns: Columns) -> Table:
        """Costs of all stages together, relative to the least possible time."""
        zero = np.zeros(columns.rows)
        total = {
            name: sum((stage.cycles[name] for stage in stages), zero) for name in stages[0].cycles
        }
        table = {f"total.{name}": _log(value / self.ideal) for name, value in total.items()}
        paths = sum((stage.longest for stage in stages), zero)
        table["total.estimate"] = _log(paths / self.ideal)
        moved = sum(total[level] for level in LEVELS) + total["packing"]
        table["seconds.traffic"] = _log(np.asarray(moved) / CLOCK)
        table |= self._joint(stages, total, columns.rows)
        serial = sum((stage.longest * (stage.speed <= 1.0) for stage in stages), zero)
        table["total.serial"] = serial / paths
        table["stream"] = _flag(columns, "stream")
        for kind in ("block", "cyclic", "dynamic"):
            table[f"chunk.{kind}"] = columns.is_("chunk", kind).astype(np.float64)
        return table

    def _joint(self, stages: list[_Stage], total: Table, rows: int) -> Table:
        """What stages have in common, and the mean speed at which all of it goes on."""
        joint = JointCosts([stage.costs for stage in stages])
        capacities = stages[0].costs.capacities()
        work = total["arithmetic"] + total["entered"] + total["apart"]
        whole = sum((stage.cycles["arithmetic"] * stage.speed for stage in stages), np.zeros(rows))
        speed = np.maximum(whole / np.maximum(total["arithmetic"], 1.0), 0.25)
        table = {
            "joint.live": _log(joint.live),
            "joint.uneven": joint.uneven(),
            "joint.merging": _log(joint.merging() / BYTES_PER_CYCLE["l2"] / self.ideal),
            "joint.speed": speed,
            "joint.work": _log(work * joint.live / self.ideal),
        }
        slowest = np.zeros(rows)
        for level in LEVELS:
            apart = sum((stage.moved[level] for stage in stages), np.zeros(rows))
            cycles = joint.moved(level, apart) / BYTES_PER_CYCLE[level] / speed
            slowest = np.maximum(slowest, cycles)
            table[f"joint.{level}"] = _log(cycles / self.ideal)
            table[f"joint.{level}.work"] = _log(cycles / work)
            table[f"joint.set.{level}"] = _log(joint.working_set[-1] / capacities[level])
        work = work * joint.live
        alone = total["packing"] + total["meeting"]
        estimate = np.maximum(work, slowest) + 0.25 * np.minimum(work, slowest) + alone
        table["joint.estimate"] = _log(estimate / self.ideal)
        table["joint.alone"] = _log(alone / estimate)
        return table


class _Stage:
    """A stage's costs as cycles of wall clock, and its slot of features."""

    def __init__(self, costs: StageCosts) -> None:
        self.costs = costs
        threads = costs.threads()
        self.speed, self.meets, self.tasks = threads["speed"], threads["meets"], threads["tasks"]
        self.arithmetic, self.moved = costs.arithmetic(), costs.moved()
        self.packing = costs.packing()
        self.apart = costs.apart()
        parts = costs.parts()
        self.cycles: Table = {
            "arithmetic": self.arithmetic["cycles"] * parts / self.speed,
            "entered": self.arithmetic["entered"] * parts / self.speed,
            "apart": self.apart / self.speed,
            "packing": self.packing["cycles"] / self._packers(),
            "meeting": self.meets * BARRIER,
        }
        for level in LEVELS:
            self.cycles[level] = self.moved[level] / BYTES_PER_CYCLE[level] / self.speed

    def _packers(self) -> Array:
        """Threads that pack: what is packed outside the parallel loops is shared out, too."""
        return np.full(len(self.speed), float(self.costs.facts.hardware.threads))

    @cached_property
    def longest(self) -> Array:
        """Cycles of the stage: arithmetic beside memory, then what nothing hides."""
        cycles = self.cycles
        work = cycles["arithmetic"] + cycles["entered"] + cycles["apart"]
        memory = np.maximum.reduce([cycles[level] for level in LEVELS])
        hidden = 0.25 * np.minimum(work, memory)
        return np.asarray(np.maximum(work, memory) + hidden + cycles["packing"] + cycles["meeting"])

    def table(self) -> Table:
        costs, facts = self.costs, self.costs.facts
        ideal = max(facts.ideal, 1.0)
        rows = costs.rows_count
        alias, pages = strides(costs)
        table = {
            "product": np.full(rows, float(facts.shape.product)),
            "accumulators": np.full(rows, float(len(facts.shape.stage.accumulators))),
            "maps": np.full(rows, _log(facts.maps / facts.points)),
            "points": np.full(rows, _log(facts.points)),
            "speed": self.speed,
            "meets": _log(self.meets),
            "tasks": _log(self.tasks),
            "folded": costs.folded,
            "full": self.arithmetic["full"],
            "down": self.arithmetic["down"],
            "across": self.arithmetic["across"],
            "loads": self.arithmetic["loads"],
            "waits": self.arithmetic["waits"],
            "alias": alias,
            "pages": pages,
            "packed": self.packing["count"],
            "tiled": costs.instruction["tiled"],
        }
        for name in ("rate", "depth"):
            table[f"instruction.{name}"] = _log(costs.instruction[name])
        for name in ("chains", "steps"):
            table[name] = _log(self.arithmetic[name])
        for name, value in self.cycles.items():
            table[f"cycles.{name}"] = _log(value * facts.hardware.threads / ideal)
        table["cycles.longest"] = _log(self.longest * facts.hardware.threads / ideal)
        return table | self._tile() | self._footprints() | role_table(costs)

    def _tile(self) -> Table:
        """The register tile and the inner loop, by role."""
        costs = self.costs
        table = {
            "rows": _log(costs.row_step),
            "vectors": costs.number("vectors"),
            "unroll": costs.number("unroll"),
            "prefetch": _log(costs.number("prefetch", 0.0)),
            "lanes.inner": costs.regions.flag(f"micro.{costs.facts.name}", "lanes"),
            "passes": _log(costs.passes()),
        }
        blocks = costs.regions.depths[-1]
        for role in ("lane", "row"):
            block, extent = np.ones(costs.rows_count), np.ones(costs.rows_count)
            ragged = np.zeros(costs.rows_count)
            for axis in costs.domain:
                here = costs.along(role, axis) > 0
                block = np.where(here, blocks[axis], block)
                extent = np.where(here, costs.depths[0][axis], extent)
                ragged = np.where(here, costs.ragged(axis), ragged)
            table[f"{role}.block"], table[f"{role}.extent"] = _log(block), _log(extent)
            table[f"{role}.ragged"] = ragged
        main = costs.facts.main
        if main:
            table["main.block"], table["main.extent"] = (
                _log(sizes[main]) for sizes in (blocks, costs.depths[0])
            )
            table["main.ragged"] = costs.ragged(main)
        return table

    def _footprints(self) -> Table:
        """Working sets against caches: of a register tile, an inner and an outer block."""
        costs = self.costs
        outer = len(costs.regions.looped[0])
        inner = len(costs.regions.depths) - 1
        capacities = costs.capacities()
        return {
            "set.tile.l1": _log(costs.sums[-1] / capacities["l1"]),
            "set.strip.l1": _log(costs.sums[-2] / capacities["l1"]),
            "set.strip.l2": _log(costs.sums[-2] / capacities["l2"]),
            "set.inner.l1": _log(costs.sums[inner] / capacities["l1"]),
            "set.inner.l2": _log(costs.sums[inner] / capacities["l2"]),
            "set.outer.l2": _log(costs.sums[outer] / capacities["l2"]),
            "set.outer.l3": _log(costs.sums[outer] / capacities["l3"]),
        }


SLOT_NAMES = (
    "product", "accumulators", "maps", "points", "speed", "meets", "tasks", "folded", "full",
    "down", "across", "loads", "waits", "alias", "pages", "packed", "tiled",
    "instruction.rate", "instruction.depth", "chains", "steps", "cycles.arithmetic",
    "cycles.entered", "cycles.apart", "cycles.packing", "cycles.meeting", "cycles.l1",
    "cycles.l2", "cycles.l3", "cycles.longest", "rows", "vectors", "unroll", "prefetch",
    "lanes.inner", "passes", "lane.block", "lane.extent", "row.block", "row.extent",
    "main.block", "main.extent", "lane.ragged", "row.ragged", "main.ragged", "set.tile.l1",
    "set.strip.l1", "set.strip.l2", "set.inner.l1", "set.inner.l2", "set.outer.l2",
    "set.outer.l3", *ROLE_NAMES,
)  # fmt: skip


ESTIMATES = (
    *(f"total.{name}" for name in (
        "arithmetic", "entered", "apart", "packing", "meeting", "l1", "l2", "l3", "estimate",
    )),
    "seconds.traffic", "joint.live", "joint.uneven", "joint.merging", "joint.speed", "joint.work",
    *(f"joint.{name}" for level in LEVELS for name in (level, f"{level}.work", f"set.{level}")),
    "joint.estimate", "joint.alone", "total.serial", "stream",
    *(f"chunk.{kind}" for kind in ("block", "cyclic", "dynamic")),
)  # fmt: skip


def _log(values: Array | float) -> Array:
    """log2, with what is 0 far below everything."""
    return np.asarray(np.log2(np.maximum(values, 2.0**-20)), dtype=np.float64)


def _flag(columns: Columns, name: str) -> Array:
    return columns[name].astype(np.float64)
