"""A search job: propose, measure, record, learn; then the finalists once more, side by side.

Knows strategies, measuring and records by their interfaces; no operator and no target.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from explorer.measure import Measurer
from explorer.outcome import Outcome
from explorer.settings import cache_dir, records_location
from explorer.strategies.base import Strategy, make_strategy
from explorer.workload import Workload
from ir.errors import TilewrightError, UsageError
from ir.program import Program
from ir.schedule import Schedule
from ir.space import Space
from records import Job, Record, Store, utc_now

FINALISTS = 6
ROUNDS = 5


class NothingValid(TilewrightError):
    """No candidate was right and in time (exit code 3)."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One trial, told after it is in the store."""

    trial: int
    schedule: Schedule
    outcome: Outcome
    best_seconds: float | None
    elapsed: float


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a job found. `seconds` is the winner's median among the finalists."""

    job: str
    program: Program
    best: Schedule
    seconds: float
    trials: int
    known: int
    outcomes: tuple[tuple[str, int], ...]
    elapsed: float
    interrupted: bool = False

    @property
    def gflops(self) -> float:
        """Billions of arithmetic operations of the program a second."""
        return self.program.flops / self.seconds / 1e9


class Search:
    """Ask and tell over one workload: `step` measures and records a batch."""

    def __init__(
        self, workload: Workload, store: Store, *, strategy: str = "evolutionary", trials: int = 256,
        pins: Mapping[str, object] | None = None, seed: int = 0, cache: Path | None = None,
    ) -> None:
        self.workload = workload
        self.store = store
        self.strategy_name = strategy
        self.space: Space = workload.space(pins)
        self.strategy: Strategy = make_strategy(
            strategy, self.space, np.random.default_rng(seed), trials=trials)
        self.outcomes: Counter[str] = Counter()
        self.good: dict[str, tuple[float, Schedule]] = {}
        self.known = self._recall()
        self.job: Job = store.new_job(
            workload.operator, workload.extents_json, workload.target,
            json.dumps({"strategy": strategy, "trials": trials, "seed": seed}))
        self.measurer = Measurer(workload.program, workload.target, workload.hardware,
                                 cache_dir=cache or cache_dir(), seed=seed)
        self.measurer.best = self.best_seconds

    @property
    def best_seconds(self) -> float | None:
        return min((seconds for seconds, _ in self.good.values()), default=None)

    def _recall(self) -> int:
        """Tell the strategy what the store knows of this workload on this machine."""
        schedules, outcomes = [], []
        for record in self.store.records(
                workload=self.workload.program.key, hardware=self.workload.hardware.key,
                generator=self.workload.backend.generator):
            schedule = Schedule.from_json(record.schedule)
            try:
                self.space.encode(schedule)
            except UsageError:
                continue  # of another space: pinned otherwise
            outcome = Outcome(record.status, record.seconds,  # type: ignore[arg-type]
                              kernel_key=record.kernel_key)
            schedules.append(schedule)
            outcomes.append(outcome)
            self._note(schedule, outcome)
        if schedules:
            self.strategy.tell(schedules, outcomes)
        return len(schedules)

    def _note(self, schedule: Schedule, outcome: Outcome) -> None:
        if outcome.ok and outcome.seconds is not None:
            key = outcome.kernel_key or schedule.key
            if key not in self.good or outcome.seconds < self.good[key][0]:
                self.good[key] = (outcome.seconds, schedule)

    def step(self, count: int) -> Iterator[tuple[Schedule, Outcome]]:
        """Measure up to `count` candidates; each pair is in the store when it is yielded."""
        schedules = self.strategy.ask(count)
        outcomes: list[Outcome] = []
        try:
            for schedule, outcome in zip(schedules, self.measurer.measure(schedules), strict=True):
                self.store.add(self._record(schedule, outcome))
                outcomes.append(outcome)
                self.outcomes[outcome.status] += 1
                self._note(schedule, outcome)
                yield schedule, outcome
        finally:
            self.strategy.tell(schedules[: len(outcomes)], outcomes)

    def finals(self) -> tuple[float, Schedule]:
        """The best few re-measured in turns; the winner by median. Raises NothingValid."""
        ranked = sorted(self.good.values(), key=lambda pair: pair[0])[:FINALISTS]
        if not ranked:
            raise NothingValid(
                f"{self.workload.operator}: none of {sum(self.outcomes.values())} candidates was "
                f"valid ({self._failures()}); try more trials or fewer pins")
        schedules = [schedule for _, schedule in ranked]
        found: list[tuple[float, Schedule]] = []
        for schedule, outcome in zip(
                schedules, self.measurer.compete(schedules, ROUNDS), strict=True):
            self.store.add(self._record(schedule, outcome, "final"))
            if outcome.ok and outcome.seconds is not None:
                found.append((outcome.seconds, schedule))
        if not found:
            raise NothingValid(f"{self.workload.operator}: no finalist was right twice")
        return min(found, key=lambda pair: pair[0])

    def _failures(self) -> str:
        return ", ".join(f"{n} {status}" for status, n in self.outcomes.most_common()) or "none tried"

    def _record(self, schedule: Schedule, outcome: Outcome, strategy: str = "") -> Record:
        return make_record(self.workload, schedule, outcome, self.job.id,
                           strategy or self.strategy_name)

    def close(self, state: str) -> None:
        """End the workers and note the job's state."""
        self.measurer.close()
        self.store.update_job(self.job.id, state)


