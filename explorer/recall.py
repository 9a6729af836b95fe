"""Between outcomes and records: what a trial is in the store, and what the store knows of a
workload. Knows neither strategies nor how one measures.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from explorer.disturbance import quiet, worst
from explorer.errors import NothingValid
from explorer.outcome import CALL, KERNEL, LOAD, Note, Outcome, Status
from explorer.settings import records_location
from ir.errors import UsageError
from ir.printable import printable
from ir.schedule import Schedule
from records import MEMORIES, Address, Glance, Job, Record, Rules, candidate_key, utc_now

if TYPE_CHECKING:
    from explorer.baseline import Baseline
    from explorer.winner import Winner
    from explorer.workload import Workload
    from records import Store
    from records.rows import Selection

Where = str | Path | Address
Trial = TypeVar("Trial", Record, Glance)  # as much of a trial as says who is best
FINAL, HEAT = "final", "heat"  # what finals, and the heat before them, are recorded under
DECIDING = (FINAL, HEAT)
FLOPS = "flops"  # the note of what one run computes, so that rates are known without the program
DAMNING = ("wrong_result", "crash", "below_roofline")  # once is enough
RULES = Rules(FINAL, (HEAT,), DAMNING)


def open_store(where: Where | None = None, *, read_only: bool = False) -> Store:
    """The store at `where`, by default the user's own, whose folder is made; raises StoreError.

    With `read_only` it must be there, and is left as it is.
    """
    from records import Store  # the database library is slow to import

    return Store(address_of(where), read_only=read_only)


def existing_store(where: Where | None = None) -> Store:
    """The store at `where`, which looking at must not make; raises UsageError, StoreError."""
    return open_store(existing_address(where), read_only=True)


def existing_address(where: Where | None = None) -> Address:
    """Where a store is that must be there; raises UsageError, StoreError."""
    address = address_of(where)
    if not address.there:
        raise UsageError(f"{address}: no such store; `tilewright tune` makes one")
    return address


def store_exists(where: Where | None = None) -> bool:
    """Whether there is something to open at `where`; a server is taken to be there."""
    return address_of(where).there


def address_of(where: Where | None = None) -> Address:
    """The address `where`, by default that of the user's own store; raises StoreError."""
    return Address.of(where) if where is not None else records_location()


def to_record(
    workload: Workload, schedule: Schedule, outcome: Outcome, job: str, strategy: str
) -> Record:
    """The durable form of one trial."""
    hardware = workload.hardware
    return Record(
        workload=workload.program.key,
        operator=printable(workload.operator),
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
        notes=json.dumps(dict(outcome.notes) | {FLOPS: workload.program.flops}),
        created=utc_now(),
        job=job,
        strategy=strategy,
        memory=workload.memory,
    )


def _trials(store: Store, workload: Workload) -> Iterator[Record]:
    """All that was measured of `workload` on this machine with this code generator."""
    return store.records(**_selection(workload))


def _selection(workload: Workload) -> Selection:
    return {
        "workload": workload.program.key,
        "target": workload.target,
        "hardware": workload.hardware.key,
        "generator": workload.backend.generator,
        "memory": workload.memory,
    }


def count_known(store: Store, workload: Workload) -> int:
    """How many trials `known_trials` would read now."""
    return store.count(**_selection(workload))


def settled_trials(store: Store, workload: Workload) -> list[tuple[Schedule, Outcome]]:
    """As `known_trials`, but where a schedule was in finals, these alone say its time."""
    return verdicts(_trials(store, workload), deciding=True)


def known_trials(
    store: Store, workload: Workload, first: int | None = None, but: str = ""
) -> list[tuple[Schedule, Outcome]]:
    """Every schedule of this workload that this machine has tried with this code generator.

    Of the `first` trials only, so that what was known at some moment can be had again later, and
    without those of job `but`.
    """
    trials = islice(_trials(store, workload), first)
    return verdicts(record for record in trials if not but or record.job != but)


