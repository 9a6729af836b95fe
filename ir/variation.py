"""Random draws, mutation and crossover over index matrices. Knows domains, not constraints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ir.columns import Decision, Mask, Matrix

STEP_SHARE = 0.6  # of the changes to an ordered decision, those that move to a near value
TRADE_SHARE = 0.15  # of the mutated rows, those that also move a partner the other way


@dataclass(frozen=True)
class Shape:
    """What variation needs of a space: domain sizes, order, who belongs with whom, and pins."""

    decisions: tuple[Decision, ...]
    pins: tuple[tuple[int, int], ...] = ()  # (column, index)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Domain sizes, 1 for what is pinned or, by a pin, never in force."""
        sizes = np.array([len(decision.domain) for decision in self.decisions], dtype=np.int64)
        pinned, never = dict(self.pins), set[int]()
        for column, parent, code in self.conditions:
            if parent in never or pinned.get(parent, code) != code:
                never.add(column)
        sizes[[*pinned, *never]] = 1
        return sizes

    @cached_property
    def conditions(self) -> tuple[tuple[int, int, int], ...]:
        """(column, column of the decision it depends on, code there) of conditional decisions."""
        places = {decision.name: column for column, decision in enumerate(self.decisions)}
        return tuple(
            (column, places[d.when[0]], self.decisions[places[d.when[0]]].index(d.when[1]))
            for column, d in enumerate(self.decisions)
            if d.when is not None
        )

    @cached_property
    def governing(self) -> tuple[int, ...]:
        """Columns of free decisions on which others depend."""
        parents = dict.fromkeys(parent for _, parent, _ in self.conditions)
        return tuple(column for column in parents if self.sizes[column] > 1)

    def in_force(self, matrix: Matrix) -> Mask:
        """Which decisions of each row are in force."""
        mask = np.ones(matrix.shape, dtype=np.bool_)
        for parent, code, columns in self.dependent:
            mask[:, columns] = (mask[:, parent] & (matrix[:, parent] == code))[:, None]
        return mask

    def settle(self, matrix: Matrix, varied: bool = False) -> Matrix:
        """Give decisions that are not in force their first value, in place.

        Rows `varied` from settled ones have it where no free decision governs.
        """
        if varied and not self.governing:
            return matrix
        ruled = np.ones(matrix.shape, dtype=np.bool_)
        for parent, code, columns in self.dependent:
            here = ruled[:, parent] & (matrix[:, parent] == code)
            ruled[:, columns] = here[:, None]
            idle = np.flatnonzero(~here)
            if idle.size:
                matrix[np.ix_(idle, columns)] = 0
        return matrix

    @cached_property
    def dependent(self) -> tuple[tuple[int, int, NDArray[np.intp]], ...]:
        """(parent, code there, columns of the decisions in force with it), parents first."""
        found: dict[tuple[int, int], list[int]] = {}
        for column, parent, code in self.conditions:
            found.setdefault((parent, code), []).append(column)
        return tuple((*key, np.array(columns, np.intp)) for key, columns in found.items())

    @cached_property
    def free(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.sizes > 1)

    @cached_property
    def ordered(self) -> Mask:
        return np.array([decision.ordered for decision in self.decisions], dtype=np.bool_)

    @cached_property
    def blocks(self) -> NDArray[np.int64]:
        """A number for each decision's owner: blocks that crossover may move as one."""
        return _numbered([decision.owner for decision in self.decisions])

    def partners(self, columns: NDArray[np.intp], others: NDArray[np.intp]) -> Mask:
        """For each of `columns`, free ones, which of the `others` are another ordered decision of
        its group, if it is ordered itself."""
        apt = self.ordered & (self.sizes > 1)
        same = self._groups[columns][:, None] == self._groups[others]
        return np.asarray(same & apt[columns][:, None] & apt[others] & (columns[:, None] != others))

    @cached_property
    def _groups(self) -> NDArray[np.int64]:
        return _numbered([decision.group for decision in self.decisions])

    def fix(self, matrix: Matrix) -> Matrix:
        """Write the pins into `matrix`."""
        for column, index in self.pins:
            matrix[:, column] = index
        return self.settle(matrix)

    def draw(self, rng: np.random.Generator, rows: int) -> Matrix:
        """Independent uniform draws; pins hold."""
        return self.fix(self.uniform(rng, rows))

    def uniform(
        self, rng: np.random.Generator, rows: int, columns: NDArray[np.intp] | None = None
    ) -> Matrix:
        """Uniform draws of every column, in force or not; or of these, none of which is pinned."""
        sizes = (self.sizes if columns is None else self.sizes[columns]).astype(np.float32)
        picks = (rng.random((rows, sizes.size), dtype=np.float32) * sizes).astype(np.int16)
        for column, index in self.pins if columns is None else ():
            picks[:, column] = index
        return picks


def _numbered(names: Sequence[str]) -> NDArray[np.int64]:
    order = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([order[name] for name in names], dtype=np.int64)


