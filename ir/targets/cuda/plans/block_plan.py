"""The numbers of a block kernel's schedule: tiles, threads, walks, and which loads run ahead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod

from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.program import Program
from ir.schedule import Value
from ir.stages import is_reduction, reduced_axes
from ir.targets.cuda.build.readers import loaded_late, read_once
from ir.targets.cuda.grid.overlap import starts_early
from ir.targets.cuda.layouts.access import load_access
from ir.targets.cuda.layouts.frame import Frame, Share, blocked
from ir.targets.cuda.layouts.meetings import meetings
from ir.targets.cuda.space.block_options import REGISTERS, Name, Options, options_of
from ir.targets.cuda.text.passes import Passes, find_passes, needed
from ir.targets.cuda.text.transfers import LEAST_COPY


@dataclass(frozen=True)
class BlockPlan:
    """One schedule. `looped` axes are walked, `free` ones are spread over the blocks of the grid.

    `sms`: processors of the card.
    """

    program: Program
    tiles: Mapping[str, int]
    frame: Frame
    looped: frozenset[str]
    free: tuple[str, ...]
    options: Options
    early: bool
    sms: int

    # -- the grid

    def count(self, axis: str) -> int:
        """Tiles along an axis."""
        return -(-self.program.axes[axis] // self.tiles[axis])

    @cached_property
    def total(self) -> int:
        """Tiles of all free axes."""
        return prod(self.count(axis) for axis in self.free)

    @property
    def grid(self) -> int:
        """Blocks that are launched."""
        walkers = self.options.walkers * self.sms
        count = self.total * self.options.parts * self.cluster
        return min(self.total, walkers) if walkers else count

    @property
    def cluster(self) -> int:
        """Blocks that share a tile, each with its own points of the axis that is spread."""
        return self.count(self.options.spread) if self.options.spread else 1

    @cached_property
    def varying(self) -> frozenset[str]:
        """Free axes of several tiles."""
        return frozenset(axis for axis in self.free if self.count(axis) > 1)

    # -- the main loops

    @cached_property
    def passes(self) -> Passes:
        """The runs over the walked axes."""
        return find_passes(self.program, self.looped)

    @property
    def main(self) -> str:
        """The axis of the main loop, if it is one."""
        return next(iter(self.looped)) if len(self.looped) == 1 else ""

    @cached_property
    def exchanges(self) -> bool:
        """Whether some reduction may combine what threads of several warps have."""
        gone = {a for n in self.program.nodes if is_reduction(n) for a in reduced_axes(n)}
        return any(meeting.across for meeting in meetings(self.frame, gone))

    # -- loads

    @cached_property
    def loads(self) -> tuple[int, ...]:
        """Loads from places that are not themselves read."""
        nodes = enumerate(self.program.nodes)
        return tuple(p for p, node in nodes if isinstance(node.op, Load) and not node.args)

    def first_loads(self) -> tuple[int, ...]:
        """Loads that come before a tile's loops, those of reductions first."""
        if not self.options.first:
            return ()
        late = loaded_late(self.program)
        fixed = (p for p in self.loads if not self.looped & {*self.program.nodes[p].axes})
        return tuple(sorted(fixed, key=lambda position: position in late))

    def loads_of_all_tiles(self) -> tuple[int, ...]:
        """Loads that are the same for all tiles that a block walks."""
        if not (self.options.first and self.options.walkers):
            return ()
        varies = self.varying | self.looped
        return tuple(p for p in self.loads if not varies & {*self.program.nodes[p].axes})

    def prefetched(self) -> tuple[int, ...]:
        """Loads of elements that no other block reads, asked for while the kernel before runs."""
        if not (self.early and self.options.prefetch):
            return ()
        nodes = enumerate(self.program.nodes)
        loads = (p for p, node in nodes if isinstance(node.op, Load))
        return tuple(p for p in loads if read_once(self.program, p))

    # -- loads that run ahead

    @property
    def in_registers(self) -> bool:
        """Whether loads that run ahead wait in registers."""
        return self.options.waits == REGISTERS

    @property
    def depth(self) -> int:
        """How many steps loads run ahead."""
        return min(self.options.ahead, 1) if self.in_registers else self.options.ahead

    def loads_of_tile(self) -> tuple[int, ...]:
        """Loads that run ahead of the tiles that a block walks."""
        if self.looped or not self.options.walkers:
            return ()
        nodes = enumerate(self.program.nodes)
        return self._ahead(p for p, node in nodes if self.varying & {*node.axes})

    def loads_of_run(self, number: int) -> tuple[int, ...]:
        """Loads that run ahead of the steps of one run over the walked axis."""
        if not self.main:
            return ()
        one, nodes = self.passes.passes[number], self.program.nodes
        roots = tuple(r for p in one.reductions for r in nodes[p].args) + one.stores
        inside = needed(self.program, roots, frozenset(one.reductions))
        return self._ahead(p for p in inside if self.main in nodes[p].axes)

    @cached_property
    def runs_ahead(self) -> bool:
        """Whether any loads do."""
        runs = range(len(self.passes.passes))
        return bool(self.loads_of_tile()) or any(map(self.loads_of_run, runs))

    def _ahead(self, positions: Iterable[int]) -> tuple[int, ...]:
        if not self.depth:
            return ()
        return tuple(position for position in positions if self._has_words(position))

    def _has_words(self, position: int) -> bool:
        """Whether a load is made of words that cp.async copies: 4, 8 or 16 bytes."""
        node = self.program.nodes[position]
        size = dtype_of(node.dtype).bytes
        if not isinstance(node.op, Load) or node.args or size > LEAST_COPY:
            return False
        access = load_access(node.op, self.program.scope.tensors[node.op.tensor])
        digits = access.row_first(self.frame.own(node.axes))
        width = access.vector(self.frame, digits, self.tiles, self.program.axes)
        return width * size >= LEAST_COPY

    def step_bytes(self, position: int) -> int:
        """Shared memory of a load in one step, of all threads."""
        node = self.program.nodes[position]
        return self.frame.count(node.axes) * dtype_of(node.dtype).bytes * self.frame.team

    @property
    def ring_bytes(self) -> int:
        """Shared memory of the largest ring."""
        if self.in_registers:
            return 0
        runs = range(len(self.passes.passes)) if self.looped else ()
        rings = [self.loads_of_tile(), *map(self.loads_of_run, runs)]
        return self.depth * max(sum(map(self.step_bytes, loads)) for loads in rings)


