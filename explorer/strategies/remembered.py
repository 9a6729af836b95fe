"""A backend's features of rows, computed once: generations of a search share most of their rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from explorer.strategies.history import keys_of
from ir.columns import Columns, Matrix
from ir.space import Features, Space

MOST_ROWS = 8_192  # kept at a time; of some hundred features that is a few megabytes


def remembering(space: Space) -> Space:
    """The same space, whose backend is asked for the features of a row once in a while only."""
    if space.features is None:
        return space
    return replace(space, features=Remembered(space))


class Remembered:
    """In the place of `Space.features`; begins anew when MOST_ROWS are kept."""

    def __init__(self, space: Space, most: int = MOST_ROWS) -> None:
        self._space = space
        self._most = most
        self._places: dict[bytes, int] = {}
        self._names: tuple[str, ...] = ()
        self._table: NDArray[np.float32] = np.empty((0, 0), dtype=np.float32)

    def __len__(self) -> int:
        return len(self._places)

    def __call__(self, columns: Columns) -> Features:
        matrix = columns.matrix
        keys = list(keys_of(matrix))
        missing = {key: n for n, key in enumerate(keys) if key not in self._places}
        if len(self._places) + len(missing) > self._most:
            self._places.clear()
            missing = {key: n for n, key in enumerate(keys)}
        if missing or not self._names:
            self._add(missing, matrix[list(missing.values())])
        places = self._places
        return self._names, self._table[[places[key] for key in keys]]

    def _add(self, missing: dict[bytes, int], matrix: Matrix) -> None:
        assert self._space.features is not None
        self._names, found = self._space.features(self._space.columns(matrix))
        start, end = len(self._places), len(self._places) + len(missing)
        if end > len(self._table) or not self._table.shape[1]:
            self._table.resize((max(end, 2 * len(self._table)), found.shape[1]), refcheck=False)
        self._table[start:end] = found
        self._places.update((key, start + n) for n, key in enumerate(missing))
