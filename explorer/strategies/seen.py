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
    """A number for each row of values of at most 32 bits: the sum of those of its pairs of values.

    A pair is mixed with its place in the row by the steps of SplitMix64 (Steele, Lea and Flood,
    Fast splittable pseudorandom number generators, OOPSLA 2014).
    """
    width = rows.shape[1] + rows.shape[1] % 2
    padded = np.zeros((len(rows), width), dtype=np.int32)
    padded[:, : rows.shape[1]] = rows
    keys = padded.view(np.uint64)
    keys += np.arange(1, width // 2 + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        keys ^= keys >> np.uint64(shift)
        keys *= np.uint64(factor)
    keys ^= keys >> np.uint64(31)
    return np.asarray(keys.sum(axis=1, dtype=np.uint64))
