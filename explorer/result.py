"""What a run of jobs tells: each trial as it happens, and what was found. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.baseline import Baseline
from explorer.comparison import Comparison
from explorer.disturbance import Crowd
from explorer.outcome import Outcome
from explorer.plan import Plan
from ir.program import Program
from ir.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Progress:
    """One trial, told after it is in the store.

    `trial` counts within the job, `trials` over all jobs of the run; `number` is the job's place in
    the plan. `replayed` trials of a resumed job were measured before the interruption. `regret` is
    the search's own account of its model, where it keeps one. `baseline` is the library's time as
    measured before the first trial, None where it is not wanted.
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


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a job found. `seconds` is the winner's median among the finalists.

    `trials` were measured by this job, `known` were in the store before, `resumed` of the trials
    were measured before an interruption; `outcomes` counts statuses. `noise` is the usual distance
    of a candidate's quartiles as a share of its time, `foreign_load` the usual share of the
    processors that other programs had. `beside_baseline` is the winner beside the library that
    `baseline` tells of; `beside_incumbent` the fastest other finalist beside the best of earlier
    searches, which stays the best if `kept`. A `crowd` of other programs beside the winner puts
    its time in doubt. An interrupted job names the best as it stood, without finals.
    """

    job: str
    program: Program
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

    @property
    def gflops(self) -> float:
        """Billions of arithmetic operations of the program a second."""
        return self.program.flops / self.seconds / 1e9


@dataclass(frozen=True, slots=True)
class PlanResult:
    """What the jobs of a plan found, in its order; `missed` has why the others found nothing."""

    plan: Plan
    results: tuple[JobResult, ...]
    missed: tuple[tuple[int, str], ...]
    trials: int
    elapsed: float
    interrupted: bool = False
