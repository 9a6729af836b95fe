"""Schedules as levels of factors, near levels for values alike. Knows spaces, and no model."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ir.space import Decision, Matrix, Space

Codes = NDArray[np.intp]
Table = NDArray[np.float64]  # coordinates of each value of a decision: [index, dimension]


class Embedding:
    """Ordered decisions by the logarithm of their values, others by a corner for each value.

    A rising size is two factors: by its logarithm, and by the powers of two in it, unless all are
    powers of two: 48 lies between 32 and 64, and yet tiles of it fit lines, warps and extents as 16
    does. A decision that may be out of force has one level more for that, in the middle.
    """

    def __init__(self, space: Space) -> None:
        self._shape = space.shape
        conditional = {column for column, _, _ in space.shape.conditions}
        self._columns: list[int] = []
        self._outside: list[int] = []  # the level of what is out of force, or none
        self.tables: list[Table] = []  # coordinates of each level, for each factor
        for column in space.shape.free.tolist():
            for table in tables_of(space.decisions[column]):
                self._columns.append(column)
                self._outside.append(len(table) if column in conditional else -1)
                middle = table.mean(axis=0)[None]
                self.tables.append(
                    np.concatenate([table, middle]) if column in conditional else table
                )

    def __call__(self, rows: Matrix) -> Codes:
        """The level of each factor: [row, factor]."""
        codes = rows[:, self._columns].astype(np.intp)
        force = self._shape.in_force(rows)[:, self._columns]
        outside = np.array(self._outside, dtype=np.intp)
        return np.where(force | (outside < 0), codes, outside)


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
