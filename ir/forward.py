"""Forward substitution: systems of equations whose matrix is triangular, column by column."""

from __future__ import annotations

from ir.axes import Axis
from ir.builder import where
from ir.folding import recur
from ir.tiles import Tile


def solved(lower: Tile, right: Tile, axes: tuple[Axis, ...], j: Axis, step: Axis) -> Tile:
    """X of (I + L) X = R for `lower`, L[i, j], whose elements at and above the diagonal count as 0.

    `axes` are those of R and X, i the last but one. Once row `step` of X is known, what it
    contributes is taken off the rows below (Golub and Van Loan, Matrix Computations, 2013, 3.1).
    """
    i = axes[-2]
    x = lower.graph.state(step, axes, right, lower.dtype)
    below = where(lower.graph.iota(i) > step, lower.at({j: step}), 0.0)
    return recur(x, x - below * x.at({i: step}))
