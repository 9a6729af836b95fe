"""One run of a plan: whose turn it is, batch by batch, until the budget is spent; then the finals.

Knows searches, allocation and what an interrupted run left; no operator and no target.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import numpy as np

from explorer.allocation import Course, next_turn
from explorer.comparison import beside_baseline
from explorer.devices import FIRST, devices_of
from explorer.disturbance import crowd_of
from explorer.errors import DeviceLost, NothingValid, ServerLost
from explorer.interrupted import PROGRAMS, SEEDS, Interrupted, acknowledged, seeds_text
from explorer.measuring import Machines, Measuring
from explorer.outcome import Outcome, kernel_of
from explorer.plan import JobPlan, Plan
from explorer.result import JobResult, PlanResult, Progress
from explorer.search import Search, begin_early, drop_early
from explorer.strategies.base import make_strategy
from explorer.training import prior_for, read_early
from explorer.workload import Workload
from ir.errors import UsageError
from ir.schedule import Schedule
from records import StoreError
from records.canonical import content_key

if TYPE_CHECKING:
    from explorer.replay import Recording
    from records import Store

MOST_KEPT = 2000  # schedules of other records that a job keeps as its start
Clock = Callable[[], float]
Callback = Callable[[Progress], None]
Found = list[tuple[int, tuple[float, Schedule]]]
Missed = list[tuple[int, str]]


def prepare(
    plan: Plan,
    recordings: Sequence[Recording] = (),
    past: Interrupted | None = None,
    machines: Machines | None = None,
) -> tuple[Workload, ...]:
    """The workloads of a plan, checked; a UsageError names the job where there are several.

    With `recordings`, one for each job, they answer, so that the workloads are those recorded;
    those of an interrupted run are as the store has them. With `machines` they are on these, of
    which some may be missing: raises NoFarm.
    """
    here = not recordings and machines is None
    found, built = [], Event()
    for number, job in enumerate(plan.jobs):
        try:
            if recordings:
                workload = recordings[number].workload
            elif past is not None:
                workload = past.workloads[number]
            else:
                workload = job.workload()
            if machines is not None:
                workload = _there(job, workload, machines)
            if here:
                workload.refuse_unmeasurable()
                devices_of(job.devices, workload)
            if here and not number:
                begin_early(workload, job.seed, job.baseline, job.devices)
                if job.model is None:
                    read_early(job.target, built)
            _refuse_wrong(job, workload, None if past is None else past.seeds[number])
        except UsageError as error:
            drop_early()
            if len(plan.jobs) == 1:
                raise
            raise UsageError(f"job {number + 1} ({job.title}): {error}") from None
        finally:
            built.set()
        found.append(workload)
    return tuple(found)


def _there(job: JobPlan, workload: Workload, machines: Machines) -> Workload:
    """The workload on other machines, which know what memory and devices they have."""
    workload.program.refuse_void()
    if job.devices != FIRST:
        raise UsageError(
            f"devices={job.devices!r}: they are this machine's; each worker of a farm has its own"
        )
    return machines.on(workload, job.hardware)


def _refuse_wrong(job: JobPlan, workload: Workload, seeds: tuple[Schedule, ...] | None) -> None:
    """Raises what a search would raise for its pins, strategy or files, before there is one."""
    space = workload.space(dict(job.pins))
    given = _seeds(job, workload) if seeds is None else seeds
    make_strategy(job.strategy, space, np.random.default_rng(0), seeds=given)
    if job.model is not None:
        prior_for(space, job.model)


def _seeds(job: JobPlan, workload: Workload) -> tuple[Schedule, ...]:
    """What a job starts from; raises UsageError where the records have nothing of use."""
    if job.start_from is None:
        return ()
    from explorer.recorded import RecordedKernel, seeds_of
    from explorer.replay import seeds_from

    if isinstance(workload, RecordedKernel):
        return seeds_of(workload, job.start_from, dict(job.pins))
    return seeds_from(workload, job.start_from, dict(job.pins))


class Run:
    """Searches that are opened at their first turn, and the order of turns. Use it once."""

    def __init__(
        self,
        plan: Plan,
        workloads: tuple[Workload, ...],
        store: Store,
        progress: Callback | None,
        clock: Clock,
        past: Interrupted | None = None,
        peaks: Sequence[Mapping[str, float]] = (),
        recordings: Sequence[Recording] = (),
        machines: Machines | None = None,
    ) -> None:
        self._began = clock()
        self._machines = machines
        self._clock = clock
        self._plan = plan
        self._workloads = workloads
        self._store = store
        self._progress = progress
        self._peaks = peaks or [{} for _ in plan.jobs]
        self._recordings = recordings
        self._identifier = past.run if past else secrets.token_hex(6)
        self._past = dict(past.jobs) if past else {}
        self._before = max((acknowledged(store, j).elapsed for j in self._past.values()), default=0)
        self._seeds = past.seeds if past else self._first_seeds()
        self._searches: dict[int, Search] = {}
        self._courses = [Course(job.weight) for job in plan.jobs]

    def result(self) -> PlanResult:
        """Search, decide, and say what was found."""
        with ExitStack() as stack, self._noting_states():
            try:
                self._search(stack)
                found, missed = self._finals()
            except KeyboardInterrupt:
                found, missed = self._standing()
                if not found:
                    raise
                self._mark("stopped")
                return self._result(found, missed, True)
            for number, _ in found:
                self._searches[number].state = "done"
            return self._result(found, missed, False)

    @contextmanager
    def _noting_states(self) -> Iterator[None]:
        """What interrupts a run from outside leaves its jobs resumable."""
        try:
            yield
        except (KeyboardInterrupt, DeviceLost, ServerLost, StoreError, OSError):
            # OSError: nobody hears progress any more
            self._mark("stopped")
            raise

    def _mark(self, state: str) -> None:
        for search in self._searches.values():
            search.state = state

    def _search(self, stack: ExitStack) -> None:
        """Batch after batch until the budget is spent or no strategy has anything left."""
        while not self._over():
            number = next_turn(self._courses, self._plan.objective)
            if number is None:
                return
            self._turn(number, self._opened(number, stack))

    def _opened(self, number: int, stack: ExitStack) -> Search:
        if number not in self._searches:
            job = self._plan.jobs[number]
            search = Search(
                self._workloads[number],
                self._store,
                strategy=job.strategy,
                trials=self._plan.horizon(number),
                pins=dict(job.pins),
                seed=job.seed,
                model=job.model,
                seeds=self._seeds[number],
                measurer=self._measurer(number),
                baseline=job.baseline,
                devices=job.devices,
                resume=self._past.pop(number, None),
                facts=self._facts(number),
                clock=self._elapsed,
            )
            self._searches[number] = stack.enter_context(search)
        return self._searches[number]

    def _measurer(self, number: int) -> Measuring | None:
        """Who answers in the place of this machine; None if it does."""
        if self._recordings:
            from explorer.replay import Replayer

            return Replayer(self._recordings[number])
        if self._machines is None:
            return None
        job = self._plan.jobs[number]
        return self._machines.measurer(self._workloads[number], job.seed, job.baseline)

    def _facts(self, number: int) -> dict[str, object]:
        """What is kept with a job besides its own options."""
        plan = json.loads(self._plan.anchored(Path.cwd()).to_json())
        facts = {"run": self._identifier, "member": number, "plan": plan}
        return facts | {"peaks": dict(self._peaks[number])} | self._kept()

    def _kept(self) -> dict[str, object]:
        """Keys of the texts from which `interrupted` makes the run again: programs, and seeds."""
        texts = {
            PROGRAMS: [str(workload.program) for workload in self._workloads],
            SEEDS: [seeds_text(seeds) for seeds in self._seeds],
        }
        for group in texts.values():
            self._store.keep_texts(group)
        return {name: [content_key(text) for text in group] for name, group in texts.items()}

    def _first_seeds(self) -> tuple[tuple[Schedule, ...], ...]:
        """Of every job as many of the fastest recorded as it can try."""
        pairs = enumerate(zip(self._plan.jobs, self._workloads, strict=True))
        most = [
            min(MOST_KEPT, self._plan.horizon(n) or MOST_KEPT)
            for n, _ in enumerate(self._plan.jobs)
        ]
        return tuple(_seeds(job, workload)[: most[n]] for n, (job, workload) in pairs)

    def _turn(self, number: int, search: Search) -> None:
        """One batch of one job."""
        limit = self._plan.jobs[number].trials
        before = search.trials
        count = self._plan.budget.next_batch(self._trials)
        if limit is not None:
            count = min(count, limit - before)
        ahead = self._ahead(count, limit, before)
        for schedule, outcome in search.step(count, self._left(), ahead):
            self._tell(number, search, schedule, outcome)
            if self._over():
                return
        if len(self._plan.jobs) > 1:
            search.measurer.rest()
        course = self._courses[number]
        course.note(search.trials, search.best_seconds)
        course.exhausted = search.trials == before or search.trials == limit

    def _ahead(self, count: int, limit: int | None, before: int) -> float:
        """How many trials a job may have under way besides those of its turn: all that are left of
        the budget where no other job waits for the machine."""
        if len(self._plan.jobs) > 1:
            return 0
        most = [trials for trials in (self._plan.budget.trials, limit) if trials is not None]
        return min(most, default=math.inf) - before - count

    def _tell(self, number: int, search: Search, schedule: Schedule, outcome: Outcome) -> None:
        if self._progress is None:
            return
        self._progress(
            Progress(
                search.trials,
                schedule,
                outcome,
                search.best_told,
                self._elapsed(),
                search.workload.program.flops,
                number=number,
                job=search.job.id,
                trials=self._trials,
                replayed=search.trials <= search.resumed,
                regret=_regret(search),
                baseline=search.baseline,
                model=search.head_start,
            )
        )

    @property
    def _trials(self) -> int:
        return sum(search.trials for search in self._searches.values())

    def _elapsed(self) -> float:
        return self._before + self._clock() - self._began

    @property
    def _rebuilding(self) -> bool:
        """Whether trials of an interrupted run are still to be asked for again."""
        return bool(self._past) or any(search.replaying for search in self._searches.values())

    def _left(self) -> float:
        """Seconds of the budget that are left; while a run is rebuilt none is spent."""
        seconds = self._plan.budget.seconds
        if seconds is None or self._rebuilding:
            return math.inf
        return max(0.0, seconds - self._elapsed())

    def _over(self) -> bool:
        """Whether the budget is spent; while a run is rebuilt its time is not."""
        budget = self._plan.budget
        if self._rebuilding:
            return budget.trials_over(self._trials)
        return budget.over(self._trials, self._elapsed())

    def _finals(self) -> tuple[Found, Missed]:
        """The winner of every job, or why it has none."""
        found: Found = []
        missed: Missed = []
        for number, search in sorted(self._searches.items()):
            try:
                found.append((number, search.finals()))
            except NothingValid as error:
                missed.append((number, str(error)))
            if len(self._plan.jobs) > 1:
                search.measurer.rest()
        unmet = set(range(len(self._plan.jobs))) - set(self._searches)
        missed += [(number, "the budget was spent before its turn came") for number in unmet]
        return found, sorted(missed)

    def _standing(self) -> tuple[Found, Missed]:
        """The best so far of every job that has one."""
        ranked = {number: search.ranked() for number, search in sorted(self._searches.items())}
        found = [(number, pairs[0]) for number, pairs in ranked.items() if pairs]
        missed = [
            (number, "nothing valid before the interruption")
            for number in range(len(self._plan.jobs))
            if not ranked.get(number)
        ]
        return found, missed

    def _result(
        self,
        found: Found,
        missed: Missed,
        interrupted: bool,
    ) -> PlanResult:
        results = tuple(self._job_result(number, *best, interrupted) for number, best in found)
        return PlanResult(
            self._plan, results, tuple(missed), self._trials, self._elapsed(), interrupted
        )

    def _job_result(
        self, number: int, seconds: float, best: Schedule, interrupted: bool
    ) -> JobResult:
        search, settled = self._searches[number], self._searches[number].settled
        usual = search.disturbance.crowd
        best_so_far = Outcome("ok", seconds, notes=() if usual is None else usual.notes)
        return JobResult(
            search.job.id,
            search.workload,
            best,
            seconds,
            search.trials,
            search.known,
            tuple(search.outcomes.most_common()),
            self._elapsed(),
            interrupted,
            number,
            search.resumed,
            search.disturbance.noise,
            search.disturbance.foreign_load,
            search.baseline,
            settled.beside_baseline if settled else beside_baseline(best_so_far, search.baseline),
            settled.beside_incumbent if settled else None,
            settled is not None and settled.kept,
            crowd_of(settled.outcome if settled else best_so_far),
            search.head_start,
            None if settled is None else kernel_of(settled.outcome),
        )


def _regret(search: Search) -> float | None:
    """How much slower the model's favourite of the last batch was than that batch's best.

    None for a search that keeps no account of its model.
    """
    quality = getattr(search, "model_quality", ())
    return float(quality[-1].regret) - 1.0 if quality else None
