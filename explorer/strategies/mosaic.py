"""The fastest kernel of each place, put together: for programs that are several kernels.

Where a run is several kernels, each has decisions of its own (whose names end in its number) and
what a run takes is their sum. A schedule that is slow as a whole may have the fastest kernel of one
place. So where the time of each is told, the next thing to try is what was fastest in every place,
beside the same choice of everything else. Known from separable problems as optimal mixing of
building blocks (Thierens and Bosman, 2011), here with the blocks and their shares measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from explorer.outcome import parts_of
from explorer.strategies.base import OutcomeLike
from ir.columns import Matrix
from ir.space import Row, Space

GAIN = 0.99  # of the fastest whole, which a sum has to be below to be worth a trial
_NONE = -1
_NUMBER = re.compile(r"\.(\d+)$")
_Columns = NDArray[np.intp]


@dataclass(slots=True)
class _Route:
    """What was told of schedules that differ in decisions of single kernels alone."""

    whole: Row
    seconds: float = np.inf
    places: dict[int, tuple[float, Row]] = field(default_factory=dict)


class Mosaic:
    """The fastest kernels of every place, by what belongs to none."""

    def __init__(self, space: Space) -> None:
        told = (_NUMBER.search(decision.name) for decision in space.decisions)
        numbers = np.array([int(one[1]) if one else _NONE for one in told])
        self._columns: dict[int, _Columns] = {
            place: np.flatnonzero(numbers == place) for place in np.unique(numbers[numbers >= 0])
        }
        self._others = np.flatnonzero(numbers == _NONE)
        self._routes: dict[bytes, _Route] = {}
        self._news: dict[bytes, None] = {}  # routes of which something faster was told

    def told(
        self, rows: Matrix, seconds: NDArray[np.float64], outcomes: Sequence[OutcomeLike]
    ) -> None:
        """Learn from outcomes with the times of their kernels; of others nothing."""
        for row, whole, outcome in zip(rows, seconds.tolist(), outcomes, strict=True):
            shares = places_of(parts_of(outcome.notes))
            if not np.isfinite(whole) or len(shares) < 2 or not self._columns:
                continue
            key = row[self._others].tobytes()
            route = self._routes.setdefault(key, _Route(row))
            if whole < route.seconds:
                route.whole, route.seconds = row, whole
            for place, share in enumerate(shares):
                if share < route.places.get(place, (np.inf, row))[0]:
                    route.places[place] = (share, row)
                    self._news[key] = None

    def offers(self) -> Matrix:
        """What is put together anew since it was asked last, what promises most first."""
        found: list[tuple[float, Row]] = []
        for key in self._news:
            route = self._routes[key]
            total = sum(share for share, _ in route.places.values())
            row = np.array(route.whole)
            for place, (_, own) in route.places.items():
                columns = self._columns.get(place)
                if columns is not None:
                    row[columns] = own[columns]
            if total < GAIN * route.seconds and (row != route.whole).any():
                found.append((total, row))
        self._news.clear()
        found.sort(key=lambda pair: pair[0])
        width = len(self._others) + sum(map(len, self._columns.values()))
        return np.array([row for _, row in found], dtype=np.int16).reshape(len(found), width)


def places_of(parts: Iterable[tuple[str, float]]) -> list[float]:
    """Seconds of each kernel of a program; what a kernel is launched as besides, whose name begins
    with its own, counts to it."""
    found: list[tuple[str, float]] = []
    for name, seconds in parts:
        if found and name.startswith(f"{found[-1][0]}_"):
            found[-1] = (found[-1][0], found[-1][1] + seconds)
        else:
            found.append((name, seconds))
    return [seconds for _, seconds in found]
