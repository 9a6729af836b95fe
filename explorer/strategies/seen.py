"""Which rows were met: eight bytes a row, looked up for thousands of rows at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.integer[Any]]
Keys = NDArray[np.uint64]


class Seen:
    """Keys of rows of integers, sorted.

    Two rows share a key with odds of 2**-64: in one of forty million searches that meet a million
    rows, one is taken for another.
    """

    def __init__(self) -> None:
        self._keys: Keys = np.empty(0, dtype=np.uint64)

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, rows: Rows) -> None:
        """Note these rows."""
        keys = np.unique(row_keys(rows))
        places, met = self._look_up(keys)
        self._keys = np.insert(self._keys, places[~met], keys[~met])

    def fresh(self, rows: Rows) -> NDArray[np.intp]:
        """Where the rows stand that were not met, each once, in their order."""
        keys, first = np.unique(row_keys(rows), return_index=True)
        return np.sort(first[~self._look_up(keys)[1]])

    def _look_up(self, keys: Keys) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Where keys stand or would stand, and which are there."""
        places = np.searchsorted(self._keys, keys)
        met = places < len(self._keys)
        met[met] = self._keys[places[met]] == keys[met]
        return places, met


def row_keys(rows: Rows) -> Keys:
    """A number for each row, mixed from its values column by column.

    The steps are those of SplitMix64 (Steele, Lea and Flood, Fast splittable pseudorandom number
    generators, OOPSLA 2014).
    """
    keys = np.zeros(len(rows), dtype=np.uint64)
    for column in rows.T:
        keys += column.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        keys ^= keys >> np.uint64(31)
    return keys
