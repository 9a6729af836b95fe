"""When a search ends: budgets in trials and seconds, and their presets. Knows no search."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ir.errors import UsageError

EFFORTS: Mapping[str, tuple[int, float | None]] = {
    "quick": (64, 30.0),
    "standard": (256, None),
    "deep": (1024, None),
}
"""Budgets by name: candidates, and seconds of wall clock if those are bounded too."""
BATCH = 16


MOST = 10**9  # of trials: more is a slip of the keys


@dataclass(frozen=True, slots=True)
class Budget:
    """When a search ends: after `trials` candidates, or when `seconds` have passed.

    None of one is no limit by it; with both, the one that is spent first ends it.
    """

    trials: int | None
    seconds: float | None
    batch: int

    def __post_init__(self) -> None:
        for name in ("trials", "batch"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MOST:
                raise UsageError(f"{name}={value}: must be at least 1 and at most {MOST:,}")
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise UsageError(f"seconds={self.seconds}: must be above 0 and finite")
        if self.trials is None and self.seconds is None:
            raise UsageError("a budget needs trials or seconds")

    @classmethod
    def of(
        cls,
        effort: str = "standard",
        trials: int | None = None,
        seconds: float | None = None,
        batch: int = BATCH,
        jobs: int = 1,
    ) -> Budget:
        """What the numbers say; without any, the preset `effort` for each of `jobs`.

        Raises UsageError for an unknown name.
        """
        if effort not in EFFORTS:
            raise UsageError(f"no effort {effort!r}; there are {', '.join(EFFORTS)}")
        if trials is not None or seconds is not None:
            return cls(trials, seconds, batch)
        preset_trials, preset_seconds = EFFORTS[effort]
        return cls(
            preset_trials * jobs, None if preset_seconds is None else preset_seconds * jobs, batch
        )

    def over(self, trials: int, elapsed: float) -> bool:
        """Whether one of the limits is reached."""
        return self.trials_over(trials) or (self.seconds is not None and elapsed >= self.seconds)

    def trials_over(self, trials: int) -> bool:
        """Whether the limit in trials is reached."""
        return self.trials is not None and trials >= self.trials

    def next_batch(self, trials: int) -> int:
        """How many candidates the batch after `trials` has."""
        return self.batch if self.trials is None else min(self.batch, self.trials - trials)