def make_plan(
    program: Program, reduced: Iterable[str], rows: Mapping[str, int],
    values: Mapping[str, Value], name: Name, sms: int,
) -> BlockPlan:  # fmt: skip
    """The plan of a schedule whose decisions `name` names; `program` is walked already.

    Axes of which some value is `reduced` lie within a block. `rows`: axes along which some tensor
    is contiguous, and elements of one access to it: of these a thread has neighbours, too.
    """
    axes, within = program.axes, frozenset(reduced)
    tiles = tiles_of(axes, values, name)
    lanes, vector = str(values[name("lanes")]), int(values[name("vector")])
    own = {axis: int(values[name(f"own.{axis}")]) for axis in axes}
    vectors = {axis: gcd(own[axis], width) for axis, width in rows.items()} | {lanes: vector}
    shares = (
        Share(a, tiles[a], own[a], vectors.get(a, 1))
        for a in (lanes, *(axis for axis in axes if axis != lanes))
    )
    options = options_of(values, name)
    return BlockPlan(
        program, tiles, blocked(shares), walked_axes(axes, within, tiles, options.spread),
        tuple(axis for axis in axes if axis not in within), options, starts_early(values), sms,
    )  # fmt: skip


def tiles_of(axes: Iterable[str], values: Mapping[str, Value], name: Name) -> dict[str, int]:
    """Points of each axis in one block."""
    return {axis: int(values[name(f"tile.{axis}")]) for axis in axes}


def walked_axes(
    axes: Mapping[str, int], reduced: Iterable[str], tiles: Mapping[str, int], spread: str = ""
) -> frozenset[str]:
    """Reduced axes that neither their tiles cover nor those of a cluster, one of them `spread`."""
    return frozenset(axis for axis in reduced if tiles[axis] < axes[axis] and axis != spread)
