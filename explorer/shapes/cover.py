"""Few schedules for many points: which to keep, which one a point has, and where to look next.

Numbers alone; knows neither schedules nor how times were measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from explorer.shapes.family import Point, distance

Times = NDArray[np.float64]  # seconds by point and schedule, NaN where nothing was measured
_MOST = 1.0  # loss beyond which a schedule is no worse: another one will do there
_DOUBT = 0.15  # relative loss, for every unit of distance, that nothing measured excludes


def losses_of(times: Times) -> Times:
    """Relative losses beside the best of each point; infinite where nothing was measured."""
    losses: Times = times / np.nanmin(times, axis=1, keepdims=True) - 1.0
    losses[np.isnan(losses)] = np.inf
    return losses


def covering(losses: Times, tolerance: float) -> tuple[int, ...]:
    """Schedules, chosen greedily, of which one is within `tolerance` of the best at every point.

    Each next one is that which lowers the mean loss most; those that lower it nowhere are left out.
    """
    chosen: list[int] = []
    now = np.full(len(losses), np.inf)
    while len(chosen) < losses.shape[1] and now.max(initial=0.0) > tolerance:
        after = np.minimum(np.minimum(now[:, None], losses), _MOST)
        after[after <= tolerance] = 0.0  # good enough is as good as the best
        best = int(after.sum(axis=0).argmin())
        if best in chosen:
            break
        chosen.append(best)
        now = np.minimum(now, losses[:, best])
    return tuple(chosen)


def owners(losses: Times, chosen: Sequence[int], noise: float) -> list[int]:
    """Which of the chosen schedules each point has: of those within noise the most chosen one.

    Never one that was not measured there, unless none of them was.
    """
    kept = losses[:, list(chosen)]
    close = kept <= kept.min(axis=1, keepdims=True) + noise
    liked = close.sum(axis=0)
    return [chosen[int(np.where(row, liked, -1).argmax())] for row in close]


def next_point(
    points: Sequence[Point],
    searched: Sequence[Point],
    rates: Sequence[float],
    apart: Callable[[Point, Point], float] = distance,
) -> Point | None:
    """The point whose regret is expected to be largest; None if all were searched.

    `rates` tell of each searched point the loss of a schedule that came from elsewhere, for every
    unit of the distance `apart` between the two; away from all of them losses are taken to grow
    as at the nearest.
    """
    left = [point for point in points if point not in searched]
    if not left:
        return None

    def expected(point: Point) -> float:
        away = [apart(point, other) for other in searched]
        near = sorted(range(len(away)), key=away.__getitem__)[:2]
        return min(away) * (_DOUBT + sum(rates[n] for n in near) / len(near))

    return max(left, key=expected)
