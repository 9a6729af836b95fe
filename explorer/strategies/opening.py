"""The first trials of a search that starts with a prior: chosen on paper, measured in portions.

A prior from other workloads knows where fast schedules lie, not how far it is off in each place. So
a few of its favourites are measured, and what they tell of its error corrects the scores of
schedules like them before the next few are chosen. Knows no operator and no target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.features import IDEAL
from ir.space import Matrix, Row, Space

Scores = NDArray[np.float64]

REACH = 2.0  # decisions (in whole domains) over which what is known of an error fades to 1/e
DOUBT = 0.35  # how far a single measurement is doubted, in standard deviations of the errors
WORSE = 0.25  # of an estimate in powers of two, for which a route waits a turn
MOST = 64  # measured rows that count, the last ones


HARDLY = ((4, 4.0), (12, 1.5))  # trials of a route, below which it may have the fastest, and how
# many times as long as that its own fastest may take

ESTIMATE = "total.estimate"  # the feature of backends that bounds a schedule's time from below


def first_rows(space: Space, rows: Matrix) -> Matrix:
    """`rows` in the order in which to begin: of each route the cheapest, the cheapest route first,
    then the second of each, and so on; a route that is estimated to be slower waits for one more of
    the fastest for every `WORSE` that its cheapest is behind.

    A route is what is chosen of the decisions on which others depend and of those that say what
    computes. What is cheap the backend estimates; without that, the order given is kept.
    """
    if not len(rows):
        return rows
    places = forks_of(space)
    costs = estimates(space, rows)
    cheapest = np.argsort(costs, kind="stable")
    turns: dict[bytes, int] = {}
    order = []
    for rank, number in enumerate(cheapest.tolist()):
        route = rows[number, places].tobytes()
        late = int((costs[number] - costs[cheapest[0]]) / WORSE)
        turns[route] = turns[route] + 1 if route in turns else late
        order.append((turns[route], rank, number))
    return rows[[number for _, _, number in sorted(order)]]


def forks_of(space: Space) -> list[int]:
    """The columns of decisions that tell routes apart."""
    forks = {space.decisions[number].name for number in space.shape.governing}
    forks |= {decision.name for decision in space.decisions if decision.group == "tensorize"}
    return [n for n, decision in enumerate(space.decisions) if decision.name in forks]


class Routes:
    """How much longer than estimated the rows of each route took, at least, and which rows are
    worth a try by that: of a route that was not measured the estimate is believed, or where a
    backend does not tell in seconds, it is thought as good as the best of the others (optimism in
    the face of uncertainty; Lai and Robbins, 1985)."""

    def __init__(self, space: Space) -> None:
        self._space, self._places = space, forks_of(space)
        self._told: list[tuple[Matrix, Scores]] = []
        self._over: dict[bytes, float] = {}  # in powers of two
        self._costs: dict[bytes, float] = {}
        self._best: dict[bytes, tuple[float, Row]] = {}
        self._tried: Counter[bytes] = Counter()

    def told(self, rows: Matrix, seconds: Scores) -> None:
        """Rows, and what they took: anything that is no time is passed over."""
        if len(rows):
            self._told.append((rows, seconds))
        for row, here in zip(rows, seconds.tolist(), strict=True):
            key = self._route(row)
            self._tried[key] += 1
            if np.isfinite(here) and here < self._best.get(key, (np.inf, row))[0]:
                self._best[key] = here, row

    def neglected(self) -> Row | None:
        """The fastest row of the route that was tried least, of those that were hardly tried for as
        near the fastest of all as they are; None if there is none."""
        fastest = min((seconds for seconds, _ in self._best.values()), default=np.inf)
        hardly = [
            (self._tried[key], seconds, row)
            for key, (seconds, row) in self._best.items()
            if seconds > fastest
            and any(self._tried[key] < few and seconds <= far * fastest for few, far in HARDLY)
        ]
        return min(hardly, key=lambda one: one[:2])[2] if hardly else None

    def beside(self, rows: Matrix, row: Row) -> Matrix:
        """Those of one row's route."""
        same: Matrix = rows[(rows[:, self._places] == row[self._places]).all(axis=1)]
        return same

    def order(self, rows: Matrix) -> Matrix:
        """The rows, those first that may be fastest."""
        if not len(rows):
            return rows
        self._learn()
        least = self._least(rows[:1])
        unknown = min(self._over.values(), default=0.0) if least is None else least
        over = [self._over.get(self._route(row), unknown) for row in rows]
        return rows[np.argsort(self._estimates(rows) + np.array(over), kind="stable")]

    def _least(self, row: Matrix) -> float | None:
        """The seconds to which estimates are relative, as a power of two."""
        if self._space.features is None:
            return None
        names, table = self._space.features(self._space.columns(row))
        return float(table[0, names.index(IDEAL)]) if {IDEAL, ESTIMATE} <= {*names} else None

    def _estimates(self, rows: Matrix) -> Scores:
        """Those that were asked for before are known."""
        keys = [row.tobytes() for row in rows]
        new = [number for number, key in enumerate(keys) if key not in self._costs]
        if new:
            costs = estimates(self._space, rows[new]).tolist()
            self._costs.update(zip((keys[number] for number in new), costs, strict=True))
        return np.array([self._costs[key] for key in keys])

    def _route(self, row: Row) -> bytes:
        return row[self._places].tobytes()

    def _learn(self) -> None:
        for rows, seconds in self._told:
            timed = np.isfinite(seconds) & (seconds > 0)
            over = np.log2(seconds[timed]) - estimates(self._space, rows[timed])
            for row, here in zip(rows[timed], over.tolist(), strict=True):
                key = self._route(row)
                self._over[key] = min(here, self._over.get(key, np.inf))
        self._told.clear()


