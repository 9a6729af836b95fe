"""What a run of jobs is to do: workloads with their weights and limits, and one budget for all.

Frozen values, parsed from a TOML file or a mapping of the same form (docs/jobs.md has the schema)
and kept in the store as JSON, so that an interrupted run can be rebuilt. Nothing is searched here.
"""

from __future__ import annotations

import difflib
import json
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from explorer.budget import BATCH, Budget
from explorer.devices import FIRST, refuse_wrong
from ir.errors import UsageError
from records import MEMORIES, Address, StoreError

if TYPE_CHECKING:
    from explorer.workload import Workload
    from ir.program import Program

Scalar = str | int | float | bool
Objective = Literal["total", "ratio"]
OBJECTIVES: tuple[str, ...] = get_args(Objective)
NO_MODEL = "none"  # in the place of a file
_NO_JOBS = "no jobs: give at least one [[job]] with an operator"
_LARGEST_FILE = 1 << 20


@dataclass(frozen=True, slots=True)
class JobPlan:
    """One workload to be searched. `trials` is the most that it may take of the budget.

    `program` is the workload's own where its operator has no name by which others find it.
    """

    operator: str
    arguments: tuple[tuple[str, Scalar], ...] = ()
    target: str = "cpu"
    threads: int | None = None
    pins: tuple[tuple[str, Scalar], ...] = ()
    strategy: str = "evolutionary"
    seed: int = 0
    trials: int | None = None
    weight: float = 1.0
    model: str | None = None
    start_from: Address | None = None  # records whose fastest schedules are measured first
    baseline: bool = True  # whether the target's array library is measured besides
    devices: str = FIRST  # those to measure on, as "0,1" or "all"
    program: Program | None = None
    memory: str | None = None  # what operands lie in; None: as the target's usually do
    hardware: str | None = None  # the key of the machines of a farm; None: this machine

    def __post_init__(self) -> None:
        object.__setattr__(self, "start_from", start_of(self.start_from))
        if self.trials is not None and self.trials < 1:
            raise UsageError(f"trials={self.trials}: must be at least 1")
        if not (self.weight > 0 and math.isfinite(self.weight)):
            raise UsageError(f"weight={self.weight}: must be above 0")
        refuse_wrong(self.devices)
        if self.seed < 0:
            raise UsageError(f"seed={self.seed}: must not be negative")

    def anchored(self, folder: Path) -> JobPlan:
        """See `Plan.anchored`."""
        model = self.model if self.model in (None, NO_MODEL) else _within(folder, self.model)
        start_from = self.start_from and self.start_from.within(folder)
        return replace(self, model=model, start_from=start_from)

    def workload(self) -> Workload:
        """What is to be searched, its program built; raises UsageError."""
        from explorer.workload import Workload

        if self.program is None:
            where = (self.target, self.threads, self.memory)
            return Workload.of(self.operator, dict(self.arguments), *where)
        return Workload(
            self.operator, self.arguments, self.target, self.threads,
            given=self.program, memory=self.memory or "",
        )  # fmt: skip

    def to_data(self) -> dict[str, object]:
        """As JSON takes it; the program as text."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.program is None:
            del data["program"]
            return data
        return {**data, "program": str(self.program)}

    @property
    def title(self) -> str:
        """The workload for people: operator and arguments, and where if it is not here."""
        words = [self.operator, *(f"{name}={value}" for name, value in self.arguments)]
        return " ".join(words if self.hardware is None else [*words, "on", self.hardware])


@dataclass(frozen=True, slots=True)
class Plan:
    """Jobs and the budget that they share. `objective` says what is gained: see `allocation`."""

    jobs: tuple[JobPlan, ...]
    budget: Budget
    objective: Objective = "total"

    def __post_init__(self) -> None:
        if not self.jobs:
            raise UsageError(_NO_JOBS)

    def horizon(self, number: int) -> int | None:
        """Trials that job `number` may count on: its own limit or an even share, if any."""
        own, together = self.jobs[number].trials, self.budget.trials
        if together is None:
            return own
        return min(own or -(-together // len(self.jobs)), together)

    def anchored(self, folder: Path) -> Plan:
        """The plan whose files (`start_from`, `model`), where relative, are those of `folder`."""
        return replace(self, jobs=tuple(job.anchored(folder) for job in self.jobs))

    def to_json(self) -> str:
        jobs = [job.to_data() for job in self.jobs]
        budget = asdict(self.budget)
        whole = {"jobs": jobs, "budget": budget, "objective": self.objective}
        return json.dumps(whole, sort_keys=True, default=str)  # addresses, redacted

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The inverse of `to_json`; raises UsageError for what is no plan."""
        try:
            data = json.loads(text)
            jobs = tuple(_stored_job(job) for job in data["jobs"])
            return cls(jobs, Budget(**data["budget"]), data["objective"])
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"not a plan of jobs: {error}") from None


def start_of(where: str | Path | Address | None) -> Address | None:
    """The address of records to start from; raises UsageError."""
    try:
        return None if where is None else Address.of(where)
    except StoreError as error:
        raise UsageError(f"start_from: {error}") from None


def _within(folder: Path, name: str | None) -> str | None:
    """A file's name as seen from where `folder` is; URLs stay."""
    return name if name is None or "://" in name else str(folder / name)


