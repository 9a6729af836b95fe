"""A job as the store tells it: its trials in order, its finals, its workload built again.

What `tilewright report` and `explain --job` are made of. It measures nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from explorer.baseline import Baseline
from explorer.comparison import CHOSEN, INCUMBENT, Settled, settle
from explorer.errors import NothingValid
from explorer.interrupted import ELAPSED, outcome_of
from explorer.outcome import Outcome
from explorer.peaks import stated_peaks
from explorer.rebuilding import machine_of, of_job, rebuilt
from explorer.recall import DECIDING, FINAL
from explorer.roofline import Roofline
from explorer.workload import Workload
from ir.errors import UsageError
from ir.kernel import Kernel
from ir.schedule import Schedule
from ir.space import Space
from ir.target import Hardware
from records import Job, Record, Store


@dataclass(frozen=True, slots=True)
class Trial:
    """One measurement of a job. `elapsed` is seconds since the search began."""

    schedule: Schedule
    outcome: Outcome
    elapsed: float


@dataclass(frozen=True)
class Story:
    """`trials` in the order of measuring; `finals` are the finalists of the last shoot-out."""

    job: Job
    workload: Workload
    options: Mapping[str, Any]
    trials: tuple[Trial, ...]
    finals: tuple[Trial, ...]
    hardware: Hardware
    generator: str

    @property
    def arguments(self) -> tuple[tuple[str, Any], ...]:
        """Of the operator, in the order in which they were given if that is known."""
        given: list[str] = []
        if "plan" in self.options:
            planned = self.options["plan"]["jobs"][self.options["member"]]
            given = [name for name, _ in planned["arguments"]]
        found = dict(self.workload.arguments)
        names = [*(name for name in given if name in found), *found]
        return tuple((name, found[name]) for name in dict.fromkeys(names))

    @property
    def title(self) -> str:
        """Operator and arguments."""
        return " ".join(self.words)

    @property
    def words(self) -> tuple[str, ...]:
        """Operator and arguments as the command line takes them."""
        arguments = (f"{name}={word(value)}" for name, value in self.arguments)
        return (self.job.operator, *arguments)

    @property
    def roofline(self) -> Roofline:
        """Of the machine that the job ran on."""
        stated = stated_peaks(self.workload.backend, self.hardware)
        facts = dict(self.hardware.facts) | stated | self.options.get("peaks", {})
        return Roofline.of(self.workload.program, facts)

    def space(self) -> Space:
        """The whole space of that machine, without pins."""
        return self.workload.space_on(self.hardware)

    def kernel(self, schedule: Schedule) -> Kernel:
        """The kernel of a schedule on that machine, in every language of the target."""
        self.space().encode(schedule)  # refuses values that no decision has
        program = self.workload.program
        return self.workload.backend.lower(program, schedule, self.hardware, full=True)

    @property
    def baseline(self) -> Baseline | None:
        """The array library's time of the program, if the job asked for it."""
        facts = self.options.get("baseline")
        return None if facts is None else Baseline.from_facts(facts)

    @property
    def decided(self) -> tuple[Trial, ...]:
        """One trial of each schedule: that of the finals if it was in them, else of the search."""
        told = {trial.schedule.key: trial for trial in self.trials}
        return tuple((told | {trial.schedule.key: trial for trial in self.finals}).values())

    @property
    def settled(self) -> Settled | None:
        """What the finals came to; None without them."""
        before = (t.schedule for t in self.finals if dict(t.outcome.notes).get(INCUMBENT))
        pairs = [(trial.schedule, trial.outcome) for trial in self.finals]
        return settle(pairs, next(before, None), self.baseline)

    @property
    def best(self) -> Trial:
        """The winner of the finals, or without them the fastest trial; raises NothingValid."""
        chosen = [trial for trial in self.finals if dict(trial.outcome.notes).get(CHOSEN)]
        if chosen:
            return chosen[-1]
        for group in (self.finals, self.trials):
            right = [trial for trial in group if trial.outcome.ok and trial.outcome.seconds]
            if right:
                return min(right, key=lambda trial: trial.outcome.seconds or 0.0)
        raise NothingValid(f"job {self.job.id}: none of its {len(self.trials)} trials was valid")

    @property
    def best_schedule(self) -> Schedule:
        return self.best.schedule


def word(value: object) -> str:
    """A value as the command line takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_story(store: Store, identifier: str | None = None, operators: Sequence[str] = ()) -> Story:
    """The job `identifier` (or its first letters), by default the newest, and all its trials.

    Its program is the one that the store has, or of the files `operators`; none is loaded that
    the job names. Raises UnknownJob, and UsageError if there is no job or no program.
    """
    job = store.job(identifier) if identifier else _newest(store)
    options = json.loads(job.options)
    records = list(store.records(job=job.id))
    workload = rebuilt(store, of_job(store, job), operators)
    finals = {record.schedule_key: record for record in records if record.strategy == FINAL}
    first = records[0] if records else None
    return Story(
        job,
        workload,
        options,
        tuple(_trial(job, record) for record in records if record.strategy not in DECIDING),
        tuple(_trial(job, record) for record in finals.values()),
        workload.hardware if first is None else machine_of(first),
        workload.backend.generator if first is None else first.generator,
    )


def run_stories(
    store: Store, identifier: str | None = None, operators: Sequence[str] = ()
) -> list[Story]:
    """All jobs of the run that a job belongs to, in the order of the plan; raises as `read_story`.

    A job that was searched alone is a run of one.
    """
    job = store.job(identifier) if identifier else _newest(store)
    run = json.loads(job.options).get("run")
    told = [(json.loads(other.options), other.id) for other in store.jobs()]
    mates = [
        (options.get("member", 0), name) for options, name in told if options.get("run") == run
    ]
    found = mates if run else [(0, job.id)]
    return [read_story(store, name, operators) for _, name in sorted(found)]


def _newest(store: Store) -> Job:
    """The newest job that searched: those that compare a range's schedules at an extent do not."""
    jobs = [job for job in store.jobs() if json.loads(job.options).get("strategy") != FINAL]
    if not jobs:
        raise UsageError(f"{store.location}: no job yet; `tilewright tune` makes one")
    return jobs[-1]


def _trial(job: Job, record: Record) -> Trial:
    """Older records have no note of the time, and are placed by the wall clock."""
    noted = json.loads(record.notes).get(ELAPSED)
    passed = datetime.fromisoformat(record.created) - datetime.fromisoformat(job.created)
    elapsed = passed.total_seconds() if noted is None else float(noted)
    return Trial(Schedule.from_json(record.schedule), outcome_of(record), max(0.0, elapsed))
