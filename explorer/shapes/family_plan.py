"""What a search of a family is to do: its budget, its points and how many trials each has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from explorer.shapes.family import Family
from ir.errors import UsageError

LEAST_TRIALS = 16
_SEARCHES = 0.8  # share of the trials that decides how many points the grid has
_FIRST_SEARCHES = 0.65  # share for the first search of each
_A_SEARCH = 22  # trials of a point, and more where there are many or few points
LEAST_SEARCH = 8
AGAIN = 0.9  # of the trials, when searches end
FIRST = 2  # searches from nothing, which have as many times the trials of others
_POINTS = 20  # of the grid, and fewer where there are few trials
_LEAST_POINTS = 4


@dataclass(frozen=True, slots=True)
class FamilyPlan:
    """What is to be searched, within how many trials, or seconds of wall clock if given."""

    family: Family
    trials: int
    seconds: float | None = None
    strategy: str = "evolutionary"
    seed: int = 0
    pins: Mapping[str, object] = field(default_factory=dict)
    model: str | Path | None = None

    def __post_init__(self) -> None:
        if self.trials < LEAST_TRIALS:
            raise UsageError(
                f"trials={self.trials}: a range takes {LEAST_TRIALS} at least, for all of its "
                "extents together"
            )
        if self.family.count < 2:
            raise UsageError(f"{self.family.title}: one workload alone; name its extent")
        for point in (self.family.lowest, tuple(e.high for _, e in self.family.varying)):
            workload = self.family.workload(point)
            workload.refuse_unmeasurable()
            workload.space(self.pins)

    @property
    def points(self) -> int:
        """Of the grid: those that are searched."""
        searching = _SEARCHES * self.trials
        most = max(int(searching / _A_SEARCH), min(_LEAST_POINTS, int(searching / LEAST_SEARCH)))
        return max(2, min(_POINTS, most))

    @property
    def each(self) -> int:
        """Trials of a search that begins with what others found."""
        share = int(_FIRST_SEARCHES * self.trials / (self.points + FIRST))
        return max(LEAST_SEARCH, share)

    @property
    def first(self) -> int:
        """Trials of a search that begins with nothing; fewer where there are few for all."""
        return min(FIRST * self.each, int(AGAIN * self.trials) // FIRST)
