"""Which rows of a space were met: eight bytes a row, looked up for thousands of rows at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ir.space import Matrix, Space

Keys = NDArray[np.uint64]
SEED = 0  # of the numbers behind the keys, the same in every search


class Seen:
    """Keys of rows, in a sorted array.

    A key is the exclusive or of one random number for each decision's value (Zobrist, A new hashing
    method with application for game playing, 1970), so two rows share one with odds of 2**-64: in
    one of forty million searches that meet a million rows, a row is taken for another.
    """

    def __init__(self, space: Space) -> None:
        widest = max((len(decision.domain) for decision in space.decisions), default=0)
        size = (len(space.decisions), widest)
        self._numbers = np.random.default_rng(SEED).integers(1 << 64, size=size, dtype=np.uint64)
        self._columns = np.arange(len(space.decisions))
        self._keys: Keys = np.empty(0, dtype=np.uint64)

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, matrix: Matrix) -> None:
        """Note the rows of `matrix`."""
        self._keys = np.union1d(self._keys, self._of(matrix))

    def fresh(self, matrix: Matrix) -> Matrix:
        """The rows that were not met, each once, in their order."""
        keys, first = np.unique(self._of(matrix), return_index=True)
        places = np.searchsorted(self._keys, keys)
        there = np.zeros(len(keys), dtype=np.bool_)
        inside = places < len(self._keys)
        there[inside] = self._keys[places[inside]] == keys[inside]
        return matrix[np.sort(first[~there])]

    def _of(self, matrix: Matrix) -> Keys:
        numbers = self._numbers[self._columns, matrix]
        return np.asarray(np.bitwise_xor.reduce(numbers, axis=1), dtype=np.uint64)
