"""Which point of a family is worth more trials: where much may be won, and trials still win.

Knows times alone. Trials go where the best time is farthest from what the program takes at least,
beside the point where it is nearest, and half as often where the last of them won nothing, as the
task scheduler of Ansor (Zheng et al., OSDI 2020) weighs how far a task may come against how far it
has come of late. No member is taken to be faster than the fastest known one: what little work there
is takes as long as a kernel does to begin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from explorer.shapes.family import Point

_WON = 0.01  # share of its time that a search has to win
_DECAY = 0.5  # of what is expected to be won, for every search that won nothing
_SOME = 0.1  # powers of e that may be won at the point that is nearest


class Effort:
    """What searches of points came to; `least` are the seconds that a member takes at least."""

    def __init__(self, least: Callable[[Point], float]) -> None:
        self._least = least
        self._best: dict[Point, float] = {}
        self._weights: dict[Point, float] = {}

    def note(self, point: Point, seconds: float) -> None:
        """The best of a point behind a search of it, as it compares with the one before."""
        before = self._best.get(point, math.inf)
        won = seconds < (1.0 - _WON) * before
        self._weights[point] = 1.0 if won else _DECAY * self._weights.get(point, 1.0)
        self._best[point] = min(seconds, before)

    def worth(self, point: Point) -> float:
        """What another search of a point that has a time may win, in powers of e."""
        nearest = min(map(self._over, self._best))
        return self._weights[point] * (self._over(point) - nearest + _SOME)

    def _over(self, point: Point) -> float:
        fastest = min(self._best.values())
        return math.log(self._best[point] / max(self._least(point), fastest))

    def most(self, points: Iterable[Point]) -> Point | None:
        """The point where most may be won of those that have a time."""
        known = [point for point in points if point in self._best]
        return max(known, key=self.worth, default=None)
