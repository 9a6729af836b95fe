"""What a strategy has asked and been told, as matrices: shared by all strategies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer.strategies.base import OutcomeLike
from ir.schedule import Schedule
from ir.space import Matrix, Row, Space

MOST_SEEDS = 24


class History:
    """Rows seen, and for the told ones time and success. A kernel counts once among the best.

    Rows of one meaning (see `Space.meanings`) are one: who has seen one of them has seen all.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self._open = replace(space, pins=())  # records made under other pins still teach
        self._seen: set[bytes] = set()  # meanings
        self._rows: list[Row] = []
        self._asked: list[Row] = []
        self._seconds: list[float] = []
        self._kernels: list[str] = []
        self._distinct: set[str] = set()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> Matrix:
        """Told rows, in the order of telling."""
        width = len(self.space.decisions)
        return np.array(self._rows, dtype=np.int16).reshape(len(self._rows), width)

    @property
    def asked_rows(self) -> Matrix:
        """Rows asked, in the order of asking."""
        width = len(self.space.decisions)
        return np.array(self._asked, dtype=np.int16).reshape(len(self._asked), width)

    @property
    def kernels(self) -> int:
        """How many kernels were told of; a schedule that failed before it was one counts, too."""
        return len(self._distinct)

    @property
    def seconds(self) -> NDArray[np.float64]:
        """Times of the told rows; NaN for failures."""
        return np.array(self._seconds, dtype=np.float64)

    @property
    def ok(self) -> NDArray[np.bool_]:
        return np.isfinite(self.seconds)

    def asked(self, matrix: Matrix) -> list[Schedule]:
        """Note that these rows are on their way, and give them as schedules."""
        self._asked.extend(matrix)
        self._seen.update(self._meanings(matrix))
        return [self.space.schedule(row) for row in matrix]

    def read(
        self, schedules: Sequence[Schedule], outcomes: Sequence[OutcomeLike]
    ) -> tuple[Matrix, NDArray[np.float64]]:
        """Rows of schedules, and their times: NaN for failures."""
        rows = [self._open.encode(schedule) for schedule in schedules]
        seconds = [
            outcome.seconds if outcome.status == "ok" and outcome.seconds is not None else np.nan
            for outcome in outcomes
        ]
        matrix = np.array(rows, dtype=np.int16).reshape(len(rows), len(self.space.decisions))
        return matrix, np.array(seconds, dtype=np.float64)

    def told(self, schedules: Sequence[Schedule], outcomes: Sequence[OutcomeLike]) -> Matrix:
        """Keep the outcomes; gives the rows of the schedules."""
        matrix, seconds = self.read(schedules, outcomes)
        self._seen.update(self._meanings(matrix))
        for row, time, outcome in zip(matrix, seconds.tolist(), outcomes, strict=True):
            self._rows.append(row)
            self._seconds.append(time)
            self._kernels.append(outcome.kernel_key or row.tobytes().hex())
            self._distinct.add(self._kernels[-1])
        return matrix

    def fresh(self, matrix: Matrix) -> Matrix:
        """The rows neither asked nor told, one of each meaning."""
        first: dict[bytes, int] = {}
        for number, key in enumerate(self._meanings(matrix)):
            if key not in self._seen:
                first.setdefault(key, number)
        return matrix[list(first.values())]

    def distinct(self, matrix: Matrix) -> Matrix:
        """One row of each meaning."""
        first: dict[bytes, int] = {}
        for number, key in enumerate(self._meanings(matrix)):
            first.setdefault(key, number)
        return matrix[list(first.values())]

    def _meanings(self, matrix: Matrix) -> Iterable[bytes]:
        return keys_of(self.space.meanings(matrix))

    def best(self, count: int) -> tuple[Matrix, NDArray[np.float64]]:
        """The fastest rows within the pins, one for each kernel, and their times."""
        seconds = self.seconds
        chosen: dict[str, int] = {}
        for number in np.argsort(seconds, kind="stable"):
            if len(chosen) >= count or not np.isfinite(seconds[number]):
                break
            if self.within_pins(self._rows[number]):
                chosen.setdefault(self._kernels[number], int(number))
        index = list(chosen.values())
        return self.rows[index], seconds[index]

    def within_pins(self, row: Row) -> bool:
        """Whether a told row has what is pinned now."""
        return all(row[column] == index for column, index in self.space.shape.pins)


class SeedQueue:
    """Seeds waiting for their turn: the caller's first, then, if wanted, the space's own.

    Of the caller's, the first `most` have one, so that the search is left its budget.
    """

    def __init__(
        self,
        history: History,
        rng: np.random.Generator,
        seeds: Sequence[Schedule],
        *,
        own: bool = True,
        most: int | None = MOST_SEEDS,
    ) -> None:
        space = history.space
        rows = [space.encode(schedule) for schedule in seeds]
        matrix = np.array(rows, dtype=np.int16).reshape(len(rows), len(space.decisions))
        self._history = history
        self._given = matrix[space.legal(matrix)][:most]
        self._own = space.seed_rows(rng) if own else matrix[:0]

    def take(self, count: int, own: int | None = None) -> Matrix:
        """Up to `count` seeds that have not been measured yet, `own` of the space's at most."""
        given = self._history.fresh(self._given)
        mine = self._history.fresh(np.concatenate([given, self._own]))[len(given) :]
        seats = max(0, count - len(given))
        seats = seats if own is None else min(own, seats)
        self._given, self._own = given[count:], mine[seats:]
        return np.concatenate([given[:count], mine[:seats]])


def keys_of(matrix: NDArray[np.integer[Any]]) -> Iterable[bytes]:
    """The bytes of each row."""
    data = np.ascontiguousarray(matrix)
    width = data.shape[1] * data.itemsize
    text = data.tobytes()
    return (text[start : start + width] for start in range(0, len(text), width))


def draw_fresh(history: History, rng: np.random.Generator, count: int) -> Matrix:
    """Up to `count` new random rows; fewer when several draws in a row bring nothing new."""
    found = history.fresh(history.space.sample(rng, count))
    for _ in range(8):
        if len(found) >= count:
            break
        more = history.space.sample(rng, max(64, 4 * count))
        found = history.fresh(np.concatenate([found, more]))
    if len(found) < count and history.space.size <= 1 << 16:
        rest = np.concatenate(list(history.space.exhaustive()))
        found = history.fresh(np.concatenate([found, rng.permutation(rest)]))
    return found[:count]