def estimates(space: Space, rows: Matrix) -> Scores:
    """The backend's estimates of rows, as powers of two; 0 where it has none."""
    if space.estimate is not None:
        return np.asarray(space.estimate(space.columns(rows)), dtype=np.float64)
    if space.features is None:
        return np.zeros(len(rows))
    names, table = space.features(space.columns(rows))
    if ESTIMATE not in names:
        return np.zeros(len(rows))
    return np.asarray(table[:, names.index(ESTIMATE)], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Settings:
    """From how many schedules the first trials are chosen, and how many at a time."""

    drawn: int = 1024  # random rows
    mutants: int = 2048  # of seeds and of what was measured before
    more: int = 512  # mutants that join for every further portion
    strength: float = 2.0  # decisions changed by a mutation, on average
    portion: int = 4  # trials measured before the next are chosen


class Opening:
    """Collects rows for the first portions. Rows once drawn stay: their scores are known.

    `draw` gives so many random rows, `seeds` the space's own.
    """

    def __init__(
        self,
        space: Space,
        rng: np.random.Generator,
        settings: Settings,
        draw: Callable[[int], Matrix],
        seeds: Callable[[], Matrix],
    ) -> None:
        self.space, self._rng, self.settings = space, rng, settings
        self._draw, self._seeds = draw, seeds
        self._drawn: Matrix | None = None

    def pool(self, measured: Matrix) -> Matrix:
        """Random rows, seeds, and mutants of seeds and of the measured.

        No children of those that score high: breeding them follows a prior to where it errs.
        """
        if self._drawn is None:
            sampled = self._draw(self.settings.drawn)
            parents = np.concatenate([self._seeds(), measured])
            mutants = self._mutants(parents, self.settings.mutants)
            self._drawn = np.concatenate([sampled, parents, mutants])
        else:
            mutants = self._mutants(measured, self.settings.more)
            self._drawn = np.concatenate([self._drawn, measured, mutants])
        return self._drawn

    def _mutants(self, parents: Matrix, count: int) -> Matrix:
        """Legal rows a few decisions away from `parents`."""
        if not len(parents):
            return parents
        parents = parents[self.space.legal(parents)]
        if not len(parents):
            return parents
        mothers = self._rng.choice(parents, count)
        mutants = self.space.mutate(self._rng, mothers, self.settings.strength)
        mutants = self.space.mended(mutants, mothers)
        new: Matrix = mutants[(mutants != mothers).any(axis=1)]
        return new


class Correction:
    """What measured rows tell of a prior's error, carried over to rows like them.

    A Gaussian process on the differences between speeds and scores, the scores taken to be in
    proportion to the square of the speed. Likeness falls with the decisions that differ.
    (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, algorithm 2.1.)
    """

    def __init__(self, space: Space, rows: Matrix, scores: Scores, seconds: Scores) -> None:
        rows, scores, seconds = rows[-MOST:], scores[-MOST:], seconds[-MOST:]
        self.space, self.rows = space, rows
        speeds = (seconds.min() / seconds) ** 2
        scale = max(0.0, float(scores @ speeds / (speeds @ speeds)))
        errors = scale * speeds - scores
        doubt = DOUBT**2 * np.eye(len(rows))
        self._weights = np.linalg.solve(self._likeness(rows) + doubt, errors)

    def __call__(self, rows: Matrix) -> Scores:
        """What to add to the scores of rows."""
        return np.asarray(self._likeness(rows) @ self._weights, dtype=np.float64)

    def _likeness(self, rows: Matrix) -> Scores:
        """Of each row to each measured one; an ordered decision counts by the root of its step."""
        shape = self.space.shape
        apart = np.zeros((len(rows), len(self.rows)))
        for column in shape.free:
            left, right = rows[:, column, None].astype(np.float64), self.rows[None, :, column]
            if shape.ordered[column]:
                apart += np.sqrt(np.abs(left - right) / max(1, int(shape.sizes[column]) - 1))
            else:
                apart += left != right
        return np.asarray(np.exp(-apart / REACH), dtype=np.float64)
