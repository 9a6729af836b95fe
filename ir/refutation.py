"""Shows that a space has no legal row, where a search for one would only give up in the end.

Tries all values of what a few constraints read, the most selective first: each one sees only what
those before it left. Knows spaces by what they offer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ir.columns import Mask, Matrix
from ir.parts import Numbers

if TYPE_CHECKING:
    from ir.space import Space

TRIED = 1 << 20  # combinations that one constraint may have to look at
PROBES = 2_048  # draws that tell how selective a constraint is


def refuted(space: Space) -> bool:
    """Whether nothing that some constraints read satisfies all of them; False where that takes too
    many trials, or decisions come into force by others."""
    if space.shape.governing:
        return False
    shares = _shares(space)
    matrix = space.shape.fix(np.zeros((1, len(space.decisions)), np.int16))
    known = np.zeros(len(space.decisions), np.bool_)  # columns of which `matrix` has every value
    rules = list(range(len(space.constraints)))
    while (rule := _next(space, rules, shares, known, len(matrix))) is not None:
        rules.remove(rule)
        matrix = _extended(space, matrix, space.reads[rule] & ~known)
        matrix = matrix[space.legal(matrix, np.array([rule]))]
        if not len(matrix):
            return True
        known = (known | space.reads[rule]) & space.reads[rules].any(axis=0)
        matrix = _distinct(space, matrix, known)
    return False


def _shares(space: Space) -> list[float]:
    """Of what is drawn, the share that each constraint leaves."""
    probe = space.shape.draw(np.random.default_rng(0), PROBES)
    return list(1 - space.violations(probe).mean(axis=0))


def _next(
    space: Space, rules: list[int], shares: list[float], known: Mask, rows: int
) -> int | None:
    """The rule that leaves least of those that have not too much to look at; first those that read
    nothing new."""
    new = {rule: space.reads[rule] & ~known for rule in rules}
    sizes = {rule: space.shape.sizes[new[rule]].prod(dtype=np.float64) for rule in rules}
    few = [rule for rule in rules if rows * sizes[rule] <= TRIED]
    return min(few, key=lambda rule: shares[rule] if new[rule].any() else -1, default=None)


def _extended(space: Space, matrix: Matrix, columns: Mask) -> Matrix:
    """Each row with all values of these columns."""
    for column in np.flatnonzero(columns):
        count = int(space.shape.sizes[column])
        values = np.tile(np.arange(count, dtype=np.int16), len(matrix))
        matrix = np.repeat(matrix, count, axis=0)
        matrix[:, column] = values
    return matrix


def _distinct(space: Space, matrix: Matrix, columns: Mask) -> Matrix:
    """One row for each combination of these columns; what the others hold no longer matters."""
    kept: Numbers = np.flatnonzero(columns)
    sizes = space.shape.sizes[kept]
    if sizes.prod(dtype=np.float64) >= 2**62:
        return matrix
    keys = np.zeros(len(matrix), np.int64)
    for column, size in zip(kept, sizes, strict=True):
        keys = keys * size + matrix[:, column]
    return matrix[np.unique(keys, return_index=True)[1]]
