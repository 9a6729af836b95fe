"""How far the times of a search can be trusted: their spread, and what else the machine did.

Summaries of outcomes that were measured; nothing is measured here.
"""

from __future__ import annotations

import statistics
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from explorer.outcome import CROWDED, LOAD, PROCESSORS, Note, Outcome

CROWDED_WEIGHT = 0.2  # weight in training of a time that was taken beside other programs
_ENOUGH = 3  # samples from which quartiles say something
_MOST = 0.95  # of the processors: a kernel that ran at all had a part of them


class HasNotes(Protocol):
    """What is known beside a time."""

    @property
    def notes(self) -> tuple[Note, ...]: ...


Noted = TypeVar("Noted", bound=HasNotes)


@dataclass(frozen=True, slots=True)
class Crowd:
    """Other programs had this `share` of the processors, too much for a time to be believed."""

    share: float
    processors: int | None = None

    @property
    def noise(self) -> float:
        """How much longer a kernel may take on what was left, as a share of its time."""
        share = min(self.share, _MOST)
        return share / (1.0 - share)

    @property
    def words(self) -> str:
        """For people."""
        if self.processors is None:
            return f"other programs had {100 * self.share:.0f} % of the processors"
        busy = self.share * self.processors
        return f"other programs kept {busy:.1f} of {self.processors} processors busy"

    @property
    def notes(self) -> tuple[Note, ...]:
        """As notes of an outcome; `crowd_of` is the inverse."""
        count: tuple[Note, ...] = ((PROCESSORS, self.processors),) if self.processors else ()
        return ((LOAD, self.share), (CROWDED, True), *count)


def crowd_of(outcome: HasNotes) -> Crowd | None:
    """Who kept the processors busy while a candidate was measured, if that puts it in doubt."""
    notes = dict(outcome.notes)
    if not notes.get(CROWDED):
        return None
    share, count = notes.get(LOAD), notes.get(PROCESSORS)
    return Crowd(
        float(share) if isinstance(share, int | float) else 1.0,
        int(count) if isinstance(count, int) else None,
    )


def worst(outcomes: Iterable[HasNotes]) -> Crowd | None:
    """The largest crowd beside any of these."""
    crowds = (crowd_of(outcome) for outcome in outcomes)
    return max((c for c in crowds if c is not None), key=lambda c: c.share, default=None)


def quiet(outcomes: Sequence[Noted]) -> Sequence[Noted]:
    """Those whose times are not in doubt, or all where there is none."""
    return [outcome for outcome in outcomes if crowd_of(outcome) is None] or outcomes


def trust(outcome: HasNotes) -> float:
    """The weight of an outcome in training."""
    return 1.0 if crowd_of(outcome) is None else CROWDED_WEIGHT


@dataclass(slots=True)
class Disturbance:
    """Collects outcomes as they come."""

    _spreads: array[float] = field(default_factory=lambda: array("d"))
    _loads: array[float] = field(default_factory=lambda: array("d"))
    _crowding: array[float] = field(default_factory=lambda: array("d"))
    _processors: int | None = None

    def note(self, outcome: Outcome) -> None:
        if outcome.seconds and outcome.quartiles and outcome.repeats >= _ENOUGH:
            low, high = outcome.quartiles
            self._spreads.append((high - low) / outcome.seconds)
        load, crowd = foreign_load(outcome), crowd_of(outcome)
        if load is not None:
            self._loads.append(load)
            self._crowding.append(0.0 if crowd is None else load)
        if crowd is not None:
            self._processors = crowd.processors

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

    @property
    def crowded(self) -> int:
        """How many of the outcomes are in doubt."""
        return sum(share > 0.0 for share in self._crowding)

    @property
    def crowd(self) -> Crowd | None:
        """The usual crowd; None if the usual outcome had none."""
        usual = self.crowding
        return Crowd(usual, self._processors) if usual else None


def foreign_load(outcome: Outcome) -> float | None:
    """The share of the processors that other programs had while a candidate was measured."""
    load = dict(outcome.notes).get(LOAD)
    return float(load) if isinstance(load, int | float) else None


def crowding(outcome: Outcome) -> float | None:
    """The foreign load if it put the time in doubt, 0 if it did not, None if it is not known."""
    load = foreign_load(outcome)
    return load if load is None or crowd_of(outcome) is not None else 0.0


def warning(crowding: float | None) -> str | None:
    """One line if other programs had so much that times are in doubt."""
    if not crowding:
        return None
    return (
        f"other programs use {100 * crowding:.0f} % of the processors while kernels are timed: "
        "times are in doubt, tune on a quiet machine"
    )
