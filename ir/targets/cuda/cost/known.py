"""What was told of schedules of a kernel before: joined lists of seeds repeat most of what each
kernel does, and engines and residences have kernels in common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.columns import Columns, Matrix
from ir.targets.cuda.grid.overlap import NAME
from ir.targets.cuda.space.splits import MERGE

OF_ALL = ("split", MERGE)  # of a program that is one kernel, whose domains are not the kernel's
MOST = 1024  # schedules of a kernel that are remembered
Answers = dict[bytes, tuple[Any, ...]]


class ByRow:
    """What `ask` says of each row of columns, by what it has of `names`: a row's answers must
    depend on nothing else. Those that are `known` may be of kernels that differ in names alone.

    Sums over the only row there is add up in another order than those of several at once. So one
    alone is not kept, and one that is new among others is asked about twice.
    """

    def __init__(
        self, ask: Callable[[Columns], NDArray[Any]], names: Sequence[str], known: Answers
    ) -> None:
        self._ask, self._names, self._known = ask, (*names, NAME), known

    def __call__(self, columns: Columns) -> NDArray[Any]:
        """The answers, a row for each row."""
        if columns.rows < 2 or any(name in columns for name in OF_ALL):
            return self._ask(columns)
        keys = _keys(columns.matrix_of([name for name in self._names if name in columns]))
        found = {key: self._known.get(key) for key in keys}
        new = {key: row for row, key in enumerate(keys) if found[key] is None}
        if 2 * len(new) > MOST:
            return self._ask(columns)
        if new:
            rows = np.array([*new.values()], np.intp)
            told = self._ask(columns.where(rows if len(rows) > 1 else rows.repeat(2)))
            fresh = dict(zip(new, map(tuple, told.tolist()), strict=False))
            found |= fresh
            if len(self._known) + len(fresh) > MOST:
                self._known.clear()
            self._known.update(fresh)
        return np.array([found[key] for key in keys])


def _keys(matrix: Matrix) -> list[bytes]:
    """Each row as bytes."""
    width = matrix.shape[1] * matrix.itemsize
    data = matrix.tobytes()
    return [data[start : start + width] for start in range(0, len(data), width)]
