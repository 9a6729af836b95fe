"""A schedule space as measurements show it: what each value of a decision led to, which decisions
matter to the model, and who stands beside a schedule. It reads outcomes and measures nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from explorer.strategies.base import OutcomeLike
from ir.errors import UsageError
from ir.schedule import Schedule, Value
from ir.space import Decision, Matrix, Space

_SAMPLE = 4096  # rows on which the model is asked
_FEWEST = 16  # trials from which a model is worth asking
_TURNS = 8  # in which two parts of a sum are fitted
PAIRED = 8  # decisions whose pairs are looked at

Trial = tuple[Schedule, OutcomeLike]
Anything = TypeVar("Anything", bound=OutcomeLike)


@dataclass(frozen=True, slots=True)
class ValueEffect:
    """Trials with one value of a decision: how many, how many were right, best and usual time."""

    value: Value
    tried: int
    right: int
    best: float | None
    median: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """A measured schedule beside another one: what differs, and what came of it."""

    changes: tuple[tuple[str, Value, Value], ...]
    outcome: OutcomeLike


def known_to(
    space: Space, trials: Sequence[tuple[Schedule, Anything]]
) -> list[tuple[Schedule, Anything]]:
    """The trials whose schedules are of this space; older versions may have had another."""
    return [trial for trial in trials if _encodes(space, trial[0])]


def _encodes(space: Space, schedule: Schedule) -> bool:
    try:
        space.encode(schedule)
    except UsageError:
        return False
    return True


def by_value(space: Space, trials: Sequence[Trial]) -> dict[str, tuple[ValueEffect, ...]]:
    """For each decision the values that were tried, in the order of its domain."""
    found: dict[str, tuple[ValueEffect, ...]] = {}
    for decision in space.decisions:
        groups: dict[Value, list[OutcomeLike]] = {}
        for schedule, outcome in trials:
            value = schedule.get(decision.name, decision.unsaid)
            if value is not None:  # else it is not in force
                groups.setdefault(value, []).append(outcome)
        found[decision.name] = tuple(
            _effect(value, groups[value]) for value in decision.domain if value in groups
        )
    return found


def _effect(value: Value, outcomes: Sequence[OutcomeLike]) -> ValueEffect:
    times = [o.seconds for o in outcomes if o.status == "ok" and o.seconds is not None]
    best, median = (min(times), statistics.median(times)) if times else (None, None)
    return ValueEffect(value, len(outcomes), len(times), best, median)


@dataclass(frozen=True, slots=True)
class Influence:
    """Shares of the variance of the model's score over legal schedules, the largest first.

    `alone` is what each decision explains by itself, `together` what a pair of them explains
    beyond the best sum of a part for each.
    """

    alone: dict[str, float]
    together: dict[tuple[str, str], float]


def importance(space: Space, trials: Sequence[Trial], seed: int = 0) -> dict[str, float]:
    """`influence` of decisions alone."""
    return influence(space, trials, seed, paired=0).alone


def influence(
    space: Space, trials: Sequence[Trial], seed: int = 0, *, paired: int = PAIRED
) -> Influence:
    """What decisions mean to the model: first- and second-order indices, as in functional ANOVA
    (Hutter, Hoos and Leyton-Brown, ICML 2014).

    The model is fitted on the trials and asked on random legal schedules. Pairs are of the `paired`
    decisions that matter most. Empty where there are too few trials to fit a model.
    """
    from costmodel.features import feature_names, featurise
    from costmodel.model import CostModel

    right = [outcome.status == "ok" and outcome.seconds is not None for _, outcome in trials]
    if sum(right) < _FEWEST:
        return Influence({}, {})
    rows = np.array([space.encode(schedule) for schedule, _ in trials], dtype=np.int16)
    seconds = np.array([outcome.seconds or np.nan for _, outcome in trials])
    model = CostModel(seed, names=feature_names(space))
    model.fit(featurise(space, rows), seconds, np.array(right))
    sample = space.sample(np.random.default_rng(seed), _SAMPLE)
    scores = model.predict(featurise(space, sample))
    columns = {
        decision.name: sample[:, number]
        for number, decision in enumerate(space.decisions)
        if len(decision.domain) > 1
    }
    alone = {name: _explained(scores, codes) for name, codes in columns.items()}
    alone = dict(sorted(alone.items(), key=lambda pair: -pair[1]))
    pairs = {
        (one, two): beyond(scores, columns[one], columns[two])
        for one, two in combinations(list(alone)[:paired], 2)
    }
    return Influence(alone, dict(sorted(pairs.items(), key=lambda pair: -pair[1])))


def beyond(scores: NDArray[np.float64], one: NDArray[np.int16], two: NDArray[np.int16]) -> float:
    """The share of the variance that two columns explain only together.

    The best sum of a part for each is taken off first, by turns, since legal schedules do not mix
    all values alike; and what as many cells would explain of noise. At least 0.
    """
    total = float(((scores - scores.mean()) ** 2).sum())
    if total == 0.0:
        return 0.0
    rest = scores - scores.mean()
    for _ in range(_TURNS):
        for codes in (one, two):
            rest = rest - _means(rest, codes)
    width = int(two.max()) + 1
    cells = one.astype(np.intp) * width + two
    between = _means(rest, cells)
    kinds = [len(np.unique(codes)) for codes in (cells, one, two)]
    left = max(1, len(scores) - kinds[0])
    chance = (
        max(0, kinds[0] - kinds[1] - kinds[2] + 1) * float(((rest - between) ** 2).sum()) / left
    )
    return max(0.0, float((between**2).sum()) - chance) / total


def _means(values: NDArray[np.float64], codes: NDArray[Any]) -> NDArray[np.float64]:
    """For each value the mean of those of its code."""
    counts = np.maximum(1, np.bincount(codes))
    return np.asarray((np.bincount(codes, values) / counts)[codes], dtype=np.float64)


def _explained(scores: NDArray[np.float64], codes: NDArray[np.int16]) -> float:
    """Variance of the means over equal codes, over the whole variance."""
    total = float(scores.var())
    if total == 0.0:
        return 0.0
    counts = np.bincount(codes)
    used = counts > 0
    means = np.bincount(codes, scores)[used] / counts[used]
    between = float((counts[used] * (means - scores.mean()) ** 2).sum() / len(scores))
    return between / total


def beside(space: Space, schedule: Schedule, trials: Sequence[Trial]) -> tuple[Difference, ...]:
    """Measured schedules that differ in the fewest decisions, the fastest first, failures last.

    Of several trials of one schedule the last counts.
    """
    row = space.encode(schedule)
    others = list({trial[0].key: trial for trial in trials if trial[0] != schedule}.values())
    if not others:
        return ()
    rows: Matrix = np.array([space.encode(other) for other, _ in others], dtype=np.int16)
    distances = (rows != row).sum(axis=1)
    nearest = [others[number] for number in np.flatnonzero(distances == distances.min())]
    found = [Difference(_changes(space, schedule, other), outcome) for other, outcome in nearest]
    return tuple(sorted(found, key=lambda difference: _time(difference.outcome)))


def _changes(
    space: Space, schedule: Schedule, other: Schedule
) -> tuple[tuple[str, Value, Value], ...]:
    pairs = ((d.name, _said(d, schedule), _said(d, other)) for d in space.decisions)
    return tuple((name, one, two) for name, one, two in pairs if one != two)


def _said(decision: Decision, schedule: Schedule) -> Value:
    """The value of a decision, or a dash where it is not in force."""
    value = schedule.get(decision.name, decision.unsaid)
    return "-" if value is None else value


def _time(outcome: OutcomeLike) -> float:
    right = outcome.status == "ok" and outcome.seconds is not None
    return float(outcome.seconds or 0.0) if right else float("inf")
