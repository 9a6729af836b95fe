"""Makes illegal rows legal by drawing again only the decisions that broken constraints read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ir.columns import Mask, Matrix
from ir.variation import Shape

WIDTH = 1024  # rows tried at once when few are left: several variants of each
ROUNDS = 400
RESTART = 25  # rounds after which a row that still fails is drawn anew
KEEP = 0.3  # share of the read decisions that a redraw leaves alone
NOISE = 0.2  # chance to accept a redraw that breaks more than before


def repair(
    rng: np.random.Generator,
    matrix: Matrix,
    shape: Shape,
    reads: Mask,
    violations: Callable[[Matrix], Mask],
    thrift: float = 0.0,
) -> Matrix:
    """Legal versions of the rows of `matrix`; a row for which none was found stays illegal.

    Of many rows, those left are given up when a round mends less than a share `thrift` of them.
    """
    result, read = matrix.copy(), reads.astype(np.float32)
    broken = violations(result)
    active = np.flatnonzero(broken.any(axis=1))
    for count in range(1, ROUNDS + 1):
        if not active.size:
            break
        fan = max(1, WIDTH // active.size)
        rows = np.repeat(active, fan)
        if count % RESTART == 0:
            trial = shape.draw(rng, rows.size)
        else:
            touched = (broken[active].astype(np.float32) @ read) > 0
            trial = _redraw(rng, result[rows], np.repeat(touched, fan, axis=0), shape)
        faults = violations(trial)
        totals = faults.sum(axis=1).reshape(-1, fan)
        best = totals.argmin(axis=1) + np.arange(active.size) * fan
        better = totals.min(axis=1) <= broken[active].sum(axis=1)
        taken = better | (rng.random(active.size) < NOISE) | (count % RESTART == 0)
        result[active[taken]] = trial[best[taken]]
        broken[active[taken]] = faults[best[taken]]
        before = active.size
        active = active[broken[active].any(axis=1)]
        if before > WIDTH and before - active.size < thrift * before:
            break
    return result


def _redraw(rng: np.random.Generator, rows: Matrix, touched: Mask, shape: Shape) -> Matrix:
    """Fresh values for most of what the broken constraints of each row read, the `touched`."""
    touched &= rng.random(touched.shape, dtype=np.float32) >= KEEP
    return shape.settle(np.where(touched, shape.uniform(rng, len(rows)), rows))
