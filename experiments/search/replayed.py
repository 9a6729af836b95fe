"""A recorded space as arrays, and how good what a search measured in it was."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from spaces import Case  # noqa: E402

from explorer.outcome import Outcome  # noqa: E402
from explorer.replay import Recording  # noqa: E402
from ir.columns import Decision  # noqa: E402
from ir.schedule import Schedule, Value  # noqa: E402
from ir.space import Space  # noqa: E402

Times = NDArray[np.float64]
BUDGET = 200
MARKS = (25, 50, 100, 200)


@dataclass(frozen=True)
class Replayed:
    """An exhaustively measured space. Failures take for ever."""

    case: Case
    recording: Recording

    @classmethod
    def load(cls, case: Case) -> Replayed:
        return cls(case, Recording.load(case.workload, case.path))

    @cached_property
    def space(self) -> Space:
        """What was recorded of the space: domains may have more values since."""
        whole = self.recording.space()
        recorded = {name: set[Value]() for name in whole.names}
        for schedule in self.recording.outcomes:
            for name, value in schedule.values:
                recorded.setdefault(name, set()).add(value)
        free = [one for one in whole.decisions if one.name not in whole.pinned]
        narrow = {one.name: _narrowed(one, recorded[one.name]) for one in free}
        seeds = tuple(seed for seed in whole.seeds if _within(seed, narrow))
        decisions = tuple(narrow.get(one.name, one) for one in whole.decisions)
        return replace(whole, decisions=decisions, seeds=seeds)

    @cached_property
    def bare(self) -> Space:
        """The space without the backend's own seeds, and without what it knows of schedules that
        come down to one kernel: the peers have neither."""
        plain = tuple(replace(decision, initial=None) for decision in self.space.decisions)
        return replace(self.space, decisions=plain, seeds=(), meaning=None)

    @cached_property
    def seconds(self) -> dict[Schedule, float]:
        return {
            schedule: outcome.seconds if outcome.ok and outcome.seconds else float("inf")
            for schedule, outcome in self.recording.outcomes.items()
        }

    @cached_property
    def optimum(self) -> float:
        return min(self.seconds.values())

    def outcome(self, schedule: Schedule, kernels: bool) -> Outcome:
        """What the device said; without `kernels`, every schedule is a kernel of its own."""
        found = self.recording.outcomes[schedule]
        return found if kernels else replace(found, kernel_key="")

    def course(self, times: Times) -> Times:
        """Fraction of the optimum reached after 1, 2, ... `BUDGET` evaluations.

        A search that ended early has found what it found.
        """
        told = np.full(BUDGET, np.inf)
        told[: min(len(times), BUDGET)] = times[:BUDGET]
        return np.asarray(self.optimum / np.minimum.accumulate(told))


def _narrowed(decision: Decision, values: Set[Value]) -> Decision:
    """The decision with only these of its values, as far as it is in the schedules at all."""
    domain = tuple(value for value in decision.domain if value in values)
    if not domain:
        return decision
    initial, unsaid = (
        value if value in domain else None for value in (decision.initial, decision.unsaid)
    )
    return replace(decision, domain=domain, initial=initial, unsaid=unsaid)


def _within(seed: Mapping[str, Value], decisions: Mapping[str, Decision]) -> bool:
    """Whether the values of a seed are in the domains of these decisions."""
    named = ((decisions.get(name), value) for name, value in seed.items())
    return all(decision is None or value in decision.domain for decision, value in named)
