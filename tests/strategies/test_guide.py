"""A prior from other workloads: it leads at first, fades, and changes nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from explorer.disturbance import CROWDED_WEIGHT
from explorer.strategies.base import make_strategy
from explorer.strategies.contract import FakeOutcome, drive
from explorer.strategies.evolutionary import Evolutionary
from explorer.strategies.guide import TRUST, Guided
from ir.schedule import Schedule
from ir.space import Matrix, Space
from tests.space.toy import tiling_space, toy_seconds


class Oracle:
    """Knows the toy's times; `sign` -1 knows them the wrong way round."""

    def __init__(self, sign: float = 1.0) -> None:
        self.sign = sign

    def score(self, space: Space, matrix: Matrix) -> NDArray[np.float64]:
        return -self.sign * np.log(toy_seconds(space, matrix))


def outcomes_of(space: Space, schedules: Sequence[Schedule]) -> list[FakeOutcome]:
    matrix = np.array([space.encode(schedule) for schedule in schedules])
    return [FakeOutcome(seconds=float(time)) for time in toy_seconds(space, matrix)]


def _search(prior: Oracle | None, trials: int, seed: int = 0) -> tuple[Evolutionary, list[float]]:
    space = tiling_space()
    strategy = Evolutionary(space, np.random.default_rng(seed), trials=trials)
    if prior is not None:
        strategy.use_prior(prior)
    told = drive(strategy, trials, lambda some: outcomes_of(space, some), batch=8)
    return strategy, [outcome.seconds or np.inf for outcome in outcomes_of(space, told)]


def test_a_good_prior_finds_fast_schedules_at_once() -> None:
    with_prior = [min(_search(Oracle(), 16, seed)[1]) for seed in range(15)]
    without = [min(_search(None, 16, seed)[1]) for seed in range(15)]
    assert np.median(with_prior) < 0.8 * np.median(without)


def test_the_first_batch_is_diverse_and_partly_blind() -> None:
    space = tiling_space()
    strategy = Evolutionary(space, np.random.default_rng(0), trials=64)
    strategy.use_prior(Oracle())
    asked = strategy.ask(16)
    rows = np.array([space.encode(schedule) for schedule in asked])
    assert len({schedule.key for schedule in asked}) == 16
    apart = (rows[:, None, :] != rows[None, :, :]).sum(axis=2)
    assert np.median(apart[np.triu_indices(16, 1)]) >= 3
    bulk = toy_seconds(space, space.sample(np.random.default_rng(1), 2000))
    times = toy_seconds(space, rows)
    assert (times < np.quantile(bulk, 0.05)).sum() >= 8
    assert (times > np.quantile(bulk, 0.2)).any()


def test_a_wrong_prior_is_silenced_by_what_is_measured() -> None:
    strategy, times = _search(Oracle(-1.0), 80)
    assert strategy.quality[0].prior == 1.0
    assert strategy.quality[-1].prior == 0.0
    assert min(times) < 0.6 * min(times[:16])


def test_the_prior_fades_as_trials_come_in() -> None:
    strategy, _ = _search(Oracle(), 96)
    shares = [quality.prior for quality in strategy.quality]
    assert shares[0] == 1.0
    assert shares == sorted(shares, reverse=True)
    assert strategy.guide.prior_share == pytest.approx(TRUST / (TRUST + 96))
    assert _search(None, 16)[0].guide.prior_share == 0.0


def test_batches_are_judged_before_they_teach(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy, _ = _search(None, 64)
    fits: list[int] = []
    fit = strategy.model.fit

    def spy(features: NDArray[np.float32], *arguments: Any, **options: Any) -> None:
        fits.append(len(features))
        fit(features, *arguments, **options)

    monkeypatch.setattr(strategy.model, "fit", spy)
    space = strategy.space
    asked = strategy.ask(16)
    before = len(strategy.quality)
    strategy.tell(asked, outcomes_of(space, asked))
    assert fits == [64]  # fitted by the ask, not again by the tell
    assert len(strategy.quality) == before + 1
    last = strategy.quality[-1]
    assert (last.trials, last.batch, last.prior) == (64, 16, 0.0)
    assert -1 <= last.correlation <= 1 <= last.regret


def test_a_perfect_prior_is_judged_so() -> None:
    strategy, _ = _search(Oracle(), 8)
    assert strategy.quality[0].correlation == pytest.approx(1.0)
    assert strategy.quality[0].regret == 1.0
    assert strategy.quality[0].trials == 0


def test_a_batch_of_failures_is_not_judged() -> None:
    strategy, _ = _search(Oracle(), 8)
    asked = strategy.ask(8)
    strategy.tell(asked, [FakeOutcome("crash", None)] * 8)
    assert len(strategy.quality) == 1


def test_same_seed_prior_and_records_same_asks() -> None:
    def asks() -> list[Schedule]:
        space = tiling_space()
        strategy = Evolutionary(space, np.random.default_rng(4), trials=64)
        strategy.use_prior(Oracle())
        known = [space.schedule(row) for row in space.sample(np.random.default_rng(5), 30)]
        strategy.tell(known, outcomes_of(space, known))
        return drive(strategy, 32, lambda some: outcomes_of(space, some))

    assert asks() == asks()


def test_only_strategies_with_a_model_take_a_prior() -> None:
    space, rng = tiling_space(), np.random.default_rng(0)
    guided = {name for name in ("evolutionary", "random", "exhaustive", "annealing")
              if isinstance(make_strategy(name, space, rng), Guided)}  # fmt: skip
    assert guided == {"evolutionary"}


def test_times_beside_other_programs_teach_less(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy, _ = _search(None, 32)
    told: list[NDArray[np.float32]] = []
    monkeypatch.setattr(
        strategy.model, "fit", lambda *_, weights: told.append(np.array(weights[-8:]))
    )
    asked = strategy.ask(8)
    crowded = (("foreign_load", 0.9), ("crowded", True))
    outcomes = outcomes_of(strategy.space, asked)
    beside = [replace(outcome, notes=crowded) for outcome in outcomes[:4]]
    strategy.tell(asked, [*beside, *outcomes[4:]])
    strategy.ask(8)
    assert told[-1].tolist() == pytest.approx([CROWDED_WEIGHT] * 4 + [1.0] * 4)
