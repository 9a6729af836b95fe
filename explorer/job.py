"""Whole jobs: tune an operator, time one schedule, export the best.

The one-call surface over `search`, `measure`, `recall` and `export`; no operator and no target.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from explorer.measure import Measurer
from explorer.outcome import Outcome
from explorer.recall import best_record, open_store
from explorer.search import ROUNDS, Search
from explorer.settings import cache_dir
from explorer.strategies.base import find_strategy
from explorer.training import prior_for
from explorer.workload import Workload
from ir.errors import UsageError
from ir.program import Program
from ir.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Progress:
    """One trial, told after it is in the store."""

    trial: int
    schedule: Schedule
    outcome: Outcome
    best_seconds: float | None
    elapsed: float
    flops: int


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a job found. `seconds` is the winner's median among the finalists.

    `trials` were measured by this job, `known` were in the store before; `outcomes` counts
    statuses. An interrupted job names the best as it stood, without finals.
    """

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


EFFORTS: Mapping[str, tuple[int, float | None]] = {
    "quick": (64, 30.0),
    "standard": (256, None),
    "deep": (1024, None),
}
"""Budgets by name: candidates, and seconds of wall clock if those are bounded too."""


@dataclass(frozen=True, slots=True)
class Budget:
    """When a search ends: after `trials` candidates, or when `seconds` have passed."""

    trials: int
    seconds: float | None
    batch: int

    def __post_init__(self) -> None:
        for name in ("trials", "batch"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}={getattr(self, name)}: must be at least 1")
        if self.seconds is not None and not self.seconds > 0:
            raise UsageError(f"seconds={self.seconds}: must be above 0")

    @classmethod
    def of(cls, effort: str, trials: int | None, seconds: float | None, batch: int) -> Budget:
        """The preset `effort`, where no numbers are given; raises UsageError for another name."""
        if effort not in EFFORTS:
            raise UsageError(f"no effort {effort!r}; there are {', '.join(EFFORTS)}")
        preset = EFFORTS[effort]
        bounded = seconds if seconds is not None or trials is not None else preset[1]
        return cls(preset[0] if trials is None else trials, bounded, batch)

    def over(self, trials: int, elapsed: float) -> bool:
        return trials >= self.trials or (self.seconds is not None and elapsed >= self.seconds)


def tune(
    operator: str,
    arguments: Mapping[str, object],
    *,
    target: str = "cpu",
    trials: int | None = None,
    seconds: float | None = None,
    effort: str = "standard",
    threads: int | None = None,
    store: str | Path | None = None,
    pins: Mapping[str, object] | None = None,
    strategy: str = "evolutionary",
    seed: int = 0,
    batch: int = 16,
    progress: Callable[[Progress], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
    model: str | Path | None = None,
) -> JobResult:
    """Search for the fastest schedule of an operator on this machine.

    Stops after `trials` candidates or `seconds` of wall clock; what is not given is `effort`'s
    ("quick", "standard" or "deep"). Every trial is committed to `store` before `progress` hears
    of it. `model` is a trained cost model to start with, "none", or (None) the one that the
    package ships for the target. A KeyboardInterrupt ends the search and keeps what is measured.
    Raises UsageError for wrong names and values, NothingValid, StoreError.
    """
    began = clock()
    budget = Budget.of(effort, trials, seconds, batch)
    workload = Workload.of(operator, arguments, target, threads)
    workload.refuse_unmeasurable()
    space = workload.space(pins)  # with the next lines: what is wrong is said before all else
    find_strategy(strategy)
    if model is not None:
        prior_for(space, model)
    with (
        open_store(store) as records,
        Search(
            workload,
            records,
            strategy=strategy,
            trials=budget.trials,
            pins=pins,
            seed=seed,
            model=model,
        ) as search,
    ):
        interrupted = False
        try:
            _loop(search, budget, progress, lambda: clock() - began)
            best_seconds, best = search.finals()
        except KeyboardInterrupt:
            search.state = "stopped"
            if not search.ranked():
                raise
            interrupted = True
            best_seconds, best = search.ranked()[0]
        else:
            search.state = "done"
        return JobResult(
            search.job.id,
            workload.program,
            best,
            best_seconds,
            search.trials,
            search.known,
            tuple(search.outcomes.most_common()),
            clock() - began,
            interrupted,
        )


def _loop(
    search: Search,
    budget: Budget,
    progress: Callable[[Progress], None] | None,
    elapsed: Callable[[], float],
) -> None:
    """Batch after batch until the budget is spent or the strategy has nothing left."""
    while not budget.over(search.trials, elapsed()):
        before = search.trials
        for schedule, outcome in search.step(min(budget.batch, budget.trials - before)):
            if progress is not None:
                best, flops = search.best_seconds, search.workload.program.flops
                progress(Progress(search.trials, schedule, outcome, best, elapsed(), flops))
            if budget.over(search.trials, elapsed()):
                return
        if search.trials == before:
            return


def run_schedule(workload: Workload, schedule: Schedule, *, cache: Path | None = None) -> Outcome:
    """Rebuild, check and time one schedule; its hot-loop spills are noted as `spills`."""
    from explorer.runtime.once import spills_once

    workload.refuse_illegal(schedule)
    workload.refuse_unmeasurable()
    where = cache or cache_dir()
    measurer = Measurer(workload.program, workload.target, workload.hardware, cache_dir=where)
    with measurer:
        (outcome,) = measurer.compete([schedule], ROUNDS)
    if outcome.ok:
        kernel = workload.backend.lower(workload.program, schedule, workload.hardware)
        spills = spills_once(kernel, cache_dir=where)
        outcome = replace(outcome, notes=(*outcome.notes, ("spills", spills)))
    return outcome


def export_best(
    workload: Workload,
    folder: Path,
    *,
    schedule: Schedule | None = None,
    seconds: float | None = None,
    store: str | Path | None = None,
) -> Sequence[Path]:
    """Export a schedule (by default the best record's) to `folder`; returns the files."""
    from explorer.exporter import export

    if schedule is None:
        record = best_record(workload, store)
        schedule, seconds = Schedule.from_json(record.schedule), record.seconds
    workload.refuse_illegal(schedule)
    facts = {
        "operator": workload.operator,
        "arguments": dict(workload.arguments),
        "schedule": json.loads(schedule.to_json()),
        "seconds": seconds,
        "hardware": workload.hardware.key,
        "isa": list(workload.hardware.isa),
        "generator": workload.backend.generator,
    }
    return export(workload.kernel(schedule), facts, folder, cache_dir=cache_dir())
