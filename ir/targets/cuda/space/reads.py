"""What the threads of a block kernel read, over columns of schedules: elements, each once where a
window is read, and the bytes that they take of L1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import gcd, prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ir.columns import Columns
from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.targets.cuda.layouts.access import Access
from ir.targets.cuda.layouts.bent import plain_access
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.layouts.windows import alike, places_of
from ir.targets.cuda.space.block_options import AHEAD
from ir.targets.cuda.space.gathers import SECTOR, apart

if TYPE_CHECKING:
    from ir.targets.cuda.space.block import BlockKernel

Array = NDArray[np.float64]
Steps = tuple[tuple[tuple[str, int], ...], tuple[int, ...]]
LINE = 128  # bytes that L1 gives at a time
BY_WAY = 2.5  # times a load's bytes, of one that goes by way of shared memory
LEAST = 4  # bytes of a lane's access, whatever it takes


@dataclass(frozen=True)
class Group:
    """Loads of a tensor that are alike. `apart`: bytes between what neighbours along axes read at
    computed indices; None at plain ones, and where an index is data."""

    number: int
    tensor: str
    axes: tuple[str, ...]
    accesses: tuple[Access, ...]
    apart: Mapping[str, float] | None = None

    @property
    def first(self) -> Access:
        return self.accesses[0]

    @cached_property
    def steps(self) -> tuple[Steps, ...]:
        """Of each dimension the terms, the nearest first, and where its loads begin."""
        return tuple(
            (
                tuple(sorted(d.terms, key=lambda term: abs(term[1]))),
                tuple(sorted({access.dimensions[n].constant for access in self.accesses})),
            )
            for n, d in enumerate(self.first.dimensions)
        )

    @cached_property
    def times(self) -> int:
        """Accesses of a point: of places of a row that is looked up fewer than loads."""
        return len(self.accesses) if self.first.plain else len(places_of(self.accesses))


class Reads:
    """The loads of one kernel."""

    def __init__(self, kernel: BlockKernel) -> None:
        self.kernel, self.program = kernel, kernel.program

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Loads that are alike, and those of places that are themselves read one by one."""
        nodes = self.program.nodes
        groups = alike(self.program)
        known = {position for group in groups for position in group}
        loads = [p for p, node in enumerate(nodes) if isinstance(node.op, Load)]
        found = []
        alone = ((p,) for p in loads if p not in known)
        for number, group in enumerate((*groups, *alone)):
            ops = [op for p in group if isinstance(op := nodes[p].op, Load)]
            own = (plain_access(self.program, p) for p in group)
            accesses = tuple(
                a.joined if op.fill is None else a for a, op in zip(own, ops, strict=True)
            )
            steps = None
            if not accesses[0].plain:
                steps = apart(self.program, group[0], dtype_of(accesses[0].dtype).bytes)
            found.append(Group(number, ops[0].tensor, nodes[group[0]].axes, accesses, steps))
        return tuple(found)

    @cached_property
    def spanned(self) -> frozenset[str]:
        """Axes along which points, or loads, may come to the same elements."""
        found: set[str] = set()
        for group in self.groups:
            for number, d in enumerate(group.first.dimensions):
                constants = {access.dimensions[number].constant for access in group.accesses}
                if group.first.plain and (len(constants) > 1 or len(d.terms) > 1):
                    found |= {axis for axis, _ in d.terms}
        return frozenset(found)

    def elements(self, columns: Columns, group: Group) -> Array:
        """Elements that a thread reads at a step."""
        key = ("elements", self.kernel.mark, group.number)
        return np.asarray(columns.derived(key, lambda columns: self._elements(columns, group)))

    def _elements(self, columns: Columns, group: Group) -> Array:
        own = [self._own(columns, axis) for axis in group.axes]
        alone = np.asarray(prod(own, start=np.ones(columns.rows))) * group.times
        if not group.first.plain:
            return alone
        together = np.ones(columns.rows)
        for steps in group.steps:
            together = together * self._along(columns, steps)
        return np.where(self._ahead(columns), alone, np.minimum(alone, together))

    def _own(self, columns: Columns, axis: str) -> Array:
        """Points of an axis in one thread, none beyond its end."""

        def within(columns: Columns) -> Array:
            own = np.asarray(columns[self.kernel.name(f"own.{axis}")], dtype=np.float64)
            return np.minimum(own, self.program.axes[axis])

        return np.asarray(columns.derived(("points", self.kernel.mark, axis), within))

    def _beside(self, columns: Columns, axis: str) -> Array:
        """Points of an axis that are neighbours in one thread."""
        key = ("beside", self.kernel.mark, axis)
        return np.asarray(columns.derived(key, lambda columns: self._neighbours(columns, axis)))

    def _neighbours(self, columns: Columns, axis: str) -> Array:
        own, name = self._own(columns, axis), self.kernel.name
        whole = columns[name(f"own.{axis}")] == columns[name(f"tile.{axis}")]
        lanes = columns.is_(name("lanes"), axis)
        return np.where(whole, own, np.where(lanes, columns[name("vector")], 1.0))

    def _along(self, columns: Columns, steps: Steps) -> Array:
        """Elements along one dimension that the points of all loads of a group come to."""
        key = ("along", self.kernel.mark, steps)
        return np.asarray(columns.derived(key, lambda columns: self._come_to(columns, steps)))

    def _come_to(self, columns: Columns, steps: Steps) -> Array:
        terms, constants = steps
        unit = gcd(*(c for _, c in terms)) or 1
        count, kept = np.ones(columns.rows), np.ones(columns.rows)
        for axis, c in terms:
            beside, step = self._beside(columns, axis), abs(c) / unit
            meets = (count == 1.0) | (step < count)
            longer = np.where(count == 1.0, beside, count + step * (beside - 1.0))
            kept = kept * self._own(columns, axis) / np.where(meets, beside, 1.0)
            count = np.where(meets, longer, count)
        found = np.zeros(columns.rows)
        for rest in sorted({constant % unit for constant in constants}):  # between steps
            found = found + count
            for before, here in pairwise(c for c in constants if c % unit == rest):
                found = found + np.minimum((here - before) / unit, count)
        return found * kept

    def bytes(self, columns: Columns) -> Array:
        """That a thread asks for at a step."""
        sizes = [(group, dtype_of(group.first.dtype).bytes) for group in self.groups]
        found = np.zeros(columns.rows)
        for group, size in sizes:
            found = found + self.elements(columns, group) * size
        return found

    def registers(self, columns: Columns, domain: frozenset[str]) -> Any:
        """Of the values of loads over `domain`."""
        counts = [self.elements(columns, g) for g in self.groups if {*g.axes} == domain]
        alone = [g.times for g in self.groups if {*g.axes} == domain]
        return np.max([c / n for c, n in zip(counts, alone, strict=True)], axis=0)

    def clocks(
        self, columns: Columns, threads: Array, lanes: Sequence[str], passes: Mapping[str, Array]
    ) -> Array:
        """Clocks of one processor's L1 for the reads of all blocks together; `passes`: in how many
        tensors are read, where it is not one."""
        total = np.zeros(columns.rows)
        for group in self.groups:
            steps = threads
            for axis, extent in self.program.axes.items():
                if axis in group.axes or axis not in self.kernel.shape.reduced:
                    tile = columns[self.kernel.name(f"tile.{axis}")]
                    steps = steps * np.ceil(extent / tile)
            size = dtype_of(group.first.dtype).bytes
            wide = self._wide(columns, group, size)
            for lane in lanes:
                vector = self._vector(columns, group, lane, size)
                here = columns.is_(self.kernel.name("lanes"), lane) & group.first.plain
                wide = np.where(here, np.maximum(wide, vector), wide)
            bytes_ = np.maximum(self._apart(columns, group, lanes, wide, size), wide * size)
            steps = steps * passes.get(group.tensor, 1.0)
            total = total + steps * self.elements(columns, group) / wide * bytes_
        return total / LINE * np.where(self._ahead(columns), BY_WAY, 1.0)

    def _ahead(self, columns: Columns) -> NDArray[np.bool_]:
        """Whether loads go by way of shared memory."""
        name = self.kernel.name(AHEAD)
        return columns[name] > 0 if name in columns else np.zeros(columns.rows, dtype=bool)

    def _wide(self, columns: Columns, group: Group, size: int) -> Array:
        """Elements that are wanted of an access: neighbours, or of points some elements apart as
        many as a window of their loads brings."""
        found = np.ones(columns.rows)
        for d in group.first.dimensions[-1:]:
            if d.gather is not None:
                break
            constants = {access.dimensions[-1].constant for access in group.accesses}
            for axis, c in d.terms:
                step = abs(c)
                share = len({constant % step for constant in constants}) / step
                most = self._aligned(group, axis, size)
                if 2 * share >= 1.0 and size <= 4:
                    beside = self._beside(columns, axis)
                    found = np.maximum(found, np.minimum(beside * step, most) * share)
        return found

    def _apart(
        self, columns: Columns, group: Group, lanes: Sequence[str], wide: Array, size: int
    ) -> Array:
        """Bytes from one lane's access to the next one's in the mean, none that are the same for
        all: where threads along the fastest axis are few, the others lie a row apart."""
        found = np.full(columns.rows, float(LEAST))
        name = self.kernel.name
        for lane in lanes:
            here = columns.is_(name("lanes"), lane)
            stride = abs(group.first.stride(lane)) * size
            step = stride * self._vector(columns, group, lane, size)
            if group.apart is not None:
                step = np.full(columns.rows, group.apart.get(lane, 0.0))
            elif not group.first.plain:
                step = np.maximum(step, SECTOR)
            along, row = self._threads(columns, lane), np.full(columns.rows, float(LINE))
            for other in group.axes:
                if other != lane and (stride := abs(group.first.stride(other)) * size):
                    beside = self._threads(columns, other) > 1.0
                    row = np.where(beside, np.minimum(row, stride), row)
            step = (step * (along - 1.0) + row) / along
            found = np.where(here, np.clip(step, LEAST, LINE), found)
        return found

    def _aligned(self, group: Group, axis: str, size: int) -> int:
        """Elements along an axis that one access may take, as the others lie."""
        others = (group.first.stride(other) for other in group.axes if other != axis)
        return gcd(max(1, 16 // size), *others)

    def _threads(self, columns: Columns, axis: str) -> Array:
        """Of a warp, along an axis."""
        tile = columns[self.kernel.name(f"tile.{axis}")]
        points = np.minimum(tile, self.program.axes[axis])
        return np.clip(points / self._own(columns, axis), 1.0, WARP)

    def _vector(self, columns: Columns, group: Group, lane: str, size: int) -> Array:
        """Elements of an access along an axis: as many as rows are aligned to."""
        most = self._aligned(group, lane, size) if group.first.stride(lane) == 1 else 1
        chosen = np.asarray(columns[self.kernel.name("vector")], dtype=np.float64)
        return np.minimum(np.minimum(chosen, most), self._own(columns, lane))
