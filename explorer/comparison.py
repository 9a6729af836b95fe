"""Which of two results is faster, and whether the gap is more than their joint noise.

Half the interval of a median is 1.57 quartile distances over the root of the number of turns; two
medians whose intervals do not meet differ with 95 % confidence (McGill, Tukey and Larsen, American
Statistician 32, 1978). The joint noise is the sum of both halves. Where other programs kept the
processors busy, times are what was left to each: turns may agree well and be wrong all the same, so
that there is no verdict beside a library, and only a gap wider than the crowd unseats a kernel.
Values only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from explorer.disturbance import Crowd, worst
from explorer.outcome import TURNS, Outcome
from ir.schedule import Schedule

if TYPE_CHECKING:
    from explorer.baseline import Baseline

NOTCH = 1.57
FLOOR = 0.001  # of the time: so few turns never show less noise than a clock has
CHOSEN, INCUMBENT = "chosen", "incumbent"  # notes of finalists: the winner, the best before it
BEFORE = "the best before"  # what the incumbent is called
_MOST_TURNS = 5  # that samples without a note of their turns count for

Finalist = tuple[Schedule, Outcome]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A result beside `name`, which took `seconds`: above 1 in `measured`, the result is faster.

    `noise` is the joint noise of both as a share of the time; None if they were not measured in
    turns, so that it is not known. A `crowd` beside one of them makes them not comparable.
    """

    name: str
    seconds: float
    measured: float
    noise: float | None = None
    crowd: Crowd | None = None

    @property
    def ratio(self) -> float | None:
        """How many times as fast the result is; None where that cannot be told."""
        return None if self.crowd is not None else self.measured

    @property
    def within_noise(self) -> bool:
        """Whether the gap is known to be no larger than the noise."""
        noise = self._noise
        return noise is not None and abs(math.log(self.measured)) <= math.log1p(noise)

    @property
    def _noise(self) -> float | None:
        """The joint noise, and how much longer a kernel beside the crowd may take."""
        if self.crowd is None:
            return self.noise
        return (self.noise or 0.0) + self.crowd.noise

    @property
    def words(self) -> str:
        """For people, in a few words."""
        if self.crowd is not None:
            return f"not comparable with {self.name}: {self.crowd.words}"
        if self.noise is None:
            return f"{self.measured:.2f}x {self.name}, not measured in turns"
        noise = f"joint noise {100 * self.noise:.1f} %"
        if self.within_noise:
            return f"{self.measured:.3f}x {self.name}: within noise, {noise}"
        return f"{self.measured:.2f}x {self.name}, {noise}"

    def to_facts(self) -> dict[str, Any]:
        """As a mapping that JSON can hold."""
        facts = asdict(self)
        del facts["measured"]
        return facts | {"ratio": self.ratio, "within_noise": self.within_noise}


def half_interval(outcome: Outcome) -> float:
    """Seconds to either side of the median within which the true one is."""
    seconds = outcome.seconds or 0.0
    low, high = outcome.quartiles or (seconds, seconds)
    turns = int(dict(outcome.notes).get(TURNS) or max(1, min(outcome.repeats, _MOST_TURNS)))
    return NOTCH * (high - low) / math.sqrt(turns)


def compare(name: str, ours: Outcome, other: Outcome) -> Comparison:
    """`ours` beside `other`, which people know as `name`; both have times."""
    assert ours.seconds
    assert other.seconds
    ratio, crowd = other.seconds / ours.seconds, worst((ours, other))
    if not all(dict(one.notes).get(TURNS) for one in (ours, other)):
        return Comparison(name, other.seconds, ratio, None, crowd)
    shares = (half_interval(one) / (one.seconds or 1.0) for one in (ours, other))
    return Comparison(name, other.seconds, ratio, sum(max(FLOOR, s) for s in shares), crowd)


@dataclass(frozen=True, slots=True)
class Settled:
    """What finals came to. `finalists` carry notes of their roles, for the records.

    `kept` says that the best of earlier searches stays; `beside_incumbent` is the fastest of the
    others beside it, `beside_baseline` the winner beside the library.
    """

    schedule: Schedule
    outcome: Outcome
    kept: bool
    finalists: tuple[Finalist, ...]
    beside_incumbent: Comparison | None = None
    beside_baseline: Comparison | None = None


def settle(
    finalists: Sequence[Finalist], incumbent: Schedule | None, baseline: Baseline | None
) -> Settled | None:
    """Choose the winner; None if no finalist was right.

    The fastest wins, unless the incumbent was within the joint noise of it, or as near as a crowd
    beside them may bring it.
    """
    right = [pair for pair in finalists if pair[1].ok and pair[1].seconds is not None]
    if not right:
        return None
    times = dict(right)
    chosen, outcome = min(right, key=_seconds)
    before = times.get(incumbent) if incumbent is not None else None
    if incumbent and before and compare(BEFORE, outcome, before).within_noise:
        chosen, outcome = incumbent, before
    return Settled(
        chosen,
        outcome,
        chosen == incumbent,
        tuple(
            (schedule, _noted(o, _roles(schedule, chosen, incumbent))) for schedule, o in finalists
        ),
        None if incumbent is None else _beside_incumbent(times, incumbent),
        beside_baseline(outcome, baseline),
    )


def beside_baseline(ours: Outcome, baseline: Baseline | None) -> Comparison | None:
    """A kernel beside the library; None where that has no time."""
    if baseline is None or baseline.outcome is None or baseline.seconds is None:
        return None
    return compare(baseline.library, ours, baseline.outcome)


def _beside_incumbent(times: Mapping[Schedule, Outcome], incumbent: Schedule) -> Comparison | None:
    others = [pair for pair in times.items() if pair[0] != incumbent]
    if incumbent not in times or not others:
        return None
    return compare(BEFORE, min(others, key=_seconds)[1], times[incumbent])


def _seconds(finalist: Finalist) -> float:
    return finalist[1].seconds or math.inf


def _roles(schedule: Schedule, chosen: Schedule, incumbent: Schedule | None) -> tuple[str, ...]:
    roles = ((CHOSEN, chosen), (INCUMBENT, incumbent))
    return tuple(role for role, who in roles if who == schedule)


def _noted(outcome: Outcome, roles: tuple[str, ...]) -> Outcome:
    return replace(outcome, notes=(*outcome.notes, *((role, True) for role in roles)))
