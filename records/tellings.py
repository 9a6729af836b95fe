"""What a store tells of itself: counts of what it holds, and rows that are damaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar


class WorkloadCount(NamedTuple):
    """How many trials there are of a workload on a machine."""

    operator: str
    extents: str
    workload: str
    target: str
    hardware: str
    memory: str
    trials: int


class JobCount(NamedTuple):
    """How many trials a job has recorded under a strategy, by status."""

    job: str
    strategy: str
    status: str
    trials: int


class MachineCount(NamedTuple):
    """How many trials were made on a machine, by status; `facts` names a text of the store."""

    hardware: str
    target: str
    facts: str
    status: str
    trials: int


class KindCount(NamedTuple):
    """How many trials there are whose times compare with each other."""

    target: str
    operator: str
    extents: str
    workload: str
    hardware: str
    generator: str
    memory: str
    trials: int


Tally = TypeVar("Tally", WorkloadCount, JobCount, MachineCount, KindCount)


class Glance(NamedTuple):
    """What came of a trial, and where its record is."""

    number: int
    candidate: str
    status: str
    strategy: str
    seconds: float | None
    notes: str

    @property
    def ok(self) -> bool:
        return self.status == "ok" and self.seconds is not None


@dataclass(frozen=True, slots=True)
class Rules:
    """What strategies and failures mean to whoever asks who is best.

    Trials of `final` decide; those of `others` are no trials of a search either; a candidate that
    ever came to one of `damning` is out.
    """

    final: str
    others: Sequence[str]
    damning: Sequence[str]


class Damage(NamedTuple):
    """A row that is not as it was stored: a trial or a job, its number or name, and why."""

    kind: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.reason}"


Tell = Callable[[Damage], None]
