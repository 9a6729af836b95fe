"""Few schedules for many points: which to keep, whose each point is, and where to look next.

Numbers alone; knows neither schedules nor how times were measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from explorer.shapes.family import Point, distance

Times = NDArray[np.float64]  # seconds by point and schedule, NaN where nothing was measured
_REACH = math.log(2.0)  # within a factor of two points tell of each other
_MOST = 1.0  # loss beyond which a schedule is no worse: another one will do there
_DOUBT = 0.05  # relative loss, for every factor of e in an extent, that nothing measured excludes


def filled(points: Sequence[Point], times: Times) -> Times:
    """Relative losses beside the best of each point; where none was measured as near ones have it.

    What is not measured is taken to be worse by how far the nearest measured point lies away.
    """
    losses: Times = times / np.nanmin(times, axis=1, keepdims=True) - 1.0
    whole = losses.copy()
    for place, point in enumerate(points):
        for column in np.flatnonzero(np.isnan(losses[place])):
            there = [n for n, loss in enumerate(losses[:, column]) if not np.isnan(loss)]
            if not there:
                whole[place, column] = np.inf
                continue
            away = np.array([distance(point, points[other]) for other in there])
            weights = 1.0 / (away + 1e-9)
            usual = float((weights * losses[there, column]).sum() / weights.sum())
            whole[place, column] = usual + _DOUBT * float(away.min())
    return whole


def smoothed(points: Sequence[Point], losses: Times) -> Times:
    """Losses as members around each point are likely to have them: means over near points.

    A single extent may suit a schedule by chance, or have been measured by bad luck.
    """
    away = np.array([[distance(one, other) for other in points] for one in points])
    weights = np.exp(-((away / _REACH) ** 2))
    means: Times = weights @ np.minimum(losses, _MOST) / weights.sum(axis=1, keepdims=True)
    near: Times = means - means.min(axis=1, keepdims=True)
    return near


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


def owners(losses: Times, chosen: Sequence[int], tolerance: float) -> list[int]:
    """Which of the chosen schedules each point has: of those within noise the most chosen one."""
    kept = losses[:, list(chosen)]
    close = kept <= kept.min(axis=1, keepdims=True) + tolerance / 4
    liked = close.sum(axis=0)
    return [chosen[int(np.where(row, liked, -1).argmax())] for row in close]


def next_point(
    points: Sequence[Point], searched: Sequence[Point], rates: Sequence[float]
) -> Point | None:
    """The point whose regret is expected to be largest; None if all were searched.

    `rates` tell of each searched point the loss of a schedule that came from elsewhere, for every
    factor of e between the two; away from all of them losses are taken to grow as at the nearest.
    """
    left = [point for point in points if point not in searched]
    if not left:
        return None

    def expected(point: Point) -> float:
        away = [distance(point, other) for other in searched]
        near = sorted(range(len(away)), key=away.__getitem__)[:2]
        return min(away) * (_DOUBT + sum(rates[n] for n in near) / len(near))

    return max(left, key=expected)
