"""Ask, measure, record, tell: one search over one workload, batch by batch.

Knows strategies, measuring and records by their interfaces; no operator and no target.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from costmodel.saved import TrainedModel
from explorer.baseline import Baseline
from explorer.comparison import Settled, settle
from explorer.disturbance import Disturbance
from explorer.errors import NothingValid
from explorer.finals import chosen_finalists
from explorer.interrupted import ELAPSED, Acknowledged, acknowledged, known_at_start
from explorer.measure import Measurer, Measuring
from explorer.outcome import Outcome
from explorer.rebuilding import PROGRAM
from explorer.recall import FINAL, HEAT, incumbent, known_trials, to_record
from explorer.settings import cache_dir
from explorer.sharing import Pair, Sharing
from explorer.strategies.base import find_strategy
from explorer.strategies.guide import Guided, Quality
from explorer.training import head_start, prior_for
from explorer.workload import Workload
from ir.errors import UsageError
from ir.printable import printable
from ir.schedule import Schedule
from records import Job, Store

LEAST = 8  # candidates asked for at once at a budget's end, where most may be copies of others
MOST_GOOD = 512  # of the fastest schedules at least so many are kept in memory
_SHOWN = 200  # letters of a failure in a message
BARREN = 32  # batches of kernels that ran before, after which a step gives up


class Search:
    """`step` measures and records a batch, `finals` decides. Use as a context manager.

    What the store knows of the workload on this machine is told to the strategy first, and is
    not measured again; nor is what another search is measuring, whose results are told as they
    come. With `resume`, a job made with the same options, the search is that job's: what it had
    measured is answered from the store as it is asked for again. `facts` are kept with a new job;
    `clock` gives the seconds of the search so far. `model` is a file to start with, "none", or
    (None) the package's own. `seeds` are measured first; `measurer` may answer instead of the
    machine. With `baseline` the target's array library is measured as well.
    """

    def __init__(
        self,
        workload: Workload,
        store: Store,
        *,
        strategy: str = "evolutionary",
        trials: int | None = 256,
        pins: Mapping[str, object] | None = None,
        seed: int = 0,
        cache: Path | None = None,
        resume: Job | None = None,
        facts: Mapping[str, object] | None = None,
        clock: Callable[[], float] | None = None,
        model: str | Path | None = None,
        seeds: Sequence[Schedule] = (),
        measurer: Measuring | None = None,
        baseline: bool = False,
    ) -> None:
        make = find_strategy(strategy)
        began = time.monotonic()
        self._clock = clock or (lambda: time.monotonic() - began)
        self.workload = workload
        self.store = store
        self.strategy_name = strategy
        self.space = workload.space(pins)
        self.strategy = make(self.space, np.random.default_rng(seed), trials=trials, seeds=seeds)
        if measurer is None:
            Measurer.boot(workload.target, cache or cache_dir())
        self.prior = self._use_prior(model)
        self.head_start = head_start(self.space, model, guided=isinstance(self.strategy, Guided))
        self.outcomes: Counter[str] = Counter()
        self._last_failure = ""
        self.disturbance = Disturbance()
        self._good: dict[str, tuple[float, Schedule]] = {}
        self._kernels: dict[str, Outcome] = {}
        self._widest = 0  # the largest batch so far
        self._spare: list[Schedule] = []  # asked for, and not measured yet
        self._past = Acknowledged() if resume is None else acknowledged(store, resume)
        self.resumed = len(self._past.outcomes)
        first = known_at_start(store, workload, resume)
        own = "" if resume is None else resume.id
        self._wants_baseline = baseline
        self._noted: Baseline | None = None
        self.settled: Settled | None = None  # what the finals came to
        options = {"strategy": strategy, "trials": trials, "seed": seed, "pins": dict(pins or {})}
        options |= {"model": self.prior.data.get("fingerprint", "")} if self.prior else {}
        self.sharing = Sharing(store, workload)
        with ExitStack() as begun:
            begun.callback(self.sharing.close)
            if resume is not None:
                self.sharing.run(resume)  # refuses before any worker is started
            self.known = self._tell_known(known_trials(store, workload, first, own))
            self.measurer: Measuring = measurer or _measurer(workload, cache, seed, baseline)
            begun.callback(self.measurer.close)
            self.measurer.best = self.best_seconds
            self.measurer.kernels = self._kernels
            self.job = self._begin(resume, options | {"known": first} | dict(facts or {}))
            begun.pop_all()
        self.state = "failed"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def model_quality(self) -> Sequence[Quality]:
        """How well each batch was scored before it was learnt from; empty without a model."""
        return self.strategy.quality if isinstance(self.strategy, Guided) else ()

    @property
    def trials(self) -> int:
        """Candidates measured by this search."""
        return sum(self.outcomes.values())

    @property
    def best_seconds(self) -> float | None:
        """The fastest time so far, known trials included."""
        return min((seconds for seconds, _ in self._good.values()), default=None)

    def ranked(self) -> list[tuple[float, Schedule]]:
        """Good schedules with their times, the fastest first, one for each kernel."""
        return sorted(self._good.values(), key=lambda pair: pair[0])

    @property
    def baseline(self) -> Baseline | None:
        """What is known of the library's time; None before the first trial, or without one."""
        return self.measurer.baseline

    @property
    def replaying(self) -> bool:
        """Whether trials of the resumed job are still to be asked for again."""
        return bool(self._past)

    def step(self, count: int, patience: float = math.inf) -> Iterator[tuple[Schedule, Outcome]]:
        """Measure up to `count` candidates; each pair is in the store when it is yielded.

        A schedule whose kernel ran before is no candidate: the strategy is told that kernel's
        outcome and asked again. Nothing is yielded once it has no more to propose. What other
        searches measure is waited for `patience` (seconds) at most.
        """
        before, until = self.trials, time.monotonic() + patience
        self._widest = max(count, self._widest)
        for _ in range(BARREN):
            schedules = self._claimed(max(count, min(LEAST, self._widest)), until)
            yield from self._measured(schedules, count)
            if self.trials > before or not schedules:
                break

    def _measured(
        self, schedules: Sequence[Schedule], count: int
    ) -> Iterator[tuple[Schedule, Outcome]]:
        """Up to `count` trials among `schedules`; the strategy is told of all that was answered."""
        pairs: list[tuple[Schedule, Outcome]] = []
        try:
            with closing(self._answers(schedules)) as answers:
                for schedule, outcome in answers:
                    pairs.append((schedule, outcome))
                    if not outcome.copied:
                        self._count(schedule, outcome)
                        count -= 1
                        yield schedule, outcome
                    if not count:
                        break
        finally:
            self.strategy.tell([schedule for schedule, _ in pairs], [told for _, told in pairs])
            self._spare = list(schedules[len(pairs) :])
            self.sharing.done()

    def _claimed(self, count: int, until: float) -> list[Schedule]:
        """Candidates that no other search measures; none when there are none left by `until`."""
        if isinstance(self.strategy, Guided):
            count = self.strategy.portion(count)
        batch = self.sharing.left(count)
        self._tell_known(self.sharing.heard())
        while len(batch) < count:
            spare, self._spare = self._spare, []
            asked = spare or self.strategy.ask(count - len(batch))
            batch += self._ours(asked)
            if not asked:
                break
        batch = batch or self.sharing.wait(count, until - time.monotonic())
        self._tell_known(self.sharing.heard())
        return batch

    def _ours(self, asked: Sequence[Schedule]) -> list[Schedule]:
        """Of schedules asked for: what the resumed job measured, and what no other search has."""
        past = {schedule.key for schedule in asked if self._past.holds(schedule)}
        taken = self.sharing.take([schedule for schedule in asked if schedule.key not in past])
        ours = past | {schedule.key for schedule in taken}
        return [schedule for schedule in asked if schedule.key in ours]

    def _answers(
        self, schedules: Sequence[Schedule]
    ) -> Generator[tuple[Schedule, Outcome], None, None]:
        """In their order: trials of a resumed job from the store, others measured and stored.

        What is copied from another schedule is not stored, and the past goes on after it.
        """
        told = {schedule.key: self._past.take(schedule) for schedule in schedules}
        measured = self.measurer.measure([s for s in schedules if told[s.key] is None])
        try:
            for schedule in schedules:
                outcome = told.pop(schedule.key) or self._new(schedule, measured)
                yield schedule, outcome
        finally:
            self._past.keep((s, told[s.key]) for s in schedules if s.key in told)

    def _new(self, schedule: Schedule, measured: Iterator[Outcome]) -> Outcome:
        """The next outcome, stored unless it is a copy."""
        self.measurer.best = self.best_seconds
        outcome = next(measured)
        self._note_baseline()
        if not outcome.copied:
            self._tell_past()
            self._add(schedule, outcome, self.strategy_name)
        return outcome

    def _tell_past(self) -> None:
        """Trials that were not asked for again (another version of a library draws otherwise)."""
        pairs = self._past.rest()
        if not pairs:
            return
        self.strategy.tell([schedule for schedule, _ in pairs], [told for _, told in pairs])
        for schedule, outcome in pairs:
            self._count(schedule, outcome)

    def _count(self, schedule: Schedule, outcome: Outcome) -> None:
        self.outcomes[outcome.status] += 1
        self._last_failure = "" if outcome.ok else outcome.detail
        self.disturbance.note(outcome)
        self._remember(outcome)
        self._note(schedule, outcome)

    def finals(self) -> tuple[float, Schedule]:
        """The best few re-measured in turns with the incumbent and the baseline; the winner.

        The fastest by median wins, unless the incumbent is within noise of it. Raises NothingValid.
        """
        ranked = self.ranked()
        if not ranked:
            raise self.nothing_valid()
        finalists, rounds = chosen_finalists(self.space, ranked, self._heat)
        best_before = self._incumbent()
        if best_before is not None and best_before not in finalists:
            finalists.append(best_before)
        outcomes = self.measurer.compete(finalists, rounds, library=self._wants_baseline)
        pairs = list(zip(finalists, outcomes, strict=True))
        self.settled = settle(pairs, best_before, self.baseline)
        self._note_baseline()
        if self.settled is None:
            self._add_all(pairs, FINAL)
            seen = "; ".join(outcome.detail or outcome.status for outcome in outcomes[:2])
            raise NothingValid(f"{self.workload.operator}: no finalist was right again: {seen}")
        self._add_all(self.settled.finalists, FINAL)
        return self.settled.outcome.seconds or 0.0, self.settled.schedule

    def _heat(self, schedules: list[Schedule]) -> list[tuple[float, Schedule]]:
        """Measure in one round and record; those that were right again, the fastest first."""
        pairs = list(zip(schedules, self.measurer.compete(schedules, 1), strict=True))
        self._add_all(pairs, HEAT)
        return _ranked(pairs)

    def _incumbent(self) -> Schedule | None:
        """The best of earlier searches, if it is of this search's space; as one of its kernels."""
        record = incumbent(self.store, self.workload, self.job.id)
        if record is None:
            return None
        schedule = Schedule.from_json(record.schedule)
        try:
            if self.space.refusal(schedule) is not None:
                return None
        except UsageError:
            return None  # of another space: pinned otherwise, or an older version's
        return self._good.get(record.kernel_key or schedule.key, (0.0, schedule))[1]

    def _note_baseline(self) -> None:
        """Keep what is known of the baseline with the job."""
        if self.baseline is None or self.baseline == self._noted:
            return
        self._noted = self.baseline
        options = json.loads(self.job.options) | {"baseline": self.baseline.to_facts()}
        self.job = self.store.update_job(self.job.id, self.job.state, json.dumps(options))

    def _add_all(self, pairs: Sequence[Pair], label: str) -> None:
        for schedule, outcome in pairs:
            self._add(schedule, outcome, label)

    def nothing_valid(self) -> NothingValid:
        """The error of a search that found nothing, with what it met."""
        counts = ", ".join(f"{n} {status}" for status, n in self.outcomes.most_common())
        name, tried = self.workload.operator, self.trials
        met = (
            f"none of {tried} candidates was valid ({counts})" if tried else "nothing was measured"
        )
        last = f"; the last: {self._last_failure[:_SHOWN]}" if self._last_failure else ""
        return NothingValid(f"{name}: {met}{last}; try more trials, more seconds or fewer pins")

    def close(self) -> None:
        """End the workers, note the job's state, and let go of what is leased."""
        try:
            self.measurer.close()
            self.store.update_job(self.job.id, self.state)
        finally:
            self.sharing.close()

    def _use_prior(self, model: str | Path | None) -> TrainedModel | None:
        """Give the strategy the model to start with, if it takes one."""
        if not isinstance(self.strategy, Guided):
            return None
        prior = prior_for(self.space, model)
        if prior is not None:
            self.strategy.use_prior(prior)
        return prior

    def _begin(self, resume: Job | None, options: dict[str, object]) -> Job:
        """The job's row; a new one, held, has all that making this very search again takes."""
        workload = self.workload
        if resume is not None:
            return self.store.update_job(resume.id, "running")
        self.store.keep_texts((str(workload.program),))  # so that its records need no operator
        options |= {
            PROGRAM: workload.program.key,
            "threads": workload.threads,
            "hardware": workload.hardware.key,
            "generator": workload.backend.generator,
            "memory": workload.memory,
        }
        extents, text = workload.extents_json, json.dumps(options)
        job = self.store.new_job(printable(workload.operator), extents, workload.target, text)
        self.sharing.run(job)
        return job

    def _tell_known(self, pairs: Sequence[Pair]) -> int:
        """Tell the strategy what the store knows; gives the number of schedules."""
        if not pairs:
            return 0
        told = []
        open_space = self.workload.backend.space(self.workload.program, self.workload.hardware)
        for schedule, outcome in pairs:
            try:
                open_space.encode(schedule)
            except UsageError:
                continue  # of a space that this version no longer spans
            told.append((schedule, outcome))
            self._remember(outcome)
            if self._pinned_so(schedule):
                self._note(schedule, outcome)
        schedules = [schedule for schedule, _ in told]
        self.sharing.know(schedules)
        if told:
            self.strategy.tell(schedules, [outcome for _, outcome in told])
        return len(told)

    def _pinned_so(self, schedule: Schedule) -> bool:
        return all(schedule[name] == value for name, value in self.space.pinned.items())

    def _remember(self, outcome: Outcome) -> None:
        """Its kernel need not run again; of the outcome, copies are told the verdict alone."""
        if outcome.kernel_key:
            self._kernels[outcome.kernel_key] = outcome.as_copy()

    def _note(self, schedule: Schedule, outcome: Outcome) -> None:
        if outcome.ok and outcome.seconds is not None:
            key = outcome.kernel_key or schedule.key
            if key not in self._good or outcome.seconds < self._good[key][0]:
                self._good[key] = (outcome.seconds, schedule)
                if len(self._good) >= 2 * MOST_GOOD:
                    fastest = sorted(self._good.items(), key=lambda item: item[1][0])
                    self._good = dict(fastest[:MOST_GOOD])

    def _add(self, schedule: Schedule, outcome: Outcome, strategy: str) -> None:
        elapsed = (ELAPSED, round(self._clock(), 3))
        outcome = replace(outcome, notes=(*outcome.notes, elapsed))
        self.store.add(to_record(self.workload, schedule, outcome, self.job.id, strategy))
        self.sharing.know((schedule,))


def _measurer(workload: Workload, cache: Path | None, seed: int, baseline: bool) -> Measurer:
    return Measurer(
        workload.program,
        workload.target,
        workload.hardware,
        cache_dir=cache or cache_dir(),
        seed=seed,
        library=baseline,
        memory=workload.memory,
    )


def _ranked(pairs: Sequence[Pair]) -> list[tuple[float, Schedule]]:
    """Those that were right with their times, the fastest first."""
    right = [(o.seconds, schedule) for schedule, o in pairs if o.ok and o.seconds is not None]
    return sorted(right, key=lambda pair: pair[0])
