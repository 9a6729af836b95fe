"""Kernels without tensor cores: every value in registers, operands straight from memory.

Each axis has a tile, and a number of its points that one thread owns; what a tile of a reduced
axis does not cover is walked. That covers maps, reductions, normalisations, gathers and small or
exact products alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import gcd, prod
from typing import Any

import numpy as np

from ir.columns import Columns, Decision
from ir.dtypes import dtype_of
from ir.errors import Refusal
from ir.program import Program
from ir.schedule import Value
from ir.space import Constraint, Space
from ir.target import Hardware
from ir.targets.cuda.grid.overlap import PREFETCH
from ir.targets.cuda.launch import Launch
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.lower.block_lower import BlockLowering
from ir.targets.cuda.lower.block_parts import shared_loops
from ir.targets.cuda.plans.block_plan import BlockPlan, make_plan, tiles_of, walked_axes
from ir.targets.cuda.seeds.block_seeds import (
    column_seed,
    lagged_seeds,
    legal_seeds,
    paired_seeds,
    product_seeds,
    whole_seeds,
    window_seeds,
)
from ir.targets.cuda.space.block_clusters import NONE, SPREAD, is_spread, spread_seeds
from ir.targets.cuda.space.block_fitted import (
    MAX_THREADS,
    divides,
    fitting,
    own_along,
    shared_evenly,
    tiles_along,
)
from ir.targets.cuda.space.block_options import (
    AHEAD,
    KEEP,
    LOADS,
    MAX_TILE,
    NEEDED,
    PARTS,
    REGISTERS,
    WAITS,
    WALKERS,
    chosen,
    option_decisions,
    power_above,
    spread_of,
)
from ir.targets.cuda.space.block_rules import OptionRules
from ir.targets.cuda.space.block_shape import BlockShape
from ir.targets.cuda.space.reads import Reads

RESIDENT = 4  # blocks of products that a processor has at a time
_FEW_OWN = 16  # elements of a thread whose loads are one by one
MAX_REGISTERS = 128  # of one value in one thread
MAX_ALL = 192  # of all values that a thread may hold at a time, roughly


class BlockKernel:
    """Decisions, constraints, seeds and lowering of one block kernel. `mark` ends its names."""

    kind = "block"
    most_points = MAX_TILE  # of an axis in one block

    def __init__(self, program: Program, mark: str, hardware: Hardware) -> None:
        if not program.axes:  # threads have something to share
            program = replace(program, extents=(("point", 1),))
        self.program, self.mark, self.hardware = program, mark, hardware
        self.shape = BlockShape(program)
        if not self.shape.loops:
            raise Refusal("loops", "its reductions cannot share one kernel")

    # -- the space

    def name(self, stem: str) -> str:
        return f"{stem}{self.mark}"

    def decisions(self) -> list[Decision]:
        found = []
        for axis in self.program.axes:
            tiles, own = self.tiles(axis), self.own(axis)
            found += [
                Decision(self.name(f"tile.{axis}"), tiles, "tile", axis,
                         "points of the axis in one block; what is left of a sum is walked"),
                Decision(self.name(f"own.{axis}"), own, "binding", axis,
                         "points of the axis in one thread"),
            ]  # fmt: skip
        widest = max(16 // dtype_of(spec.dtype).bytes for spec in self.program.tensors)
        vectors = tuple(1 << i for i in range(widest.bit_length()))
        found.append(
            Decision(self.name("lanes"), self.shape.lanes, "layout", self.shape.lanes[0],
                     "the axis along which neighbouring threads lie"))  # fmt: skip
        found.append(
            Decision(self.name("vector"), vectors, "layout", self.shape.lanes[0],
                     "neighbours along it in one access of a thread"))  # fmt: skip
        return found + list(self.options)

    @cached_property
    def options(self) -> tuple[Decision, ...]:
        """Choices beside the tile; none means nothing to this program."""
        found = option_decisions(self.program, self.hardware, self.name, self.shape.lanes[0])
        return tuple(found)

    def tiles(self, axis: str) -> tuple[int, ...]:
        """Points of an axis that a block may have."""
        return tiles_along(self.shape, axis, self.reach(axis, self.program.axes[axis]))

    def own(self, axis: str) -> tuple[int, ...]:
        """Points of an axis that a thread may have."""
        return own_along(self.shape, axis, self.reach(axis, self.program.axes[axis]))

    def reach(self, axis: str, extent: int) -> int:
        """The largest tile of an axis: the whole of it, if it is not too long."""
        return min(self.whole(axis, extent), MAX_TILE)

    def whole(self, axis: str, extent: int) -> int:
        """A tile that has all of an axis, or more where all axes are tiny."""
        points = prod(power_above(extent) for extent in self.program.axes.values())
        short = -(-WARP // points) if axis == self.shape.lanes[0] else 1
        return power_above(extent) * short

    def constraints(self) -> list[Constraint]:
        owning = "threads share a tile evenly, a power of two of them or whole warps"
        rules = (
            *((f"own.{axis}", owning, self._own_fits(axis)) for axis in self.program.axes),
            ("vector", "a vector lies within what a thread owns", self._vector_fits),
            ("threads", f"{WARP} to {MAX_THREADS} threads", self._threads_fit),
            ("registers", f"at most {MAX_REGISTERS} registers a value", self._registers_fit),
            ("walk", "axes that are walked belong to one chain of sums", self._loops_fit),
            ("grid", "less than 2^31 blocks", self._grid_fits),
        )
        return [
            Constraint(self.name(name), needs, check, self._explain(name))
            for name, needs, check in rules
        ] + OptionRules(self).constraints()

    def _explain(self, name: str) -> Any:
        def explain(values: Mapping[str, Value]) -> str:
            axes = self.program.axes
            shares = ", ".join(
                f"{a} {values[self.name(f'tile.{a}')]}/{values[self.name(f'own.{a}')]}"
                for a in axes
            )
            threads = self.threads(values)
            return f"{self.program.name}: tile/own {shares}; {threads} threads"

        return explain

    def _tile(self, columns: Any, axis: str) -> Any:
        return columns[self.name(f"tile.{axis}")]

    def _own(self, columns: Any, axis: str) -> Any:
        return columns[self.name(f"own.{axis}")]

    def threads(self, columns: Any) -> Any:
        """Threads of a block."""
        if isinstance(columns, Columns):
            return columns.derived(("threads", self.mark), self._threads)
        return self._threads(columns)

    def _threads(self, columns: Any) -> Any:
        total: Any = 1
        for axis in self.program.axes:
            total = total * (self._tile(columns, axis) // self._own(columns, axis))
        return total

    def _own_fits(self, axis: str) -> Callable[[Columns], Any]:
        """A rule for each axis: what is broken is mended where it is."""
        return lambda columns: divides(self._own(columns, axis), self._tile(columns, axis))

    def _vector_fits(self, columns: Columns) -> Any:
        passed: Any = np.zeros(columns.rows, dtype=bool)
        for axis in self.shape.lanes:
            chosen = columns.is_(self.name("lanes"), axis)
            passed |= chosen & (self._own(columns, axis) % columns[self.name("vector")] == 0)
        return passed

    def _threads_fit(self, columns: Columns) -> Any:
        threads = self.threads(columns)
        return (threads >= WARP) & (threads <= MAX_THREADS)

    def count(self, columns: Columns, axes: Iterable[str]) -> Any:
        """Registers of a value over `axes` in one thread."""
        chosen = tuple(sorted(axes))

        def product_of(columns: Columns) -> Any:
            found: Any = np.ones(columns.rows, dtype=np.int64)
            for axis in chosen:
                found = found * self._own(columns, axis)
            return found

        return columns.derived(("count", self.mark, chosen), product_of)

    def held(self, columns: Columns) -> Any:
        """Registers of all values that a thread may hold at a time, roughly."""
        return columns.derived(("held", self.mark), self._held)

    def _held(self, columns: Columns) -> Any:
        return sum(self.registers(columns, domain) for domain in self.shape.domains)

    def registers(self, columns: Columns, domain: frozenset[str]) -> Any:
        """Of the values over `domain` in one thread."""
        if domain in self.shape.loaded:
            key = ("registers", self.mark, domain)
            return columns.derived(key, lambda columns: self.reads.registers(columns, domain))
        return self.count(columns, domain)

    @cached_property
    def reads(self) -> Reads:
        return Reads(self)

    def _registers_fit(self, columns: Columns) -> Any:
        passed: Any = True
        for domain in self.shape.domains:
            passed = passed & (self.registers(columns, domain) <= MAX_REGISTERS)
        for body in self.shape.bodies:
            passed = passed & (self.count(columns, body) <= 8 * MAX_REGISTERS)
        threads = self.threads(columns)
        budget = np.minimum(MAX_ALL, 49152 // np.maximum(1, threads))
        return passed & (self.held(columns) <= budget)

    def _loops_fit(self, columns: Columns) -> Any:
        passed: Any = np.zeros(columns.rows, dtype=bool)
        for looped in self.shape.loops:
            here: Any = np.ones(columns.rows, dtype=bool)
            for axis in self.shape.reduced:
                short = self.short(columns, axis)
                here &= short if axis in looped else ~short
            passed |= here
        return passed

    def short(self, columns: Columns, axis: str) -> Any:
        """Whether the tile of a summed axis, or those of a cluster, leave some of it to walk."""
        some = self._tile(columns, axis) < self.program.axes[axis]
        return some & ~is_spread(self, columns, axis) if axis in self.spread else some

    @cached_property
    def spread(self) -> tuple[str, ...]:
        """Axes that the blocks of a cluster may share."""
        name = self.name(SPREAD)
        found = (one.domain for one in self.options if one.name == name)
        return tuple(str(axis) for axis in next(found, ()) if axis != NONE)

    def _grid_fits(self, columns: Columns) -> Any:
        blocks: Any = np.ones(columns.rows)
        for axis, extent in self.program.axes.items():
            if axis not in self.shape.reduced:
                blocks = blocks * np.ceil(extent / self._tile(columns, axis))
        return blocks < 2**31

    # -- seeds

    def seeds(self) -> list[dict[str, Value]]:
        """Columns where sums run across lanes; squares where tensors are contiguous along different
        axes; then rows spread over a block or a warp, whole where they fit, and walked, or one
        after the other; tiles walked; neighbours that share what they read."""
        deep: dict[str, Value] = {AHEAD: 3}
        near: dict[str, Value] = {AHEAD: 1, WAITS: REGISTERS, PREFETCH: 1}
        found: list[tuple[dict[str, Value], Mapping[str, Value]]] = [
            (column_seed(self, across, threads, own), changed)
            for across, threads, own, changed in (
                (4, 1024, 2, near), (4, 512, 8, near), (16, 512, 4, near | {PARTS: 8}),
                (8, 512, 4, near | {PARTS: 4}), (16, 512, 4, deep | {PARTS: 4}),
            )
            if self._sums_across
        ]  # fmt: skip
        found += [
            (self._square(across, threads), {})
            for across, threads in ((8, 128), (8, 256), (4, 128), (16, 256)) if self._turns
        ]  # fmt: skip
        found += [
            (self._wide_seed(threads, own, whole), changed)
            for threads, own, whole, changed in (
                (128, 8, True, {}), (256, 16, True, {}), (128, 32, True, {}),
                (256, 32, True, {LOADS: NEEDED}), (512, 16, True, {}),
                (128, 32, True, {WALKERS: 4, AHEAD: 3}),
                (256, 16, True, {WALKERS: 4, AHEAD: 2}), (128, 8, False, {}),
                (256, 16, False, deep), (512, 32, False, near), (1024, 16, False, near),
                (512, 32, False, near | {PARTS: 4}), (256, 32, False, near | {PARTS: 8}),
                (32, 8, True, {}), (1024, 32, True, {}),
            )
        ]  # fmt: skip
        found += [(values, {}) for values in self._rows_of_warps()]
        found += [(values, deep | {KEEP: True}) for values in self._rows_in_turn()]
        found += self._shared(found)
        products = [(values, dict[str, Value]()) for values in product_seeds(self)]
        found += [(values, {}) for values in (*window_seeds(self), *paired_seeds(self))]
        found += products + self._shared(products, RESIDENT)
        vector, most = self.name("vector"), self._aligned
        lane = self.name(f"own.{self.shape.lanes[0]}")
        found += [({**values, vector: most}, changed) for values, changed in found
                  if int(values[vector]) > most and int(values[lane]) >= _FEW_OWN][:8]  # fmt: skip
        short = [(self._with_short(values), changed) for values, changed in found
                 if self.shape.short]  # fmt: skip
        found += short + [one for one in self._shared(short) if one not in short]
        return self._with_options(found + lagged_seeds(self) + spread_seeds(self))

    def _with_short(self, values: dict[str, Value]) -> dict[str, Value]:
        """The same with each short axis whole in a thread."""
        whole = {axis: self.reach(axis, self.program.axes[axis]) for axis in self.shape.short}
        own = {self.name(f"{stem}.{a}"): n for a, n in whole.items() for stem in ("tile", "own")}
        return values | own

    def _rows_of_warps(self) -> list[dict[str, Value]]:
        """Rows whose length is no power of two, several in a block and each whole in one warp."""
        lane, axes = self.shape.lanes[0], self.program.axes
        free = [axis for axis in axes if axis not in self.shape.reduced]
        rows = [t for t in self.tiles(lane) if t >= axes[lane]]
        fits = [t for t in rows if t // WARP in self.own(lane) and t & (t - 1)]
        if self.shape.reduced != (lane,) or not free or not fits:
            return []
        tile, own = fits[0], fits[0] // WARP
        alone: dict[str, Value] = {
            self.name(f"{stem}.{axis}"): 1 for axis in free for stem in ("tile", "own")
        }
        alone |= {self.name(f"tile.{lane}"): tile, self.name(f"own.{lane}"): own}
        alone |= {self.name("lanes"): lane, self.name("vector"): gcd(self.widest, own)}
        below = self.name(f"tile.{free[-1]}")
        return [
            alone | {below: rows} for rows in (4, 8) if rows <= self.reach(free[-1], axes[free[-1]])
        ]

    def _rows_in_turn(self) -> list[dict[str, Value]]:
        """Whole rows one after the other, where sums are along them and across them."""
        lane, reduced = self.shape.lanes[0], self.shape.reduced
        row = power_above(self.program.axes[lane])
        if lane not in reduced or len(reduced) < 2:
            return []
        return [
            self._seed(n, row // n, True) for n in (128, 256, 512) if WARP <= row // n * 8 <= 512
        ]

    @property
    def _parts(self) -> tuple[int, ...]:
        """Of how many parts a sum may be."""
        name = self.name(PARTS)
        domains = (decision.domain for decision in self.options if decision.name == name)
        return tuple(map(int, next(domains, (1,))))

    def _shared(
        self, found: Sequence[tuple[dict[str, Value], Mapping[str, Value]]], each: int = 1
    ) -> list[tuple[dict[str, Value], Mapping[str, Value]]]:
        """The same, with so many parts of sums that there is a block for every processor, or
        `each` of them."""
        shared: list[tuple[dict[str, Value], Mapping[str, Value]]] = []
        loops, room = shared_loops(self.program), each * int(self.hardware["sms"])
        for values, changed in found:
            tiles = {axis: int(values[self.name(f"tile.{axis}")]) for axis in self.program.axes}
            counts = {axis: -(-extent // tiles[axis]) for axis, extent in self.program.axes.items()}
            blocks = prod(n for axis, n in counts.items() if axis not in self.shape.reduced)
            steps = max((n for axis, n in counts.items() if axis in loops), default=1)
            parts = [n for n in self._parts if n * blocks <= room and n <= steps]
            if parts and parts[-1] > 1:
                shared.append((values, {**changed, WALKERS: 0, PARTS: parts[-1]}))
        return shared

    @property
    def _sums_across(self) -> bool:
        """Whether what is reduced does not lie along the lanes."""
        return bool(self.shape.reduced) and self.shape.lanes[0] not in self.shape.reduced

    @property
    def _turns(self) -> tuple[str, ...]:
        """Two axes along which tensors are contiguous, the largest first, if nothing is reduced
        over them."""
        free = tuple(axis for axis in self.shape.lanes if axis not in self.shape.reduced)
        return free[:2] if len(free) > 1 and free[0] == self.shape.lanes[0] else ()

    def _square(self, across: int, threads: int) -> dict[str, Value]:
        """Threads with squares of neighbours along two axes, `across` of them along the lanes."""
        lane, other = self._turns
        values: dict[str, Value] = {self.name("lanes"): lane}
        for axis, extent in self.program.axes.items():
            count = {lane: across, other: threads // across}.get(axis, 1)
            mine = min(self.widest, power_above(extent)) if axis in (lane, other) else 1
            values[self.name(f"tile.{axis}")] = min(mine * count, power_above(extent))
            values[self.name(f"own.{axis}")] = mine
        values[self.name("vector")] = values[self.name(f"own.{lane}")]
        return values

    @cached_property
    def widest(self) -> int:
        """Elements of the largest tensor in one access."""
        largest = max(self.program.tensors, key=lambda spec: prod(spec.shape))
        return 16 // dtype_of(largest.dtype).bytes

    @property
    def _aligned(self) -> int:
        """Elements of the longest vector at multiples of which all rows begin, those that are
        stored and those of the largest tensor that is read."""
        stored = (store.axes for _, store in self.program.stores() if len(store.axes) > 1)
        read = max(self.program.inputs, key=lambda spec: prod(spec.shape), default=None)
        rows = [read.shape[-1]] if read is not None and len(read.shape) > 1 else []
        return gcd(self.widest, *(self.program.axes[axes[-1]] for axes in stored), *rows)

    def _with_options(
        self, wanted: Sequence[tuple[dict[str, Value], Mapping[str, Value]]]
    ) -> list[dict[str, Value]]:
        """Values, each with what is said of the choices, or as much of it as is legal."""
        space = Space("cuda", tuple(self.decisions()), tuple(self.constraints()))
        never: dict[str, Value] = {KEEP: False, LOADS: NEEDED}
        tries = [
            [
                values | chosen(self.options, self.name, more)
                for more in (changed, {**changed, **never}, {}, never)
            ]
            for values, changed in wanted
        ]
        fits = legal_seeds(space, [found for ways in tries for found in ways])
        fits = fits.reshape(len(tries), -1)
        if not fits.any():
            own = [values | chosen(self.options, self.name, {}) for values in whole_seeds(self)]
            mine = [v for v, fit in zip(own, legal_seeds(space, own), strict=True) if fit]
            return mine or tries[0][-1:]
        fits[:, -1] = True  # what is left when nothing fits
        return [ways[first] for ways, first in zip(tries, fits.argmax(axis=1), strict=True)]

    def _wide_seed(self, threads: int, own: int, whole: bool) -> dict[str, Value]:
        """A seed of at least a warp: of small tiles each thread owns less."""
        values = self._seed(threads, own, whole)
        while own > 1 and self.threads(values) < WARP:
            own //= 2
            values = self._seed(threads, own, whole)
        return values

    def _seed(self, threads: int, own: int, whole: bool) -> dict[str, Value]:
        lane, axes = self.shape.lanes[0], self.program.axes
        vector = min(self.widest, power_above(axes[lane]), own)
        values: dict[str, Value] = {self.name("lanes"): lane, self.name("vector"): vector}
        left_threads, left_own = threads, own
        reduced = self.shape.reduced if lane in self.shape.reduced else ()
        rest = [axis for axis in axes if axis != lane]
        for axis in [lane, *sorted(rest, key=lambda axis: axis not in reduced)]:
            top = self.reach(axis, axes[axis])
            mine = min(left_own, top) if axis == lane else min(max(1, left_own // 2), top)
            across = min(left_threads, max(1, top // mine))
            if axis in self.shape.reduced and axis != lane and not whole:
                across = 1
            if axis == lane and mine * across == top:
                across = (fitting(self.tiles(axis), axes[axis], mine) or top) // mine
            elif self.shape.is_beside(axis) and mine * across == top:
                mine, across = shared_evenly(axes[axis], left_threads) or (mine, across)
            values[self.name(f"tile.{axis}")] = mine * across
            values[self.name(f"own.{axis}")] = mine
            left_threads = power_above(max(1, left_threads // across) + 1) // 2  # a power of two
            left_own = max(1, left_own // mine)
        return values

    # -- lowering

    def lower(self, values: Mapping[str, Value], name: str) -> Launch:
        return BlockLowering(self.plan(values), name).run()

    def plan(self, values: Mapping[str, Value]) -> BlockPlan:
        """All numbers of a schedule."""
        axes, reduced = self.program.axes, self.shape.reduced
        spread = spread_of(values, self.name)
        looped = walked_axes(axes, reduced, tiles_of(axes, values, self.name), spread)
        program = self.shape.streamed(looped)
        rows = dict.fromkeys(self.shape.lanes, self.widest)
        return make_plan(program, reduced, rows, values, self.name, int(self.hardware["sms"]))