def mutate(
    shape: Shape,
    rng: np.random.Generator,
    matrix: Matrix,
    strength: float,
    weights: NDArray[np.float64] | None = None,
    among: NDArray[np.intp] | None = None,
) -> Matrix:
    """Change a geometric number of decisions (mean `strength`, at least one) in each row.

    Only decisions in force are chosen, `among` some; those that come into force by a change are
    drawn.
    """
    result = matrix.copy()
    free = shape.free if among is None else among
    if not free.size or not len(matrix):
        return result
    before = shape.in_force(matrix) if shape.governing else np.ones(matrix.shape, np.bool_)
    rows, columns = _chosen(free, rng, before[:, free], strength, weights)
    result[rows, columns] = _moved(shape, rng, matrix[rows, columns], columns)
    _trade(shape, rng, matrix, result, rows, columns, free)
    fresh = shape.in_force(result) & ~before if shape.governing else ~before
    if fresh.any():
        result = np.where(fresh, shape.uniform(rng, len(matrix)), result)
    return shape.settle(result, varied=True)


def _chosen(
    free: NDArray[np.intp],
    rng: np.random.Generator,
    apt: Mask,
    strength: float,
    weights: NDArray[np.float64] | None,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Cells to change: in each row the first few that happen, each at the rate of its weight.

    `apt` says which of the `free` decisions may be chosen.
    """
    rows = len(apt)
    counts = np.minimum(rng.geometric(1.0 / max(1.0, strength), size=rows), apt.sum(axis=1))
    times = rng.standard_exponential((rows, free.size), dtype=np.float32)
    if weights is not None:
        times /= np.maximum(weights[free], 1e-9).astype(np.float32)
    times[~apt] = np.inf
    most = int(counts.max())
    ranks = np.argpartition(times, min(most, free.size - 1), axis=1)[:, :most]
    ranked = np.argsort(np.take_along_axis(times, ranks, axis=1), axis=1)
    ranks = np.take_along_axis(ranks, ranked, axis=1)
    at_rows, at_ranks = np.nonzero(np.arange(most) < counts[:, None])
    return at_rows, free[ranks[at_rows, at_ranks]]


def _moved(
    shape: Shape, rng: np.random.Generator, current: Matrix, columns: NDArray[np.intp]
) -> Matrix:
    """A different index for each cell: a step for ordered decisions, else any other value."""
    sizes = shape.sizes[columns]
    other = (rng.random(columns.size) * (sizes - 1)).astype(np.int16)
    other += other >= current
    step = rng.geometric(0.7, size=columns.size) * rng.choice((-1, 1), size=columns.size)
    stepped = _step(current, step, sizes)
    near = shape.ordered[columns] & (rng.random(columns.size) < STEP_SHARE)
    return np.where(near & (stepped != current), stepped, other).astype(np.int16)


def _step(current: Matrix, step: NDArray[np.int64], sizes: NDArray[np.int64]) -> Matrix:
    """Move by `step`, turning back at the ends of the domain."""
    moved = current + step
    moved = np.where((moved < 0) | (moved >= sizes), current - step, moved)
    return np.asarray(np.clip(moved, 0, sizes - 1), dtype=np.int16)


def _trade(
    shape: Shape,
    rng: np.random.Generator,
    matrix: Matrix,
    result: Matrix,
    rows: NDArray[np.intp],
    columns: NDArray[np.intp],
    free: NDArray[np.intp],
) -> None:
    """In some rows a partner takes the step opposite to the first change: products stay near."""
    first = np.flatnonzero(np.diff(rows, prepend=-1))
    first = first[rng.random(first.size) < TRADE_SHARE]
    near = shape.partners(columns[first], free)
    apt = near.any(axis=1)
    first, near = first[apt], near[apt].cumsum(axis=1)
    picks = rng.random(first.size) * near[:, -1]
    partner = free[(near > picks[:, None]).argmax(axis=1)]
    at, column = rows[first], columns[first]
    back = np.sign(matrix[at, column].astype(np.int64) - result[at, column])
    moved = matrix[at, partner] + back
    result[at, partner] = np.clip(moved, 0, shape.sizes[partner] - 1)


def crossover(shape: Shape, rng: np.random.Generator, left: Matrix, right: Matrix) -> Matrix:
    """Children that take each decision, or in half of the rows each owner's block, from a side."""
    rows, width = left.shape
    single = rng.random((rows, width)) < 0.5
    whole = (rng.random((rows, int(shape.blocks.max(initial=0)) + 1)) < 0.5)[:, shape.blocks]
    by_block = rng.random((rows, 1)) < 0.5
    from_left = np.where(by_block, whole, single)
    for parent, _, columns in shape.dependent:
        apart = np.flatnonzero(left[:, parent] != right[:, parent])
        from_left[np.ix_(apart, columns)] = from_left[apart, parent][:, None]
    return shape.settle(np.where(from_left, left, right), varied=True)
