"""Costs that stages have in common: what one leaves in a cache for the next, points that masks
spare, page strides, partial sums. Estimates in closed form, vectorised over schedules.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import gcd, prod

import numpy as np

from ir.dtypes import dtype_of
from ir.rewrite.domain import live_range
from ir.targets.cpu.costs import StageCosts
from ir.targets.cpu.crowding import PAGE, pitch
from ir.targets.cpu.regions import Array, product, traffic


class JointCosts:
    """Of all stages of a program under the schedules of one set of columns."""

    def __init__(self, stages: Sequence[StageCosts]) -> None:
        self.stages = tuple(stages)
        self.regions = stages[0].regions
        self.staged = stages[0].facts.staged
        self.rows_count = stages[0].rows_count

    @cached_property
    def barriers(self) -> frozenset[str]:
        """Axes whose loops end before a later stage begins (the planner's rule)."""
        found: set[str] = set()
        staged = self.staged
        for position, table in enumerate(staged.uses):
            for other, uses in table.items():
                for use in uses:
                    if staged.carried(use.node):
                        continue
                    late = frozenset(staged.stages[position].reduce) if use.late else frozenset()
                    inside = frozenset(staged.program.nodes[use.node].axes)
                    found |= frozenset(staged.stages[other].reduce) - inside - late
        return frozenset(found)

    @cached_property
    def common(self) -> Array:
        """Depth of the loops that all stages share."""
        deepest = float(len(self.regions.depths) - 1)
        found = np.full(self.rows_count, deepest)
        for axis in sorted(self.barriers & set(self.regions.extents)):
            found = np.minimum(found, self.regions.first_depth(axis) - 1.0)
        return found

    @cached_property
    def volumes(self) -> dict[str, tuple[Array, ...]]:
        """Footprint of every tensor and buffer by depth of the loops, no deeper than `common`."""
        found: dict[str, tuple[Array, ...]] = {}
        depths = range(len(self.regions.depths))
        for stage in self.stages:
            for operand, volumes in zip(stage.facts.operands, stage.volumes, strict=True):
                here = self._shared([volumes[depth] for depth in depths])
                known = found.get(operand.name, here)
                found[operand.name] = tuple(map(np.maximum, known, here))
        return found

    def _shared(self, values: Sequence[Array]) -> tuple[Array, ...]:
        """`values` by depth, those further inside than `common` as at it."""
        last = self.regions.at(self.common, values)
        return tuple(np.where(depth > self.common, last, v) for depth, v in enumerate(values))

    @cached_property
    def working_set(self) -> tuple[Array, ...]:
        """Bytes of everything that a pass of the shared loops touches, by depth."""
        zero = np.zeros(self.rows_count)
        return tuple(sum(parts, zero) for parts in zip(*self.volumes.values(), strict=True))

    def moved(self, level: str, apart: Array) -> Array:
        """Bytes into a cache, where stages find there what others left; else what they move
        `apart`."""
        capacity = 0.75 * self.stages[0].capacities()[level]
        whole = self.regions.depths[0]
        trips = self._shared(
            [
                product([np.ceil(whole[a] / sizes[a]) for a in sizes], self.rows_count)
                for sizes in self.regions.depths
            ]
        )
        total = np.zeros(self.rows_count)
        for volumes in self.volumes.values():
            total = total + traffic(volumes, self.working_set, trips, capacity)
        parts = [self.regions.parts[a] for a in self.regions.parts]
        total = total * product(parts, self.rows_count)
        fits = self.working_set[-1] <= capacity
        return np.where(fits, np.minimum(total, apart), apart)

    @cached_property
    def live(self) -> Array:
        """Share of the points that no mask lets a schedule skip, by whole blocks."""
        found = np.ones(self.rows_count)
        for axis in self._reduced:
            for condition in live_range(self.staged.program, axis):
                if condition.reads:
                    continue
                terms = dict(condition.terms)
                if abs(terms.get(axis, 0)) == 1 and axis in self.regions.inner:
                    found = np.minimum(found, self._share(axis, terms, condition.constant))
        return found

    @cached_property
    def _reduced(self) -> tuple[str, ...]:
        return tuple({axis: None for s in self.staged.stages for axis in s.reduce})

    def _share(self, axis: str, terms: dict[str, int], constant: int) -> Array:
        """Mean share of an axis within a condition, over the blocks of the other axes."""
        regions = self.regions
        depth = np.maximum(regions.loop_depth(axis, 0) - 1.0, 0.0)
        reach = np.full(self.rows_count, float(constant))
        for other, coefficient in terms.items():
            if other != axis and other in regions.extents:
                block = regions.at(depth, [sizes[other] for sizes in regions.depths])
                middle = coefficient * regions.extents[other] / 2.0
                reach = reach + middle + abs(coefficient) * block / 2.0
        extent = float(regions.extents[axis])
        kept = reach if terms[axis] < 0 else extent + reach
        return np.asarray(np.clip((kept + regions.inner[axis] / 2.0) / extent, 0.02, 1.0))

    def uneven(self) -> Array:
        """1 where threads share an axis along which a mask makes blocks unequal."""
        masked = {
            name
            for axis in self._reduced
            for condition in live_range(self.staged.program, axis)
            for name, _ in condition.terms
        }
        found = np.zeros(self.rows_count)
        for choice in self.regions.domain("parallel"):
            if masked & set(choice.split()):
                found = found + self.regions.flag("parallel", choice)
        return found

    def merging(self) -> Array:
        """Bytes of partial results that threads leave to be put together."""
        parts = [self.regions.parts[axis] for axis in self.regions.parts]
        count = product(parts, self.rows_count)
        outputs = self.staged.program.outputs
        written = sum(float(prod(spec.shape) * dtype_of(spec.dtype).bytes) for spec in outputs)
        return np.where(count > 1, count * written, 0.0)


def strides(costs: StageCosts) -> tuple[Array, Array]:
    """Of the tensors that a stage reads in place: log2 of the largest power of two in the distance
    between rows (rows at multiples of a page share few cache sets), and of the pages of a strip."""
    alias, pages = np.zeros(costs.rows_count), np.zeros(costs.rows_count)
    for operand, volumes in zip(costs.facts.operands, costs.volumes, strict=True):
        step = pitch(costs.facts.staged.program, operand)
        if not step:
            continue
        here = costs.unpacked(operand)
        alias = np.maximum(alias, here * np.log2(gcd(step, PAGE)))
        lines = np.maximum(volumes[-2] / 64.0, 1.0)
        pages = pages + here * np.minimum(lines, volumes[-2] * max(1.0, step / PAGE) / 64.0)
    return alias, np.log2(np.maximum(pages, 1.0))
