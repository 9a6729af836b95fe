"""How far the times of a search can be trusted: their spread, and what else the machine did.

Summaries of outcomes that were measured; nothing is measured here.
"""

from __future__ import annotations

import statistics
from array import array
from dataclasses import dataclass, field

from explorer.outcome import Outcome

LOAD = "foreign_load"  # the note of the share of the processors that other programs had
CROWDED = "crowded"  # the note that this left fewer processors than the kernel has threads
_ENOUGH = 3  # samples from which quartiles say something


@dataclass(slots=True)
class Disturbance:
    """Collects outcomes as they come."""

    _spreads: array[float] = field(default_factory=lambda: array("d"))
    _loads: array[float] = field(default_factory=lambda: array("d"))
    _crowding: array[float] = field(default_factory=lambda: array("d"))

    def note(self, outcome: Outcome) -> None:
        if outcome.seconds and outcome.quartiles and outcome.repeats >= _ENOUGH:
            low, high = outcome.quartiles
            self._spreads.append((high - low) / outcome.seconds)
        load, crowd = foreign_load(outcome), crowding(outcome)
        if load is not None and crowd is not None:
            self._loads.append(load)
            self._crowding.append(crowd)

    @property
    def noise(self) -> float | None:
        """The usual distance of the quartiles, as a share of the time."""
        return statistics.median(self._spreads) if self._spreads else None

    @property
    def foreign_load(self) -> float | None:
        """The usual share of the processors that other programs had."""
        return statistics.median(self._loads) if self._loads else None

    @property
    def crowding(self) -> float | None:
        """As `foreign_load`, but trials that had enough processors all the same count as 0."""
        return statistics.median(self._crowding) if self._crowding else None


def foreign_load(outcome: Outcome) -> float | None:
    """The share of the processors that other programs had while a candidate was measured."""
    load = dict(outcome.notes).get(LOAD)
    return float(load) if isinstance(load, int | float) else None


def crowding(outcome: Outcome) -> float | None:
    """The foreign load if it put the time in doubt, 0 if it did not, None if it is not known."""
    load = foreign_load(outcome)
    return load if load is None or dict(outcome.notes).get(CROWDED) else 0.0


def warning(crowding: float | None) -> str | None:
    """One line if other programs had so much that times are in doubt."""
    if not crowding:
        return None
    return (
        f"other programs use {100 * crowding:.0f} % of the processors while kernels are timed: "
        "times are in doubt, tune on a quiet machine"
    )
