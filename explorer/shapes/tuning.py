"""The search of a family: some points are searched, their schedules tried at others, few are kept.

One budget of trials is for all of it: two thirds for searches of points, whose order is by the
regret that is expected of them; the rest for a table of fitted schedules by points, and for points
held out, which tell the regret. Every time is an ordinary record of an ordinary workload.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from explorer.errors import NothingValid
from explorer.measure import Measurer
from explorer.outcome import Outcome, kernel_of
from explorer.peaks import kept_peaks
from explorer.recall import FINAL, open_store, to_record
from explorer.search import Search
from explorer.settings import cache_dir
from explorer.shapes.choice import choice_for
from explorer.shapes.cover import covering, filled, next_point, owners, smoothed
from explorer.shapes.family import MOST_POINTS, Family, Point, distance
from explorer.shapes.fitted import fitted
from explorer.shapes.known import OPTION
from explorer.shapes.result import FamilyResult, Regret, Step
from explorer.shapes.table import Settled, Table
from ir.errors import UsageError
from ir.printable import printable
from ir.schedule import Schedule
from records import Store

LEAST_TRIALS = 16
TOLERANCE = 0.02  # loss at a measured point that is not worth another schedule
_SEARCHES = 0.65  # share of the trials
_HELD = 0.12
_A_SEARCH = 24  # trials, and a few times more where there are many
_MOST_SEARCHES = 12
_POINTS = 13  # of the grid
_NEAR = 3  # searched points whose schedules are tried at another, and more if there are trials
_ROUNDS = 3
_MOST_HELD = 4

Tell = Callable[[Step], None]


@dataclass(frozen=True, slots=True)
class FamilyPlan:
    """What is to be searched, within how many trials, or seconds of wall clock if given."""

    family: Family
    trials: int
    seconds: float | None = None
    strategy: str = "evolutionary"
    seed: int = 0
    pins: Mapping[str, object] = field(default_factory=dict)
    model: str | Path | None = None

    def __post_init__(self) -> None:
        if self.trials < LEAST_TRIALS:
            raise UsageError(
                f"trials={self.trials}: a range takes {LEAST_TRIALS} at least, for all of its "
                "extents together"
            )
        if self.family.count < 2:
            raise UsageError(f"{self.family.title}: one workload alone; name its extent")
        for point in (self.family.lowest, tuple(e.high for _, e in self.family.varying)):
            workload = self.family.workload(point)
            workload.refuse_unmeasurable()
            workload.space(self.pins)

    @property
    def searches(self) -> int:
        """Points that are searched."""
        return max(2, min(_MOST_SEARCHES, int(_SEARCHES * self.trials / _A_SEARCH)))


def tune_family(
    plan: FamilyPlan,
    *,
    store: str | Path | None = None,
    tell: Tell | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> FamilyResult:
    """Search a family; a KeyboardInterrupt keeps what is measured, and is raised again.

    Raises UsageError, NothingValid where a searched point has no valid kernel, StoreError.
    """
    with open_store(store) as records:
        return _Run(plan, records, tell or (lambda _: None), clock).result()


class _Run:
    """One search of a family. Use it once."""

    def __init__(
        self, plan: FamilyPlan, store: Store, tell: Tell, clock: Callable[[], float]
    ) -> None:
        self._plan, self._family, self._store, self._tell = plan, plan.family, store, tell
        self._clock, self._began = clock, clock()
        self._trials = 0
        self._job = ""  # of the first search
        self._winners: dict[Point, Schedule] = {}  # of searched points
        self._rates: dict[Point, float] = {}
        self._times: dict[Point, dict[Schedule, float]] = {}  # by the searched schedule
        self._grid = self._family.grid(_POINTS)[:MOST_POINTS]

    def result(self) -> FamilyResult:
        self._search_points()
        self._fill()
        table, chosen = self._settled()
        table = self._refined(table, chosen)
        regrets = self._held_out(table)
        job = self._end(table)
        return FamilyResult(
            self._family, table, tuple(self._winners), regrets, self._trials, self._elapsed(), job
        )

    def _elapsed(self) -> float:
        return self._clock() - self._began

    def _late(self, share: float = 1.0) -> bool:
        """Whether a share of the seconds, if they are counted, is spent."""
        seconds = self._plan.seconds
        return seconds is not None and self._elapsed() > share * seconds

    # --- searches -------------------------------------------------------------------------------

    def _search_points(self) -> None:
        """The ends first, then wherever the regret is expected to be largest."""
        each = max(4, int(_SEARCHES * self._plan.trials / self._plan.searches))
        for number in range(self._plan.searches):
            point = self._next(number)
            if point is None or (number > 1 and self._late(_SEARCHES)):
                return
            self._search(point, each)

    def _next(self, number: int) -> Point | None:
        if number < 2:
            return self._grid[-1 if number == 0 else 0]
        searched = list(self._winners)
        return next_point(self._grid, searched, [self._rates[point] for point in searched])

    def _search(self, point: Point, trials: int) -> None:
        workload, plan = self._family.workload(point), self._plan
        seeds = tuple(self._from_near(point).values())
        tried: dict[Schedule, float] = {}
        with Search(
            workload, self._store, strategy=plan.strategy, trials=trials, pins=plan.pins,
            seed=plan.seed, model=plan.model, seeds=seeds,
        ) as search:  # fmt: skip
            while search.trials < trials and not self._late(_SEARCHES):
                before = search.trials
                for schedule, outcome in search.step(min(16, trials - before)):
                    if outcome.ok and outcome.seconds is not None:
                        tried[schedule] = outcome.seconds
                if search.trials == before:
                    break
            _, best = search.finals()
            search.state = "done"
            self._job = self._job or search.job.id
            self._trials += search.trials
            fastest = search.best_seconds or 0.0
        self._winners[point] = best
        losses = [tried[seed] / fastest - 1.0 for seed in seeds if seed in tried and fastest]
        away = min((distance(point, o) for o in self._winners if o != point), default=1.0)
        self._rates[point] = min(losses) / away if losses else 0.0
        self._tell(Step("searched", point, self._family.words(point), fastest, self._trials))

    def _from_near(self, point: Point, count: int = _NEAR) -> dict[Schedule, Schedule]:
        """Schedules of the nearest searched points, by what they were there, as they fit here."""
        near = sorted(self._winners, key=lambda other: distance(point, other))[:count]
        return self._fit(point, [self._winners[other] for other in near])

    def _fit(self, point: Point, schedules: Sequence[Schedule]) -> dict[Schedule, Schedule]:
        workload = self._family.workload(point)
        pairs = [(one, fitted(workload, one, self._plan.pins)) for one in dict.fromkeys(schedules)]
        return {one: other for one, other in pairs if other is not None}

    # --- the table ------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Schedules by points: searched points first, then the farthest from all that is known."""
        left = list(self._grid)
        known = list(self._winners)
        room = self._plan.trials * (1.0 - _HELD)
        near = max(_NEAR, int((room - self._trials) / len(left)))
        while left and self._trials < room and not self._late(1.0 - _HELD):
            point = next((p for p in left if p in self._winners), None) or max(
                left, key=lambda p: min(distance(p, other) for other in known)
            )
            left.remove(point)
            known.append(point)
            self._measure(point, self._from_near(point, near))
        for point, winner in self._winners.items():  # without trials left, what searches tell
            self._times.setdefault(point, {}) or self._measure(point, {winner: winner})

    def _measure(
        self, point: Point, schedules: Mapping[Schedule, Schedule]
    ) -> dict[Schedule, float]:
        """Times of fitted schedules in turns, recorded; by what they were fitted from."""
        workload, own = self._family.workload(point), list(dict.fromkeys(schedules.values()))
        if not own:
            return {}
        peaks = kept_peaks(workload.hardware, cache_dir())
        with Measurer(
            workload.program, workload.target, workload.hardware, cache_dir=cache_dir(),
            seed=self._plan.seed, peaks=peaks, memory=workload.memory,
        ) as measurer:  # fmt: skip
            outcomes = dict(zip(own, measurer.compete(own, _ROUNDS), strict=True))
        self._record(point, outcomes)
        self._trials += len(own)
        found = {
            one: _seconds(outcomes[other]) for one, other in schedules.items()
            if outcomes[other].ok
        }  # fmt: skip
        self._times.setdefault(point, {}).update(found)
        best = min(found.values(), default=math.nan)
        self._tell(Step("compared", point, self._family.words(point), best, self._trials))
        return found

    def _record(self, point: Point, outcomes: Mapping[Schedule, Outcome]) -> None:
        workload = self._family.workload(point)
        job = self._new_job(point)
        for schedule, outcome in outcomes.items():
            self._store.add(to_record(workload, schedule, outcome, job, FINAL))
        self._store.update_job(job, "done")

    def _new_job(self, point: Point) -> str:
        from explorer.rebuilding import PROGRAM

        workload = self._family.workload(point)
        self._store.keep_texts((str(workload.program),))
        options = {
            PROGRAM: workload.program.key, "hardware": workload.hardware.key,
            "generator": workload.backend.generator, "memory": workload.memory,
            "threads": workload.threads, "strategy": FINAL, "trials": 0,
            "seed": self._plan.seed, "pins": dict(self._plan.pins),
        }  # fmt: skip
        name = printable(workload.operator)
        text = json.dumps(options)
        return self._store.new_job(name, workload.extents_json, workload.target, text).id

    def _settled(self) -> tuple[Table, tuple[Schedule, ...]]:
        """Few schedules for all points; raises NothingValid where no point has a time."""
        points = [point for point, times in self._times.items() if times]
        if not points:
            raise NothingValid(f"{self._family.title}: nothing was right again when compared")
        columns = list(dict.fromkeys(s for point in points for s in self._times[point]))
        times = np.array([[self._times[p].get(s, math.nan) for s in columns] for p in points])
        losses = smoothed(points, filled(points, times))
        chosen = covering(losses, TOLERANCE)
        mine = owners(losses, chosen, TOLERANCE)
        rows = [self._row(point, columns[owner]) for point, owner in zip(points, mine, strict=True)]
        return self._table(rows), tuple(columns[number] for number in chosen)

    def _row(self, point: Point, schedule: Schedule) -> Settled:
        times = self._times[point]
        seconds = times.get(schedule, min(times.values()))
        return Settled(point, schedule, seconds, self._family.workload(point).program.flops)

    def _table(self, rows: Sequence[Settled]) -> Table:
        rows = sorted(rows, key=lambda row: row.point)
        fixed = dict(self._family.workload(self._family.lowest).arguments)
        kept = tuple((n, v) for n, v in sorted(fixed.items()) if n not in self._family.names)
        return Table(self._family.varying, kept, tuple(rows))

    def _refined(self, table: Table, chosen: Sequence[Schedule]) -> Table:
        """Boundaries between schedules, narrowed by the points half way."""
        rows, limit = list(table.rows), self._plan.trials * (1.0 - _HELD / 2)
        pairs = [(a, b) for a, b in pairwise(rows) if a.schedule != b.schedule]
        for one, other in pairs if len(self._family.varying) == 1 else ():
            point = self._between(one.point, other.point)
            if point is None or self._trials + 2 > limit or self._late():
                continue
            found = self._measure(point, self._fit(point, [one.schedule, other.schedule]))
            if found:
                rows.append(self._row(point, min(found, key=found.__getitem__)))
        return self._table(rows)

    def _between(self, one: Point, other: Point) -> Point | None:
        """The member half way by ratio, if it is new."""
        extents = dict(self._family.varying)[self._family.names[0]]
        middle = math.sqrt(one[0] * other[0])
        inside = [v for v in extents.listed if one[0] < v < other[0]] or [round(middle)]
        value = min(inside, key=lambda v: abs(math.log(v / middle)))
        return None if (value,) in self._times or value not in extents else (value,)

    # --- points held out ------------------------------------------------------------------------

    def _held_out(self, table: Table) -> tuple[Regret, ...]:
        """The loss at members that nothing was chosen by, beside all that was found, fitted."""
        found = []
        for point in self._unseen():
            if self._trials >= self._plan.trials or self._late():
                break
            choice = choice_for(table, point, self._family.workload)
            mine = table.nearest(point).schedule if choice is None else choice.row.schedule
            near = self._from_near(point).keys()
            room = max(2, self._plan.trials - self._trials)
            rivals = list(dict.fromkeys([mine, *table.schedules, *near]))[:room]
            times = self._measure(point, self._fit(point, rivals))
            if mine in times:
                best = min(times.values())
                found.append(Regret(point, times[mine] / best - 1.0, len(times)))
        return tuple(found)

    def _unseen(self) -> list[Point]:
        """Members that were not measured, at random by ratio."""
        rng = np.random.default_rng(self._plan.seed)
        found: list[Point] = []
        for _ in range(16 * _MOST_HELD):
            point = tuple(self._drawn(rng, n) for n in self._family.names)
            if point not in self._times and point not in found:
                found.append(point)
        return found[:_MOST_HELD]

    def _drawn(self, rng: np.random.Generator, name: str) -> int:
        extents = dict(self._family.varying)[name]
        if extents.listed:
            return int(rng.choice(extents.listed))
        low, high = math.log(extents.low), math.log(extents.high)
        return round(math.exp(rng.uniform(low, high)))

    def _end(self, table: Table) -> str:
        """Keep the table with the job of the first search."""
        job = self._store.job(self._job)
        options = json.loads(job.options) | {OPTION: table.to_data()}
        return self._store.update_job(job.id, "done", json.dumps(options)).id


def _seconds(outcome: Outcome) -> float:
    """Of the kernel alone: calls of small kernels are much of what Python takes."""
    alone = kernel_of(outcome)
    return float(outcome.seconds or 0.0) if alone is None else alone
