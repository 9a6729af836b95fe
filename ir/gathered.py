"""Rows of a matrix of indices, of which columns are gathered when they are first asked for.

Spaces of large programs have thousands of columns, of which a rule reads a few.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.int16]
Numbers = NDArray[np.intp]


class Rows:
    """Those of a matrix with some `numbers`, or all. `own` columns have other `values`."""

    __slots__ = ("_columns", "_matrix", "_numbers", "_own", "_values", "count")

    def __init__(
        self,
        matrix: Matrix,
        numbers: Numbers | None = None,
        own: Numbers | None = None,
        values: Matrix | None = None,
    ) -> None:
        self._matrix, self._numbers = matrix, numbers
        self._own, self._values = own, values
        self.count = len(matrix) if numbers is None else len(numbers)
        self._columns: dict[int, Matrix] = {}
        if own is not None and values is not None:
            self._columns.update(zip(own.tolist(), np.ascontiguousarray(values.T), strict=True))

    def __len__(self) -> int:
        return self.count

    def column(self, place: int) -> Matrix:
        """One column, its elements side by side."""
        found = self._columns.get(place)
        if found is None:
            column = self._matrix[:, place]
            found = column.copy() if self._numbers is None else column[self._numbers]
            self._columns[place] = found
        return found

    def columns(self, places: Sequence[int]) -> Matrix:
        """Some columns, as a matrix."""
        if self._numbers is None:
            return self._matrix[:, places]
        if self._own is None:
            return self._matrix[self._numbers[:, None], np.asarray(places, np.intp)]
        return np.stack([self.column(place) for place in places], axis=1)

    def whole(self) -> Matrix:
        """All columns, as a matrix."""
        if self._numbers is None:
            return self._matrix
        found: Matrix = self._matrix[self._numbers]
        if self._own is not None and self._values is not None:
            found[:, self._own] = self._values
        return found

    def picked(self, rows: NDArray[np.bool_] | Numbers) -> Rows:
        """Those rows that a mask picks, or with these numbers."""
        places = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows.astype(np.intp)
        numbers = places if self._numbers is None else self._numbers[places]
        if self._own is None or self._values is None:
            return Rows(self._matrix, numbers)
        return Rows(self._matrix, numbers, self._own, self._values[places])
