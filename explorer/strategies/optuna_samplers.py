"""Optuna's samplers as strategies, through its ask/tell interface. Needs the extra `optuna`.

Optuna knows domains and no constraints. A proposal that a constraint refuses is told as pruned and
asked again a few times; the last one is repaired.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from explorer.strategies.base import OutcomeLike
from explorer.strategies.history import History, SeedQueue, draw_fresh
from ir.errors import MissingTarget
from ir.schedule import Schedule
from ir.space import Row, Space

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import Trial

TRIES = 3  # proposals for each schedule until the last is repaired
POPULATIONS = 6  # generations that a genetic sampler should have within its budget


class Sampled:
    """What Optuna's `sampler` proposes, made legal and new."""

    def __init__(
        self,
        space: Space,
        rng: np.random.Generator,
        sampler: BaseSampler,
        seeds: Sequence[Schedule] = (),
    ) -> None:
        optuna = _package("optuna")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna = optuna
        self._space = space
        self._rng = rng
        self._history = History(space)
        self._queue = SeedQueue(self._history, rng, seeds, own=False)
        self._study = optuna.create_study(sampler=sampler)
        self._free = [int(column) for column in space.shape.free]
        self._distributions = {
            space.decisions[column].name: self._distribution(column) for column in self._free
        }
        self._waiting: dict[bytes, Trial] = {}

    def ask(self, n: int) -> list[Schedule]:
        batch = self._history.asked(self._queue.take(n))
        for _ in range(n - len(batch)):
            row = self._propose()
            rows = draw_fresh(self._history, self._rng, 1) if row is None else row[None, :]
            batch += self._history.asked(rows)
        return batch

    def tell(self, schedules: Sequence[Schedule], outcomes: Sequence[OutcomeLike]) -> None:
        rows = self._history.told(schedules, outcomes)
        times = self._history.seconds[len(self._history) - len(rows) :]
        for row, seconds in zip(rows, times.tolist(), strict=True):
            if self._history.within_pins(row):
                self._tell(row, seconds)

    def _tell(self, row: Row, seconds: float) -> None:
        """Finish the row's trial, or add one; NaN stands for a failure."""
        failed = bool(np.isnan(seconds))
        states = self._optuna.trial.TrialState
        state = states.PRUNED if failed else states.COMPLETE
        value = None if failed else seconds
        trial = self._waiting.pop(row.tobytes(), None)
        if trial is not None:
            self._study.tell(trial, value, state=state)
            return
        parameters = {self._space.decisions[c].name: int(row[c]) for c in self._free}
        self._study.add_trial(
            self._optuna.trial.create_trial(
                params=parameters,
                distributions=self._distributions,
                state=state,
                value=value,
            )
        )

    def _propose(self) -> Row | None:
        """A legal row that is new, with its trial waiting unless it had to be repaired."""
        states = self._optuna.trial.TrialState
        blank = np.zeros((1, len(self._space.decisions)), dtype=np.int16)
        row: Row = self._space.shape.fix(blank)[0]
        for _ in range(TRIES if self._free else 0):
            trial = self._study.ask(self._distributions)
            row[self._free] = [trial.params[name] for name in self._distributions]
            if not self._space.legal(row[None, :])[0]:
                self._study.tell(trial, state=states.PRUNED)
            elif not len(self._history.fresh(row[None, :])):
                self._study.tell(trial, state=states.FAIL)
            else:
                self._waiting[row.tobytes()] = trial
                return row
        repaired = self._space.repair(self._rng, row[None, :])
        fresh = self._history.fresh(repaired[self._space.legal(repaired)])
        found: Row | None = fresh[0] if len(fresh) else None
        return found

    def _distribution(self, column: int) -> BaseDistribution:
        """Over indices of the domain: whole numbers where a step is a small change."""
        decision, kinds = self._space.decisions[column], self._optuna.distributions
        last = len(decision.domain) - 1
        if decision.ordered:
            ordered: BaseDistribution = kinds.IntDistribution(0, last)
            return ordered
        choices: BaseDistribution = kinds.CategoricalDistribution(tuple(range(last + 1)))
        return choices


def _strategy(make: Callable[[Any, int, int | None], Any]) -> Callable[..., Sampled]:
    """A factory of strategies from one of samplers: (samplers, seed, trials) to a sampler."""

    def factory(
        space: Space,
        rng: np.random.Generator,
        *,
        trials: int | None = None,
        seeds: Sequence[Schedule] = (),
    ) -> Sampled:
        samplers = _package("optuna.samplers")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "experimental": what depends on it is tested
            sampler = make(samplers, int(rng.integers(1 << 30)), trials)
        return Sampled(space, rng, sampler, seeds)

    return factory


def _cmaes(samplers: Any, seed: int, trials: int | None) -> Any:
    _package("cmaes")
    return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)


def _nsgaii(samplers: Any, seed: int, trials: int | None) -> Any:
    population = 50 if trials is None else max(8, min(50, trials // POPULATIONS))
    return samplers.NSGAIISampler(seed=seed, population_size=population)


def _tpe(samplers: Any, seed: int, trials: int | None) -> Any:
    return samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)


def _random(samplers: Any, seed: int, trials: int | None) -> Any:
    return samplers.RandomSampler(seed=seed)


cmaes, nsgaii, random, tpe = map(_strategy, (_cmaes, _nsgaii, _random, _tpe))


def _package(name: str) -> Any:
    """A module of the extra; raises MissingTarget."""
    try:
        return import_module(name)
    except ImportError:
        raise MissingTarget(
            f"this strategy needs {name.partition('.')[0]}, which is not installed: "
            "pip install 'tilewright[optuna]'"
        ) from None
