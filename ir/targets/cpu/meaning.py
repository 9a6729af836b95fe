"""What a CPU schedule comes down to: numbers that schedules of one kernel share.

Much of a schedule is not read where the rest makes it void: the place of a loop of one iteration,
the order of tiles of which there is one, panels inside loops that do not exist. What is told apart
here may still lower to one kernel; what is not, always does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.columns import Columns, Mask
from ir.dtypes import dtype_of
from ir.targets.cpu.decisions import Decisions
from ir.targets.cpu.instructions import DotRow
from ir.targets.cpu.regions import Array, Regions
from ir.targets.cpu.shape import OperandShape, StageShape
from ir.targets.cpu.splitting import WHOLE

Numbers = NDArray[np.int32]
READ_AS_THEY_ARE = ("lane", "rows", "vectors", "instruction")


@dataclass(frozen=True)
class Meaning:
    """Callable: columns -> [row, number]. Numbers of one space only are comparable."""

    decisions: Decisions

    def __call__(self, columns: Columns) -> Numbers:
        loops = Loops(Regions(self.decisions, columns))
        found: list[NDArray[Any]] = [*loops.table(), *self._threads(loops), self._stream(loops)]
        for shape in self.decisions.shapes:
            found += StageMeaning(shape, loops, self.decisions).table()
        if "split" in loops.regions.names:
            found.append(columns.codes("split"))
        out = np.empty((columns.rows, len(found)), dtype=np.int32)
        for number, values in enumerate(found):
            out[:, number] = values
        return out

    def _threads(self, loops: Loops) -> list[Array]:
        """Which loops threads share, and how; a split shares its parts out itself."""
        regions, parted = loops.regions, loops.parted
        shared, begin = self._shared(loops), np.full(regions.columns.rows, np.inf)
        for axis, dealt in shared.items():
            begin = np.where(dealt, np.minimum(begin, loops.first[axis]), begin)
        chunk = np.where(np.isfinite(begin) & ~parted, 1.0 + regions.columns.codes("chunk"), 0.0)
        chunk = np.where(self._behind_others(loops, begin), self._blocks(chunk), chunk)
        return [*(dealt.astype(np.float64) for dealt in shared.values()), chunk]

    def _shared(self, loops: Loops) -> dict[str, Mask]:
        """Where each axis has a loop whose iterations are dealt out. Where every stage stands in
        every loop, those are that follow the first of them without one between."""
        wanted = {}
        for axis in loops.axes:
            choices = [c for c in loops.regions.domain("parallel") if axis in c.split()]
            among = loops.regions.columns.among("parallel", choices)
            wanted[axis] = among & (loops.first[axis] > 0) & ~loops.parted
        stages = self.decisions.staged.stages
        if not all(axis in stage.domain for stage in stages for axis in loops.axes):
            return wanted
        none = np.zeros(loops.regions.columns.rows, dtype=np.bool_)
        found, begun, last = dict.fromkeys(wanted, none), none, none
        for place in range(1, 2 * len(loops.axes) + 1):
            dealt = none
            for axis, asked in wanted.items():
                here = asked & (loops.first[axis] == place) & (last | ~begun)
                found[axis], dealt = found[axis] | here, dealt | here
            begun, last = begun | dealt, dealt
        return found

    def _behind_others(self, loops: Loops, begin: Array) -> Mask:
        """Where a loop of every stage stands before the first that threads share: there is no
        dealing out by turns then."""
        stages = self.decisions.staged.stages
        common = [a for a in loops.axes if all(a in stage.domain for stage in stages)]
        behind = np.zeros(len(begin), dtype=np.bool_)
        for axis in common:
            behind |= (loops.first[axis] > 0) & (loops.first[axis] < begin)
        return behind

    def _blocks(self, chunk: Array) -> Array:
        """Turns read as blocks."""
        domain = next(d for d in self.decisions.found if d.name == "chunk").domain
        turns = 1.0 + domain.index("dynamic") if "dynamic" in domain else -1.0
        return np.where(chunk == turns, 1.0 + domain.index("block"), chunk)

    def _stream(self, loops: Loops) -> Array:
        """Whether any store bypasses the cache: those of whole vectors along an output's rows.
        What merges the parts of a split has lanes of its own."""
        regions = loops.regions
        lanes, tensors = self.decisions.vector.lanes, self.decisions.staged.program.scope.tensors
        able = loops.parted.astype(np.float64)
        for shape in self.decisions.shapes:
            for result in shape.stage.written:
                if result.tensor is None or not result.axes:
                    continue
                element = dtype_of(tensors[result.tensor].dtype).bytes
                if tensors[result.tensor].shape[-1] * element % (lanes * element) == 0:
                    able += regions.flag(f"lane.{shape.stage.name}", result.axes[-1])
        return np.where(able > 0, regions.number("stream", 0.0), 0.0)


class Loops:
    """The real loops of many schedules from the outermost inwards.

    By axis: where its outermost and its second loop stand (from 1 on; 0 where there is none).
    """

    def __init__(self, regions: Regions) -> None:
        self.regions = regions
        self.axes = tuple(dict.fromkeys((*regions.looped[0], *regions.looped[1])))
        none = np.zeros(regions.columns.rows)
        outer = {a: regions.outer[a] < regions.span(a) for a in regions.looped[0]}
        inner = {a: regions.inner[a] < regions.outer[a] for a in regions.looped[1]}
        above = self._places(0, outer, none)
        count = sum((real.astype(np.float64) for real in outer.values()), none)
        below = self._places(1, inner, count)
        self.outermost = {a: above.get(a, none) for a in self.axes}
        self.innermost = {a: below.get(a, none) for a in self.axes}
        self.first = {
            a: np.where(self.outermost[a] > 0, self.outermost[a], self.innermost[a])
            for a in self.axes
        }

    def _places(self, level: int, real: dict[str, Mask], start: Array) -> dict[str, Array]:
        places = self.regions.places[level]
        found = {}
        for axis, here in real.items():
            before = start + 1.0
            for other, there in real.items():
                before = before + (there & (places[other] < places[axis]))
            found[axis] = np.where(here, before, 0.0)
        return found

    @cached_property
    def parted(self) -> Mask:
        """Where a reduced axis is split over the threads."""
        rows = self.regions.columns.rows
        if "split" not in self.regions.names:
            return np.zeros(rows, dtype=np.bool_)
        return np.logical_not(self.regions.columns.is_("split", WHOLE))

    def table(self) -> list[Array]:
        """Places and blocks of the loops of each axis."""
        found = []
        for axis in self.axes:
            outer, inner = self.regions.outer[axis], self.regions.inner[axis]
            twice = (self.outermost[axis] > 0) & (self.innermost[axis] > 0)
            block = np.where(self.outermost[axis] > 0, outer, inner)
            found += [self.first[axis], np.where(self.first[axis] > 0, block, 0.0)]
            found.append(np.where(twice, self.innermost[axis], 0.0))
            found.append(np.where(twice, inner, 0.0))
        return found

    def exact(self, axis: str) -> Mask:
        """Where all innermost regions of an axis are of one size."""
        span, outer, inner = (
            self.regions.span(axis),
            self.regions.outer[axis],
            self.regions.inner[axis],
        )
        return np.asarray((span % outer == 0) & (outer % inner == 0))


class StageMeaning:
    """What the decisions of one stage come down to."""

    def __init__(self, shape: StageShape, loops: Loops, decisions: Decisions) -> None:
        self.shape, self.loops, self.decisions = shape, loops, decisions
        self.regions, self.columns = loops.regions, loops.regions.columns
        self.name = shape.stage.name
        dots = {dot.name: dot for dot in shape.instructions}
        deep = {name: depth_of(dot) for name, dot in dots.items()}
        tile = {n: float(dot.tile) if dot.kind == "tile" else 1.0 for n, dot in dots.items()}
        self.depth = self.regions.looked_up(f"instruction.{self.name}", deep)
        self.tile = np.maximum(
            self.regions.looked_up(f"instruction.{self.name}", tile or {"": 1.0}), 1.0
        )
        self.folded = self._along("lane", shape.stage.reduce)

    def table(self) -> list[NDArray[Any]]:
        names = [f"{kind}.{self.name}" for kind in READ_AS_THEY_ARE]
        found: list[NDArray[Any]] = [self._row()]
        found += [self.columns.codes(name) for name in names if name in self.regions.names]
        if self.shape.product:
            found += [self._micro(), self._unroll(), self._prefetch()]
            found += [self._pack(operand) for operand in self.shape.operands]
        return found

    def _along(self, role: str, axes: Sequence[str]) -> Mask:
        """Where lanes or rows run over one of `axes`."""
        name = f"{role}.{self.name}"
        if name not in self.regions.names:
            return np.zeros(self.columns.rows, dtype=np.bool_)
        return self.columns.among(name, axes)

    def _row(self) -> Array:
        """The axis of the rows; one row on the innermost kept axis is as good as none."""
        codes = self.columns.codes(f"row.{self.name}").astype(np.float64)
        if self.shape.product or not self.shape.stage.parallel:
            return codes
        last = self.shape.stage.parallel[-1]
        single = self.regions.number(f"rows.{self.name}") == 1
        void = single & self.folded & self._along("row", (last,)) & self._laid_out_alike(last)
        return np.where(void, 0.0, codes)

    def _laid_out_alike(self, last: str) -> Mask:
        """Where what a stage leaves in buffers lies the same if its last kept axis has the rows,
        lanes being folded: buffers round the lengths of axes of rows up to 16."""
        stage, nodes = self.shape.stage, self.decisions.staged.program.nodes
        sizes = (self.regions.span(last), self.regions.outer[last], self.regions.inner[last])
        rounded = np.logical_and.reduce([(size % 16 == 0) | (size == 1) for size in sizes])
        alike = np.ones(self.columns.rows, dtype=np.bool_)
        written = [(r.node, r in stage.body_results) for r in stage.written if r.tensor is None]
        for node, inside in [*written, *((a.node, False) for a in stage.accumulators)]:
            kept = [axis for axis in nodes[node].axes if axis not in stage.reduce[:1]]
            if last in kept:
                alike &= (kept[-1] == last) & (rounded | (not inside))
        return alike

    def _micro(self) -> Array:
        """The order of register tiles, where there are several both ways."""
        rows = self.regions.number(f"rows.{self.name}") * self.tile
        lanes = self.regions.number(f"vectors.{self.name}") * self.decisions.vector.lanes
        several = self._several("row", rows) & self._several("lane", lanes) & ~self.folded
        return np.where(several, self.regions.flag(f"micro.{self.name}", "lanes"), 0.0)

    def _several(self, role: str, step: Array) -> Mask:
        """Where an axis has more register tiles than one."""
        found = np.zeros(self.columns.rows, dtype=np.bool_)
        for axis in self.shape.stage.parallel:
            one = self.loops.exact(axis) & (self.regions.inner[axis] <= step)
            found |= self._along(role, (axis,)) & ~one
        return found

    def _unroll(self) -> Array:
        """Steps of the innermost loop, where it has whole iterations of so many."""
        unroll, main = self.regions.number(f"unroll.{self.name}"), self.shape.main
        span, inner = self.regions.span(main), self.regions.inner[main]
        whole = (span % (self.depth * unroll) == 0) & (inner % (self.depth * unroll) == 0)
        looped = ~(self.loops.exact(main) & (inner <= self.depth))
        return np.where(whole & looped & ~self.folded, unroll, 1.0)

    def _prefetch(self) -> Array:
        """How far ahead the lane operand is touched, which plain multiply-adds alone do."""
        fma = {dot.name: float(dot.name == "fma") for dot in self.shape.instructions}
        plain = self.regions.looked_up(f"instruction.{self.name}", fma) > 0
        ahead = self.regions.number(f"prefetch.{self.name}", 0.0)
        return np.where(plain & ~self.folded, ahead, 0.0)

    def _pack(self, operand: OperandShape) -> Array:
        """The innermost loop inside which an operand is packed: 0 for none, -1 for in place, -2
        for the one over the parts of a split alone."""
        name = f"pack.{self.name}.{operand.name}"
        if name not in self.regions.names:
            return np.zeros(self.columns.rows)
        outer, inner = np.zeros(self.columns.rows), np.zeros(self.columns.rows)
        for axis in operand.axes:
            if axis in self.loops.axes:
                outer = np.maximum(outer, self.loops.outermost[axis])
                inner = np.maximum(inner, self.loops.innermost[axis])
        inside = np.where(self.columns.is_(name, "0"), np.maximum(outer, inner), 0.0)
        inside = np.where(self.columns.is_(name, "1"), outer, inside)
        parts = self.loops.parted & ~self.columns.is_(name, "2") & (inside == 0.0)
        inside = np.where(parts, -2.0, inside)
        return np.where(self.columns.is_(name, "no"), -1.0, inside)


def depth_of(dot: DotRow) -> float:
    """Elements of the reduced axis in one step of an instruction."""
    return 64.0 / dot.element if dot.kind == "tile" else float(dot.depth)
