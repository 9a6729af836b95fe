"""Which schedules may be worth a measurement, by what a backend says of them on paper.

A route on other units can be a thousand times slower than the best: one such candidate takes longer
than all the rest of a search. Knows estimates and rows; no operator and no target.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from explorer.strategies.opening import estimates
from ir.space import Matrix, Row, Space

# Of the winners of 141 operators on an H200 none was estimated at more than 13 times the least.
FAR = 20.0
LOOKED = 1024  # rows none of which was far, after which no more are looked at


class Worth:
    """Passes over rows that are estimated at more than `FAR` times the fastest one.

    That is the fastest as measured; before anything was, the cheapest row that was shown.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._least = np.inf  # of the rows that were shown
        self._shown = self._far = 0  # rows, and those of them that were passed over
        self._fastest: bytes = b""
        self._reached = 0.0  # by the fastest one

    def __call__(self, rows: Matrix, fastest: Row | None) -> NDArray[np.bool_]:
        """Whether each row may be worth it, beside the `fastest` that was measured, if one was."""
        if not len(rows) or (self._shown >= LOOKED and not self._far):
            return np.ones(len(rows), dtype=np.bool_)
        logs = estimates(self._space, rows)
        self._least = min(self._least, float(logs.min()))
        least = self._least if fastest is None else self._of(fastest)
        found = np.asarray(logs <= least + np.log2(FAR))
        self._shown, self._far = self._shown + len(rows), self._far + int((~found).sum())
        return found

    def _of(self, fastest: Row) -> float:
        key = fastest.tobytes()
        if key != self._fastest:
            self._fastest = key
            self._reached = float(estimates(self._space, fastest[None, :])[0])
        return max(self._least, self._reached)
