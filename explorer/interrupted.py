"""How an interrupted run goes on: what its jobs' rows and trials in the store say of it.

A resumed search is the same search made again: same seed, same batches, and told what the store
knew when it began. It asks what it asked before, and is answered from the store as far as trials
were acknowledged; from there on it measures. So it continues the very population, whatever the
strategy, and nothing of a strategy's state needs to be kept. Knows no strategy and no measuring.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from explorer.outcome import Outcome, Status
from explorer.plan import JobPlan, Plan
from explorer.rebuilding import Named, of_job, rebuilt
from explorer.recall import DECIDING, count_known
from explorer.sharing import is_running, refuse_running
from explorer.workload import Workload, memories_of
from ir.errors import UsageError
from ir.schedule import Schedule
from records import Job, Record

if TYPE_CHECKING:
    from records import Store

ELAPSED = "elapsed"  # the note that says how far into its search a trial was made, in seconds
PROGRAMS, SEEDS = "programs", "seeds"  # of a job's options: keys of texts, for each member
WAITING = ("running", "stopped")  # states of jobs that wait to be resumed


@dataclass(slots=True)
class Acknowledged:
    """Outcomes of a job's own trials that are waiting to be asked for again."""

    outcomes: dict[str, tuple[Schedule, Outcome]] = field(default_factory=dict)
    elapsed: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.outcomes)

    def holds(self, schedule: Schedule) -> bool:
        """Whether this schedule's outcome is still to be given."""
        return schedule.key in self.outcomes

    def take(self, schedule: Schedule) -> Outcome | None:
        """The outcome of a schedule, which is not given twice."""
        _, outcome = self.outcomes.pop(schedule.key, (None, None))
        return outcome

    def keep(self, pairs: Iterable[tuple[Schedule, Outcome | None]]) -> None:
        """Take back outcomes that were not given after all."""
        for schedule, outcome in pairs:
            if outcome is not None:
                self.outcomes[schedule.key] = (schedule, outcome)

    def rest(self) -> list[tuple[Schedule, Outcome]]:
        """All that is left, in the order in which it was measured."""
        pairs = list(self.outcomes.values())
        self.outcomes.clear()
        return pairs


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A run as the store has it: its plan, and the jobs that were begun, by their number."""

    run: str
    plan: Plan
    jobs: Mapping[int, Job]
    workloads: tuple[Workload, ...]  # of every member
    seeds: tuple[tuple[Schedule, ...], ...]  # what each member started from


def acknowledged(store: Store, job: Job) -> Acknowledged:
    """The trials that a job had measured; finals are not among them, they are run again."""
    found = Acknowledged()
    for record in store.records(job=job.id):
        found.elapsed = max(found.elapsed, float(json.loads(record.notes).get(ELAPSED, 0.0)))
        if record.strategy not in DECIDING:
            schedule = Schedule.from_json(record.schedule)
            found.outcomes.setdefault(schedule.key, (schedule, outcome_of(record)))
    return found


def outcome_of(record: Record) -> Outcome:
    """The outcome that a record was made of."""
    return Outcome(
        cast(Status, record.status),
        record.seconds,
        record.quartiles,
        record.repeats,
        record.error,
        record.detail,
        record.compile_seconds or 0.0,
        record.clock_ghz,
        record.kernel_key,
        tuple(json.loads(record.notes).items()),
    )


def find_interrupted(
    store: Store, identifier: str | None = None, operators: Sequence[str] = ()
) -> Interrupted:
    """The run that `identifier` (a job's, or its first letters) belongs to; else the newest one.

    Its programs are those that the store has, or of the files `operators`; no file is loaded that
    a job names. Raises UsageError where there is nothing to go on with, or a living process runs
    it, UnknownJob for an unknown identifier.
    """
    job = store.job(identifier) if identifier else _newest(store)
    options = _options(job)
    if job.state == "done":
        raise UsageError(f"job {job.id} is done; tune the workload again to add trials to it")
    if "plan" not in options:
        raise UsageError(f"job {job.id} was made without a plan, by hand or by an older version")
    run = str(options["run"])
    members = {
        int(_options(other)["member"]): other
        for other in store.jobs()
        if _options(other).get("run") == run
    }
    for member in members.values():
        refuse_running(store, member)
    plan = Plan.from_json(json.dumps(options["plan"]))
    kept = {PROGRAMS: ("",) * len(plan.jobs), SEEDS: ("",) * len(plan.jobs)} | options
    workloads = tuple(
        rebuilt(store, of_job(store, members[number]), operators)
        if number in members
        else rebuilt(store, _named(job, str(key)), operators)
        for number, (job, key) in enumerate(zip(plan.jobs, kept[PROGRAMS], strict=True))
    )
    seeds = tuple(
        _seeds(store, job, str(key)) for job, key in zip(plan.jobs, kept[SEEDS], strict=True)
    )
    return Interrupted(run, plan, members, workloads, seeds)


def _named(job: JobPlan, key: str) -> Named:
    extents = json.dumps(dict(job.arguments), sort_keys=True)
    memory = job.memory or memories_of(job.target)[0]
    return Named(job.operator, extents, job.target, key, job.threads, memory)


def _seeds(store: Store, job: JobPlan, key: str) -> tuple[Schedule, ...]:
    """What a job started from as the store has it: the records it came from are not read again."""
    if job.start_from is None:
        return ()
    text = store.text(key) if key else None
    if text is None:
        raise UsageError(
            f"{job.title}: it was begun from the records {job.start_from}, and what it took of "
            "them is not in the store: tune it anew, with --start-from"
        )
    return tuple(Schedule.from_json(json.dumps(schedule)) for schedule in json.loads(text))


def seeds_text(seeds: Sequence[Schedule]) -> str:
    """What `Interrupted.seeds` are read from."""
    return json.dumps([json.loads(schedule.to_json()) for schedule in seeds])


def _newest(store: Store) -> Job:
    """The newest job that waits; if all that do are being run, the newest of these."""
    waiting = [job for job in store.jobs() if job.state in WAITING and "plan" in _options(job)]
    if not waiting:
        raise UsageError(f"{store.location}: no interrupted job to go on with")
    idle = [job for job in waiting if not is_running(store, job)]
    return (idle or waiting)[-1]


def _options(job: Job) -> dict[str, Any]:
    options: dict[str, Any] = json.loads(job.options)
    return options


def known_at_start(store: Store, workload: Workload, job: Job | None) -> int:
    """How many of the workload's trials count as known: those of now, or of when `job` began.

    Raises UsageError if the job was begun on other hardware or by another code generator.
    """
    if job is None:
        return count_known(store, workload)
    options = _options(job)
    here = {"hardware": workload.hardware.key, "generator": workload.backend.generator}
    for name, value in here.items():
        if options[name] != value:
            raise UsageError(
                f"job {job.id} was begun with {name} {options[name]}, here it is {value}: the "
                "times would not compare; tune the workload anew"
            )
    return int(options["known"])
