"""What a backend or a prior says of rows, asked once: generations of a search share most rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from explorer.strategies.guide import Prior
from explorer.strategies.history import keys_of
from ir.columns import Columns, Matrix
from ir.space import Features, Space

MOST_ROWS = 8_192  # kept at a time; of some hundred features that is a few megabytes
Numbers = NDArray[np.float32]


class RowMemory:
    """Numbers by row, [row, number], computed for rows not met yet; forgets all at `most` rows."""

    def __init__(self, compute: Callable[[Matrix], Numbers], most: int = MOST_ROWS) -> None:
        self._compute = compute
        self._most = most
        self._places: dict[bytes, int] = {}
        self._table: Numbers = np.empty((0, 0), dtype=np.float32)

    def __len__(self) -> int:
        return len(self._places)

    def __call__(self, matrix: Matrix) -> Numbers:
        keys = list(keys_of(matrix))
        missing = {key: n for n, key in enumerate(keys) if key not in self._places}
        if len(self._places) + len(missing) > self._most:
            self._places.clear()
            missing = {key: n for n, key in enumerate(keys)}
        if missing or not self._table.shape[1]:
            self._add(missing, self._compute(matrix[list(missing.values())]))
        places = self._places
        return self._table[[places[key] for key in keys]]

    def _add(self, missing: dict[bytes, int], found: Numbers) -> None:
        start, end = len(self._places), len(self._places) + len(missing)
        if end > len(self._table) or not self._table.shape[1]:
            self._table.resize((max(end, 2 * len(self._table)), found.shape[1]), refcheck=False)
        self._table[start:end] = found
        self._places.update((key, start + n) for n, key in enumerate(missing))


class RememberedFeatures:
    """In the place of `Space.features`."""

    def __init__(self, space: Space, most: int = MOST_ROWS) -> None:
        self._space = space
        self._names: tuple[str, ...] = ()
        self.rows = RowMemory(self._computed, most)

    def __call__(self, columns: Columns) -> Features:
        found = self.rows(columns.matrix)
        return self._names, found

    def _computed(self, matrix: Matrix) -> Numbers:
        assert self._space.features is not None
        self._names, found = self._space.features(self._space.columns(matrix))
        return found


class RememberedPrior:
    """A prior for one space, whose opinion of a row never changes."""

    def __init__(self, prior: Prior, space: Space, most: int = MOST_ROWS) -> None:
        self._prior = prior
        self._space = space
        self.rows = RowMemory(self._computed, most)

    def score(self, space: Space, matrix: Matrix) -> NDArray[np.float64]:
        """Scores of rows, higher being better."""
        return self.rows(matrix)[:, 0].astype(np.float64)

    def _computed(self, matrix: Matrix) -> Numbers:
        return self._prior.score(self._space, matrix)[:, None].astype(np.float32)


def remembering(space: Space) -> Space:
    """The same space, whose backend is asked for the features of a row once in a while only."""
    if space.features is None:
        return space
    return replace(space, features=RememberedFeatures(space))