def make_record(workload: Workload, schedule: Schedule, outcome: Outcome, job: str, strategy: str
                ) -> Record:
    """The durable form of one trial."""
    hardware, backend = workload.hardware, workload.backend
    return Record(
        workload=workload.program.key, operator=workload.operator, extents=workload.extents_json,
        target=workload.target, hardware=hardware.key,
        hardware_facts=json.dumps(dict(hardware.facts) | {"isa": list(hardware.isa)}),
        generator=backend.generator, threads=hardware.threads, schedule=schedule.to_json(),
        kernel_key=outcome.kernel_key, status=outcome.status, seconds=outcome.seconds,
        quartiles=outcome.quartiles, repeats=outcome.repeats, error=outcome.error,
        detail=outcome.detail, compile_seconds=outcome.compile_seconds,
        clock_ghz=outcome.clock_ghz, notes=json.dumps(dict(outcome.notes)), created=utc_now(),
        job=job, strategy=strategy,
    )


def tune(
    operator: str, arguments: Mapping[str, object], *, target: str = "cpu", trials: int = 256,
    seconds: float | None = None, threads: int | None = None, store: str | Path | None = None,
    pins: Mapping[str, object] | None = None, strategy: str = "evolutionary", seed: int = 0,
    batch: int = 16, progress: Callable[[Progress], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> JobResult:
    """Search for the fastest schedule of an operator on this machine.

    Stops after `trials` candidates or `seconds` of wall clock. Every trial is committed to `store`
    before `progress` hears of it. A KeyboardInterrupt ends the search and keeps what is measured.
    Raises UsageError for wrong names and values, NothingValid, StoreError.
    """
    if trials < 1:
        raise UsageError(f"trials={trials}: at least 1")
    workload = Workload.of(operator, arguments, target, threads)
    workload.space(pins)  # bad pins must fail before the store is touched
    began = clock()
    with Store(str(store) if store is not None else _default_store()) as records:
        search = Search(workload, records, strategy=strategy, trials=trials, pins=pins, seed=seed)
        interrupted, done, state = False, 0, "failed"
        try:
            try:
                done = _loop(search, trials, seconds, batch, progress, clock, began)
            except KeyboardInterrupt:
                interrupted = True
                done = sum(search.outcomes.values())
            best_seconds, best = search.finals()
            state = "stopped" if interrupted else "done"
        finally:
            search.close(state)
        counts = tuple(search.outcomes.most_common())
        return JobResult(search.job.id, workload.program, best, best_seconds, done, search.known,
                         counts, clock() - began, interrupted)


def _default_store() -> str:
    location = records_location()
    if "://" not in location:
        Path(location).parent.mkdir(parents=True, exist_ok=True)
    return location


def _loop(
    search: Search, trials: int, seconds: float | None, batch: int,
    progress: Callable[[Progress], None] | None, clock: Callable[[], float], began: float,
) -> int:
    done = 0
    while done < trials and (seconds is None or clock() - began < seconds):
        before = done
        for schedule, outcome in search.step(min(batch, trials - done)):
            done += 1
            if progress is not None:
                progress(Progress(done, schedule, outcome, search.best_seconds, clock() - began))
            if seconds is not None and clock() - began > seconds:
                return done
        if done == before:
            break  # the space is exhausted
    return done


def run_schedule(workload: Workload, schedule: Schedule, *, cache: Path | None = None) -> Outcome:
    """Rebuild, check and time one schedule; its hot-loop spills are noted as `spills`."""
    from explorer.runtime.once import spills_once

    space = workload.backend.space(workload.program, workload.hardware)
    refusal = space.refusal(schedule)
    if refusal is not None:
        raise UsageError(f"the schedule is illegal: {refusal}")
    where = cache or cache_dir()
    with Measurer(workload.program, workload.target, workload.hardware, cache_dir=where) as measurer:
        (outcome,) = measurer.compete([schedule], ROUNDS)
    if outcome.ok:
        spills = spills_once(workload.kernel(schedule), cache_dir=where)
        outcome = replace(outcome, notes=(*outcome.notes, ("spills", spills)))
    return outcome


def best_record(workload: Workload, store: str | Path | None = None) -> Record:
    """The best record of a workload on this machine; raises NothingValid."""
    with Store(str(store) if store is not None else _default_store()) as records:
        record = records.best(workload.program.key, workload.target, workload.hardware.key,
                              generator=workload.backend.generator)
    if record is None:
        raise NothingValid(f"{workload.operator} {workload.extents_json}: no valid record on this "
                           "machine; run `tilewright tune` first")
    return record


def export_best(workload: Workload, folder: Path, *, schedule: Schedule | None = None,
                seconds: float | None = None, store: str | Path | None = None) -> Sequence[Path]:
    """Export a schedule (by default the best record's) to `folder`; returns the files."""
    from explorer.export import export

    if schedule is None:
        record = best_record(workload, store)
        schedule, seconds = Schedule.from_json(record.schedule), record.seconds
    kernel = workload.kernel(schedule)
    facts = {
        "operator": workload.operator, "arguments": dict(workload.arguments),
        "schedule": json.loads(schedule.to_json()), "seconds": seconds,
        "hardware": workload.hardware.key, "isa": list(workload.hardware.isa),
        "generator": workload.backend.generator,
    }
    return export(kernel, facts, folder)
