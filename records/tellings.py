"""What a store tells of itself: counts of what it holds, and rows that are damaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


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


class Damage(NamedTuple):
    """A row that is not as it was stored: a trial or a job, its number or name, and why."""

    kind: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.reason}"


Tell = Callable[[Damage], None]
