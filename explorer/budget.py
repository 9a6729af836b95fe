"""When a search ends: budgets in trials and seconds, and their presets. Knows no search."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Budget:
    """When a search ends: after `trials` candidates, or when `seconds` have passed."""

    trials: int
    seconds: float | None
    batch: int

    def __post_init__(self) -> None:
        for name in ("trials", "batch"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}={getattr(self, name)}: must be at least 1")
        if self.seconds is not None and not self.seconds > 0:
            raise UsageError(f"seconds={self.seconds}: must be above 0")

    @classmethod
    def of(
        cls,
        effort: str = "standard",
        trials: int | None = None,
        seconds: float | None = None,
        batch: int = BATCH,
        jobs: int = 1,
    ) -> Budget:
        """The preset `effort` for each of `jobs`, where no numbers are given.

        Raises UsageError for another name.
        """
        if effort not in EFFORTS:
            raise UsageError(f"no effort {effort!r}; there are {', '.join(EFFORTS)}")
        preset_trials, preset_seconds = EFFORTS[effort]
        if seconds is None and trials is None and preset_seconds is not None:
            seconds = preset_seconds * jobs
        return cls(preset_trials * jobs if trials is None else trials, seconds, batch)

    def over(self, trials: int, elapsed: float) -> bool:
        return trials >= self.trials or (self.seconds is not None and elapsed >= self.seconds)
