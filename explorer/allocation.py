"""Which of several jobs measures the next batch: the one that is expected to gain most by it.

The gradient scheme of Ansor (Zheng et al., OSDI 2020, section 6), without its term for similar
tasks. With g the best time so far, t the trials spent and w the weight of a job, the gain of one
more trial is taken to be

    w * (ALPHA * (g before the last WINDOW turns - g) / (trials of those) + (1 - ALPHA) * g / t)

The first part is what was gained lately, the second one what an optimist hopes for: that t more
trials will bring the time down to nothing. Each job has one turn first. The objective "total" is
that very sum, seconds saved by a program that calls each kernel `weight` times. "ratio" divides a
job's gain by g, so that every workload's relative gain counts alike, however short it runs.
Pure arithmetic: it knows no search and no clock, so a resumed run decides as it did before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

ALPHA = 0.2
WINDOW = 3
PATIENCE = 4  # turns without anything valid after which a job waits for all others


@dataclass(slots=True)
class Course:
    """How one job has fared: trials and best seconds after each of its turns."""

    weight: float = 1.0
    turns: list[tuple[int, float]] = field(default_factory=list)
    exhausted: bool = False

    def note(self, trials: int, best: float | None) -> None:
        """After a turn: trials so far, and the best time, None if nothing is valid yet."""
        self.turns.append((trials, math.inf if best is None else best))

    def gain(self, ratio: bool) -> float:
        """Seconds (or, if `ratio`, the share of them) that one more trial is expected to save."""
        if not self.turns:
            return math.inf
        trials, best = self.turns[-1]
        if math.isinf(best):
            return math.inf if len(self.turns) < PATIENCE else 0.0
        hope = best / max(1, trials)
        gain = ALPHA * self._recent(trials, best) + (1 - ALPHA) * hope
        return self.weight * gain / (best if ratio else 1.0)

    def _recent(self, trials: int, best: float) -> float:
        """Seconds saved by each trial of the last turns; nothing where there was no time before."""
        earlier_trials, earlier = self.turns[max(0, len(self.turns) - 1 - WINDOW)]
        if math.isinf(earlier) or trials == earlier_trials:
            return 0.0
        return (earlier - best) / (trials - earlier_trials)


def next_turn(courses: Sequence[Course], objective: str) -> int | None:
    """The number of the job whose turn it is; the first of equals; None if all are exhausted."""
    open_jobs = [number for number, course in enumerate(courses) if not course.exhausted]
    if not open_jobs:
        return None
    return max(open_jobs, key=lambda number: courses[number].gain(objective == "ratio"))
