"""Between outcomes and records: what a trial is in the store, and what the store knows of a
workload. Knows neither strategies nor how one measures.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

from explorer.errors import NothingValid
from explorer.outcome import Outcome, Status
from explorer.settings import records_location
from explorer.workload import Workload
from ir.schedule import Schedule
from records import Record, Store, utc_now

FINAL = "final"  # the strategy that finals are recorded under
DAMNING = ("wrong_result", "crash", "below_roofline")  # once is enough


def open_store(where: str | Path | None = None) -> Store:
    """The store at `where`, by default the user's own, whose folder is made; raises StoreError."""
    location = str(where) if where is not None else records_location()
    if where is None and _is_file(location):
        Path(location).parent.mkdir(parents=True, exist_ok=True)
    return Store(location)


def _is_file(location: str) -> bool:
    return "://" not in location and location != ":memory:"


def to_record(
    workload: Workload, schedule: Schedule, outcome: Outcome, job: str, strategy: str
) -> Record:
    """The durable form of one trial."""
    hardware = workload.hardware
    return Record(
        workload=workload.program.key,
        operator=workload.operator,
        extents=workload.extents_json,
        target=workload.target,
        hardware=hardware.key,
        hardware_facts=json.dumps(dict(hardware.facts) | {"isa": list(hardware.isa)}),
        generator=workload.backend.generator,
        threads=hardware.threads,
        schedule=schedule.to_json(),
        kernel_key=outcome.kernel_key,
        status=outcome.status,
        seconds=outcome.seconds,
        quartiles=outcome.quartiles,
        repeats=outcome.repeats,
        error=outcome.error,
        detail=outcome.detail,
        compile_seconds=outcome.compile_seconds,
        clock_ghz=outcome.clock_ghz,
        notes=json.dumps(dict(outcome.notes)),
        created=utc_now(),
        job=job,
        strategy=strategy,
    )


def _trials(store: Store, workload: Workload) -> Iterator[Record]:
    """All that was measured of `workload` on this machine with this code generator."""
    return store.records(
        workload=workload.program.key,
        target=workload.target,
        hardware=workload.hardware.key,
        generator=workload.backend.generator,
    )


def known_trials(store: Store, workload: Workload) -> list[tuple[Schedule, Outcome]]:
    """Every schedule of this workload that this machine has tried with this code generator."""
    found: dict[str, list[Record]] = {}
    for record in _trials(store, workload):
        found.setdefault(record.schedule_key, []).append(record)
    return [(Schedule.from_json(trials[0].schedule), _verdict(trials)) for trials in found.values()]


def _verdict(trials: Iterable[Record]) -> Outcome:
    """One outcome of repeated trials: a damning failure, else the median time, else the last."""
    last: Record | None = None
    times: list[float] = []
    for last in trials:
        if last.status in DAMNING:
            break
        if last.ok and last.seconds is not None:
            times.append(last.seconds)
    assert last is not None
    if times and last.status not in DAMNING:
        return Outcome("ok", statistics.median(times), kernel_key=last.kernel_key)
    return Outcome(cast(Status, last.status), kernel_key=last.kernel_key, detail=last.detail)


def best_record(workload: Workload, store: str | Path | None = None) -> Record:
    """The best record of a workload on this machine; raises NothingValid."""
    where = str(store) if store is not None else records_location()
    record = None
    if not _is_file(where) or Path(where).exists():  # looking makes no store
        with open_store(store) as records:
            record = best_of(_trials(records, workload))
    if record is None:
        raise NothingValid(
            f"{workload.operator} {workload.extents_json}: no valid record of it for this machine; "
            "tune it first"
        )
    return record


def best_of(trials: Iterable[Record]) -> Record | None:
    """The newest record of the best candidate: finals decide, as they did in the job.

    A candidate that was in no finals (its job was interrupted) counts only if it was faster in the
    search than all that were: of many times measured once, the lowest is a lucky one.
    """
    finals: dict[str, list[Record]] = {}
    searched: dict[str, list[Record]] = {}
    damned: set[str] = set()
    for record in trials:
        if record.status in DAMNING:
            damned.add(record.candidate)
        elif record.ok:
            found = finals if record.strategy == FINAL else searched
            found.setdefault(record.candidate, []).append(record)
    finals = {key: found for key, found in finals.items() if key not in damned}
    searched = {key: found for key, found in searched.items() if key not in damned}
    limit = min((_median(searched[key]) for key in finals if key in searched), default=math.inf)
    late = [f for key, f in searched.items() if key not in finals and _median(f) < limit]
    ranked = sorted(late or finals.values(), key=_median)
    return ranked[0][-1] if ranked else None


def _median(trials: Iterable[Record]) -> float:
    return statistics.median(trial.seconds for trial in trials if trial.seconds is not None)
