"""A second opinion beside the trees: who is expected to beat the best, under a Gaussian process.

Trees need many trials until they say more than what is usual; a process that interpolates finds
the best of a region from few. Knows histories and rows; it proposes nothing by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from explorer.strategies.embedding import Embedding
from explorer.strategies.gaussian import (
    LEAST_VARIANCE,
    Belief,
    Codes,
    GaussianProcess,
    expected_improvement,
)
from explorer.strategies.guide import lessons
from explorer.strategies.history import History
from ir.space import Matrix

Scores = NDArray[np.float64]
NEAREST = 1e-3  # of the logarithm of a time: a median this close to the best is not told from it


@dataclass(frozen=True, slots=True)
class Settings:
    """How much the process learns from, and how."""

    most: int = 256  # told rows that it learns from
    least: int = 4  # valid ones below which it says nothing
    clip: float = 2.0  # slower than this many times the median's distance to the best is equal
    steps: int = 8  # of the ascent, whenever the parameters are fitted again
    refit: float = 0.08  # share by which the told rows have to grow until they are
    belief: Belief = field(default_factory=Belief)


class SecondOpinion:
    """Learns logarithms of times; slow ones are clipped, and failures are as slow as those.

    What was asked and not told counts as if it had come out as expected: that changes no mean, and
    makes what lies near it less promising (Desautels, Krause and Burdick, Parallelizing exploration
    -exploitation tradeoffs, JMLR 2014).
    """

    def __init__(self, history: History, settings: Settings) -> None:
        self._history, self.settings = history, settings
        self._embedding = Embedding(history.space)
        self.process = GaussianProcess(self._embedding.tables, settings.belief)
        self._told = self._fitted = 0
        self._best = 0.0

    @property
    def ready(self) -> bool:
        return int(self._history.ok.sum()) >= self.settings.least

    @property
    def known(self) -> float:
        """The share of what was told that it learns from."""
        return min(1.0, self.settings.most / max(1, len(self._history)))

    def learn(self) -> None:
        """Take in what was told since the last time."""
        count = len(self._history)
        if count == self._told:
            return
        grown = count - self._fitted >= self.settings.refit * count
        values = clipped(self._history.seconds, self.settings.clip)
        rows = lessons(self._history.seconds, self._history.kernel_numbers, self.settings.most)
        values = values[rows]
        values = (values - values.mean()) / (values.std() or 1.0)
        codes = self._embedding(self._history.rows[rows])
        self.process.fit(codes, values, self.settings.steps if grown else 0)
        self._told, self._fitted = count, count if grown else self._fitted
        self._best = float(values.min())

    def score(self, pool: Matrix) -> Scores:
        """By how much each row is expected to beat the best."""
        means, variances = self.process.predict(self._embedding(pool))
        return expected_improvement(means, variances, self._best)

    def choose(self, rows: Matrix, odds: Scores, count: int) -> NDArray[np.intp]:
        """Greedy choice of up to `count` rows, each as if those before had come out as expected.

        What is expected of a row counts by its `odds` to succeed. For a few hundred rows.
        """
        total = len(rows)
        codes = self._embedding(np.concatenate([rows, self._history.pending]))
        means, variances = self.process.predict(codes)
        assumed = _Assumed(self.process, codes, variances)
        for place in range(total, len(codes)):
            assumed.take(place)
        chosen: list[int] = []
        for _ in range(min(count, total)):
            left = np.maximum(assumed.variances[:total], LEAST_VARIANCE)
            gains = odds * expected_improvement(means[:total], left, self._best)
            gains[chosen] = -1.0
            chosen.append(int(gains.argmax()))
            assumed.take(chosen[-1])
        return np.array(chosen, dtype=np.intp)


def clipped(seconds: Scores, clip: float) -> Scores:
    """Logarithms of times, at most `clip` times as far above the best as the median is."""
    good = np.isfinite(seconds)
    logs = np.log(np.where(good, seconds, 1.0))
    best, median = float(logs[good].min()), float(np.median(logs[good]))
    most = best + clip * max(median - best, NEAREST)
    return np.asarray(np.where(good, np.minimum(logs, most), most))


class _Assumed:
    """What is left of the variances of rows after measurements of some of them.

    Each takes a product of a column by itself from all covariances (a step of a Cholesky
    factorisation with pivots); those columns are kept, and the covariances are never written out.
    """

    def __init__(self, process: GaussianProcess, codes: Codes, variances: Scores) -> None:
        self._process, self._codes = process, codes
        self.variances = variances
        self._told = process.towards(codes)
        self._taken = np.empty((0, len(codes)))

    def take(self, place: int) -> None:
        """Measure one of the rows, as if the value had come out as expected."""
        here = self._codes[place : place + 1]
        column = self._process.covariance(here, self._codes, self._told)[0]
        column -= self._taken[:, place] @ self._taken
        column /= np.sqrt(max(float(column[place]), 0.0) + self._process.noise)
        self._taken = np.concatenate([self._taken, column[None]])
        self.variances = self.variances - column * column
