"""Two schedules, jobs or exports side by side: what differs, what is recorded, what is measured.

A side is named as people name it; which kind it is, its name tells. Knows the store and measuring
by what they offer, and prints nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from explorer.comparison import Comparison, compare
from explorer.errors import NothingValid
from explorer.finals import ROUNDS
from explorer.interrupted import outcome_of
from explorer.outcome import Outcome
from explorer.recall import FINAL, best_record, existing_store, open_store, store_exists
from explorer.workload import Workload
from ir.errors import MissingTarget, UsageError
from ir.schedule import Schedule
from records import MEMORIES

if TYPE_CHECKING:
    from ir.target import Hardware
    from records import Record
    from records.rows import Selection

Kind = Literal["schedule", "job", "export"]
BEST = "best"  # the name of a workload's best recorded schedule
Change = tuple[str, object, object]


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: its workload and schedule, and the newest right record of it, if any.

    `asked` is how a job was searched, or what an export says of itself.
    """

    name: str
    kind: Kind
    workload: Workload
    schedule: Schedule
    record: Record | None = None
    asked: tuple[tuple[str, object], ...] = ()

    @property
    def recorded(self) -> Outcome | None:
        """What is recorded of it."""
        return None if self.record is None else outcome_of(self.record)

    @property
    def title(self) -> tuple[object, ...]:
        """What both must have in common to be measured in turns."""
        machine = _machine(self.workload)
        threads = self.workload.threads if machine is None else machine.threads
        return (self.workload.program.key, self.workload.target, threads)


@dataclass(frozen=True, slots=True)
class Contrast:
    """Both sides, what differs between them, and their times.

    `decisions` and `asked` are (name, of the first, of the second), None where one has no such
    thing. `measured` are outcomes of both in turns, in which case `verdict` is theirs; else it is
    that of the records, and None where one of them has no time. A ratio above 1 says that the first
    is faster.
    """

    first: Side
    second: Side
    decisions: tuple[Change, ...]
    asked: tuple[Change, ...]
    measured: tuple[Outcome, Outcome] | None = None
    verdict: Comparison | None = None

    @property
    def alike(self) -> bool:
        """Whether both are of one workload."""
        return self.first.title == self.second.title


def _machine(workload: Workload) -> Hardware | None:
    """This host's, unless it lacks the target."""
    try:
        return workload.hardware
    except MissingTarget:
        return None


Measure = Callable[[Workload, tuple[Schedule, Schedule]], tuple[Outcome, Outcome]]


def contrast(first: Side, second: Side, measure: Measure | None) -> Contrast:
    """Both beside each other; with `measure`, timed in turns on this machine.

    Raises UsageError for two workloads that cannot be measured in turns, NothingValid for a kernel
    that is not right.
    """
    decisions = changes(first.schedule.as_dict(), second.schedule.as_dict())
    asked = changes(dict(first.asked), dict(second.asked))
    if measure is None:
        return Contrast(first, second, decisions, asked, verdict=_of_records(first, second))
    if first.title != second.title:
        raise UsageError(
            f"{first.name} and {second.name} are of different workloads, targets or threads: "
            "only their decisions and records can be compared (--no-measure)"
        )
    for side in (first, second):
        side.workload.refuse_illegal(side.schedule)
    measured = measure(first.workload, (first.schedule, second.schedule))
    for side, outcome in zip((first, second), measured, strict=True):
        if not outcome.ok:
            raise NothingValid(f"{side.name} ends as {outcome.status}: {outcome.detail}")
    verdict = compare(second.name, *measured)
    return Contrast(first, second, decisions, asked, measured, verdict)


def changes(first: Mapping[str, object], second: Mapping[str, object]) -> tuple[Change, ...]:
    """What differs by name, in the order of the first."""
    names = dict.fromkeys([*first, *second])
    return tuple(
        (name, first.get(name), second.get(name))
        for name in names
        if first.get(name) != second.get(name)
    )


def _of_records(first: Side, second: Side) -> Comparison | None:
    """Of one workload and machine; with its noise only if both were in the finals of one job."""
    one, other = first.record, second.record
    if one is None or other is None or first.title != second.title:
        return None
    if (one.hardware, one.memory) != (other.hardware, other.memory):
        return None
    together = one.job == other.job and one.strategy == other.strategy == FINAL
    ours, theirs = outcome_of(one), outcome_of(other)
    return compare(second.name, ours, theirs) if together else _apart(second.name, ours, theirs)


def _apart(name: str, ours: Outcome, theirs: Outcome) -> Comparison:
    """Of times that were not measured in turns."""
    return Comparison(name, theirs.seconds or 0.0, (theirs.seconds or 0.0) / (ours.seconds or 1.0))


