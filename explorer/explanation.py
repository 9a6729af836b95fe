"""What there is to say of a schedule: why it is refused, what its decisions mean, how it fared.

Says it as values; words for people are the command line's. Knows no operator and no target.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from explorer.baseline import Baseline
from explorer.landscape import Difference, ValueEffect, beside, by_value, known_to
from explorer.outcome import Outcome
from explorer.recall import known_baseline, open_store, settled_trials, store_exists
from explorer.workload import Workload
from ir.schedule import Schedule, Value
from ir.space import Decision, Space


@dataclass(frozen=True, slots=True)
class Broken:
    """A constraint that forbids the schedule: its name, what it needs, the schedule's numbers."""

    name: str
    needs: str
    detail: str


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision as the schedule takes it, and what came of each value wherever it was tried."""

    decision: Decision
    value: Value
    tried: tuple[ValueEffect, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """`remedies` are single changes that make a refused schedule legal.

    `baseline` is the array library's time of the program, where a job has measured it.
    """

    schedule: Schedule
    broken: tuple[Broken, ...]
    remedies: tuple[tuple[str, Value, Value], ...]
    choices: tuple[Choice, ...]
    trials: tuple[Outcome, ...]
    neighbours: tuple[Difference, ...]
    baseline: Baseline | None = None


def explain(
    space: Space, schedule: Schedule, trials: Sequence[tuple[Schedule, Outcome]] = ()
) -> Explanation:
    """Explain one schedule by its space and by what was measured there.

    Raises UsageError if a name or value of the schedule is not of the space.
    """
    row = space.encode(schedule)
    known = known_to(space, trials)
    effects = by_value(space, known)
    choices = (
        Choice(decision, value, effects[decision.name])
        for decision, value in _in_force(space, row.tolist())
    )
    broken = _broken(space, schedule)
    return Explanation(
        schedule,
        broken,
        _remedies(space, schedule) if broken else (),
        tuple(choices),
        tuple(outcome for other, outcome in known if other == schedule),
        beside(space, schedule, known),
    )


def explain_known(
    workload: Workload, schedule: Schedule, store: str | Path | None = None
) -> Explanation:
    """`explain` by all that this machine has measured of the workload; raises as it does."""
    if not store_exists(store):
        return explain(workload.space(), schedule)
    with open_store(store) as records:
        found = explain(workload.space(), schedule, settled_trials(records, workload))
        return replace(found, baseline=known_baseline(records, workload))


def _in_force(space: Space, row: Sequence[int]) -> Iterator[tuple[Decision, Value]]:
    """Decisions and what they are, but for those of routes that the schedule does not take."""
    taken: dict[str, Value] = {}
    for decision, index in zip(space.decisions, row, strict=True):
        value = decision.domain[index]
        if decision.when is None or taken.get(decision.when[0]) == decision.when[1]:
            taken[decision.name] = value
            yield decision, value


def _broken(space: Space, schedule: Schedule) -> tuple[Broken, ...]:
    """Every constraint that the schedule breaks, in the space's order."""
    row = space.encode(schedule)
    values = space.schedule(row).as_dict()
    numbers = np.flatnonzero(space.violations(row[None, :])[0])
    rules = [space.constraints[number] for number in numbers]
    return tuple(Broken(rule.name, rule.needs, rule.explain(values)) for rule in rules)


def _remedies(space: Space, schedule: Schedule) -> tuple[tuple[str, Value, Value], ...]:
    row = space.encode(schedule)
    found = []
    for near in space.neighbours(row):
        (column,) = np.flatnonzero(near != row)
        decision = space.decisions[column]
        found.append((decision.name, decision.domain[row[column]], decision.domain[near[column]]))
    return tuple(found)
