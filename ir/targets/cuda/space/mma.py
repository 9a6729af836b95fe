"""Kernels on mma.sync: their decisions, constraints and seeds; lowering is mma_lower's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ir.columns import Columns, Decision
from ir.errors import Refusal
from ir.program import Program
from ir.schedule import Value
from ir.space import Constraint
from ir.target import Hardware
from ir.targets.cuda.build import late
from ir.targets.cuda.build.mma_roles import find_mma_roles, has_mma
from ir.targets.cuda.build.roles import Roles
from ir.targets.cuda.grid.raster import BANDS, PATCHES
from ir.targets.cuda.launch import Launch
from ir.targets.cuda.lower.mma_lower import MmaLowering
from ir.targets.cuda.plans.mma_plan import MmaPlan, depth_domain, make_mma_plan
from ir.targets.cuda.seeds.mma_seeds import mma_seeds
from ir.targets.cuda.space.mma_rules import MmaRules
from ir.targets.cuda.space.probing import once

RASTERS = (*BANDS, *PATCHES)


class MmaKernel(MmaRules):
    """One kernel. `mark` ends the names of its decisions."""

    kind = "mma"
    splits = True  # whether blocks may share one tile's sums

    def __init__(self, program: Program, mark: str, hardware: Hardware) -> None:
        self.program, self.mark, self.hardware = program, mark, hardware
        self.roles = find_mma_roles(program, False)
        if not has_mma(hardware, self.roles.dtype):
            raise Refusal("mma", f"{hardware.name} has no mma.sync of {self.roles.dtype}")
        self.swapped: Roles = find_mma_roles(program, True)
        self._probe()

    @once
    def _probe(self) -> None:
        """Refusal if no seed lowers."""
        problem = Refusal("seeds", "no schedule fits")
        for seed in self.seeds():
            try:
                self.lower(self.complete(seed), "probe")
                return
            except Refusal as refusal:
                problem = refusal
        raise problem

    # -- the space

    def tile_domain(self, axis: str, smallest: int) -> tuple[int, ...]:
        """Powers of two up to the extent; from 1 where another axis may make the tile."""
        side = self.roles.rows if axis in self.roles.rows else self.roles.columns
        extent = self.program.axes[axis]
        reach = 1 << max(0, extent - 1).bit_length()
        low = 1 if len(side) > 1 else smallest
        return tuple(1 << i for i in range(9) if low <= 1 << i <= max(reach, 16))

    def decisions(self) -> list[Decision]:
        found = [
            Decision(self.name(f"tile.{axis}"), self.tile_domain(axis, 8), "tile", axis,
                     "points of the axis in one tile")
            for axis in (*self.roles.rows, *self.roles.columns)
        ]  # fmt: skip
        owner = self.roles.walked[-1]
        rows: tuple[tuple[str, tuple[Value, ...], str, str], ...] = (
            ("depth", depth_domain(self.roles.dtype), "tile", "points of the sum in one block"),
            ("swap", (False, True), "tensorize", "which operand lies along the 16 rows"),
            ("warps.rows", (1, 2, 4, 8), "binding", "warps along the rows of a tile"),
            ("warps.columns", (1, 2, 4, 8), "binding", "warps along its columns"),
            ("warps.depth", (1, 2, 4, 8), "binding", "warps that share a block's sum"),
            ("stages", (2, 3, 4, 5, 6), "pipeline", "blocks in shared memory"),
            ("fragments", (1, 2), "pipeline", "steps whose operands are in registers"),
            ("resident", (1, 2, 3, 4), "binding",
             "blocks that share a processor, each with that much less of its registers"),
            ("raster", RASTERS, "order", "the order of the tiles"),
            ("epilogue", ("direct", "staged"), "epilogue",
             "outputs from the accumulators, or through shared memory in whole lines"),
        )  # fmt: skip
        if self.raw:
            why = "what computed operands are made of: from memory, or copied ahead"
            rows += (("loads", ("direct", "staged"), "pipeline", why),)
        found += [
            Decision(self.name(n), domain, group, owner, why) for n, domain, group, why in rows
        ]
        ahead = late.ahead_decision(self.name(late.NAME), owner, self.program)
        return found + ([ahead] if ahead is not None else [])

    def constraints(self) -> list[Constraint]:
        rules: tuple[tuple[str, str, Callable[[Columns], Any]], ...] = (
            ("rows", "a tile has 16 rows or more for every warp", self._rows_fit),
            ("columns", "a tile has 8 columns or more for every warp", self._columns_fit),
            ("threads", "at most 16 warps", self._threads_fit),
            ("depth", "a block has a step for every warp, and lies mostly within the sum",
             self._depth_fits),
            ("fill", "no more copies of a tile than a thread starts", self._fill_fits),
            ("registers", "sums and operands fit the registers", self._registers_fit),
            ("shared", "stages and staged sums fit shared memory", self._shared_fits),
            ("once", "choices without effect have one value", self._once),
        )  # fmt: skip
        if self.raw:
            rules += (("loads", "copies of what is computed take 3 stages", self._loads_fit),)
        return [
            Constraint(self.name(name), needs, check, self._explain(name))
            for name, needs, check in rules
        ]

    # -- seeds

    def complete(self, seed: Mapping[str, Value]) -> dict[str, Value]:
        """A seed with first values where it is silent."""
        values = {d.name: d.domain[0] for d in self.decisions()}
        return {**values, **seed}

    def seeds(self) -> list[dict[str, Value]]:
        """Configurations that do well on many shapes, fitted to this program."""
        domains = {decision.name: decision.domain for decision in self.decisions()}
        found = [
            seed
            for seed in mma_seeds(self)
            if all(value in domains[name] for name, value in seed.items())
        ]
        return late.asked_for(found, self.name(late.NAME), domains)

    # -- lowering

    def adapted(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """A schedule made for the whole sum serves the kernel of its parts."""
        return dict(values)

    def lower(self, values: Mapping[str, Value], name: str) -> Launch:
        """The kernel of a schedule; Refusal if there is none."""
        plan = self.plan(values)
        plan.check(self.hardware["shared_bytes"])
        return MmaLowering(plan, self.program, name).run()

    def plan(self, values: Mapping[str, Value]) -> MmaPlan:
        """All numbers of a schedule."""
        roles = self.swapped if values[self.name("swap")] else self.roles
        return make_mma_plan(self.program, roles, values, self.mark)
