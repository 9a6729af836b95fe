"""Makes illegal rows legal by drawing again only the decisions that broken constraints read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ir.columns import Mask, Matrix
from ir.gathered import Rows
from ir.parts import Numbers, Part
from ir.variation import Shape

WIDTH = 1024  # rows tried at once when few are left: several variants of each
ROUNDS = 400
RESTART = 25  # rounds after which a row that still fails is drawn anew
KEEP = (0.3, 0.95)  # shares of the read decisions that a redraw leaves alone: some few, some most
NOISE = 0.2  # chance to accept a redraw that breaks more than before
FEW = 64  # rows that are worth many rounds, if any of them can be made legal

Violations = Callable[[Rows, Numbers], Mask]


def repair(
    rng: np.random.Generator,
    matrix: Matrix,
    part: Part,
    shape: Shape,
    reads: Mask,
    violations: Violations,
    *,
    thrift: float = 0.0,
    rounds: int = ROUNDS,
    enough: int | None = None,
) -> Matrix:
    """Versions of the rows of `matrix` that are legal in a part; a row for which none was found
    stays illegal.

    Of more than a few rows, those left are given up when a round mends less than a share `thrift`
    of them; of any, when as many as are `enough` became legal.
    """
    left = 0 if enough is None else max(0, len(matrix) - enough)
    result = matrix.copy()
    own = reads[np.ix_(part.rules, part.columns)]
    ruled = shape.in_force(result)[:, part.columns]  # for good: no part redraws what governs
    broken = violations(Rows(result), part.rules)
    active = np.flatnonzero(broken.any(axis=1))
    for count in range(1, rounds + 1):
        if active.size <= left:
            break
        fan = max(1, WIDTH // active.size)
        rows = np.repeat(active, fan)
        touched = np.ones((rows.size, part.columns.size), np.bool_)
        if count % RESTART:
            touched = _touched(rng, broken[rows], own)
        fresh = shape.uniform(rng, len(rows), part.columns)
        trial = np.where(touched & ruled[rows], fresh, result[np.ix_(rows, part.columns)])
        faults = violations(Rows(result, rows, part.columns, trial), part.rules)
        totals = faults.sum(axis=1).reshape(-1, fan)
        best = totals.argmin(axis=1) + np.arange(active.size) * fan
        better = totals.min(axis=1) <= broken[active].sum(axis=1)
        taken = better | (rng.random(active.size) < NOISE) | (count % RESTART == 0)
        result[np.ix_(active[taken], part.columns)] = trial[best[taken]]
        broken[active[taken]] = faults[best[taken]]
        before = active.size
        active = active[broken[active].any(axis=1)]
        if before > FEW and before - active.size < thrift * before:
            break
    return result


def _touched(rng: np.random.Generator, broken: Mask, reads: Mask) -> Mask:
    """Of each row a share of what its broken constraints read."""
    touched: Mask = (broken.astype(np.float32) @ reads.astype(np.float32)) > 0
    kept = rng.uniform(*KEEP, size=(len(touched), 1)).astype(np.float32)
    return touched & (rng.random(touched.shape, dtype=np.float32) >= kept)
