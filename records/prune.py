"""Letting go of trials that nobody needs: which go, which stay, and why.

A candidate goes with all its trials or not at all: one that was wrong once must not become right by
losing the trial that says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from statistics import median
from typing import Any

from sqlalchemy import Connection, Row, delete, select

from records.errors import InvalidRecord
from records.rows import DISTRUSTED, column_of, tally
from records.schema import VERSION, trials

_CHUNK = 500
_COLUMNS = (
    *("number", "candidate", "workload", "target", "hardware", "generator", "memory"),
    *("operator", "strategy", "status", "seconds", "created"),
)
Group = tuple[str, str, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """What goes: the candidates that meet every condition given. At least one must be.

    `before`: no trial of it is as young (ISO 8601 in UTC). `generator`: that made its code.
    `keep_best`: it is not among so many best of its workload, target, hardware, generator and
    memory, by the median over all its trials, nor by that over its `finals` (a strategy's name).
    """

    before: str | None = None
    keep_best: int | None = None
    generator: str | None = None
    finals: str = "final"

    def __post_init__(self) -> None:
        if self.before is None and self.keep_best is None and self.generator is None:
            raise InvalidRecord("pruning needs a condition: an age, a number to keep, a generator")
        if self.keep_best is not None and self.keep_best < 0:
            raise InvalidRecord(f"cannot keep {self.keep_best} candidates: give 0 or more")


@dataclass(frozen=True, slots=True)
class Pruned:
    """Trials that go (or went) and stay, and those that go by operator."""

    trials: int
    candidates: int
    kept: int
    operators: tuple[tuple[str, int], ...]


@dataclass(slots=True)
class _Candidate:
    group: Group
    operator: str
    numbers: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    final_times: list[float] = field(default_factory=list)
    newest: str = ""
    distrusted: bool = False

    def note(self, row: Row[Any], finals: str) -> None:
        self.numbers.append(row.number)
        self.newest = max(self.newest, row.created)
        self.distrusted |= row.status in DISTRUSTED
        if row.status == "ok" and row.seconds is not None:
            self.times.append(row.seconds)
            if row.strategy == finals:
                self.final_times.append(row.seconds)


def choose(
    connection: Connection, pruning: Pruning, version: int = VERSION
) -> tuple[Pruned, list[int]]:
    """What goes, and the numbers of its trials."""
    columns = [column_of(name, version) for name in _COLUMNS]
    known: dict[str, _Candidate] = {}
    for row in connection.execute(select(*columns).order_by(trials.c.number)):
        group = (row.workload, row.target, row.hardware, row.generator, row.memory)
        known.setdefault(row.candidate, _Candidate(group, row.operator)).note(row, pruning.finals)
    best = _best(known, pruning.keep_best or 0)
    going = [c for name, c in known.items() if name not in best and _meets(c, pruning)]
    operators: Counter[str] = Counter()
    for candidate in going:
        operators[candidate.operator] += len(candidate.numbers)
    numbers = sorted(number for candidate in going for number in candidate.numbers)
    kept = sum(len(candidate.numbers) for candidate in known.values()) - len(numbers)
    return Pruned(len(numbers), len(going), kept, tuple(sorted(operators.items()))), numbers


def remove(connection: Connection, numbers: Sequence[int]) -> None:
    """Delete these trials."""
    for start in range(0, len(numbers), _CHUNK):
        chunk = numbers[start : start + _CHUNK]
        gone = connection.execute(delete(trials).where(trials.c.number.in_(chunk))).rowcount
        tally(connection, trials, -gone)


def _meets(candidate: _Candidate, pruning: Pruning) -> bool:
    young = pruning.before is not None and candidate.newest >= pruning.before
    other = pruning.generator is not None and candidate.group[3] != pruning.generator
    return not young and not other


def _best(known: dict[str, _Candidate], count: int) -> set[str]:
    """The best `count` of every group, by all times and by those of the finals."""
    groups: dict[Group, list[str]] = {}
    for name, candidate in known.items():
        if candidate.times and not candidate.distrusted:
            groups.setdefault(candidate.group, []).append(name)
    best: set[str] = set()
    for names in groups.values():
        best |= _lowest(count, ((median(known[name].times), name) for name in names))
        finals = [name for name in names if known[name].final_times]
        best |= _lowest(count, ((median(known[name].final_times), name) for name in finals))
    return best


def _lowest(count: int, ranked: Iterable[tuple[float, str]]) -> set[str]:
    return {name for _, name in nsmallest(count, ranked)}
