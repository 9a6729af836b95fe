"""The loop nest of many schedules at once: what each axis spans at every depth, and who repeats.

Depth 0 is the whole program, every further depth lies inside one loop more: first the outer blocks
in their order, then the inner ones. Arrays have one entry for each schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from ir.space import Columns
from ir.targets.cpu.decisions import Decisions
from ir.targets.cpu.plan import main_reduction

Array = NDArray[np.float64]
Sizes = dict[str, Array]


class Regions:
    """Sizes of the regions of all axes at all depths, for the rows of `columns`."""

    def __init__(self, decisions: Decisions, columns: Columns) -> None:
        self.decisions, self.columns = decisions, columns
        self.names = {d.name for d in decisions.found}
        self._flags: dict[tuple[str, str], Array] = {}
        self.extents = decisions.extents
        self.parts = self._parts()
        self.outer, self.inner = self._blocks()

    def number(self, name: str, default: float = 1.0) -> Array:
        """A numeric decision, or `default` where the space has none of that name."""
        if name in self.names:
            return self.columns[name].astype(np.float64)
        return np.full(self.columns.rows, default)

    def flag(self, name: str, value: str) -> Array:
        """1 where a decision has this value."""
        if (name, value) not in self._flags:
            here = name in self.names
            found = self.columns.is_(name, value) if here else np.zeros(self.columns.rows)
            self._flags[name, value] = found.astype(np.float64)
        return self._flags[name, value]

    def domain(self, name: str) -> tuple[str, ...]:
        """The values of a decision over strings; none where there is no such decision."""
        found = self.decisions.found
        return next((tuple(map(str, d.domain)) for d in found if d.name == name), ())

    def _parts(self) -> dict[str, Array]:
        """Axis -> parts into which the schedule splits it over threads."""
        found: dict[str, Array] = {}
        for choice in self.decisions.splits:
            axis, _, count = choice.partition(":")
            if count:
                known = found.setdefault(axis, np.ones(self.columns.rows))
                known[self.columns.is_("split", choice)] = float(count)
        return found

    def span(self, axis: str) -> Array:
        """Points of an axis that one part of it has."""
        whole = np.full(self.columns.rows, float(self.extents[axis]))
        return np.ceil(whole / self.parts[axis]) if axis in self.parts else whole

    def _blocks(self) -> tuple[Sizes, Sizes]:
        """Block sizes as `plan.blocks_of` rounds them: to whole units of every stage."""
        outer, inner = {}, {}
        units = self._units()
        for axis in self.extents:
            span, unit = self.span(axis), units[axis]
            large = self.number(f"tile.{axis}.1", self.extents[axis])
            small = self.number(f"tile.{axis}.0", 0.0)
            small = np.where(small > 0, small, large)
            inner[axis] = np.minimum(np.ceil(small / unit) * unit, span)
            outer[axis] = np.minimum(np.ceil(large / inner[axis]) * inner[axis], span)
        return outer, inner

    def _units(self) -> Sizes:
        """Smallest step of each axis: a common multiple of the steps of every stage."""
        units = {axis: np.ones(self.columns.rows, dtype=np.int64) for axis in self.extents}
        for shape in self.decisions.shapes:
            name, main = shape.stage.name, main_reduction(self.decisions.staged, shape.stage)
            dots = {dot.name: float(dot.kind == "tile") for dot in shape.instructions}
            deep = {
                dot.name: 64.0 / dot.element if dot.kind == "tile" else dot.depth
                for dot in shape.instructions
            }
            tiled = self.looked_up(f"instruction.{name}", dots)
            steps = {
                "lane": self.number(f"vectors.{name}") * self.decisions.vector.lanes,
                "row": self.number(f"rows.{name}") * np.where(tiled > 0, 16.0, 1.0),
            }
            depth = self.looked_up(f"instruction.{name}", deep)
            for axis in shape.stage.domain:
                step = depth if axis == main else np.ones(self.columns.rows)
                for role, size in steps.items():
                    step = np.where(self.flag(f"{role}.{name}", axis) > 0, size, step)
                units[axis] = np.lcm(units[axis], step.astype(np.int64))
        return {axis: unit.astype(np.float64) for axis, unit in units.items()}

    def looked_up(self, name: str, table: Mapping[str, float]) -> Array:
        """What `table` says of a decision's value; its first entry where there is no decision."""
        if name in self.names:
            return self.columns.lookup(name, table)
        return np.full(self.columns.rows, next(iter(table.values())))

    @cached_property
    def looped(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Axes with outer, and with inner loops."""
        decisions = self.decisions
        return (*decisions.outer, *decisions.blocked), decisions.blocked

    @cached_property
    def places(self) -> tuple[Sizes, Sizes]:
        """Where the loop of each axis stands among the outer, and among the inner loops."""
        found = []
        for level, axes in zip((1, 0), self.looped, strict=True):
            name = f"order.{level}"
            places = {axis: np.full(self.columns.rows, float(n)) for n, axis in enumerate(axes)}
            if name in self.names:
                domain = self.domain(name)
                for axis in axes:
                    table = {value: float(value.split().index(axis)) for value in domain}
                    places[axis] = self.columns.lookup(name, table)
            found.append(places)
        return found[0], found[1]

    @cached_property
    def depths(self) -> tuple[Sizes, ...]:
        """Depth -> axis -> size of the region."""
        whole = {axis: self.span(axis) for axis in self.extents}
        found = [whole]
        levels = zip(self.looped, self.places, (self.outer, self.inner), strict=True)
        for axes, places, blocks in levels:
            start = found[-1]
            for depth in range(1, len(axes) + 1):
                sizes = dict(start)
                for axis in axes:
                    sizes[axis] = np.where(places[axis] < depth, blocks[axis], start[axis])
                found.append(sizes)
        return tuple(found)

    def loop_depth(self, axis: str, least: int) -> Array:
        """Depth just inside the innermost real loop over an axis at block level `least` or above;
        0 where there is none."""
        found = np.zeros(self.columns.rows)
        if axis in self.looped[0]:
            real = self.outer[axis] < self.span(axis)
            found = np.where(real, self.places[0][axis] + 1, found)
        if least == 0 and axis in self.looped[1]:
            real = self.inner[axis] < self.outer[axis]
            found = np.where(real, len(self.looped[0]) + self.places[1][axis] + 1, found)
        return found

    def first_depth(self, axis: str) -> Array:
        """Depth just inside the outermost real loop over an axis; infinite where there is none."""
        found = np.full(self.columns.rows, np.inf)
        if axis in self.looped[1]:
            real = self.inner[axis] < self.outer[axis]
            found = np.where(real, len(self.looped[0]) + self.places[1][axis] + 1, found)
        if axis in self.looped[0]:
            real = self.outer[axis] < self.span(axis)
            found = np.where(real, self.places[0][axis] + 1, found)
        return found

    def trips(self, depth: int, axes: Iterable[str]) -> Array:
        """Iterations of all loops around `depth` over some axes."""
        here, whole = self.depths[depth], self.depths[0]
        return product([np.ceil(whole[a] / here[a]) for a in axes], self.columns.rows)

    def at(self, depth: Array, values: Sequence[Array]) -> Array:
        """For each schedule the one of `values` (by depth) at its own depth."""
        index = np.clip(depth, 0, len(values) - 1).astype(np.intp)
        return np.asarray(np.stack(values)[index, np.arange(len(index))])


def product(factors: Sequence[Array], rows: int) -> Array:
    """Product of arrays; ones if there are none."""
    return np.asarray(prod(factors, start=np.ones(rows)), dtype=np.float64)


def traffic(
    volumes: Sequence[Array], sums: Sequence[Array], trips: Sequence[Array], capacity: float
) -> Array:
    """Bytes of one operand that move into a cache of `capacity` bytes.

    By depth: the operand's footprint, that of all operands, and how often a region of that depth
    runs. A region whose sum fits is fetched once; an operand that a loop does not move stays where
    the loop's body fits.
    """
    moved = volumes[-1]
    for depth in range(len(volumes) - 2, -1, -1):
        again = trips[depth + 1] / trips[depth]
        still = (volumes[depth] == volumes[depth + 1]) & (sums[depth + 1] <= capacity)
        moved = moved * np.where(still, 1.0, again)
        moved = np.where(sums[depth] <= capacity, volumes[depth], moved)
    return moved
