"""Kernels on tensor cores: their decisions, constraints and seeds; lowering is tensor_lower's."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from ir.columns import Columns, Decision
from ir.dtypes import dtype_of
from ir.errors import Refusal
from ir.kernel.tile_kernel import KernelError
from ir.ops.store import Store
from ir.program import Program
from ir.rewrite.walking import walked
from ir.schedule import Value
from ir.space import Constraint, Space
from ir.target import Hardware
from ir.targets.cuda.bodies.tensor_bodies import early_loads, is_chained
from ir.targets.cuda.bodies.tensor_order import (
    AHEAD,
    LOADS,
    RESCALE,
    TURNS,
    corrects,
    loads_decision,
    order_choices,
    order_decision,
    rescale_decision,
    turns_decision,
)
from ir.targets.cuda.bodies.tensor_order import NAME as ORDER
from ir.targets.cuda.build import late
from ir.targets.cuda.build.computed import TYPES
from ir.targets.cuda.build.formed import Former
from ir.targets.cuda.build.products import MAP_RANK, mapped
from ir.targets.cuda.build.roles import Roles, find_roles
from ir.targets.cuda.grid import batching, drawing
from ir.targets.cuda.grid.batching import batches_decision
from ir.targets.cuda.grid.dealing import NAME as DEAL
from ir.targets.cuda.grid.dealing import deal_decision
from ir.targets.cuda.grid.drawing import scheduler_decision
from ir.targets.cuda.grid.raster import BANDS, PATCHES
from ir.targets.cuda.launch import Launch
from ir.targets.cuda.lower.tensor_ahead import prefetch_decision, prefetch_fits
from ir.targets.cuda.lower.tensor_lower import TensorLowering
from ir.targets.cuda.plans.planning import FORMER_REGISTERS, FORMERS, make_plan
from ir.targets.cuda.plans.tensor_plan import GROUP, REGISTER_SPLITS, RESIDENT, ROWS, Plan
from ir.targets.cuda.plans.tensor_rings import extra_decision, extra_names
from ir.targets.cuda.seeds.fitted import with_room
from ir.targets.cuda.seeds.tensor_seeds import RESERVED, Seeds
from ir.targets.cuda.space.probing import once, seeds_once
from ir.targets.cuda.space.tensor_streams import TensorStreams
from ir.targets.cuda.space.tensor_tiles import CLUSTERS, whole_groups

RASTERS = (*BANDS, "hilbert", *PATCHES)
WITH_WGMMA = 9  # the major number of cards that have it
PROBES = 12  # seeds of which one has to be lowered
STORED = ("bf16", "f16", "tf32", "f32", "i32")  # outputs that TMA may write


class TensorKernel(TensorStreams):
    """One kernel. `mark` ends the names of its decisions."""

    kind = "tensor"
    rate = 1.0  # share of wgmma's rate at which it multiplies
    splits = True  # whether blocks may share one tile's sums
    computes = False  # whether operands along the rows may be computed in registers
    formed: tuple[Former, ...] = ()  # operands that are made of others in shared memory

    def __init__(self, program: Program, mark: str, hardware: Hardware) -> None:
        self.program, self.mark, self.hardware = program, mark, hardware
        self.check_card()
        self.roles = find_roles(program, False, self.computes)
        self.splits = self.splits and self.roles.handed is None
        self.swapped = self._swapped()
        joint = self.roles.walked if self.roles.inner else ()
        self.streamed = walked(program, frozenset(self.roles.walked), joint)
        if not self.alone.seeds:
            raise Refusal("seeds", "no schedule fits")
        self._probe()

    def check_card(self) -> None:
        """Refusal if the card has not what multiplies."""
        if self.hardware["major"] != WITH_WGMMA:
            raise Refusal("wgmma", f"{self.hardware.name} has no wgmma")

    @cached_property
    def alone(self) -> Space:
        """The space of this kernel by itself."""
        decisions = tuple(self.decisions())
        rules, seeds = tuple(self.constraints()), seeds_once(self, decisions)
        return Space("cuda", decisions, rules, seeds)

    @once
    def _probe(self) -> None:
        """Refusal if no seed can be lowered; if none is legal those are tried that are mended, then
        as they are."""
        rows, problem = self.alone.seed_matrix, ""
        legal = rows[self.alone.legal(rows)]
        if not len(legal):
            legal = self.alone.seed_rows(np.random.default_rng(0))
        tried = legal if len(legal) else rows
        for row in tried[:: -(-len(tried) // PROBES) or 1]:
            pairs = zip(self.alone.decisions, row.tolist(), strict=True)
            try:
                self.lower({one.name: one.domain[code] for one, code in pairs}, "probe")
                return
            except (Refusal, KernelError) as refusal:  # no kernel's order is that of its parts
                problem = problem or str(refusal)
        raise Refusal("probe", problem)

    @property
    def moved(self) -> int:
        """Bytes that it moves at least."""
        return self.program.bytes

    def _swapped(self) -> Roles | None:
        """Roles with operands exchanged, where they may be."""
        try:
            found = find_roles(self.program, True, self.computes)
        except Refusal:
            return None
        return found if {*found.batch} == {*self.roles.batch} else None  # tiles of other axes

    # -- the space

    @cached_property
    def orders(self) -> dict[str, str]:
        """Orders of the main loop, with what each does."""
        return order_choices(self.walked_roles)

    def tile_domain(self, axis: str) -> tuple[int, ...]:
        """How many points of an axis a tile may have."""
        if self.roles.listed and not self.roles.inner:
            if axis == self.roles.main_walk:
                return (self.program.axes[axis],)
            if axis == self.roles.listed:
                return tuple(range(1, min(16, self.program.axes[axis]) + 1))
        if axis == self.roles.main_walk and not self.roles.inner:
            inside = prod(self.program.axes[a] for a in self.roles.whole)
            tiles = (lines * 32 // self.size // inside for lines in (1, 2, 4, 8, 16))
            return tuple(tile for tile in tiles if tile)
        if axis == self.roles.main_walk:
            return tuple(range(16, 257, 16))
        if axis == self.roles.listed:
            return tuple(n for n in (1, 2, 4, 8, 16) if n <= self.program.axes[axis])
        others = len(self.roles.rows) > 1 or len(self.roles.columns) > 1
        small = (1, 2, 4) if others else ()
        return (*small, *range(8, 257, 8), 320, 384, 512)

    def decisions(self) -> list[Decision]:
        found = [
            Decision(self.name(f"tile.{axis}"), self.tile_domain(axis), "tile", axis,
                     "points of the axis in one tile")
            for axis in self.free_axes
        ]  # fmt: skip
        swaps = (False, True) if self.swapped is not None else (False,)
        stores = ("tma", "direct") if self.store_by_tma() else ("direct",)
        owner = self.roles.walked[0]
        sources = ("shared", "registers") if self.may_use_registers() else ()
        rows = (
            ("swap", swaps, "tensorize", "which operand's axis lies along the instruction's rows"),
            ("consumers", (1, 2, 3), "binding", "warp groups that multiply"),
            ("partition", ("rows", "columns", "whole"), "binding",
             "how they share a tile: its rows, its columns, or whole tiles in turn"),
            ("stages", tuple(range(2, 13)), "pipeline", "slots of the ring of operand tiles"),
            ("wait", (0,) if self.roles.computed or self.roles.around else (0, 1), "pipeline",
             "blocks whose products may still run at a release"),
            ("registers", tuple(REGISTER_SPLITS), "binding",
             "registers a thread of the producer and of the consumers"),
            ("cluster", CLUSTERS, "binding", "blocks that share operands, along rows x columns"),
            ("raster", RASTERS, "order", "the order of the tiles"),
            ("processors", self.processors(), "order",
             "blocks that walk all tiles; 0 gives every tile a block of its own"),
            ("promotion", (256, 128), "pipeline", "bytes that the L2 cache fetches at a time"),
            ("stream", ("none", "rows", "columns"), "pipeline",
             "the side whose operands are the first to leave the L2 cache"),
            ("epilogue", stores, "epilogue", "outputs by TMA through shared memory, or direct"),
            ("epilogue_slots", (1, 2, 4), "epilogue", "buffers of outputs on their way"),
        )  # fmt: skip
        found += [
            Decision(self.name(name), domain, group, owner, why)
            for name, domain, group, why in rows
        ]
        found += [
            extra_decision(name, stem, self.mark, owner)
            for name, stem in extra_names(self.program, self.roles)
        ]
        why = "blocks that a processor has at least, which share its registers and shared memory"
        found.append(
            Decision(self.name(RESIDENT), (1, 2, 3, 4), "binding", owner, why, 1, unsaid=1)
        )
        if sources:
            why = "where operands along the rows are when they are multiplied"
            source = Decision(
                self.name("source"), sources, "layout", owner, why, "shared", unsaid="shared"
            )  # fmt: skip
            found.append(source)
        found += self.layout_decisions(owner)
        ahead = late.ahead_decision(self.name(late.NAME), owner, self.streamed)
        found += [ahead] if ahead is not None else []
        if not self.roles.inner:
            found.append(prefetch_decision(self.mark, owner))
        found += self._loop_decisions(owner)
        return found + self._computed_decisions(owner) + self.stream_decisions()

    def _computed_decisions(self, owner: str) -> list[Decision]:
        """How operands are made that are not copied as they are."""
        found = []
        if self.formed:
            why = "warp groups that form operands of what is copied"
            found.append(Decision(self.name(FORMERS), (1, 2), "binding", owner, why))
        if self.roles.raw:
            why = "when raw tiles are read: step by step, or at the start of their block"
            found.append(Decision(self.name("read"), ("step", "block"), "pipeline", owner, why))
        if self.roles.computed:
            why = "steps of the instruction whose operands are computed together"
            found.append(Decision(self.name("steps"), (1, 2, 4), "pipeline", owner, why))
        return found

    def _loop_decisions(self, owner: str) -> list[Decision]:
        """How the main loop is scheduled, where there is a choice."""
        found = []
        if self.orders:
            found.append(order_decision(self.name(ORDER), owner, self.orders))
        if is_chained(self.roles) or self.roles.computed:
            found.append(turns_decision(self.name(TURNS), owner))
        if corrects(self.walked_roles):
            found.append(rescale_decision(self.name(RESCALE), owner))
        found += self.weights_decisions(owner)
        if early_loads(self.walked_roles):
            found.append(loads_decision(self.name(LOADS), owner))
        beside = batches_decision(self.name(batching.NAME), owner, self.streamed, self.roles)
        found += [beside] if beside is not None else []
        deal = deal_decision(self.name(DEAL), owner, self.streamed, self.roles)
        found += [deal] if deal is not None else []
        drawn = scheduler_decision(self.name(drawing.NAME), owner, self.streamed, self.roles)
        found += [drawn] if drawn is not None else []
        return found

    def may_use_registers(self) -> bool:
        """Whether the operands along the rows are plain, and may be loaded to registers."""
        roles = self.roles
        return roles.dtype in TYPES and not (roles.inner or roles.computed or roles.around)

    def processors(self) -> tuple[int, ...]:
        """All of them, or as many as whole clusters can surely have at a time."""
        count = self.hardware["sms"]
        return tuple(dict.fromkeys((0, count, count // 8 * 8, whole_groups(count))))

    def store_by_tma(self) -> bool:
        """Whether the outputs' types and strides allow TMA."""
        for node in self.program.nodes:
            if not isinstance(node.op, Store):
                continue
            spec = self.program.scope.tensors[node.op.tensor]
            size = dtype_of(spec.dtype).bytes
            if size not in (2, 4) or not 2 <= len(mapped(spec)) <= MAP_RANK:
                return False
            if spec.shape[-1] * size % 16:
                return False
            sides = {*self.roles.rows, *self.roles.columns}
            if node.op.axes[-1] not in sides or node.dtype not in STORED:
                return False
        return True

    def constraints(self) -> list[Constraint]:
        rules = (
            ("rows", f"whole groups of {ROWS} rows for every consumer", self._rows_fit),
            ("columns", "columns that the instruction has", self._columns_fit),
            (
                "beside",
                "tiles contiguous along rows or columns have the sum alone beside these",
                self._beside_lines_fit,
            ),
            ("walk", "lines of 32, 64 or 128 bytes", self._walk_fits),
            ("whole", "a tile holds the axes that results are combined over", self._holds_whole),
            ("accumulators", "accumulators fit the registers", self._registers_fit),
            (
                "source",
                "operands in registers come step by step, all done by the end of a block",
                self._source_fits,
            ),
            ("layout", "operand tiles have so many layouts", self._layout_fits),
            ("split", "registers of all warp groups fit the processor's", self._split_fits),
            ("shared", "rings and buffers fit shared memory", self._shared_fits),
            ("batches", "batches stand beside each other in plain orders", self._batches_fit),
            ("stored", "TMA stores what lies in memory in a tile's order", self._stores_in_order),
            ("resident", "blocks that share a processor fit it, one a tile", self._resident_fits),
            ("cluster", "operands split evenly over a cluster", self._cluster_fits),
            ("partition", "consumers share what can be shared", self._partition_fits),
            ("loads", "what is read ahead of a block is not in another's way", self._reads_fit),
            ("turns", "warp groups that share a tile may take turns", self._turns_fit),
            (
                "weights",
                "a group that makes weights makes them for groups that share columns, "
                "block by block",
                self._weights_fit,
            ),
            ("scheduler", "blocks that stay, each by itself, draw tiles", self._draws_fit),
            (
                "prefetch",
                "kernels that ask before their turn start early, with whole tiles",
                self._asks_early,
            ),
            ("once", "choices without effect have one value", self._once),
            ("handed", "a state that is handed on is one of a block", self._hands_on),
        )
        of_sources = (
            ("formed", "what operands are formed of has whole lines", self._sources_fit),
        )  # fmt: skip
        return [
            Constraint(self.name(name), needs, check, self._explain(name))
            for name, needs, check in (*rules, *(of_sources if self.formed else ()))
        ] + self.stream_constraints()

    @cached_property
    def _turned(self) -> tuple[tuple[str, str], ...]:
        """Two axes of one side of a tile, the slower one first, that an output has the other way
        round."""
        stored = [list(store.axes) for _, store in self.program.stores()]
        pairs = (*combinations(self.roles.rows, 2), *combinations(self.roles.columns, 2))
        return tuple(
            (slow, fast)
            for slow, fast in pairs
            for axes in stored
            if {slow, fast} <= {*axes} and axes.index(slow) > axes.index(fast)
        )

    def _stores_in_order(self, columns: Columns) -> Any:
        turned: Any = np.zeros(columns.rows, dtype=bool)
        for slow, fast in self._turned:
            turned = turned | ((self._tile(columns, slow) > 1) & (self._tile(columns, fast) > 1))
        return ~turned | ~self._is(columns, "epilogue", "tma")

    def _hands_on(self, columns: Columns) -> Any:
        return ~self._is(columns, "partition", "whole") | (self.roles.handed is None)

    def _resident_fits(self, columns: Columns) -> Any:
        """Whether several blocks fit a processor, if they are asked for: those that have a tile
        each."""
        blocks = self._value(columns, RESIDENT)
        if (blocks == 1).all():
            return np.ones(columns.rows, dtype=np.bool_)
        alike = self._is(columns, "registers", "none")
        fits = self._accumulators(columns) + 40 <= self._entry_registers(columns)
        fits = (self._bytes(columns) <= self._room(columns)) & (fits | ~alike)
        return (blocks == 1) | (fits & (self._value(columns, "processors") == 0))

    def _room(self, columns: Columns) -> Any:
        """Bytes of shared memory for each of the blocks of a processor."""
        blocks = self._value(columns, RESIDENT)
        return (self.hardware["shared_bytes"] + RESERVED) // blocks - 2 * RESERVED

    def _too_large(self, columns: Columns) -> Any:
        return self._bytes(columns) > self._room(columns)

    def _asks_early(self, columns: Columns) -> Any:
        return prefetch_fits(columns, self.mark)

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
            for seed in map(self.fitted, Seeds(self).all())
            if all(value in domains[name] for name, value in seed.items())
        ]
        found += [self._stored_directly(seed) for seed in found if self._turned]
        if self.name(LOADS) in domains:
            ahead: dict[str, Value] = {self.name(LOADS): AHEAD}
            found = [one for seed in found for one in ({**seed, **ahead}, seed)]
        found = late.asked_for(found, self.name(late.NAME), domains)
        found = with_room(found, self.decisions(), self.name("stages"), self._too_large)
        if self.formed:
            found = [self._formed_by(seed, count) for seed in found for count in (2, 1)]
        return self.with_streams(found)

    def fitted(self, seed: Mapping[str, Value]) -> dict[str, Value]:
        """A seed with what the card has."""
        return dict(seed)

    def _formed_by(self, seed: Mapping[str, Value], formers: int) -> dict[str, Value]:
        """A seed whose operands are formed by so many groups, with registers for all of them."""
        consumers = int(seed[self.name("consumers")])
        groups = 1 + consumers + formers
        pool = groups * (65536 // (GROUP * groups) // 8 * 8) - formers * FORMER_REGISTERS
        wanted = (str(seed[self.name("registers")]), *REGISTER_SPLITS)
        splits = ((name, REGISTER_SPLITS[name]) for name in wanted)
        fits = (name for name, (down, up) in splits if up and down + consumers * up <= pool)
        more = {self.name("registers"): next(fits, "none"), self.name("cluster"): "1x1"}
        return {**seed, **more, self.name(FORMERS): formers}

    def _stored_directly(self, seed: Mapping[str, Value]) -> dict[str, Value]:
        return {**seed, self.name("epilogue"): "direct", self.name("epilogue_slots"): 1}

    # -- lowering

    def adapted(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """A schedule made for narrower outputs: wide ones along the rows are stored directly."""
        roles = self.swapped if values[self.name("swap")] and self.swapped else self.roles
        narrow = all(
            dtype_of(n.dtype).bytes == 2 for n in self.program.nodes if isinstance(n.op, Store)
        )
        if narrow or not self._output_transposed(roles):
            return dict(values)
        return {**values, self.name("epilogue"): "direct", self.name("epilogue_slots"): 1}

    def lower(self, values: Mapping[str, Value], name: str) -> Launch:
        """The kernel of a schedule; Refusal if there is none."""
        plan = self.plan(values)
        plan.check(self.hardware["shared_bytes"])
        launch = self.lowering(plan, name).run()
        if launch.shared > self.hardware["shared_bytes"]:
            raise Refusal("shared", f"{launch.shared} bytes of shared memory")
        return launch

    def lowering(self, plan: Plan, name: str) -> TensorLowering:
        """What makes the text of a plan."""
        return TensorLowering(plan, self.streamed, name)

    def plan(self, values: Mapping[str, Value]) -> Plan:
        """All numbers of a schedule."""
        swap = bool(values[self.name("swap")])
        roles = find_roles(self.streamed, swap, self.computes)
        return make_plan(self.streamed, roles, values, self.mark, self.formed)


class FormedKernel(TensorKernel):
    """One kernel of the engine that forms operands in shared memory."""

    def __init__(
        self, program: Program, mark: str, hardware: Hardware, formed: tuple[Former, ...]
    ) -> None:
        self.formed = formed
        super().__init__(program, mark, hardware)

    @property
    def moved(self) -> int:
        made = {former.tensor for former in self.formed}
        specs = (spec for spec in self.program.tensors if spec.name not in made)
        own = sum(prod(spec.shape) * dtype_of(spec.dtype).bytes for spec in specs)
        return own + sum(former.moved for former in self.formed)


class RegisterKernel(TensorKernel):
    """One kernel of the engine that computes an operand in the registers of its threads."""

    computes = True