def in_turns(workload: Workload, schedules: tuple[Schedule, Schedule]) -> tuple[Outcome, Outcome]:
    """Both kernels rebuilt, checked and timed in turns on this machine."""
    from explorer.measure import Measurer
    from explorer.peaks import kept_peaks
    from explorer.settings import cache_dir

    workload.refuse_unmeasurable()
    program, hardware = workload.program, workload.hardware
    peaks, memory = kept_peaks(hardware), workload.memory
    with Measurer(
        program, workload.target, hardware, cache_dir=cache_dir(), peaks=peaks, memory=memory
    ) as measurer:
        first, second = measurer.compete(schedules, ROUNDS)
    return first, second


# --- what a name stands for -------------------------------------------------------------------


def find_side(name: str, workload: Workload | None, store: str | None) -> Side:
    """A schedule as JSON text or @FILE, `best`, the folder or manifest of an export, or a job.

    Schedules need the workload. Raises UsageError, NothingValid, UnknownJob, StoreError.
    """
    if name == BEST or name.startswith(("@", "{")):
        return _given(name, workload, store)
    if Path(name).exists():
        return _exported(Path(name), store)
    return _of_job(name, store)


def _given(name: str, workload: Workload | None, store: str | None) -> Side:
    if workload is None:
        raise UsageError(
            f"{_short(name)} is a schedule: say of what, as in compare A B matmul m=512 n=512 k=512"
        )
    if name == BEST:
        best = best_record(workload, store)
        return Side(name, "schedule", workload, Schedule.from_json(best.schedule), best)
    schedule = Schedule.from_json(_text(Path(name[1:])) if name.startswith("@") else name)
    machine = _machine(workload)
    key = None if machine is None else machine.key
    record = _newest(workload, schedule, key, store)
    return Side(_short(name), "schedule", workload, schedule, record)


def _short(name: str) -> str:
    return name if not name.startswith("{") else f"schedule {Schedule.from_json(name).key[:8]}"


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"@{path}: {error}") from None


def _newest(
    workload: Workload, schedule: Schedule, hardware: str | None, store: str | None
) -> Record | None:
    """The newest right record of a schedule on a machine, finals before others."""
    if not store_exists(store):
        return None
    selection: Selection = {"workload": workload.program.key, "schedule_key": schedule.key}
    selection |= {"target": workload.target, "memory": workload.memory}
    if hardware is not None:
        selection |= {"hardware": hardware}
    with open_store(store, read_only=True) as records:
        right = [record for record in records.records(**selection) if record.ok]
    finals = [record for record in right if record.strategy == FINAL]
    return next(iter([*finals[::-1], *right[::-1]]), None)


_MANIFEST = ("facts", "kernel_key", "target")


def _exported(path: Path, store: str | None) -> Side:
    """What a manifest tells: operator, arguments, schedule, and the generator that wrote it."""
    manifest = _manifest(path)
    try:
        facts = manifest["facts"]
        where = (manifest["target"], manifest.get("threads"), facts.get("memory", MEMORIES[0]))
        workload = Workload.of(facts["operator"], facts["arguments"], *where)
        schedule = Schedule.from_json(json.dumps(facts["schedule"]))
    except (LookupError, TypeError) as error:
        raise UsageError(f"{path}: its manifest lacks {error}: export the kernel again") from None
    asked = {name: facts.get(name) for name in ("generator", "hardware")}
    record = _newest(workload, schedule, facts.get("hardware"), store)
    return Side(str(path), "export", workload, schedule, record, tuple(asked.items()))


def _manifest(path: Path) -> Mapping[str, Any]:
    """The manifest at `path`, or the only one in that folder; raises UsageError."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    found = [value for value in map(_json, files) if all(name in value for name in _MANIFEST)]
    if len(found) != 1:
        many = "several manifests: name one of them" if found else "no manifest of an export"
        raise UsageError(f"{path}: {many}")
    return found[0]


def _json(path: Path) -> Mapping[str, Any]:
    """The object in a file; empty where there is none."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, Mapping) else {}


_SETTINGS = (
    *("strategy", "seed", "trials", "pins", "model", "known", "hardware", "generator", "memory"),
)


def _of_job(name: str, store: str | None) -> Side:
    """The job's best schedule; raises UsageError, UnknownJob, NothingValid."""
    from explorer.story import read_story

    with existing_store(store) as records:
        job = records.job(name)
        story = read_story(records, job.id)
        schedule = story.best_schedule
        tried = [r for r in records.records(job=job.id, schedule_key=schedule.key) if r.ok]
    finals = [record for record in tried if record.strategy == FINAL]
    asked = {key: story.options.get(key) for key in _SETTINGS} | {"measured": len(story.trials)}
    record = (finals or tried)[-1]
    return Side(f"job {job.id}", "job", story.workload, schedule, record, tuple(asked.items()))
