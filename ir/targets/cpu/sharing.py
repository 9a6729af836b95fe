"""How threads share the loops around a stage under many schedules: tasks, meetings, balance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ir.stages import Stage
from ir.targets.cpu.regions import Array, Regions


class Walk:
    """The loops around a stage from the outermost inwards, up to where threads share them.

    Parallel loops that follow each other directly are dealt out as one; those further inside are
    not shared.
    """

    def __init__(self, regions: Regions, stage: Stage) -> None:
        self.regions, self.stage = regions, stage
        rows = regions.columns.rows
        self.tasks, self.meets = np.ones(rows), np.zeros(rows)
        self.points, self.block = np.ones(rows), np.ones(rows)  # of the shared axes, and of a task
        self._outside = np.ones(rows)
        self._begun, self._ended = np.zeros(rows, dtype=bool), np.zeros(rows, dtype=bool)
        for level, axes in enumerate(self.regions.looped):
            for place in range(len(axes)):
                for axis in axes:
                    if axis in stage.domain:
                        self._enter(level, place, axis)
        self.meets = np.where(self._begun, self._outside, 0.0)

    def _enter(self, level: int, place: int, axis: str) -> None:
        regions = self.regions
        first = len(regions.looped[0]) if level else 0
        here = regions.places[level][axis] == place
        whole, part = regions.depths[first + place][axis], regions.depths[first + place + 1][axis]
        real = here & (part < whole)
        shared = real & ~self._ended & self._dealt(axis) & (whole == regions.depths[0][axis])
        trips = np.ceil(whole / part)
        self.tasks = np.where(shared, self.tasks * trips, self.tasks)
        self.points = np.where(shared, self.points * whole, self.points)
        self.block = np.where(shared, self.block * part, self.block)
        alone = real & ~shared
        self._ended |= alone & self._begun
        self._outside = np.where(alone & ~self._begun, self._outside * trips, self._outside)
        self._begun |= shared

    def _dealt(self, axis: str) -> NDArray[np.bool_]:
        """Where the schedule lets threads share this axis."""
        total = np.zeros(self.regions.columns.rows)
        if axis in self.stage.parallel:
            for choice in self.regions.domain("parallel"):
                if axis in choice.split():
                    total = total + self.regions.flag("parallel", choice)
        return np.asarray(total > 0)

    def speed(self, count: float) -> Array:
        """Work of all threads over that of the busiest: the last task may be smaller."""
        most, least = np.ceil(self.tasks / count), np.floor(self.tasks / count)
        short = self.tasks * self.block - self.points
        others = np.where(self.tasks % count == 1, least, most) * self.block
        return self.points / np.maximum(np.maximum(others, most * self.block - short), 1.0)
