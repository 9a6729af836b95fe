"""The search of a family: points of a grid are searched, each from what others found; few are kept.

One budget of trials is for all of it. Most of it is for short searches: first of every point, in
the order of the regret that is expected of them, then of those again where most may be won. A
search begins with what is likely to be good there and with variants of that, goes on by the model,
and its best take turns at its end. Then new points are put between those whose schedules differ
most, and points held out tell the regret. Every time is an ordinary record of an ordinary workload.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from explorer.bound import Bound
from explorer.errors import NothingValid
from explorer.measure import Measurer
from explorer.outcome import Outcome, kernel_of
from explorer.peaks import kept_peaks, stated_peaks
from explorer.recall import FINAL, known_trials, open_store, to_record
from explorer.search import Search, begin_early
from explorer.settings import cache_dir
from explorer.shapes.ahead import Ahead
from explorer.shapes.choice import Choice, choice_for, choices_for
from explorer.shapes.cover import covering, losses_of, next_point, owners
from explorer.shapes.effort import Effort
from explorer.shapes.family import MOST_POINTS, Point, distance
from explorer.shapes.family_plan import AGAIN, FIRST, LEAST_SEARCH, FamilyPlan
from explorer.shapes.known import OPTION
from explorer.shapes.learnt import Learnt
from explorer.shapes.members import Members
from explorer.shapes.result import FamilyResult, Regret, Step
from explorer.shapes.table import Settled, Table
from explorer.shapes.variants import variants
from ir.printable import printable
from ir.schedule import Schedule
from records import Store

TOLERANCE = 0.01  # loss at a measured point that is not worth another schedule
_NOISE = 0.005  # loss at a measured point that may be chance
_HELD = 0.06
_SEARCH_SECONDS = 0.75  # share of the seconds, when the last search begins
_BY_EXTENT = 0.3  # share of extents in how different members are, beside that of their work
_FINALISTS = 3  # of a search, in the comparison at its end
_RIVALS = 6  # schedules of elsewhere that a search begins with
_VARIANTS = 4  # of those, beside them
_HOPELESS = 1.5  # times the best that is expected, from which a schedule is not tried
_PROMISING = 1.02  # times the best that was measured
_ROUNDS = 2
_MOST_HELD = 4
_BETWEEN = 96  # points of the grid for which a choice is made ahead
_CLOSEST = 3  # schedules for each of those
_PLANNING = 0.1  # of the time of the search, for that
_UNKNOWN = 0.2  # loss of a schedule at a neighbouring point where it was not measured

Tell = Callable[[Step], None]


def tune_family(
    plan: FamilyPlan,
    *,
    store: str | Path | None = None,
    tell: Tell | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> FamilyResult:
    """Search a family; a KeyboardInterrupt keeps what is measured, and is raised again.

    Raises UsageError, NothingValid where the first point that is searched, the largest, has no
    valid kernel, StoreError.
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
        self._floors: dict[Point, float] = {}  # the least seconds of members
        self._searched: list[Point] = []
        self._rates: dict[Point, float] = {}
        self._tried: dict[Point, dict[Schedule, float]] = {}  # as searches measured them
        self._times: dict[Point, dict[Schedule, float]] = {}  # where they were measured
        self._grid = self._family.grid(plan.points)[:MOST_POINTS]
        self._members = Members(self._family.workload, plan.pins)
        self._learnt = Learnt(self._members, plan.pins, plan.seed)
        self._effort = Effort(self._members.least)
        self._ahead = Ahead(self._members, plan.pins)

    def result(self) -> FamilyResult:
        with closing(self._ahead):
            self._search_points()
            self._search_again()
        self._halve()
        table = self._with_expected(self._settled())
        regrets = self._held_out(table)
        job = self._end(table)
        return FamilyResult(
            self._family, table, tuple(self._searched), regrets, self._trials, self._elapsed(), job
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
        for number in range(len(self._grid)):
            point = self._next(number)
            if point is None or (number >= FIRST and not self._room):
                return
            plan = self._plan
            self._search(point, plan.first if number < FIRST else min(plan.each, self._room))

    def _search_again(self) -> None:
        """Where most may be won, with what was found elsewhere since."""
        left = list(self._searched)
        while self._room and (point := self._effort.most(left)) is not None:
            if not self._search(point, min(self._plan.each, self._room)):
                left.remove(point)  # it has no schedule that was not tried

    @property
    def _room(self) -> int:
        """Trials that another search may have; 0 where there are too few, or it is late."""
        left = int(AGAIN * self._plan.trials) - self._trials
        return left if left >= LEAST_SEARCH and not self._late(_SEARCH_SECONDS) else 0

    def _next(self, number: int) -> Point | None:
        if number < 2:
            return self._grid[-1 if number == 0 else 0]
        rates = [self._rates[point] for point in self._searched]
        return next_point(self._grid, self._searched, rates, self._apart)

    def _apart(self, one: Point, other: Point) -> float:
        """How different two members are: in extents, and in what their programs take at least.

        Where a tile holds more than all rows, or memory limits, the same schedules are good.
        """
        least = [self._least(point) for point in (one, other)]
        ratio = abs(math.log(least[0] / least[1]))
        return _BY_EXTENT * distance(one, other) + (1.0 - _BY_EXTENT) * ratio

    def _least(self, point: Point) -> float:
        """What a member takes at least, without its space: that of a point that is never searched
        need not be made."""
        if point not in self._floors:
            workload = self._family.workload(point)
            facts = dict(workload.hardware.facts) | stated_peaks(
                workload.backend, workload.hardware
            )
            bound = Bound.of(workload.program, facts).seconds
            self._floors[point] = bound or float(max(1, workload.program.flops))
        return self._floors[point]

    def _search(self, point: Point, trials: int) -> bool:
        """Search a point, and have its best take turns with the best of elsewhere; whether there
        was something to try."""
        workload, plan = self._family.workload(point), self._plan
        begin_early(workload, plan.seed, baseline=False)
        likely, near = self._likely(point)
        tried: dict[Schedule, float] = {}
        searching = max(1, trials - _FINALISTS)
        with Search(
            workload, self._store, strategy=plan.strategy, trials=searching, pins=plan.pins,
            seed=plan.seed, model=plan.model, seeds=(*likely, *near),
        ) as search:  # fmt: skip
            self._prepare(point)
            while search.trials < searching and not (tried and self._late(_SEARCH_SECONDS)):
                before = search.trials
                for schedule, outcome in search.step(min(16, searching - before)):
                    if outcome.ok and outcome.seconds is not None:
                        tried[schedule] = _seconds(outcome)
                if search.trials == before:
                    break
            ranked = search.ranked()
            first = point not in self._searched
            self._searched += [point] if first else []
            if not ranked and not self._times:
                raise search.nothing_valid()
            if not ranked:  # other points' schedules are tried here later
                self._trials += search.trials
                self._rates[point] = 0.0
                return False
            tried = self._all_tried(point, ranked, tried)
            finalists = sorted((one for _, one in ranked), key=tried.__getitem__)[:_FINALISTS]
            turns = [] if self._late(AGAIN) else search.in_turns(finalists, _ROUNDS)
            search.state = "done"
            self._job = self._job or search.job.id
            self._trials += search.trials + len(turns)
            some = search.trials > 0
        compared = {one: _seconds(outcome) for one, outcome in turns if outcome.ok}
        self._keep(point, tried, compared, finalists)
        if first:
            self._rate(point, likely)
        fastest = min(self._times[point].values())
        self._effort.note(point, fastest)
        self._tell(Step("searched", point, self._family.words(point), fastest, self._trials))
        return some

    def _all_tried(
        self, point: Point, ranked: Sequence[tuple[float, Schedule]],
        tried: Mapping[Schedule, float],
    ) -> dict[Schedule, float]:  # fmt: skip
        """Times of what was `tried` now and before at a point: of the latest comparison that one
        was in, else of the search that measured it."""
        stored = dict(known_trials(self._store, self._family.workload(point)))
        good = {one: seconds for seconds, one in ranked}
        searched = {one: _seconds(stored[one]) for one in good if one in stored}
        before = good | self._tried.get(point, {}) | searched
        return before | dict(tried) | self._times.get(point, {})

    def _keep(
        self, point: Point, tried: Mapping[Schedule, float], compared: Mapping[Schedule, float],
        finalists: Sequence[Schedule],
    ) -> None:  # fmt: skip
        """Keep times of a search; those of an earlier comparison as they would be in this one."""
        self._tried[point] = _as_compared(tried, compared)
        if compared or not self._times.get(point):
            now = dict(compared) or {one: tried[one] for one in finalists}
            self._times[point] = _as_compared(self._times.get(point, {}), now) | now

    def _prepare(self, point: Point) -> None:
        """Have the space of the point that is likely to be next made while this one is searched."""
        rates = [self._rates.get(one, 0.0) for one in (*self._searched, point)]
        if len(self._searched) >= FIRST:
            following = next_point(self._grid, [*self._searched, point], rates, self._apart)
            if following is not None:
                self._ahead.make(following)

    def _likely(self, point: Point) -> tuple[list[Schedule], list[Schedule]]:
        """What a search begins with: what is expected to be best of all that was measured and was
        not tried here, and variants of it and of what is best here."""
        if not self._times:
            return [], []
        known = self._tried.get(point, {}) | self._times.get(point, {})
        choices = self._choices(point)
        best = min((choice.doubted for choice in choices), default=math.inf)
        bar = _PROMISING * min(known.values()) if known else _HOPELESS * best
        likely = [one.schedule for one in choices if one.schedule not in known]
        expected = {one.schedule: one.seconds for one in choices}
        likely = [one for one in likely if expected[one] < bar][:_RIVALS]
        parents = [*likely, *sorted(known, key=known.__getitem__)]
        return likely, variants(self._learnt, point, parents, _VARIANTS)

    def _rate(self, point: Point, likely: Sequence[Schedule]) -> None:
        """How much the best that came from elsewhere loses, for how far away that is."""
        tried, best = self._tried[point], min(self._tried[point].values())
        known = [tried[one] for one in likely if one in tried]
        others = (other for other in self._searched if other != point)
        away = min((self._apart(point, other) for other in others), default=1.0)
        self._rates[point] = (min(known) / best - 1.0) / away if known else 0.0

    # --- comparisons ----------------------------------------------------------------------------

    def _compare_likely(self, point: Point, limit: float) -> bool:
        """What is expected to be best at a point where nothing was measured; whether there were
        trials and seconds for it."""
        if self._late(limit):
            return False
        likely, near = self._likely(point)
        hopeful = [*likely, *near]
        if self._trials + len(hopeful) > limit * self._plan.trials:
            return False
        if hopeful:
            self._compare(point, hopeful)
        return True

    def _choices(self, point: Point) -> list[Choice]:
        """What is known of other points, as it fits here, by all that was measured."""
        self._learnt.learn(self._told())
        return choices_for(self._all(), point, self._members, self._learnt)

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

    def _with_expected(self, table: Table) -> Table:
        """The table with what is expected of its schedules between measured points, so that whoever
        has the table alone chooses by the model; the coarse first, within a share of the time."""
        began, found = self._clock(), list[Settled]()
        measured = {row.point for row in table.rows}
        between = [p for p in self._family.grid(_BETWEEN) if p not in measured]
        coarse = dict.fromkeys(p for step in (16, 8, 4, 2, 1) for p in between[::step])
        for point in coarse if self._learnt.ready else ():
            if self._clock() - began > _PLANNING * (began - self._began):
                break
            choices = choices_for(table, point, self._members, self._learnt)
            flops = self._family.workload(point).program.flops
            found += [
                Settled(point, one.schedule, one.seconds, flops, one.doubted / one.seconds - 1.0)
                for one in choices[:_CLOSEST]
            ]
        return replace(table, expected=tuple(found))

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
        """Of a row for each point, and the other times of the schedules that are kept, those of
        searches too: a schedule that was slow near by is not told by points farther away."""
        told = self._told()
        others = [
            replace(rows[point], schedule=schedule, seconds=seconds) for point in sorted(rows)
            for schedule, seconds in told[point].items()
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
            if self._trials + 2 > self._plan.trials or self._late():  # for two at least
                break
            choice = choice_for(table, point, self._members)
            if choice is None:
                continue
            found_here = self._choices(point)
            rivals = [choice.schedule, *(one.schedule for one in found_here)][: 1 + _RIVALS]
            room = self._plan.trials - self._trials
            rivals += variants(self._learnt, point, rivals, _VARIANTS)
            times = self._measure(point, list(dict.fromkeys(rivals))[:room])
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


def _as_compared(
    tried: Mapping[Schedule, float], compared: Mapping[Schedule, float]
) -> dict[Schedule, float]:
    """Times of a search as they would be in turns, behind a stretch of load: longer, as a rule."""
    ratios = [seconds / tried[one] for one, seconds in compared.items() if one in tried]
    factor = statistics.median(ratios) if ratios else 1.0
    return {one: factor * seconds for one, seconds in tried.items()}


def _seconds(outcome: Outcome) -> float:
    """Of the kernel alone: calls of small kernels are much of what Python takes."""
    alone = kernel_of(outcome)
    return float(outcome.seconds or 0.0) if alone is None else alone
