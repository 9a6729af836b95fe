"""Families among what a run is to do: their share of its budget, and the options of their jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from explorer.budget import EFFORTS, Budget
from explorer.plan import JobPlan, Plan
from explorer.shapes.extents import parted
from explorer.shapes.family import Family
from explorer.shapes.family_plan import FamilyPlan
from ir.errors import UsageError

_UNBOUND = EFFORTS["standard"][0]  # trials where seconds alone are given
_NOT_OF_RANGES = ("start_from", "program")


@dataclass(frozen=True, slots=True)
class Parts:
    """The families of a plan, and what is left of it, if there is something."""

    families: tuple[FamilyPlan, ...]
    plan: Plan | None


def plan_family(
    family: Family,
    budget: Budget,
    *,
    strategy: str = "evolutionary",
    seed: int = 0,
    pins: Mapping[str, object] | None = None,
    model: str | Path | None = None,
) -> FamilyPlan:
    """One family with the whole of a budget; raises UsageError."""
    trials = budget.trials or _UNBOUND
    return FamilyPlan(family, trials, budget.seconds, strategy, seed, dict(pins or {}), model)


def split(plan: Plan) -> Parts:
    """The jobs of a plan whose arguments have several values, and the others.

    A family has as many trials as its job may take, or as many as an even share; jobs that are
    left share the rest. Raises UsageError.
    """
    ranged = [job for job in plan.jobs if parted(dict(job.arguments))[1]]
    single = tuple(job for job in plan.jobs if job not in ranged)
    families = tuple(_family(job, _share(plan, job)) for job in ranged)
    if not single:
        return Parts(families, None)
    budget = plan.budget
    if budget.trials is not None:
        left = budget.trials - sum(family.trials for family in families)
        if left < 1:
            raise UsageError(
                f"ranges take {budget.trials - left} of {budget.trials} trials: nothing is left "
                "for the other jobs; give more, or the ranges fewer"
            )
        budget = replace(budget, trials=left)
    if budget.seconds is not None:
        budget = replace(budget, seconds=budget.seconds * len(single) / len(plan.jobs))
    return Parts(families, replace(plan, jobs=single, budget=budget))


def _share(plan: Plan, job: JobPlan) -> Budget:
    """What of a plan's budget is a job's."""
    budget, count = plan.budget, len(plan.jobs)
    trials = job.trials or (None if budget.trials is None else budget.trials // count)
    seconds = None if budget.seconds is None else budget.seconds / count
    return replace(budget, trials=trials, seconds=seconds)


def _family(job: JobPlan, budget: Budget) -> FamilyPlan:
    for name in _NOT_OF_RANGES:
        if getattr(job, name) is not None:
            raise UsageError(f"{job.title}: {name} is for single workloads, not for a range")
    options: dict[str, Any] = {"strategy": job.strategy, "seed": job.seed, "model": job.model}
    where = (job.target, job.threads, job.memory)
    family = Family.of(job.operator, dict(job.arguments), *where)
    return plan_family(family, budget, pins=dict(job.pins), **options)
