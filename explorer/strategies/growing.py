"""Numbers that only become more, in one array: a search that goes on for long keeps no objects."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FIRST = 64  # entries that there is room for at first
MORE = 1.5  # factor by which the room grows


class Growing:
    """Entries of one shape and type, in the order of adding."""

    def __init__(self, dtype: type[np.generic], *shape: int) -> None:
        self._data: NDArray[Any] = np.empty((FIRST, *shape), dtype=dtype)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def values(self) -> NDArray[Any]:
        """All entries, to be read only; a later `extend` does not change what was given."""
        view = self._data[: self._count]
        view.flags.writeable = False
        return view

    def extend(self, values: ArrayLike) -> None:
        """Add entries at the end."""
        added = np.asarray(values, dtype=self._data.dtype)
        end = self._count + len(added)
        if end > len(self._data):
            grown = np.empty((max(end, int(MORE * len(self._data))), *self._data.shape[1:]),
                             dtype=self._data.dtype)  # fmt: skip
            grown[: self._count] = self._data[: self._count]
            self._data = grown
        self._data[self._count : end] = added
        self._count = end
