"""The fastest kernel of each place, put together: for programs that are several kernels.

Where a run is several kernels, each has decisions of its own (whose names end in its number) and
what a run takes is their sum. A schedule that is slow as a whole may have the fastest kernel of one
place. So where the time of each is told, the next thing to try is what was fastest in every place,
beside the same choice of everything else. Known from separable problems as optimal mixing of
building blocks (Thierens and Bosman, 2011), here with the blocks and their shares measured.

Routes that cut a program differently have kernels in common. What was fastest for one in another
route is tried here as well, where the whole may then be the fastest of all; if it turns out slower
than it was there, the two are not the same, and the place takes nothing from elsewhere any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from explorer.outcome import parts_of
from explorer.strategies.base import OutcomeLike
from explorer.strategies.slots import Slot, Slots
from ir.columns import Matrix
from ir.space import Row, Space

GAIN = 0.99  # of the fastest whole, which a sum has to be below to be worth a trial
SAME = 1.25  # times as long as elsewhere, up to which a kernel is taken to be the same


@dataclass(slots=True)
class _Best:
    """The fastest of one kernel: its share, its decisions, and the route that has it."""

    seconds: float
    codes: Row
    route: int


@dataclass(slots=True)
class _Route:
    """What was told of schedules that differ in decisions of single kernels alone."""

    whole: Row
    slots: dict[int, Slot]
    seconds: float = np.inf
    places: dict[int, _Best] = field(default_factory=dict)
    shares: dict[int, float] = field(default_factory=dict)  # of places that have no decision


class Mosaic:
    """The fastest kernels of every place, by what belongs to none."""

    def __init__(self, space: Space) -> None:
        self._slots, self._width = Slots(space), len(space.decisions)
        self._routes: dict[bytes, _Route] = {}
        self._kinds: dict[int, _Best] = {}
        self._fastest = np.inf
        self._apart = set[tuple[int, int]]()  # routes and places whose kernels are like no others
        self._hopes: dict[bytes, dict[int, float]] = {}  # of what was taken from elsewhere
        self._news = False

    def told(
        self, rows: Matrix, seconds: NDArray[np.float64], outcomes: Sequence[OutcomeLike]
    ) -> None:
        """Learn from outcomes with the times of their kernels; of others nothing."""
        for row, whole, outcome in zip(rows, seconds.tolist(), outcomes, strict=True):
            shares = places_of(parts_of(outcome.notes))
            if not np.isfinite(whole):
                continue
            self._fastest = min(self._fastest, whole)
            slots = self._slots.of(row) if len(shares) > 1 else {}
            if slots:
                self._learn(row, whole, dict(enumerate(shares)), slots)

    def _learn(
        self, row: Row, whole: float, shares: dict[int, float], slots: dict[int, Slot]
    ) -> None:
        for place, hope in self._hopes.pop(row.tobytes(), {}).items():
            if shares.get(place, 0.0) > SAME * hope:
                self._apart.add((slots[place].route, place))
        route = self._routes.setdefault(_rest(row, slots), _Route(row, slots))
        if whole < route.seconds:
            route.whole, route.seconds = row, whole
        for place, share in shares.items():
            slot = slots.get(place)
            if slot is None:
                route.shares[place] = min(share, route.shares.get(place, np.inf))
                continue
            best = _Best(share, row[slot.columns], slot.route)
            if place not in route.places or share < route.places[place].seconds:
                route.places[place], self._news = best, True
            if slot.kind not in self._kinds or share < self._kinds[slot.kind].seconds:
                self._kinds[slot.kind], self._news = best, True

    def offers(self) -> Matrix:
        """What is put together anew since it was asked last, what promises most first."""
        found: list[tuple[float, Row]] = []
        for route in self._routes.values() if self._news else ():
            found += self._of_route(route)
        self._news = False
        found.sort(key=lambda pair: pair[0])
        rows = np.array([row for _, row in found], dtype=np.int16)
        return rows.reshape(len(found), self._width)

    def _of_route(self, route: _Route) -> Iterator[tuple[float, Row]]:
        """The best of its own kernels; where those of others make it the fastest of all, these."""
        own = self._together(route, route.places)
        if own is not None:
            yield own
        best = {place: self._anywhere(route, place) for place in route.places}
        hopes = {n: one.seconds for n, one in best.items() if one is not route.places[n]}
        made = self._together(route, best) if hopes else None
        if made is not None and made[0] < GAIN * self._fastest:
            self._hopes[made[1].tobytes()] = hopes
            yield made

    def _anywhere(self, route: _Route, place: int) -> _Best:
        """The fastest of a kernel in any route that has it."""
        own, slot = route.places[place], route.slots[place]
        other = self._kinds[slot.kind]
        apart = (slot.route, place) in self._apart or other.route == slot.route
        return own if apart or other.seconds >= own.seconds else other

    def _together(self, route: _Route, best: dict[int, _Best]) -> tuple[float, Row] | None:
        """A row of these kernels and what they take; None where that promises nothing."""
        total = sum(route.shares.values())
        row = np.array(route.whole)
        for place, one in best.items():
            total += one.seconds
            row[route.slots[place].columns] = one.codes
        if total >= GAIN * route.seconds or (row == route.whole).all():
            return None
        return total, row


def _rest(row: Row, slots: dict[int, Slot]) -> bytes:
    """What of a row belongs to no kernel."""
    rest = np.array(row)
    for slot in slots.values():
        rest[slot.columns] = 0
    return rest.tobytes()


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
