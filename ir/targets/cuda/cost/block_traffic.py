"""What blocks of plain kernels move: bytes of sectors, accesses, and what later passes read again.

Estimates in closed form, as `block_costs` takes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import gcd, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.ops.store import Store
from ir.space import Columns
from ir.stages import is_reduction
from ir.target import Hardware
from ir.targets.cuda.cost.costs import array_of
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.space.block import BlockKernel
from ir.targets.cuda.space.gathers import SECTOR
from ir.targets.cuda.space.reads import Group
from ir.targets.cuda.text.passes import find_passes, needed

Array = NDArray[np.float64]

APART = 0.1  # of a sector's time, of one that is touched again by a thread's next access
BURST = 64.0  # bytes that memory gives at a time
NEAR_BYTES = 131072.0  # of what a block looks up, that stay near it
L2_SHARE = 0.35  # of the time that a byte takes from memory, of one that L2 has
L2_KEPT = 0.6  # of L2, of what blocks are at when none of it is left as they come again
PARTS_PER_CLOCK = 80.0  # of sectors, that L2 takes from all processors


@dataclass(frozen=True, slots=True)
class _Moved:
    """Loads that are alike, or a store, which is no group. `last`: the axis along which points lie
    nearest to each other, where several are in a sector, `step` elements apart; "" elsewhere.
    `size`: bytes of an element. `within`: the next axes of a store, of which neighbours are
    neighbours in memory where all of the one before is stored. `row`: elements of its tensor's
    rows, where there are several."""

    group: Group | None
    axes: tuple[str, ...]
    last: str
    step: int
    size: int
    within: tuple[str, ...] = ()
    row: int = 0


class BlockTraffic:
    """Of one kernel on plain units."""

    def __init__(self, kernel: BlockKernel, hardware: Hardware) -> None:
        self.kernel, self.program, self.hardware = kernel, kernel.program, hardware

    def parted(self, columns: Columns) -> Array:
        """Clocks in which L2 takes parts of sectors: of rows that do not begin at multiples of a
        vector, each of its elements is a store of its own."""
        vector = array_of(columns[self.kernel.name("vector")])
        total = np.zeros(columns.rows)
        for node in self.program.nodes:
            if isinstance(node.op, Store) and node.op.axes:
                lengths = [self.program.axes[axis] for axis in node.op.axes]
                whole = np.gcd(vector.astype(np.int64), lengths[-1] if len(lengths) > 1 else 1 << 7)
                sectors = prod(lengths) * dtype_of(node.dtype).bytes / SECTOR
                total = total + np.where(vector > whole, sectors * vector / whole, 0.0)
        return np.asarray(total / PARTS_PER_CLOCK)

    @cached_property
    def _accesses(self) -> tuple[_Moved, ...]:
        """Of every load and store; the axis of whose points the nearest lie in one sector."""
        found: list[_Moved] = []
        for group in self.kernel.reads.groups:
            size = dtype_of(group.first.dtype).bytes
            steps = [(abs(c), a) for d in group.first.dimensions[-1:] for a, c in d.terms]
            step, last = min(steps, key=lambda one: one[0], default=(int(SECTOR), ""))
            places = {access.dimensions[-1].constant % step for access in group.accesses
                      if access.dimensions and group.first.plain}  # fmt: skip
            near = step * size < SECTOR or 2 * len(places) > step
            shape = self.program.scope.tensors[group.tensor].shape
            row = shape[-1] if prod(shape[:-1]) > 1 else 0
            found.append(_Moved(group, group.axes, last if near else "", step, size, (), row))
        for node in self.program.nodes:
            if isinstance(node.op, Store):
                size = dtype_of(node.dtype).bytes
                axes = node.op.axes
                last, within = "".join(axes[-1:]), tuple(reversed(axes[:-1]))
                row = self.program.axes[last] if within else 0
                found.append(_Moved(None, node.axes, last, 1, size, within, row))
        return tuple(found)

    def moved(self, columns: Columns, tiles: dict[str, Array], own: dict[str, Array]) -> Array:
        """Bytes of the sectors that all blocks touch; what strides wastes the rest of a sector."""
        axes = self.program.axes
        total = np.zeros(columns.rows)
        known = set[str]()  # tensors that are read at computed indices
        for one in self._accesses:
            again = product_of([np.ceil(axes[a] / tiles[a]) for a in axes if a not in one.axes],
                             columns.rows)  # fmt: skip
            if one.group is not None and one.group.apart:
                here = self._computed(columns, one.group, tiles, own, one.group.tensor in known)
                total = total + here * np.minimum(again, 64.0)
                known.add(one.group.tensor)
                continue
            volume = np.full(columns.rows, float(prod(axes[a] for a in one.axes)) * one.size)
            if one.group is not None:
                volume = self._touched(one.group, tiles, volume / one.size) * one.size
            run = np.ones(columns.rows)
            if one.last:
                along = self._side_by_side(columns, one.last, tiles, own)
                run = one.step * np.where(along, tiles[one.last], own[one.last])
                run = np.maximum(run, self._stored_run(one, tiles))
            waste = np.clip(BURST / np.maximum(run * one.size, 1.0), 1.0, BURST / one.size)
            waste = waste * self._beside_sectors(columns, one)
            total = total + volume * waste * np.minimum(again, 64.0)
        return total

    def _beside_sectors(self, columns: Columns, one: _Moved) -> Array:
        """How many more sectors the accesses of a warp touch where rows begin anywhere in one: it
        has the ends of one more each time, and of neighbours in a thread, read one by one, each
        many."""
        row = one.row * one.size
        lanes = columns.is_(self.kernel.name("lanes"), one.last) if one.last else False
        vector = columns[self.kernel.name("vector")]
        whole = np.gcd(vector, max(one.row, 1))
        more = SECTOR / (WARP * whole * one.size) + APART * (vector / whole - 1)
        return np.asarray(np.where((row % SECTOR > 0) & lanes, 1.0 + more, 1.0))

    def asked_for(self, columns: Columns, own: dict[str, Array]) -> Array:
        """Accesses of threads: of vectors where neighbours lie in one thread."""
        total, axes = np.zeros(columns.rows), self.program.axes
        vector = columns[self.kernel.name("vector")]
        for one in self._accesses:
            width: Any = 1
            if one.last and one.step == 1:
                lanes = columns.is_(self.kernel.name("lanes"), one.last)
                most = gcd(one.row or self.kernel.widest, self.kernel.widest)
                width = np.gcd(np.where(lanes, vector, own[one.last].astype(np.int64)), most)
            total = total + prod(axes[a] for a in one.axes) / width
        return np.asarray(total, dtype=np.float64)

    def _stored_run(self, one: _Moved, tiles: dict[str, Array]) -> Array:
        """Elements of a store that lie behind one another, of tiles that have all of its last
        axes."""
        axes, run = self.program.axes, np.ones(len(tiles[one.last]))
        whole = np.full(len(run), bool(one.within))
        for before, axis in pairwise((one.last, *one.within)):
            whole = whole & (tiles[before] >= axes[before])
            here = np.minimum(tiles[axis], axes[axis])
            run = np.where(whole, np.maximum(run, axes[before]) * here, run)
        return run

    def _side_by_side(
        self, columns: Columns, axis: str, tiles: dict[str, Array], own: dict[str, Array]
    ) -> NDArray[np.bool_]:
        """Whether neighbours of a warp lie along an axis: the lanes', or the one in a tile of which
        there are several where those have one point."""
        lanes, found = self.kernel.name("lanes"), np.zeros(columns.rows, dtype=bool)
        for lane in self.kernel.shape.lanes:
            others = (tiles[a] > own[a] for a in self.program.axes if a not in (lane, axis))
            alone = ~np.logical_or.reduce([tiles[lane] > own[lane], *others])
            found = found | (columns.is_(lanes, lane) & ((lane == axis) | alone))
        return np.asarray(found, dtype=np.bool_)

    def _computed(
        self, columns: Columns, group: Group, tiles: dict[str, Array], own: dict[str, Array],
        known: bool,
    ) -> Array:  # fmt: skip
        """Bytes of loads at indices that are computed of coordinates: of a tensor that is not
        known yet all that it has once, what else is touched of L2."""
        size, apart = dtype_of(group.first.dtype).bytes, group.apart or {}
        last = min(apart, key=lambda axis: apart[axis] or SECTOR)
        step = apart[last] or size
        along = self._side_by_side(columns, last, tiles, own)
        beside = np.where(along, tiles[last], own[last])
        each = np.clip(SECTOR / beside, step, SECTOR)  # of a point, in a row of those beside it
        points = float(prod(self.program.axes[axis] for axis in group.axes))
        touched = points * group.times * each
        once = size * float(prod(d.extent for d in group.first.dimensions))
        first = 0.0 if known else np.minimum(touched, once)
        return np.asarray(first + L2_SHARE * (touched - first))

    def read_again(
        self, columns: Columns, tiles: dict[str, Array], blocks: Array, resident: Array
    ) -> Array:
        """Bytes of what later passes over walked axes read again, which are a part of one where L2
        has what all blocks are at."""
        axes, total = self.program.axes, np.zeros(columns.rows)
        under_way = np.minimum(blocks, resident * self.hardware["sms"])
        for looped, times in self._passes.items():
            once, held = np.zeros(columns.rows), np.zeros(columns.rows)
            for group in self.kernel.reads.groups:
                again = times.get(group.tensor, 1) - 1
                if again > 0 and looped & {*group.axes}:
                    size = dtype_of(group.first.dtype).bytes
                    once += again * size * prod(axes[a] for a in group.axes)
                    own = [array_of(axes[a]) if a in looped else tiles[a] for a in group.axes]
                    held += size * product_of(own, columns.rows)
            gone = held * under_way / (L2_KEPT * self.hardware["l2_bytes"])
            share = L2_SHARE + (1.0 - L2_SHARE) * np.minimum(gone, 1.0)
            total += np.where(self._walked(columns, looped), once * share, 0.0)
        return total

    def _walked(self, columns: Columns, looped: frozenset[str]) -> NDArray[np.bool_]:
        """Whether these of the reduced axes are walked."""
        reduced = self.kernel.shape.reduced
        found = [self.kernel.short(columns, a) == (a in looped) for a in reduced]
        return np.asarray(np.logical_and.reduce(found), dtype=np.bool_)

    def times(self, columns: Columns) -> dict[str, Array]:
        """In how many passes tensors are read, where it may be several."""
        found: dict[str, Array] = {}
        for looped, times in self._passes.items():
            here = self._walked(columns, looped)
            for tensor, count in times.items():
                known = found.get(tensor, np.ones(len(here)))
                found[tensor] = np.where(here, float(count), known)
        return found

    @cached_property
    def _passes(self) -> dict[frozenset[str], dict[str, int]]:
        """Of axes that may be walked together: in how many passes each tensor is read."""
        found: dict[frozenset[str], dict[str, int]] = {}
        for looped in self.kernel.shape.loops:
            program = self.kernel.shape.streamed(looped)
            behind = frozenset(n for n, node in enumerate(program.nodes) if is_reduction(node))
            times: dict[str, int] = {}
            for one in find_passes(program, looped).passes:
                nodes = needed(program, (*one.reductions, *one.stores), behind)
                read = {op.tensor for n in nodes if isinstance(op := program.nodes[n].op, Load)}
                for tensor in read:
                    times[tensor] = times.get(tensor, 0) + 1
            if max(times.values(), default=1) > 1:
                found[looped] = times
        return found

    def _touched(self, group: Group, tiles: dict[str, Array], points: Array) -> Array:
        """Elements of a tensor that all blocks touch, those that a neighbour has in L2 as a part of
        one; of its loads' points, if what they read does not overlap."""
        once, all_of_them = np.ones(len(points)), np.ones(len(points))
        if not group.first.plain:
            return np.minimum(points * group.times, self._looked_up(group, tiles))
        axes, reduced = self.program.axes, self.kernel.shape.reduced
        for number, d in enumerate(group.first.dimensions):
            constants = [access.dimensions[number].constant for access in group.accesses]
            spread = max(constants) - min(constants) + 1
            here, whole = np.full(len(points), float(spread)), spread
            for axis, c in d.terms:
                long = axes[axis] if axis in reduced else np.minimum(tiles[axis], axes[axis])
                here = here + abs(c) * (long - 1)
                whole += abs(c) * (axes[axis] - 1)
            once = once * min(whole, d.extent)
            all_of_them = all_of_them * np.minimum(here, d.extent)
        for axis in group.axes:
            if axis not in reduced:
                all_of_them = all_of_them * np.ceil(axes[axis] / tiles[axis])
        most = points * len(group.accesses)
        beside = np.maximum(np.minimum(all_of_them, most) - once, 0.0)
        return np.asarray(np.minimum(once, most) + L2_SHARE * beside)

    def _looked_up(self, group: Group, tiles: dict[str, Array]) -> Array:
        """The same of indices that are data, where what a tile may look up fits L1, which the next
        tiles find there: all that there is, by each processor."""
        axes, size = self.program.axes, dtype_of(group.first.dtype).bytes
        found, here = np.ones(len(tiles[group.axes[0]]) if group.axes else 1), 1.0
        for d in group.first.dimensions:
            here = here * (d.extent if d.gather is not None else 1)
            for axis, _ in d.terms if d.gather is None else ():
                found = found * np.minimum(tiles[axis], axes[axis])
        near = found * here * size <= NEAR_BYTES
        whole = float(prod(d.extent for d in group.first.dimensions)) * self.hardware["sms"]
        return np.asarray(np.where(near, whole * size / SECTOR, np.inf))


def product_of(factors: list[Array], rows: int) -> Array:
    return np.asarray(prod(factors, start=np.ones(rows)), dtype=np.float64)
