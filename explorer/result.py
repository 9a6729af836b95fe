"""What a run of jobs tells: each trial as it happens, and what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from explorer.baseline import Baseline
from explorer.comparison import Comparison
from explorer.disturbance import Crowd
from explorer.outcome import Outcome
from explorer.plan import Plan
from explorer.winner import Winner
from explorer.workload import Workload
from ir.program import Program
from ir.schedule import Schedule

SHIPPED = "shipped"


@dataclass(frozen=True, slots=True)
class HeadStart:
    """The cost model that a search starts with: a file or "shipped"; without one, why."""

    source: str = ""
    why: str = ""

    @property
    def words(self) -> str:
        """For people."""
        return f"no cost model to start with: {self.why}" if self.why else f"model {self.source}"


@dataclass(frozen=True, slots=True)
class Progress:
    """One trial, told after it is in the store.

    `trial` counts within the job, `trials` over all jobs of the run; `number` is the job's place in
    the plan. `replayed` trials of a resumed job were measured before the interruption. `regret` is
    the search's own account of its model, where it keeps one. `baseline` is the library's time as
    measured before the first trial, None where it is not wanted. `model` is what the search
    started with.
    """

    trial: int
    schedule: Schedule
    outcome: Outcome
    best_seconds: float | None
    elapsed: float
    flops: int
    number: int = 0
    job: str = ""
    trials: int = 0
    replayed: bool = False
    regret: float | None = None
    baseline: Baseline | None = None
    model: HeadStart = HeadStart()


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a job found. `seconds` is the winner's median among the finalists: in plain memory that
    of calls as its export makes them, of which the kernel itself takes `kernel_seconds`.

    It is called as its kernel is: `result(a, b)` (see `Winner`).

    `trials` were measured by this job, `known` were in the store before, `resumed` of the trials
    were measured before an interruption; `outcomes` counts statuses. `noise` is the usual distance
    of a candidate's quartiles as a share of its time, `foreign_load` the usual share of the
    processors that other programs had. `beside_baseline` is the winner beside the library that
    `baseline` tells of; `beside_incumbent` the fastest other finalist beside the best of earlier
    searches, which stays the best if `kept`. A `crowd` of other programs beside the winner puts
    its time in doubt. An interrupted job names the best as it stood, without finals.
    """

    job: str
    workload: Workload
    best: Schedule
    seconds: float
    trials: int
    known: int
    outcomes: tuple[tuple[str, int], ...]
    elapsed: float
    interrupted: bool = False
    number: int = 0
    resumed: int = 0
    noise: float | None = None
    foreign_load: float | None = None
    baseline: Baseline | None = None
    beside_baseline: Comparison | None = None
    beside_incumbent: Comparison | None = None
    kept: bool = False
    crowd: Crowd | None = None
    model: HeadStart = HeadStart()
    kernel_seconds: float | None = None

    @property
    def program(self) -> Program:
        return self.workload.program

    @property
    def winner(self) -> Winner:
        """The best as `explorer.best` gives it."""
        return Winner(self.workload, self.best, self.seconds, self.job, checked=True)

    @property
    def gflops(self) -> float:
        """Billions of arithmetic operations of the program a second."""
        return self.winner.gflops

    def export(self, folder: str | Path) -> Sequence[Path]:
        """Write the best kernel as files that need no Tilewright; returns them."""
        return self.winner.export(folder)

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Run the best kernel in this process."""
        return self.winner(*arrays, **named)


@dataclass(frozen=True, slots=True)
class PlanResult:
    """What the jobs of a plan found, in its order; `missed` has why the others found nothing."""

    plan: Plan
    results: tuple[JobResult, ...]
    missed: tuple[tuple[int, str], ...]
    trials: int
    elapsed: float
    interrupted: bool = False
