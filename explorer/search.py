"""Ask, measure, record, tell: one search over one workload, batch by batch.

Knows strategies, measuring and records by their interfaces; no operator and no target.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from costmodel.saved import TrainedModel
from explorer.asking import Asker
from explorer.baseline import Baseline
from explorer.comparison import Settled, settle
from explorer.devices import FIRST, devices_of
from explorer.disturbance import Disturbance
from explorer.early import Early
from explorer.errors import NothingValid
from explorer.fastest import Fastest
from explorer.finals import SECONDS, allowed, chosen_finalists
from explorer.flow import Flow
from explorer.interrupted import ELAPSED, Acknowledged, acknowledged, known_at_start
from explorer.measure import Measurer
from explorer.measuring import Measuring
from explorer.outcome import Outcome
from explorer.quality import QUALITY, quality_facts
from explorer.rebuilding import PROGRAM
from explorer.recall import FINAL, HEAT, incumbent, known_trials, to_record
from explorer.result import HeadStart
from explorer.settings import cache_dir
from explorer.sharing import Pair, Sharing
from explorer.strategies.base import find_strategy
from explorer.strategies.guide import Guided, Quality
from explorer.training import head_start, prior_for
from explorer.uncommitted import Uncommitted
from explorer.workload import Workload
from ir.errors import UsageError
from ir.printable import printable
from ir.schedule import Schedule
from records import Job, Record

if TYPE_CHECKING:
    from records import Store

NOTED_EVERY = 1.0  # seconds from one note of the model's accuracy to the next
_SHOWN = 200  # letters of a failure in a message


class Search:
    """`step` measures and records a batch, `finals` decides. Use as a context manager.

    What the store knows of the workload on this machine is told to the strategy first, and is
    not measured again; nor is what another search is measuring, whose results are told as they
    come. With `resume`, a job made with the same options, the search is that job's: what it had
    measured is answered from the store as it is asked for again. `facts` are kept with a new job;
    `clock` gives the seconds of the search so far. `model` is a file to start with, "none", or
    (None) the package's own. `seeds` are measured first; `measurer` may answer instead of the
    machine. With `baseline` the target's array library is measured as well. `devices` names those
    to measure on.
    """

    state = "failed"  # of the job, until it ends otherwise
    best_told: float | None = None  # seconds, behind the last trial that was given
    settled: Settled | None = None  # what the finals came to

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
        devices: str = FIRST,
    ) -> None:
        make = find_strategy(strategy)
        self._clock = clock or stopwatch()
        self.workload = workload
        self.store = store
        self.strategy_name = strategy
        self.outcomes: Counter[str] = Counter()
        self._last_failure = ""
        self.disturbance = Disturbance()
        self._good = Fastest()
        self._kernels: dict[str, Outcome] = {}
        self._waiting = Uncommitted(store)
        self._wants_baseline = baseline
        self._noted: tuple[Baseline | None, int] = (None, 0)
        self._kept = -math.inf  # when that was
        with ExitStack() as begun:
            self.sharing = Sharing(store, workload)
            begun.callback(self.sharing.close)
            first = known_at_start(store, workload, resume)
            if resume is not None:
                self.sharing.run(resume)  # refuses before any worker is started
            # The devices draw their operands while the search makes up its mind.
            here = (workload, cache, seed, baseline, devices)
            self.measurer: Measuring = measurer or _measurer(*here)
            begun.callback(self.measurer.close)
            peaks = (facts or {}).get("peaks")
            self.measurer.bounded_by(peaks if isinstance(peaks, Mapping) else {})
            self.space, rng = workload.space(pins), np.random.default_rng(seed)
            self.strategy = make(self.space, rng, trials=trials, seeds=seeds)
            self.prior, self.head_start = self._ahead(model)
            self._asker = Asker(self.strategy)
            begun.callback(self._asker.close)
            self._learn(resume, first)
            self._flow = Flow(
                self._asker, self.measurer, self.sharing, self._past,
                hear=self._hear, commit=self._waiting.commit,
            )  # fmt: skip
            options: dict[str, object] = {"strategy": strategy, "trials": trials, "seed": seed}
            options |= {"pins": dict(pins or {}), "known": first}
            self.job = self._begin(resume, options, facts or {})
            begun.pop_all()

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
        return self._good.seconds

    def ranked(self) -> list[tuple[float, Schedule]]:
        """Good schedules with their times, the fastest first, one for each kernel."""
        return self._good.ranked()

    @property
    def baseline(self) -> Baseline | None:
        """What is known of the library's time; None before the first trial, or without one."""
        return self.measurer.baseline

    @property
    def replaying(self) -> bool:
        """Whether trials of the resumed job are still to be asked for again."""
        return bool(self._past)

    def step(
        self, count: int, patience: float = math.inf, ahead: float = 0
    ) -> Iterator[tuple[Schedule, Outcome]]:
        """Measure up to `count` candidates; each pair is in the store when it is yielded.

        What ends within half a second of a commit waits for the next one, and is yielded then; a
        strategy is told of what is stored. A schedule whose kernel ran before is no candidate: the
        strategy is told that kernel's outcome and asked again. Nothing is yielded once it has no
        more to propose. What other searches measure is waited for `patience` (seconds) at most.
        `ahead` is how many candidates more may be chosen and compiled meanwhile, for the next step.
        """
        whole = False
        try:
            for ended in self._flow.step(count, ahead, patience):
                self._note_what_is_known()
                if ended.outcome.copied:
                    continue
                pair = ended.schedule, ended.outcome
                record = self._record(*pair, self.strategy_name) if ended.fresh else None
                self._heed(*pair)
                self._waiting.add(ended, record, self.best_seconds)
                if self._waiting.due:
                    yield from self._acknowledged()
            yield from self._acknowledged()
            whole = ahead > 0
        finally:
            for _ in self._acknowledged():  # whoever listened has left
                pass
            if not whole:
                self._flow.settle()

    def _acknowledged(self) -> Iterator[Pair]:
        """Commit what waits for it, then count and give it."""
        for ended, best in self._waiting.committed():
            self.best_told = best
            self._count(ended.outcome)
            yield ended.schedule, ended.outcome

    def _learn(self, resume: Job | None, first: int) -> None:
        """What was measured before: by the resumed job, and by others up to a record."""
        self._past = self._past_of(resume)
        self.resumed = len(self._past.outcomes)
        own = "" if resume is None else resume.id
        self.known = self._tell_known(known_trials(self.store, self.workload, first, own))
        self.measurer.best = self.best_seconds
        self.measurer.kernels = self._kernels

    def _past_of(self, resume: Job | None) -> Acknowledged:
        """What the resumed job measured: its kernels are known at once, so that a schedule is a
        copy now that was one then."""
        if resume is None:
            return Acknowledged()
        past = acknowledged(self.store, resume)
        for _, outcome in past.outcomes.values():
            self._remember(outcome)
        return past

    def _heed(self, schedule: Schedule, outcome: Outcome) -> None:
        """What an outcome means for those that are measured next."""
        self._remember(outcome)
        self._good.note(schedule, outcome)
        self.measurer.best = self.best_seconds

    def _count(self, outcome: Outcome) -> None:
        self.outcomes[outcome.status] += 1
        self._last_failure = "" if outcome.ok else outcome.detail
        self.disturbance.note(outcome)

    def finals(self) -> tuple[float, Schedule]:
        """The best few re-measured in turns with the incumbent and the baseline; the winner.

        The fastest by median wins, unless the incumbent is within noise of it. Raises NothingValid.
        """
        ranked = self.ranked()
        if not ranked:
            raise self.nothing_valid()
        measuring = sum(self.measurer.examined)
        beside = measuring / max(1, self.trials)  # whose runs are few
        within = allowed(measuring) if measuring else SECONDS
        finalists, rounds = chosen_finalists(self.space, ranked, self._heat, beside, within)
        best_before = self._incumbent()
        if best_before is not None and best_before not in finalists:
            finalists.append(best_before)
        outcomes = self.measurer.compete(finalists, rounds, library=self._wants_baseline)
        pairs = list(zip(finalists, outcomes, strict=True))
        self.settled = settle(pairs, best_before, self.baseline)
        self._note_what_is_known()
        if self.settled is None:
            self._add_all(pairs, FINAL)
            seen = "; ".join(outcome.detail or outcome.status for outcome in outcomes[:2])
            raise NothingValid(f"{self.workload.operator}: no finalist was right again: {seen}")
        self._add_all(self.settled.finalists, FINAL)
        return self.settled.outcome.seconds or 0.0, self.settled.schedule

    def in_turns(
        self, schedules: Sequence[Schedule], rounds: int, strategy: str = FINAL
    ) -> list[Pair]:
        """Measure in turns and record, as measured by that strategy."""
        pairs = list(zip(schedules, self.measurer.compete(schedules, rounds), strict=True))
        self._add_all(pairs, strategy)
        return pairs

    def _heat(self, schedules: list[Schedule]) -> list[tuple[float, Schedule]]:
        """Measure in one round and record; those that were right again, the fastest first."""
        return _ranked(self.in_turns(schedules, 1, HEAT))

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
        return self._good.of_kernel(record.kernel_key or schedule.key, schedule)

    def _note_what_is_known(self) -> None:
        """Keep the baseline and the model's accuracy with the job, for those who look on: a new
        baseline at once, the accuracy now and then."""
        told = (self.baseline, len(self.model_quality))
        recent = time.monotonic() < self._kept + NOTED_EVERY
        if told == self._noted or (recent and told[0] == self._noted[0]):
            return
        self._noted, self._kept = told, time.monotonic()
        self._keep({})

    def _keep(self, facts: Mapping[str, object]) -> None:
        """Store facts, and what is known, among the options of the job."""
        known: dict[str, object] = {QUALITY: quality_facts(self.model_quality)}
        if self.baseline is not None:
            known["baseline"] = self.baseline.to_facts()
        options = json.loads(self.job.options) | known | dict(facts)
        self.job = self.store.update_job(self.job.id, self.job.state, json.dumps(options))

    def _add_all(self, pairs: Sequence[Pair], label: str) -> None:
        self.store.add_all([self._record(*pair, label) for pair in pairs])

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
            with suppress(Exception):  # of a strategy; what ended the search has its say
                self._flow.settle()
            self._asker.close()
            self.measurer.close()
            examined = [round(seconds, 3) for seconds in self.measurer.examined]
            self.job = replace(self.job, state=self.state)
            self._keep({"examined": examined})
        finally:
            self.sharing.close()

    def _ahead(self, model: str | Path | None) -> tuple[TrainedModel | None, HeadStart]:
        """Give the strategy the model to start with, if it takes one; what is told of it."""
        if not isinstance(self.strategy, Guided):
            return None, head_start(self.space, model, guided=False)
        prior = prior_for(self.space, model)
        if prior is not None:
            self.strategy.use_prior(prior)
        return prior, head_start(self.space, model, guided=True)

    def _begin(
        self, resume: Job | None, options: dict[str, object], facts: Mapping[str, object]
    ) -> Job:
        """The job's row; a new one, held, has all that making this very search again takes."""
        workload = self.workload
        if resume is not None:
            return self.store.update_job(resume.id, "running")
        self.store.keep_texts((str(workload.program),))  # so that its records need no operator
        options |= {"model": self.prior.data.get("fingerprint", "")} if self.prior else {}
        options |= dict(facts) | {
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

    def _hear(self) -> None:
        """Tell the strategy what other searches have measured."""
        self._tell_known(self.sharing.heard())

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
                self._good.note(schedule, outcome)
        schedules = [schedule for schedule, _ in told]
        self.sharing.know(schedules)
        if told:
            self._asker.tell(schedules, [outcome for _, outcome in told])
        return len(told)

    def _pinned_so(self, schedule: Schedule) -> bool:
        return all(
            schedule.get(name, self.space.decision(name).unsaid) == value
            for name, value in self.space.pinned.items()
        )

    def _remember(self, outcome: Outcome) -> None:
        """Its kernel need not run again; of the outcome, copies are told the verdict alone."""
        if outcome.kernel_key:
            self._kernels[outcome.kernel_key] = outcome.as_copy()

    def _record(self, schedule: Schedule, outcome: Outcome, strategy: str) -> Record:
        """Of what was measured now; other searches need not tell of it any more."""
        elapsed = (ELAPSED, round(self._clock(), 3))
        outcome = replace(outcome, notes=(*outcome.notes, elapsed))
        self.sharing.know((schedule,))
        return to_record(self.workload, schedule, outcome, self.job.id, strategy)


_EARLY = Early()


def begin_early(workload: Workload, seed: int, baseline: bool, devices: str = FIRST) -> None:
    """Start what a search of this workload will measure with, beside what comes before it."""
    options = (workload, None, seed, baseline, devices)
    _EARLY.start(_name(*options), _maker(*options))


def drop_early() -> None:
    """Let go of what `begin_early` started, if no search took it."""
    _EARLY.drop()


def _measurer(
    workload: Workload, cache: Path | None, seed: int, baseline: bool, devices: str
) -> Measuring:
    options = (workload, cache, seed, baseline, devices)
    return _EARLY.take(_name(*options), _maker(*options))


def _name(
    workload: Workload, cache: Path | None, seed: int, baseline: bool, devices: str
) -> Hashable:
    there = (workload.program.key, workload.hardware, workload.memory, cache or cache_dir())
    return *there, seed, baseline, devices


def _maker(
    workload: Workload, cache: Path | None, seed: int, baseline: bool, devices: str
) -> Callable[[], Measuring]:
    return partial(
        Measurer, workload.program, workload.target, workload.hardware,
        cache_dir=cache or cache_dir(), seed=seed, library=baseline,
        devices=devices_of(devices, workload), memory=workload.memory,
    )  # fmt: skip


def stopwatch() -> Callable[[], float]:
    """Tells the seconds since now."""
    began = time.monotonic()
    return lambda: time.monotonic() - began


def _ranked(pairs: Sequence[Pair]) -> list[tuple[float, Schedule]]:
    """Those that were right with their times, the fastest first."""
    right = [(o.seconds, schedule) for schedule, o in pairs if o.ok and o.seconds is not None]
    return sorted(right, key=lambda pair: pair[0])
