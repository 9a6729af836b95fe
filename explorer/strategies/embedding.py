"""Schedules as points, so that near points are schedules alike. Knows spaces, and no model."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ir.space import Decision, Matrix, Space

Points = NDArray[np.float64]
Table = NDArray[np.float64]  # coordinates of each value of a decision: [index, dimension]


class Embedding:
    """Ordered decisions by the logarithm of their values, others by a corner for each value.

    A rising size has a second coordinate, the powers of two in it, unless all are powers of two:
    48 lies between 32 and 64, and yet tiles of it fit lines, warps and extents as 16 does.
    A decision that is not in force stands in the middle. `groups` numbers the coordinates that
    share a length.
    """

    def __init__(self, space: Space) -> None:
        self._shape = space.shape
        self._conditional = {column for column, _, _ in space.shape.conditions}
        self._parts: list[tuple[int, Table]] = []
        groups: list[int] = []
        for column in space.shape.free.tolist():
            for table in tables_of(space.decisions[column]):
                groups += [len(self._parts)] * table.shape[1]
                self._parts.append((column, table))
        self.groups = np.array(groups, dtype=np.intp)

    def __call__(self, rows: Matrix) -> Points:
        """A point for each row: [row, coordinate]."""
        found = [np.empty((len(rows), 0))]
        force = self._shape.in_force(rows)
        for column, table in self._parts:
            points = table[rows[:, column]]
            if column in self._conditional:
                points = np.where(force[:, column, None], points, table.mean(axis=0))
            found.append(points)
        return np.concatenate(found, axis=1)


def tables_of(decision: Decision) -> tuple[Table, ...]:
    """Coordinates between 0 and 1 for the values of a decision, one table for each length."""
    count = len(decision.domain)
    if not decision.ordered:
        corners = np.eye(count) / math.sqrt(2)
        return (corners if count > 2 else _unit(np.arange(count)),)
    values = np.array([int(value) for value in decision.domain], dtype=np.int64)
    if values[0] < 0:
        return (_unit(np.arange(count)),)
    sizes = _unit(np.log2(np.maximum(values, 0.5)))
    if values[0] == 0:
        return (_unit(np.log2(values + 1)),)
    twos = np.log2(values & -values)
    if np.array_equal(twos, np.log2(values)) or not twos.any():
        return (sizes,)
    return sizes, _unit(twos)


def _unit(numbers: NDArray[np.float64] | NDArray[np.int64]) -> Table:
    """Shifted and scaled to reach from 0 to 1."""
    least, most = float(numbers.min()), float(numbers.max())
    return np.asarray((numbers - least) / (most - least))[:, None]
