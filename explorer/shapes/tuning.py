"""The search of a family: some points are searched, their schedules tried at others, few are kept.

One budget of trials is for all of it: not quite half for searches of points, whose order is by the
regret that is expected of them; the rest for comparisons, in which what is likely to be good at a
point takes turns there with variants of it that suit the point, and for points held out, which
tell the regret. A search has no finals of its own: its best are in the comparison. Every time is an
ordinary record of an ordinary workload.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from pathlib import Path

import numpy as np

from explorer.errors import NothingValid
from explorer.measure import Measurer
from explorer.outcome import Outcome, kernel_of
from explorer.peaks import kept_peaks
from explorer.recall import FINAL, known_trials, open_store, to_record
from explorer.search import Search
from explorer.settings import cache_dir
from explorer.shapes.choice import choice_for, choices_for, least_of
from explorer.shapes.cover import covering, losses_of, next_point, owners
from explorer.shapes.family import MOST_POINTS, Family, Point, distance
from explorer.shapes.fitted import fitted
from explorer.shapes.known import OPTION
from explorer.shapes.result import FamilyResult, Regret, Step
from explorer.shapes.table import Settled, Table
from explorer.shapes.variants import Variants
from ir.errors import UsageError
from ir.printable import printable
from ir.schedule import Schedule
from records import Store

LEAST_TRIALS = 16
TOLERANCE = 0.01  # loss at a measured point that is not worth another schedule
_NOISE = 0.005  # loss at a measured point that may be chance
_SEARCHES = 0.45  # share of the trials
_COMPARED = 0.88  # of the trials, when comparisons at the points of the grid end
_HELD = 0.08
_SEARCH_SECONDS = 0.5  # share of the seconds, when the last search begins
_A_SEARCH = 48  # trials, and a few times more where there are many
_BY_EXTENT = 0.3  # share of extents in how different members are, beside that of their work
_MOST_SEARCHES = 16
_POINTS = 19  # of the grid, and fewer where there are few trials
_A_POINT = 16  # trials, of all, for a point of the grid
_NEAR = 3  # searched points whose schedules a search begins with
_SEEDS = 4  # one in so many trials of a search, but at least three, is one of those
_FINALISTS = 3  # of a search, in the comparison at its point
_RIVALS = 4  # schedules of elsewhere in a comparison, and at points that were not searched all
_VARIANTS = 4  # of those, beside them
_HOPELESS = 1.5  # times the best that is expected, from which a schedule is not compared
_ROUNDS = 2
_MOST_HELD = 4
_UNKNOWN = 0.2  # loss of a schedule at a neighbouring point where it was not measured

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
        self._finalists: dict[Point, tuple[Schedule, ...]] = {}  # of searched points
        self._rates: dict[Point, float] = {}
        self._tried: dict[Point, dict[Schedule, float]] = {}  # as searches measured them
        self._times: dict[Point, dict[Schedule, float]] = {}  # where they were measured
        points = max(4, min(_POINTS, plan.trials // _A_POINT))
        self._grid = self._family.grid(points)[:MOST_POINTS]
        self._variants = Variants(self._family.workload, plan.pins, plan.seed)

    def result(self) -> FamilyResult:
        self._search_points()
        self._compare_searched()
        self._compare_others()
        self._halve()
        table = self._settled()
        regrets = self._held_out(table)
        job = self._end(table)
        return FamilyResult(
            self._family, table, tuple(self._finalists), regrets, self._trials, self._elapsed(), job
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
            if point is None or (number > 1 and self._late(_SEARCH_SECONDS)):
                return
            self._search(point, each)

    def _next(self, number: int) -> Point | None:
        if number < 2:
            return self._grid[-1 if number == 0 else 0]
        searched = list(self._finalists)
        rates = [self._rates[point] for point in searched]
        return next_point(self._grid, searched, rates, self._apart)

    def _apart(self, one: Point, other: Point) -> float:
        """How different two members are: in extents, and in what their programs take at least.

        Where a tile holds more than all rows, or memory limits, the same schedules are good.
        """
        least = [least_of(self._family.workload(point)) for point in (one, other)]
        ratio = abs(math.log(least[0] / least[1]))
        return _BY_EXTENT * distance(one, other) + (1.0 - _BY_EXTENT) * ratio

    def _search(self, point: Point, trials: int) -> None:
        workload, plan = self._family.workload(point), self._plan
        seeds = self._from_near(point, max(_NEAR, trials // _SEEDS))
        tried: dict[Schedule, float] = {}
        with Search(
            workload, self._store, strategy=plan.strategy, trials=trials, pins=plan.pins,
            seed=plan.seed, model=plan.model, seeds=seeds,
        ) as search:  # fmt: skip
            while search.trials < trials and not (tried and self._late(_SEARCH_SECONDS)):
                before = search.trials
                for schedule, outcome in search.step(min(16, trials - before)):
                    if outcome.ok and outcome.seconds is not None:
                        tried[schedule] = _seconds(outcome)
                if search.trials == before:
                    break
            ranked = search.ranked()
            if not ranked:
                raise search.nothing_valid()
            search.state = "done"
            self._job = self._job or search.job.id
            self._trials += search.trials
        good = [schedule for _, schedule in ranked]
        known = dict(known_trials(self._store, workload))  # what was tried before, too
        tried = {one: _seconds(known[one]) for one in good if one in known} | tried
        tried = {one: seconds for seconds, one in ranked if one not in tried} | tried
        self._tried[point] = tried
        self._finalists[point] = tuple(sorted(good, key=tried.__getitem__)[:_FINALISTS])
        fastest = min(tried.values())
        losses = [tried[seed] / fastest - 1.0 for seed in seeds if seed in tried]
        away = min((self._apart(point, o) for o in self._finalists if o != point), default=1.0)
        self._rates[point] = min(losses) / away if losses else 0.0
        self._tell(Step("searched", point, self._family.words(point), fastest, self._trials))

    def _from_near(self, point: Point, most: int = _NEAR) -> tuple[Schedule, ...]:
        """The best schedules of the nearest searched points, as they fit here; then, up to `most`,
        the next best of each."""
        near = sorted(self._finalists, key=lambda other: distance(point, other))[:_NEAR]
        turns = zip_longest(*(self._best_at(other) for other in near))
        schedules = [schedule for turn in turns for schedule in turn if schedule is not None]
        workload, fits = self._family.workload(point), dict[Schedule, None]()
        for schedule in dict.fromkeys(schedules):
            own = fitted(workload, schedule, self._plan.pins) if len(fits) < most else None
            if own is not None:
                fits[own] = None
        return tuple(fits)

    def _best_at(self, point: Point) -> list[Schedule]:
        """Schedules of a searched point, the fastest first, by comparisons where there was one."""
        times = self._times.get(point) or self._tried[point]
        return sorted(times, key=times.__getitem__)[:_FINALISTS]

    # --- comparisons ----------------------------------------------------------------------------

    def _compare_searched(self) -> None:
        """The best of each search and of its neighbours, in turns."""
        for point, finalists in self._finalists.items():
            if self._trials >= _COMPARED * self._plan.trials or self._late(_COMPARED):
                break
            self._compare(point, [*finalists, *self._from_near(point)])
        for point, finalists in self._finalists.items():  # what was not, has a search's time
            if not self._times.get(point):
                tried = self._tried[point]
                self._times[point] = {schedule: tried[schedule] for schedule in finalists}

    def _compare_others(self) -> None:
        """At other points of the grid, the farthest from all that is known first; then again at
        those that were searched, where what is good near by was not tried."""
        left = [point for point in self._grid if point not in self._times]
        while left:
            point = max(left, key=lambda p: min(distance(p, other) for other in self._times))
            left.remove(point)
            if not self._compare_likely(point):
                return
        for point in list(self._finalists):
            self._compare_likely(point)

    def _compare_likely(self, point: Point, limit: float = _COMPARED) -> bool:
        """What is expected to be best at a point and was not measured there; whether there were
        trials and seconds for it."""
        known = self._times.get(point, {})
        choices = choices_for(self._all(), point, self._family.workload, self._plan.pins)
        best = min([*known.values(), *(choice.doubted for choice in choices)], default=math.inf)
        hopeful = [
            choice.schedule for choice in choices
            if choice.schedule not in known and choice.seconds < _HOPELESS * best
        ][:_RIVALS]  # fmt: skip
        measured = [*known, *self._tried.get(point, {})]
        hopeful += self._variants.near(point, self._told(), [*hopeful, *measured], _VARIANTS)
        if self._trials + len(hopeful) > limit * self._plan.trials or self._late(limit):
            return False
        self._compare(point, hopeful)
        return True

    def _told(self) -> dict[Point, dict[Schedule, float]]:
        """All times, those of comparisons before those of searches."""
        points = dict.fromkeys([*self._tried, *self._times])
        return {p: self._tried.get(p, {}) | self._times.get(p, {}) for p in points}

    def _halve(self) -> None:
        """Points half way between measured ones, where the neighbours' schedules differ most."""
        limit = 1.0 - _HELD
        while len(self._family.varying) == 1 and not self._late(limit):
            rows = self._settled().rows
            gaps = [
                (self._doubt(one, other), middle) for one, other in pairwise(rows)
                if one.schedule != other.schedule
                for middle in (self._between(one.point, other.point),) if middle is not None
            ]  # fmt: skip
            middle = max(gaps)[1] if gaps else None
            if middle is None or not self._compare_likely(middle, limit):
                return
            if middle not in self._times:  # nothing was likely, or right, there
                return

    def _doubt(self, one: Settled, other: Settled) -> float:
        """How far apart two points are, and how much they lose by each other's schedules."""
        losses = [
            self._times[there.point].get(here.schedule, (1.0 + _UNKNOWN) * there.seconds)
            / there.seconds - 1.0
            for here, there in ((one, other), (other, one))
        ]  # fmt: skip
        return distance(one.point, other.point) * min(max(losses), 1.0)

    def _between(self, one: Point, other: Point) -> Point | None:
        """The member half way by ratio, if it is new."""
        extents = dict(self._family.varying)[self._family.names[0]]
        middle = math.sqrt(one[0] * other[0])
        inside = [v for v in extents.listed if one[0] < v < other[0]] or [round(middle)]
        value = min(inside, key=lambda v: abs(math.log(v / middle)))
        return None if (value,) in self._times or value not in extents else (value,)

    def _compare(self, point: Point, schedules: Sequence[Schedule]) -> dict[Schedule, float]:
        """Times of schedules in turns, recorded and kept."""
        found = self._measure(point, schedules)
        if found:
            self._times.setdefault(point, {}).update(found)
        return found

    def _measure(self, point: Point, schedules: Sequence[Schedule]) -> dict[Schedule, float]:
        """Times of schedules in turns, recorded."""
        workload, own = self._family.workload(point), list(dict.fromkeys(schedules))
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
        found = {one: _seconds(outcome) for one, outcome in outcomes.items() if outcome.ok}
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

    # --- the table ------------------------------------------------------------------------------

    def _settled(self) -> Table:
        """Few schedules for all points; raises NothingValid where no point has a time."""
        points = [point for point, times in self._times.items() if times]
        if not points:
            raise NothingValid(f"{self._family.title}: nothing was right again when compared")
        columns = list(dict.fromkeys(s for point in points for s in self._times[point]))
        times = np.array([[self._times[p].get(s, math.nan) for s in columns] for p in points])
        losses = losses_of(times)
        chosen = covering(losses, TOLERANCE)
        mine = owners(losses, chosen, _NOISE)
        rows = {
            point: self._row(point, columns[owner])
            for point, owner in zip(points, mine, strict=True)
        }
        return self._table(rows, {columns[number] for number in chosen})

    def _all(self) -> Table:
        """All that was measured, and each point's fastest."""
        rows = {
            point: self._row(point, min(times, key=times.__getitem__))
            for point, times in self._times.items() if times
        }  # fmt: skip
        return self._table(rows, {schedule for times in self._times.values() for schedule in times})

    def _row(self, point: Point, schedule: Schedule) -> Settled:
        seconds = self._times[point][schedule]
        return Settled(point, schedule, seconds, self._family.workload(point).program.flops)

    def _table(self, rows: Mapping[Point, Settled], kept: Collection[Schedule]) -> Table:
        """Of a row for each point, and the other times of the schedules that are kept."""
        others = [
            self._row(point, schedule) for point in sorted(rows) for schedule in self._times[point]
            if schedule in kept and schedule != rows[point].schedule
        ]  # fmt: skip
        given = dict(self._family.workload(self._family.lowest).arguments)
        fixed = tuple((n, v) for n, v in sorted(given.items()) if n not in self._family.names)
        ordered = tuple(rows[point] for point in sorted(rows))
        return Table(self._family.varying, fixed, ordered, tuple(others))

    # --- points held out ------------------------------------------------------------------------

    def _held_out(self, table: Table) -> tuple[Regret, ...]:
        """The loss at members that nothing was chosen by, beside all that was found, fitted."""
        found = []
        for point in self._unseen():
            if self._trials >= self._plan.trials or self._late():
                break
            choice = choice_for(table, point, self._family.workload)
            if choice is None:
                continue
            found_here = choices_for(self._all(), point, self._family.workload, self._plan.pins)
            rivals = [one.schedule for one in found_here]
            room = max(2, self._plan.trials - self._trials)
            near = [choice.schedule, *rivals[: 2 * _RIVALS], *self._from_near(point)]
            times = self._measure(point, list(dict.fromkeys(near))[: min(room, 2 * _RIVALS)])
            if choice.schedule in times:
                best = min(times.values())
                found.append(Regret(point, times[choice.schedule] / best - 1.0, len(times)))
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
