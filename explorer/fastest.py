"""The fastest schedule of each kernel that a search knows. Knows outcomes; no measuring."""

from __future__ import annotations

from explorer.outcome import Outcome
from ir.schedule import Schedule

MOST_GOOD = 512  # of the fastest schedules at least so many are kept in memory


class Fastest:
    """Right schedules with their seconds, one for each kernel."""

    def __init__(self) -> None:
        self.seconds: float | None = None  # of the fastest
        self._found: dict[str, tuple[float, Schedule]] = {}

    def ranked(self) -> list[tuple[float, Schedule]]:
        """All of them, the fastest first."""
        return sorted(self._found.values(), key=lambda pair: pair[0])

    def of_kernel(self, key: str, otherwise: Schedule) -> Schedule:
        """The schedule of a kernel, or another one where that is not known."""
        return self._found.get(key, (0.0, otherwise))[1]

    def note(self, schedule: Schedule, outcome: Outcome) -> None:
        """Keep a schedule if it was right, and sooner than its kernel was before."""
        if not outcome.ok or outcome.seconds is None:
            return
        self.seconds = min(outcome.seconds, self.seconds or outcome.seconds)
        key = outcome.kernel_key or schedule.key
        if key in self._found and outcome.seconds >= self._found[key][0]:
            return
        self._found[key] = (outcome.seconds, schedule)
        if len(self._found) >= 2 * MOST_GOOD:
            fastest = sorted(self._found.items(), key=lambda item: item[1][0])
            self._found = dict(fastest[:MOST_GOOD])
