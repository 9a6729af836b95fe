"""What scores candidates for a strategy: a model of this search, a prior from others, blended.

Every batch is scored before the model learns from it, which tells how good the model is. A prior
whose order is not that of the times measured so far loses its say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from costmodel.evaluate import regret, spearman
from costmodel.features import feature_names, featurise
from costmodel.model import CostModel, Settings
from explorer.strategies.history import History
from explorer.strategies.opening import MOST, Correction
from ir.space import Matrix, Space

Scores = NDArray[np.float64]
TRUST = 24.0  # trials after which prior and online model have equal say
LEAST_SHARE = 0.2  # below that a prior changes few choices, and costs more than the model
FEWEST = 3  # valid trials of a batch that can be ranked
TELLING = 16  # valid trials from which a prior is held to its order
LESSONS = 2_048  # rows that a model is fitted on at most, so that a long search stays as quick


class Prior(Protocol):
    """A model from other workloads."""

    def score(self, space: Space, matrix: Matrix) -> Scores:
        """Scores of rows, higher being better; in proportion to the square of their speeds, as far
        as it knows."""
        ...


@runtime_checkable
class Guided(Protocol):
    """A strategy that may start with a prior and tells how good its guesses are."""

    @property
    def quality(self) -> Sequence[Quality]: ...

    def use_prior(self, prior: Prior) -> None:
        """Called before the first ask or tell."""
        ...

    def portion(self, count: int) -> int:
        """Of `count` trials those to ask for now, because what they tell changes the rest."""
        ...


@dataclass(frozen=True, slots=True)
class Quality:
    """How a batch was scored before it taught anything: `correlation` of scores and speeds (ranks),
    `regret` the time of the highest score over the batch's best, `prior` the prior's share."""

    trials: int  # told before this batch
    batch: int
    correlation: float
    regret: float
    prior: float


class Guide:
    """Scores rows by the blend; `learn` before a batch of asks, `judge` before it is told."""

    def __init__(self, history: History, seed: int, settings: Settings, warm_up: int) -> None:
        self.space, self.history = history.space, history
        self.model = CostModel(seed, settings=settings)
        self._varied = np.arange(0)  # features that differ among what was told: trees read no other
        self.quality: list[Quality] = []
        self._prior: Prior | None = None
        self._guesses: Scores = np.empty(0)  # the prior's scores of the last valid trials
        self._times: Scores = np.empty(0)
        self._latest: Matrix = self.history.rows[:0]  # the rows of the very last of them
        self._merit = 1.0
        self._warm_up = warm_up
        self._stale = True

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return feature_names(self.space)

    def use_prior(self, prior: Prior) -> None:
        self._prior = prior

    @property
    def warm(self) -> bool:
        """Whether enough has been told for the online model to have an opinion."""
        return len(self.history) >= self._warm_up and int(self.history.ok.sum()) >= 8

    @property
    def ready(self) -> bool:
        """Whether anything here has an opinion."""
        return self.warm or self._prior is not None

    @property
    def led(self) -> bool:
        """Whether a prior has its say, and no other model yet."""
        return self._prior is not None and not self.warm and self._merit > 0.0

    @property
    def trusted(self) -> bool:
        """Whether there is a prior that measurements have not contradicted."""
        return self._prior is not None and self._merit >= 0.5

    @property
    def prior_share(self) -> float:
        """The prior's weight: 1 before the online model speaks, then halved after TRUST trials,
        less where the prior was wrong; 0 without a prior, and where little would be left."""
        if self._prior is None:
            return 0.0
        share = self._merit * TRUST / (TRUST + len(self.history)) if self.model.ready else 1.0
        return share if share >= LEAST_SHARE else 0.0

    def learn(self) -> None:
        """Fit the online model on what was told, of a long search on `lessons`."""
        if self._stale and self.warm:
            history = self.history
            chosen = lessons(history.seconds, history.kernel_numbers, LESSONS)
            features = featurise(self.space, history.rows[chosen])
            missing = np.isnan(features)
            alike = (features == features[0]) | (missing & missing[0])
            self._varied = np.flatnonzero(~alike.all(axis=0))
            self.model.names = tuple(self._names[column] for column in self._varied)
            features = features[:, self._varied]
            self.model.fit(
                features, history.seconds[chosen], history.ok[chosen],
                weights=history.trust[chosen],
            )  # fmt: skip
            self._stale = False

    def _predict(self, matrix: Matrix) -> Scores:
        """The online model's scores."""
        return self.model.predict(featurise(self.space, matrix)[:, self._varied])

    def odds(self, matrix: Matrix) -> Scores:
        """How likely rows are to succeed, by the online model; 1 as long as it knows no failure."""
        if not self.model.ready or not len(matrix) or self.history.ok.all():
            return np.ones(len(matrix))
        odds = self.model.validity(featurise(self.space, matrix)[:, self._varied])
        return odds.astype(np.float64)

    def score(self, matrix: Matrix) -> Scores:
        """Scores of rows, higher being better: the prior's, corrected by what was told, until the
        online model speaks; then both opinions in standard deviations."""
        share = self.prior_share
        if self._prior is None or share == 0.0:
            return self._predict(matrix)
        before = self._prior.score(self.space, matrix)
        if not self.model.ready:
            correction = self._correction()
            return before if correction is None else before + correction(matrix)
        own = _standard(self._predict(matrix))
        return share * _standard(before) + (1.0 - share) * own

    def _correction(self) -> Correction | None:
        """What the trials so far say of the prior's error; None while they are too few."""
        if len(self._times) < FEWEST:
            return None
        last = slice(-len(self._latest), None)
        return Correction(self.space, self._latest, self._guesses[last], self._times[last])

    def judge(self, rows: Matrix, seconds: Scores) -> None:
        """Compare scores with what a batch took (NaN for failures), before it is learnt from."""
        good = np.isfinite(seconds)
        self._stale = True
        rows, times = rows[good], seconds[good]
        guided = self.model.ready or self._prior is not None
        scores = self.score(rows) if len(rows) >= FEWEST and guided else None
        if self._prior is not None and len(rows) and self.prior_share:
            self._hold_to_its_order(rows, times)
        if scores is not None:
            self.quality.append(
                Quality(
                    len(self.history), len(good), spearman(scores, -times),
                    regret(scores, times, 1), self.prior_share,
                )
            )  # fmt: skip

    def _hold_to_its_order(self, rows: Matrix, seconds: Scores) -> None:
        """A rank correlation of a quarter or more with the times so far keeps the prior's weight
        whole, one of minus a quarter takes it away: what it liked is hard to tell apart."""
        assert self._prior is not None
        guesses = self._prior.score(self.space, rows)
        self._guesses = np.concatenate([self._guesses, guesses])[-LESSONS:]
        self._times = np.concatenate([self._times, seconds])[-LESSONS:]
        self._latest = np.concatenate([self._latest, rows])[-MOST:]
        if len(self._times) >= TELLING:
            told = spearman(self._guesses, -self._times)
            self._merit = float(np.clip(0.5 + 2.0 * told, 0.0, 1.0))


def lessons(seconds: Scores, kernels: NDArray[np.int32], most: int) -> NDArray[np.intp]:
    """Which `most` of the told rows to learn from, in the order of telling; all of fewer.

    The first of each kernel teaches what its copies do. Of too many kernels the fastest half of
    the seats, and an even choice of the others by time (failures last); what is left is given to
    the newest copies. `seconds` and `kernels` are those of the rows, NaN for failures.
    """
    if len(seconds) <= most:
        return np.arange(len(seconds))
    first = np.unique(kernels, return_index=True)[1]
    if len(first) < most:
        copies = np.setdiff1d(np.arange(len(seconds)), first)
        return np.sort(np.concatenate([first, copies[len(first) - most :]]))
    ranked = first[np.argsort(seconds[first], kind="stable")]
    head, tail = ranked[: most // 2], ranked[most // 2 :]
    even = np.linspace(0, len(tail) - 1, most - len(head)).astype(np.intp)
    return np.sort(np.concatenate([head, tail[even]]))


def _standard(scores: Scores) -> Scores:
    spread = float(scores.std())
    return np.asarray((scores - scores.mean()) / spread if spread else np.zeros(len(scores)))
