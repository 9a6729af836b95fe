"""What the live page is told, as JSON values: jobs and machines of a store, one job's course.

Reads a store and changes nothing of it. Builds no program: what it tells, records and jobs say.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from explorer.disturbance import crowd_of
from explorer.interrupted import ELAPSED
from explorer.ledger import JobLine, job_line, job_lines
from explorer.quality import quality_rows
from explorer.recall import DECIDING, kernel_seconds, noted
from explorer.report import figures
from explorer.report.figures import Mark
from explorer.report.units import TimeUnit, rate
from explorer.sharing import holder_of
from records import Job, Record, Store, described
from records.tellings import MachineCount

LATEST = 12  # trials of a job that are told with their schedules
MOST_FAILURES = 6  # kinds of failure that are told with an example


@dataclass(frozen=True, slots=True)
class Machine:
    """Where trials were made: how many of each status."""

    key: str
    target: str
    model: str
    outcomes: tuple[tuple[str, int], ...]


def overview(store: Store) -> dict[str, Any]:
    """Every job, the newest first, every machine, and what runs where."""
    found = machines(store)
    lines = job_lines(store)[::-1]
    jobs = [_job_row(store, line, found) for line in lines]
    return {
        "store": store.location,
        "jobs": jobs,
        "machines": [_machine_row(machine, jobs) for machine in found.values()],
        "trials": sum(count for one in found.values() for _, count in one.outcomes),
    }


def machines(store: Store) -> dict[str, Machine]:
    """By key; facts that are lost or altered leave a machine its key for a name."""
    counts: dict[str, Counter[str]] = {}
    told: dict[str, tuple[str, str]] = {}
    for hardware, target, facts, status, trials in store.tally(MachineCount):
        counts.setdefault(hardware, Counter())[status] += trials
        told[hardware] = (target, facts)
    return {
        key: Machine(key, told[key][0], _model(store, key, told[key][1]), tuple(c.most_common()))
        for key, c in counts.items()
    }


def _model(store: Store, key: str, facts: str) -> str:
    text = store.text(facts)
    model = json.loads(text).get("model") if text else None
    return model if isinstance(model, str) else key


def _machine_row(machine: Machine, jobs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    here = [job["job"] for job in jobs if job["running"] and job["hardware"] == machine.key]
    return {
        "hardware": machine.key,
        "target": machine.target,
        "model": machine.model,
        "outcomes": dict(machine.outcomes),
        "trials": sum(count for _, count in machine.outcomes),
        "running": here,
    }


def _job_row(store: Store, line: JobLine, known: Mapping[str, Machine]) -> dict[str, Any]:
    job, best = line.job, line.best
    owner = _runner(store, job)
    hardware = best.hardware if best is not None else str(line.options.get("hardware", ""))
    seconds = None if best is None else best.seconds
    return {
        "job": job.id,
        "title": _title(line),
        "target": job.target,
        "state": "lost" if job.state == "running" and owner is None else job.state,
        "running": owner is not None,
        "by": "" if owner is None else described(owner),
        "hardware": hardware,
        "machine": known[hardware].model if hardware in known else hardware,
        "created": job.created,
        "updated": job.updated,
        "trials": line.trials,
        "outcomes": dict(line.outcomes),
        "best": None if seconds is None else TimeUnit.for_seconds(seconds).text(seconds),
        "best_seconds": seconds,
        "rate": None if line.gflops is None else rate(line.gflops * 1e9),
        "settled": line.settled,
    }


def _title(line: JobLine) -> str:
    words = (f"{name}={_word(value)}" for name, value in line.arguments.items())
    return " ".join((line.job.operator, *words))


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def about(store: Store, identifier: str) -> dict[str, Any]:
    """One job: its course as figures, failures, the model's accuracy, the best schedule.

    Raises UnknownJob.
    """
    line = job_line(store, identifier)
    job = line.job
    records = [r for r in store.records(job=job.id) if r.strategy not in DECIDING]
    quality = quality_rows(line.options)
    return {
        **_job_row(store, line, machines(store)),
        "figures": _courses(job, records)
        | ({"accuracy": figures.accuracy(quality)} if quality else {}),
        "failures": _failures(records),
        "latest": [_trial(record) for record in records[: -LATEST - 1 : -1]],
        "schedule": None if line.best is None else json.loads(line.best.schedule),
        "options": {
            name: line.options[name]
            for name in ("strategy", "seed", "trials", "pins", "memory")
            if name in line.options
        },
    }


def _courses(job: Job, records: Iterable[Record]) -> dict[str, Any]:
    """By trial and by seconds; none as long as nothing was measured."""
    pairs = [(_elapsed(job, record), record) for record in records]
    right = [record.seconds for _, record in pairs if record.ok and record.seconds]
    if not pairs:
        return {}
    unit = TimeUnit.for_seconds(min(right, default=1.0))
    by_trial = [_mark(number, number, record) for number, (_, record) in enumerate(pairs, start=1)]
    by_time = [_mark(number, x, record) for number, (x, record) in enumerate(pairs, start=1)]
    return {
        "by_trial": figures.course(by_trial, unit, "trial"),
        "by_time": figures.course(by_time, unit, "seconds of the search"),
    }


def _mark(number: int, x: float, record: Record) -> Mark:
    seconds = kernel_seconds(record) if record.ok else None
    said = record.status if seconds is None else TimeUnit.for_seconds(seconds).text(seconds)
    return Mark(x, seconds, f"trial {number}: {said}", crowd_of(noted(record)) is not None)


def _elapsed(job: Job, record: Record) -> float:
    """Seconds since the search began; of older records by the wall clock."""
    told = json.loads(record.notes or "{}").get(ELAPSED)
    if isinstance(told, int | float):
        return max(0.0, float(told))
    begun, made = (datetime.fromisoformat(text) for text in (job.created, record.created))
    return max(0.0, (made - begun).total_seconds())


def _failures(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Kinds of failure with their number and the newest example, the most frequent first."""
    examples = {record.status: record for record in records if not record.ok}
    counts = Counter(record.status for record in records if not record.ok)
    return [
        {"status": status, "trials": count, "detail": examples[status].detail,
         "schedule": examples[status].schedule}
        for status, count in counts.most_common(MOST_FAILURES)
    ]  # fmt: skip


def _trial(record: Record) -> dict[str, Any]:
    seconds = record.seconds if record.ok else None
    return {
        "created": record.created,
        "status": record.status,
        "time": None if seconds is None else TimeUnit.for_seconds(seconds).text(seconds),
        "schedule": record.schedule,
    }


def version_of(store: Store) -> str:
    """What changes whenever an answer might: trials, jobs, and who runs them."""
    jobs = store.jobs()
    told = [(job.id, job.state, job.updated, _runner(store, job)) for job in jobs]
    return json.dumps([store.last(), told])


def _runner(store: Store, job: Job) -> str | None:
    """Who runs a job, which is asked of those alone that are said to run."""
    return holder_of(store, job) if job.state == "running" else None