def verdicts(records: Iterable[Record], deciding: bool = False) -> list[tuple[Schedule, Outcome]]:
    """Each schedule of these trials of one workload, with the one outcome of its repeats."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.schedule_key, []).append(record)
    return [
        (Schedule.from_json(trials[0].schedule), verdict_of(trials, deciding))
        for trials in found.values()
    ]


def candidate_of(workload: Workload, schedule: Schedule) -> str:
    """The key under which trials of `schedule` are kept, and leases taken."""
    hardware = workload.hardware
    return candidate_key(
        workload.program.key,
        workload.target,
        hardware.key,
        workload.backend.generator,
        hardware.threads,
        schedule.key,
        workload.memory,
    )


def verdict_of(trials: Sequence[Record], deciding: bool = False) -> Outcome:
    """One outcome of repeated trials: a damning failure, else the median time, else the last.

    Of the times those that nothing disturbed count; where all are in doubt, so is the verdict.
    With `deciding`, the newest of the finals is the verdict wherever there is one.
    """
    damned = next((trial for trial in trials if trial.status in DAMNING), None)
    timed = [trial for trial in trials if trial.ok and trial.seconds is not None]
    if damned is not None or not timed:
        last = damned or trials[-1]
        return Outcome(cast(Status, last.status), kernel_key=last.kernel_key, detail=last.detail)
    finals = [trial for trial in timed if trial.strategy == FINAL] if deciding else []
    told = quiet_records(finals or timed)
    crowd = worst(noted(trial) for trial in told)
    notes = () if crowd is None else crowd.notes
    seconds = kernel_seconds(told[-1]) if finals else _median(told, kernel_seconds)
    if finals and told[-1].seconds != seconds:
        notes += ((CALL, told[-1].seconds or 0.0),)
    return Outcome("ok", seconds, kernel_key=trials[-1].kernel_key, notes=notes)


@dataclass(frozen=True, slots=True)
class Noted(Generic[Trial]):
    """A record with its notes read."""

    record: Trial
    notes: tuple[Note, ...]


def noted(record: Trial) -> Noted[Trial]:
    """Older records have no notes."""
    return Noted(record, tuple(json.loads(record.notes or "{}").items()))


def quiet_records(records: Iterable[Trial]) -> list[Trial]:
    """Those whose times are not in doubt, or all where there is none."""
    return [one.record for one in quiet([noted(record) for record in records])]


def best_record(workload: Workload, store: str | Path | None = None) -> Record:
    """The best record of a workload on this machine; raises NothingValid."""
    record, others = None, tuple[str, ...]()
    if store_exists(store):  # looking makes no store
        with open_store(store, read_only=True) as records:
            record = best_known(records, _selection(workload))
            others = () if record else _other_memories(records, workload)
    if record is None:
        placed = f" in {workload.placed}" if workload.placed and others else ""
        there = f" (there is one in {others[0]} memory: --memory {others[0]})" if others else ""
        raise NothingValid(
            f"{workload.operator} {workload.extents_json}: no valid record of it{placed} for this "
            f"machine{there}; tune it first"
        )
    return record


def _other_memories(store: Store, workload: Workload) -> tuple[str, ...]:
    """Other kinds of memory in which this workload was right on this machine."""
    kinds = {memory for memory in MEMORIES if memory != workload.memory}
    selection = _selection(workload) | {"status": "ok"}
    return tuple(kind for kind in sorted(kinds) if store.count(**(selection | {"memory": kind})))


def best_winner(workload: Workload, store: str | Path | None = None) -> Winner:
    """The best record of a workload on this machine as a kernel; raises NothingValid.

    Without one, the schedule of a range of extents that was tuned around it, fitted; its seconds
    are an estimate then.
    """
    from explorer.winner import Winner

    if workload.program.is_void:  # no kernel is needed for outputs without an element
        return Winner(workload, Schedule(workload.target, ()), 0.0, checked=True)
    try:
        record = best_record(workload, store)
    except NothingValid:
        from explorer.shapes.known import carried

        near = carried(workload, store)
        if near is None:
            raise
        return near
    assert record.seconds is not None  # `best_of` takes those that were right
    return Winner(workload, Schedule.from_json(record.schedule), record.seconds, record.job)


def incumbent(store: Store, workload: Workload, but: str) -> Record | None:
    """The best record of this workload on this machine that is none of job `but`."""
    return best_of(record for record in _trials(store, workload) if record.job != but)


def known_baseline(store: Store, workload: Workload) -> Baseline | None:
    """The array library's time as the newest job of this workload on this machine has it.

    One that was measured beside other programs only if there is no other.
    """
    newest: Baseline | None = None
    for job in reversed(store.jobs()):
        found = _baseline_of(store, job, workload)
        if found is not None and found.crowd is None:
            return found
        newest = newest or found
    return newest


def _baseline_of(store: Store, job: Job, workload: Workload) -> Baseline | None:
    """The baseline of a job, if it is one of this workload on this machine.

    Earlier versions noted no load with it: then it is that of the finals in which it had its turns.
    """
    from explorer.baseline import Baseline

    same = (job.operator, job.target) == (workload.operator, workload.target)
    if not same or json.loads(job.extents) != dict(workload.arguments):
        return None
    options = json.loads(job.options)
    if not options.get("baseline") or options.get("hardware") != workload.hardware.key:
        return None
    if options.get("memory", MEMORIES[0]) != workload.memory:
        return None
    found = Baseline.from_facts(options["baseline"])
    if found.outcome is None or LOAD in dict(found.outcome.notes):
        return found
    crowd = worst(noted(record) for record in store.records(job=job.id, strategy=FINAL))
    notes = () if crowd is None else crowd.notes
    return replace(found, outcome=replace(found.outcome, notes=(*found.outcome.notes, *notes)))


def best_known(store: Store, selection: Selection) -> Record | None:
    """`best_of` the selected trials, which the database has narrowed down."""
    best = best_of(store.contenders(RULES, **selection))
    record = None if best is None else store.numbered(best.number)
    if best is None or record is not None:
        return record
    return best_of(store.records(**selection))  # of the damaged one nothing counts


def best_of(trials: Iterable[Trial]) -> Trial | None:
    """The newest record of the best candidate: finals decide, as they did in the job.

    A candidate that was in no finals and no heat (its job was interrupted) counts only if it was
    faster in the search than all were that ran one: of many times measured once, the lowest is a
    lucky one, and a heat leaves out what is much like another.
    """
    finals: dict[str, list[Trial]] = {}
    searched: dict[str, list[Trial]] = {}
    damned: set[str] = set()
    heated: set[str] = set()
    for record in trials:
        candidate = record.candidate
        if record.status in DAMNING:
            damned.add(candidate)
        elif record.ok and record.strategy == HEAT:
            heated.add(candidate)
        elif record.ok:
            found = finals if record.strategy == FINAL else searched
            found.setdefault(candidate, []).append(record)
    finals = {key: found for key, found in finals.items() if key not in damned}
    searched = {key: found for key, found in searched.items() if key not in damned}
    finals = {key: quiet_records(found) for key, found in finals.items()}
    decided = finals.keys() | (heated if finals else set())
    limit = min((_median(f) for key, f in searched.items() if key in decided), default=math.inf)
    late = [f for key, f in searched.items() if key not in decided and _median(f) < limit]
    ranked = sorted(late or finals.values(), key=_median)
    return ranked[0][-1] if ranked else None


def kernel_seconds(record: Record) -> float | None:
    """The kernel's own time, as a search tells it: finals time whole calls, and note this."""
    alone = json.loads(record.notes or "{}").get(KERNEL)
    return record.seconds if alone is None else float(alone)


def call_seconds(record: Record | Glance) -> float | None:
    """What is recorded, be it of a call or, in a search, of the kernel."""
    return record.seconds


def _median(trials: Iterable[Trial], told: Callable[[Trial], float | None] = call_seconds) -> float:
    return statistics.median(s for trial in trials if (s := told(trial)) is not None)
