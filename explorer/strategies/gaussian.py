"""A Gaussian process on points of a few dozen dimensions, and what one expects to gain by it.

Knows numbers only: no space, no schedule. (Rasmussen and Williams, Gaussian Processes for Machine
Learning, 2006: algorithm 2.1 for predictions, equations 5.8 and 5.9 for the fit.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Points = NDArray[np.float64]

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

    A length of which the median grows with the root of the dimensions keeps distances, and so the
    smoothness that is assumed, alike in few and in many (Hvarfner, Hellsten and Nardi, Vanilla
    Bayesian optimization performs great in high dimensions, ICML 2024).
    """

    length: float = 0.5  # times the root of the number of lengths
    signal: float = 1.0  # variance of the values
    noise: float = 0.01  # variance of a measurement
    spread: float = 1.0


class GaussianProcess:
    """Matern 5/2 with a length for each group of dimensions; `groups` numbers them from 0.

    Parameters are kept from fit to fit: each starts where the last one ended.
    """

    def __init__(self, groups: NDArray[np.intp], belief: Belief | None = None) -> None:
        belief = belief or Belief()
        self._groups = groups
        self._lengths = int(groups.max(initial=-1)) + 1
        scale = -math.log(belief.length * math.sqrt(max(1, self._lengths)))
        self._median = np.append(
            np.full(self._lengths, scale), [math.log(belief.signal), math.log(belief.noise)]
        )
        self._spread = belief.spread
        self.parameters = self._median.copy()  # logs of 1 / length, of signal and of noise
        self._steps = np.full(len(self._median), FIRST_STEP)
        self.points: Points = np.empty((0, len(groups)))
        self._inverse: Points = np.empty((0, 0))
        self._weights: Vector = np.empty(0)

    @property
    def lengths(self) -> Vector:
        return np.asarray(np.exp(-self.parameters[:-2]))

    @property
    def signal(self) -> float:
        return math.exp(self.parameters[-2])

    @property
    def noise(self) -> float:
        return math.exp(self.parameters[-1])

    def fit(self, points: Points, values: Vector, steps: int) -> None:
        """Learn values at points; the parameters by `steps` of ascent to their posterior's mode.

        iRprop-: the sign of each slope alone counts, and equal signs make for longer steps (Igel
        and Huesken, Improving the Rprop learning algorithm, 2000; for Gaussian processes Blum and
        Riedmiller, ESANN 2013).
        """
        self._steps = np.clip(self._steps, RESTART_STEP, FIRST_STEP)
        best, found = math.inf, self.parameters
        parameters, before = self.parameters, np.zeros(len(self.parameters))
        for _ in range(steps):
            loss, slopes = self.loss(parameters, points, values)
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
        self.points = points
        root = np.linalg.cholesky(self._covariance(points, points, told=True))
        half = _inverted(np.asarray(root, dtype=np.float64))
        self._inverse = half.T @ half
        self._weights = self._inverse @ values

    def loss(self, parameters: Vector, points: Points, values: Vector) -> tuple[float, Vector]:
        """Minus the log of the parameters' posterior, up to a constant, and its slopes."""
        scaled = points * np.exp(parameters[:-2])[self._groups]
        signal, noise = np.exp(parameters[-2:])
        apart = _apart(scaled, scaled)
        fading = np.exp(-apart)
        alike = signal * (1 + apart + apart * apart / 3) * fading
        count = len(values)
        root = np.linalg.cholesky(alike + (noise + JITTER) * np.eye(count))
        half = _inverted(root)
        inverse = half.T @ half
        weights = inverse @ values
        offsets = (parameters - self._median) / self._spread
        loss = 0.5 * (values @ weights + offsets @ offsets) + np.log(np.diag(root)).sum()
        pull = np.outer(weights, weights) - inverse
        slope = pull * (-5 / 6 * signal) * (1 + apart) * fading  # by the squared distance
        by_dimension = 2 * ((scaled * scaled).T @ slope.sum(axis=1))
        by_dimension -= 2 * (scaled * (slope @ scaled)).sum(axis=0)
        gains = np.append(
            np.bincount(self._groups, by_dimension, self._lengths),
            [0.5 * (pull * alike).sum(), 0.5 * noise * np.trace(pull)],
        )
        return float(loss), offsets / self._spread - gains

    def predict(self, points: Points) -> tuple[Vector, Vector]:
        """Means and variances at points, without the noise of measuring."""
        alike = self._covariance(points, self.points)
        variances = self.signal - ((alike @ self._inverse) * alike).sum(axis=1)
        return alike @ self._weights, np.maximum(variances, LEAST_VARIANCE)

    def towards(self, points: Points) -> Points:
        """How values at points vary with what was told, [point, told]."""
        return self._covariance(points, self.points)

    def covariance(self, left: Points, right: Points, told: Points | None = None) -> Points:
        """How values at points to the left and to the right vary together, after what was told.

        `told` is `towards(right)`, where that is known.
        """
        before = self._covariance(left, self.points) @ self._inverse
        told = self.towards(right) if told is None else told
        return self._covariance(left, right) - before @ told.T

    def _covariance(self, left: Points, right: Points, told: bool = False) -> Points:
        scale = np.exp(self.parameters[:-2])[self._groups]
        apart = _apart(left * scale, right * scale)
        found = self.signal * (1 + apart + apart * apart / 3) * np.exp(-apart)
        return found + (self.noise + JITTER) * np.eye(len(left)) if told else found


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


def _apart(left: Points, right: Points) -> Points:
    """Root 5 times the distances."""
    squares = (left * left).sum(axis=1)[:, None] + (right * right).sum(axis=1)
    return np.asarray(_ROOT5 * np.sqrt(np.maximum(squares - 2 * left @ right.T, 0.0)))


def expected_improvement(means: Vector, variances: Vector, best: float) -> Vector:
    """By how much values are expected to fall below `best`, those above counted as nothing (Jones,
    Schonlau and Welch, Efficient global optimization, 1998)."""
    deviations = np.sqrt(variances)
    ahead = (best - means) / deviations
    density = np.exp(-0.5 * ahead * ahead) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in ahead.tolist()])
    return np.asarray(deviations * (ahead * below + density))