def _stored_job(data: Mapping[str, Any]) -> JobPlan:
    found: dict[str, Any] = {n: tuple(map(tuple, data[n])) for n in ("arguments", "pins")}
    if "program" in data:
        from ir.text import parse

        found["program"] = parse(data["program"])
    return JobPlan(**{"memory": MEMORIES[0], **data, **found})  # of before there was a choice


def read_plan(path: Path, /, **given: object) -> Plan:
    """The plan in a TOML file; `given` (not None) overrides its top level. Raises UsageError.

    Files that it names are relative to its folder.
    """
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise UsageError(f"{path}: larger than 1 MiB, so no file of jobs")
        data = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    return plan_of(data, str(path), **given).anchored(path.parent)


def plan_of(data: Mapping[str, Any], where: str = "jobs", /, **given: object) -> Plan:
    """The plan in a mapping of the file's form; messages begin with `where`."""
    named = {key: value for key, value in given.items() if value is not None}
    if "effort" in named:  # goes before the numbers, too, that the file has
        data = {key: value for key, value in data.items() if key not in ("trials", "seconds")}
    try:
        return _plan({**data, **named})
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


_TOP = {
    "trials": int,
    "seconds": float,
    "effort": str,
    "batch": int,
    "objective": str,
    "defaults": Mapping,
    "job": Sequence,
}
_JOB = {
    "operator": Callable,
    "arguments": Mapping,
    "target": str,
    "threads": int,
    "pins": Mapping,
    "strategy": str,
    "seed": int,
    "trials": int,
    "weight": float,
    "model": str,
    "start_from": str,
    "baseline": bool,
    "devices": str,
    "memory": str,
}
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Callable: "a text, the name of an operator, or from Python an operator itself",
    Mapping: "a table",
}


def _plan(data: Mapping[str, Any]) -> Plan:
    checked = _checked(data, _TOP, "top level")
    defaults = _checked(checked.get("defaults", {}), _JOB, "[defaults]")
    tables = checked.get("job", ())
    jobs = tuple(_job(table, defaults, n) for n, table in enumerate(tables, start=1))
    if not jobs:
        raise UsageError(_NO_JOBS)
    numbers = {name: checked.get(name) for name in ("trials", "seconds")}
    budget = Budget.of(
        checked.get("effort", "standard"),
        batch=checked.get("batch", BATCH),
        jobs=len(jobs),
        **cast(Any, numbers),
    )
    objective = checked.get("objective", "total")
    if objective not in OBJECTIVES:
        raise UsageError(f"no objective {objective!r}; there are {', '.join(OBJECTIVES)}")
    return Plan(jobs, budget, objective)


def _job(table: object, defaults: Mapping[str, Any], number: int) -> JobPlan:
    place = f"[[job]] {number}"
    given = _checked(table, _JOB, place)
    merged = {**defaults, **given}
    if "operator" not in merged:
        raise UsageError(f"{place} lacks operator")
    for name in ("arguments", "pins"):
        both = {**defaults.get(name, {}), **given.get(name, {})}
        merged[name] = tuple(_scalars(both, f"{place} {name}"))
    try:
        return JobPlan(**_named(merged))
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None


def _named(merged: dict[str, Any]) -> dict[str, Any]:
    """With the program of an operator that is given as itself, and its name."""
    if isinstance(merged["operator"], str):
        return merged
    from explorer.workload import Workload

    target, threads = merged.get("target", "cpu"), merged.get("threads")
    where = (target, threads, merged.get("memory"))
    workload = Workload.of(merged["operator"], dict(merged["arguments"]), *where)
    found = {"operator": workload.operator, "arguments": workload.arguments}
    return {**merged, **found, "program": workload.given}


def _scalars(values: Mapping[str, Any], place: str) -> Iterable[tuple[str, Scalar]]:
    for name, value in values.items():
        if not isinstance(value, str | int | float | bool):
            raise UsageError(f"{place}: {name}={value!r} must be a number, a text or a boolean")
        yield name, value


def _checked(table: object, known: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The table if every key is known and every value of its kind; raises UsageError."""
    if not isinstance(table, Mapping):
        raise UsageError(f"{place} must be a table, not {table!r}")
    for name, value in table.items():
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.0)
            raise UsageError(f"{place}: unknown key {name!r}; the nearest is {near[0]!r}")
        if not _fits(value, known[name]):
            what = _WORDS.get(known[name], "an array of tables, written [[job]]")
            raise UsageError(f"{place}: {name}={value!r} must be {what}")
        if isinstance(value, str) and "\0" in value:
            raise UsageError(f"{place}: {name}={value!r} holds a NUL, which no name does")
    return dict(table)


def _fits(value: object, kind: Any) -> bool:
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if kind is float:
        return isinstance(value, int | float)
    if kind is Sequence:
        return isinstance(value, list | tuple)
    if kind is Callable:
        return isinstance(value, str) or _is_operator(value)
    return isinstance(value, kind)


def _is_operator(value: object) -> bool:
    """Whether it may stand for an operator, which no value of a file does."""
    from ir.builder import Operator
    from ir.program import Program

    return isinstance(value, Operator | Program) or callable(value)
