"""A Gaussian process on rows of levels of a few dozen factors, and what one expects to gain by it.

Knows numbers only: no space, no schedule. (Rasmussen and Williams, Gaussian Processes for Machine
Learning, 2006: algorithm 2.1 for predictions, equations 5.8 and 5.9 for the fit.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Points = NDArray[np.float64]
Codes = NDArray[np.intp]  # levels of rows, [row, factor]

BLOCK = 64  # rows up to which a matrix is inverted as a whole
JITTER = 1e-8  # on the diagonal, so that equal points do no harm
FIRST_STEP, LEAST_STEP, MOST_STEP = 0.3, 1e-3, 0.7  # of a parameter's logarithm
RESTART_STEP = 0.1  # at least this far a new fit looks around where the last one ended
GROWTH, SHRINKAGE = 1.3, 0.5
LEAST_VARIANCE = 1e-10
_ROOT5 = math.sqrt(5.0)


@dataclass(frozen=True, slots=True)
class Belief:
    """Before anything was told: medians of the parameters, and how far their logarithms spread.

    A length of which the median grows with the root of the factors keeps correlations, and so the
    smoothness that is assumed, alike for few and for many (Hvarfner, Hellsten and Nardi, Vanilla
    Bayesian optimization performs great in high dimensions, ICML 2024).
    """

    length: float = 0.15  # times the root of the number of factors
    signal: float = 1.0  # variance of the values
    depth: float = 0.5  # odds for what a factor's distance takes away against what it leaves
    noise: float = 0.01  # variance of a measurement
    spread: float = 1.0


class Levels:
    """Pairs of levels of each factor, in one array: the level to the left, and to the right."""

    def __init__(self, tables: Sequence[Points]) -> None:
        sizes = np.array([len(table) for table in tables], dtype=np.intp)
        self.count = len(sizes)
        self.starts = np.cumsum(np.append(0, sizes))[:-1]  # of a factor's levels among all
        self.factor = np.repeat(np.arange(self.count), sizes)  # of each level
        squares = [((one[:, None] - one) ** 2).sum(axis=2).ravel() for one in tables]
        self.squares: Vector = np.concatenate([np.empty(0), *squares])  # of distances
        self.of = np.repeat(np.arange(self.count), sizes**2)  # the factor of each pair
        begins = np.cumsum(np.append(0, sizes**2))[:-1]
        within = np.arange(len(self.factor)) - self.starts[self.factor]
        self._first = begins[self.factor] + within * sizes[self.factor]  # pair of each level
        inner = np.arange(len(self.squares)) - begins[self.of]
        self.left = self.starts[self.of] + inner // sizes[self.of]
        self.right = self.starts[self.of] + inner % sizes[self.of]

    def indicators(self, codes: Codes) -> Points:
        """One for each level that a row has, [row, level]."""
        found = np.zeros((len(codes), len(self.factor)))
        found[np.arange(len(codes))[:, None], self.starts + codes] = 1.0
        return found

    def towards(self, pairs: Vector, codes: Codes) -> Points:
        """What the pairs of each level and those of rows have, [level, row]."""
        return np.asarray(pairs[self._first[:, None] + codes.T[self.factor]])

    def by_pair(self, entries: Points, here: Points) -> tuple[Codes, Vector]:
        """Pairs of levels that rows have, given by their indicators, and for each the sum of those
        entries of a matrix [row, row] whose rows have it."""
        used = np.flatnonzero(here.any(axis=0))
        place = np.full(here.shape[1], -1, dtype=np.intp)
        place[used] = np.arange(len(used))
        left, right = place[self.left], place[self.right]
        pairs = np.flatnonzero((left >= 0) & (right >= 0))
        sums = here[:, used].T @ entries @ here[:, used]
        return pairs, sums[left[pairs], right[pairs]]


class GaussianProcess:
    """A product over factors, each of which has levels (rows of its table: coordinates).

    What two levels of a factor have in common is Matern 5/2 of their distance over the factor's
    length, and a constant besides: however far apart they are, rows that are alike in all else stay
    correlated. So what is known of one factor holds for all levels of the others (an analysis of
    variance with terms of every order; Durrande, Ginsbourger, Roustant and Carraro, ANOVA kernels
    and RKHS of zero mean functions, 2013), where a plain product forgets it.

    Parameters are kept from fit to fit: each starts where the last one ended.
    """

    def __init__(self, tables: Sequence[Points], belief: Belief | None = None) -> None:
        belief = belief or Belief()
        self._levels = Levels(tables)
        count = self._levels.count
        scale = -math.log(belief.length * math.sqrt(max(1, count)))
        others = (belief.depth, belief.signal, belief.noise)
        self._median = np.append(np.full(count, scale), np.log(others))
        self._spread = belief.spread
        self.parameters = self._median.copy()  # logs of 1 / length, of depth, signal and noise
        self._steps = np.full(len(self._median), FIRST_STEP)
        self.codes: Codes = np.empty((0, count), dtype=np.intp)
        self._inverse: Points = np.empty((0, 0))
        self._weights: Vector = np.empty(0)

    @property
    def lengths(self) -> Vector:
        return np.asarray(np.exp(-self.parameters[:-3]))

    @property
    def depth(self) -> float:
        return math.exp(self.parameters[-3])

    @property
    def signal(self) -> float:
        return math.exp(self.parameters[-2])

    @property
    def noise(self) -> float:
        return math.exp(self.parameters[-1])

    def fit(self, codes: Codes, values: Vector, steps: int) -> None:
        """Learn values of rows; the parameters by `steps` of ascent to their posterior's mode.

        iRprop-: the sign of each slope alone counts, and equal signs make for longer steps (Igel
        and Huesken, Improving the Rprop learning algorithm, 2000; for Gaussian processes Blum and
        Riedmiller, ESANN 2013).
        """
        self._steps = np.clip(self._steps, RESTART_STEP, FIRST_STEP)
        best, found = math.inf, self.parameters
        parameters, before = self.parameters, np.zeros(len(self.parameters))
        for _ in range(steps):
            loss, slopes = self.loss(parameters, codes, values)
            if loss < best:
                best, found = loss, parameters
            turned = slopes * before
            self._steps = np.clip(
                self._steps * np.where(turned > 0, GROWTH, np.where(turned < 0, SHRINKAGE, 1.0)),
                LEAST_STEP, MOST_STEP,
            )  # fmt: skip
            before = np.where(turned < 0, 0.0, slopes)
            limit = 4.0 * self._spread
            parameters = np.clip(
                parameters - np.sign(before) * self._steps,
                self._median - limit, self._median + limit,
            )  # fmt: skip
        self.parameters = found
        self.codes = codes
        own = self._covariance(codes, codes) + (self.noise + JITTER) * np.eye(len(codes))
        half = _inverted(np.asarray(np.linalg.cholesky(own), dtype=np.float64))
        self._inverse = half.T @ half
        self._weights = self._inverse @ values

    def loss(self, parameters: Vector, codes: Codes, values: Vector) -> tuple[float, Vector]:
        """Minus the log of the parameters' posterior, up to a constant, and its slopes."""
        levels = self._levels
        depth, signal, noise = np.exp(parameters[-3:])
        apart, common = self._common(parameters)
        logs = np.log1p(depth * common) - math.log1p(depth)
        here = levels.indicators(codes)
        alike = signal * np.exp(here @ levels.towards(logs, codes))
        root = np.linalg.cholesky(alike + (noise + JITTER) * np.eye(len(values)))
        half = _inverted(root)
        inverse = half.T @ half
        weights = inverse @ values
        offsets = (parameters - self._median) / self._spread
        loss = 0.5 * (values @ weights + offsets @ offsets) + np.log(np.diag(root)).sum()
        pull = 0.5 * (np.outer(weights, weights) - inverse)
        drawn = pull * alike
        pairs, by_pair = levels.by_pair(drawn, here)
        apart, common = apart[pairs], common[pairs]
        by_pair = depth * by_pair / (1 + depth * common)
        fading = -apart * apart * (1 + apart) * np.exp(-apart) / 3  # by the log of 1 / length
        left = levels.count * depth / (1 + depth) * drawn.sum()
        gains = np.append(
            np.bincount(levels.of[pairs], by_pair * fading, levels.count),
            [(by_pair * common).sum() - left, drawn.sum(), noise * np.trace(pull)],
        )
        return float(loss), offsets / self._spread - gains

    def predict(self, codes: Codes) -> tuple[Vector, Vector]:
        """Means and variances of rows, without the noise of measuring."""
        alike = self.towards(codes)
        variances = self.signal - ((alike @ self._inverse) * alike).sum(axis=1)
        return alike @ self._weights, np.maximum(variances, LEAST_VARIANCE)

    def towards(self, codes: Codes) -> Points:
        """How values of rows vary with what was told, [row, told]."""
        return self._covariance(codes, self.codes)

    def covariance(self, left: Codes, right: Codes, told: Points | None = None) -> Points:
        """How values of rows to the left and to the right vary together, after what was told.

        `told` is `towards(right)`, where that is known.
        """
        before = self.towards(left) @ self._inverse
        told = self.towards(right) if told is None else told
        return self._covariance(left, right) - before @ told.T

    def _covariance(self, left: Codes, right: Codes) -> Points:
        _, common = self._common(self.parameters)
        logs = np.log1p(self.depth * common) - math.log1p(self.depth)
        levels = self._levels
        if len(left) <= len(right):
            return self.signal * np.exp((levels.indicators(right) @ levels.towards(logs, left)).T)
        return self.signal * np.exp(levels.indicators(left) @ levels.towards(logs, right))

    def _common(self, parameters: Vector) -> tuple[Vector, Vector]:
        """Root 5 times the distance of each pair in its factor's lengths, and Matern 5/2 of it."""
        levels = self._levels
        apart = _ROOT5 * np.sqrt(levels.squares) * np.exp(parameters[:-3])[levels.of]
        return apart, (1 + apart + apart * apart / 3) * np.exp(-apart)


def _inverted(root: Points) -> Points:
    """The inverse of a lower triangular matrix, by products of its blocks: a general inverse takes
    several times as long."""
    if len(root) <= BLOCK:
        return np.asarray(np.linalg.inv(root))
    upper, lower = slice(len(root) // 2), slice(len(root) // 2, None)
    found = np.zeros_like(root)
    found[upper, upper] = _inverted(root[upper, upper])
    found[lower, lower] = _inverted(root[lower, lower])
    found[lower, upper] = -found[lower, lower] @ (root[lower, upper] @ found[upper, upper])
    return found


def expected_improvement(means: Vector, variances: Vector, best: float) -> Vector:
    """By how much values are expected to fall below `best`, those above counted as nothing (Jones,
    Schonlau and Welch, Efficient global optimization, 1998)."""
    deviations = np.sqrt(variances)
    ahead = (best - means) / deviations
    density = np.exp(-0.5 * ahead * ahead) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in ahead.tolist()])
    return np.asarray(deviations * (ahead * below + density))
