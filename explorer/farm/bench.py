"""What travels to a worker and back: what is to be measured, and what came of it.

Frozen values of texts and numbers: programs, schedules and outcomes go as the texts that they
round-trip through. Knows no Dask, and runs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from explorer.baseline import Baseline
from explorer.outcome import Outcome
from explorer.workload import Workload
from ir.schedule import Schedule
from ir.target import Hardware
from records.canonical import content_key

MAKER = "explorer.farm.station:measurer_of"


@dataclass(frozen=True, slots=True)
class Bench:
    """All that a worker's measurer follows from; `maker` is the function that makes it there."""

    program: str
    target: str
    hardware: Hardware
    memory: str
    seed: int = 0
    maker: str = MAKER

    @classmethod
    def of(cls, workload: Workload, seed: int, maker: str = MAKER) -> Bench:
        text = str(workload.program)
        return cls(text, workload.target, workload.hardware, workload.memory, seed, maker)

    @property
    def key(self) -> str:
        """Of its content."""
        return content_key(repr(self))


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file of compiled code as the cache has it, whose name is the hash of what it is for."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Reading:
    """What a worker measured: outcomes as JSON, seconds in which its device had a candidate, the
    baseline's facts as JSON where that was asked for."""

    worker: str
    outcomes: tuple[str, ...]
    examined: float = 0.0
    baseline: str = ""

    @property
    def read(self) -> list[Outcome]:
        return [Outcome.from_json(text) for text in self.outcomes]

    @property
    def library(self) -> Baseline | None:
        return Baseline.from_facts(json.loads(self.baseline)) if self.baseline else None


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a worker could not measure. `kind` is the error's class, which says whether another
    worker might; `address` is the worker's."""

    address: str
    kind: str
    message: str


def texts_of(schedules: Sequence[Schedule]) -> tuple[str, ...]:
    return tuple(schedule.to_json() for schedule in schedules)
