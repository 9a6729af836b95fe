"""Every built-in strategy keeps the contract; evolution beats random by far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from explorer.strategies.annealing import Annealing
from explorer.strategies.base import Strategy, find_strategy, make_strategy
from explorer.strategies.contract import FakeOutcome, StrategyContract, drive
from explorer.strategies.evolutionary import Evolutionary, Settings
from explorer.strategies.history import History
from ir.columns import Columns
from ir.errors import UsageError
from ir.schedule import Schedule
from ir.space import Constraint, Decision, Space
from tests.space.toy import small_space, tiling_space, toy_seconds

ALONE = Settings(second=0.0)  # evolution without a second opinion


class TestRandom(StrategyContract):
    name = "random"


class TestExhaustive(StrategyContract):
    name = "exhaustive"


class TestEvolutionary(StrategyContract):
    name = "evolutionary"


class TestAnnealing(StrategyContract):
    name = "annealing"


class TestReplay(StrategyContract):
    name = "replay"

    def make(self, space: Space, seed: int = 0, **options: Any) -> Strategy:
        rows = space.sample(np.random.default_rng(seed), 400)
        if space.size < 1000:
            rows = np.concatenate(list(space.exhaustive()))
        recorded = [space.schedule(row) for row in rows]
        return super().make(space, seed, **{"seeds": recorded, **options})


def outcomes_of(space: Space, schedules: Sequence[Schedule]) -> list[FakeOutcome]:
    matrix = np.array([space.encode(schedule) for schedule in schedules])
    return [FakeOutcome(seconds=float(time)) for time in toy_seconds(space, matrix)]


def _best(name: str, seed: int, trials: int) -> float:
    space = tiling_space()
    strategy = make_strategy(name, space, np.random.default_rng(seed), trials=trials)
    told = drive(strategy, trials, lambda some: outcomes_of(space, some), batch=8)
    return min(outcome.seconds or np.inf for outcome in outcomes_of(space, told))


@pytest.mark.parametrize(
    ("trials", "searches", "share"),
    [
        (64, 4, 0.5),
        pytest.param(64, 10, 0.5, marks=pytest.mark.long),
        pytest.param(128, 10, 0.7, marks=pytest.mark.long),
    ],
)
def test_few_evolved_trials_match_256_random_ones(trials: int, searches: int, share: float) -> None:
    drawn = [_best("random", seed, 256) for seed in range(10)]
    bred = [_best("evolutionary", seed, trials) for seed in range(searches)]
    assert np.mean([ours <= theirs for ours in bred for theirs in drawn]) >= share


def test_as_many_annealed_trials_beat_random_ones() -> None:
    drawn = [_best("random", seed, 128) for seed in range(10)]
    cooled = [_best("annealing", seed, 128) for seed in range(5)]
    assert np.mean([ours < theirs for ours in cooled for theirs in drawn]) >= 0.7


def test_annealing_cools_and_grows_choosy() -> None:
    space = tiling_space()
    strategy = Annealing(space, np.random.default_rng(0), trials=64)
    hot = strategy.temperature
    drive(strategy, 64, lambda some: outcomes_of(space, some))
    cold = strategy.temperature
    assert hot == pytest.approx(strategy.settings.hottest)
    assert cold == pytest.approx(strategy.settings.coldest)


def test_annealing_leaves_failures_behind() -> None:
    """A step that failed is never where a chain goes on from."""
    space = tiling_space()
    strategy = Annealing(space, np.random.default_rng(3), trials=96)

    def outcomes(some: Sequence[Schedule]) -> list[FakeOutcome]:
        return [
            FakeOutcome("crash", None) if number % 3 == 0 else outcome
            for number, outcome in enumerate(outcomes_of(space, some))
        ]

    told = drive(strategy, 96, outcomes)
    assert len(told) == 96
    good = {row.tobytes() for row in strategy.history.rows[strategy.history.ok]}
    steps = [chain.row for chain in strategy._chains if chain.row is not None]
    assert steps
    assert all(row.tobytes() in good for row in steps)


def test_it_polishes_the_incumbent_at_the_end() -> None:
    space = tiling_space()
    strategy = Evolutionary(space, np.random.default_rng(0), trials=96, settings=ALONE)
    drive(strategy, 80, lambda some: outcomes_of(space, some))
    incumbent = strategy.history.best(2)[0]
    asked = np.array([space.encode(schedule) for schedule in strategy.ask(16)])
    away = (asked[:, None, :] != incumbent[None, :, :]).sum(axis=2).min(axis=1)
    assert (away == 1).sum() >= 4


def test_the_first_batch_meets_what_most_of_the_space_forbids() -> None:
    """One schedule in a hundred may use the tensor unit; sixteen drawn blindly mostly miss it."""
    decisions = (
        Decision("unit", ("scalar", "vector", "tensor"), "tensorize", "c", "instruction"),
        Decision("rows", tuple(range(1, 41)), "tile", "m", "rows", 1),
        Decision("depth", tuple(range(1, 11)), "tile", "k", "depth", 1),
    )
    rule = Constraint(
        "whole",
        "whole tiles",
        lambda c: ~c.is_("unit", "tensor") | ((c["rows"] % 16 == 0) & (c["depth"] % 2 == 0)),
        lambda values: "no whole tile",
    )
    space = Space("toy", decisions, (rule,))
    met = [
        sum(s["unit"] == "tensor" for s in Evolutionary(space, np.random.default_rng(n)).ask(16))
        for n in range(5)
    ]
    assert min(met) >= 1


def test_failures_are_avoided_once_known() -> None:
    space = tiling_space()
    strategy = Evolutionary(space, np.random.default_rng(1), trials=160)
    crash = FakeOutcome("crash", None)

    def outcomes(some: Sequence[Schedule]) -> list[FakeOutcome]:
        made = outcomes_of(space, some)
        return [crash if s["pack.B"] else o for s, o in zip(some, made, strict=True)]

    drive(strategy, 96, outcomes)
    late = [schedule for _ in range(4) for schedule in strategy.ask(16)]
    assert sum(bool(schedule["pack.B"]) for schedule in late) <= 12  # immigrants may


def test_outcomes_of_known_kernels_do_not_fit_the_model_again() -> None:
    space = tiling_space()
    strategy = Evolutionary(space, np.random.default_rng(0), trials=64, settings=ALONE)
    fits = []
    fit = strategy.model.fit
    strategy.model.fit = lambda *given, **named: fits.append(len(given[1])) or fit(*given, **named)  # type: ignore
    drive(strategy, 48, lambda some: outcomes_of(space, some))
    strategy.ask(1)
    assert fits == [16, 32, 48]
    for _ in range(3):
        asked = strategy.ask(8)
        strategy.tell(asked, [FakeOutcome(kernel_key="known") for _ in asked])
    assert fits == [16, 32, 48]
    drive(strategy, 16, lambda some: outcomes_of(space, some))
    strategy.ask(1)
    assert fits[3:] == [len(strategy.history)]


@pytest.mark.parametrize("name", ["random", "evolutionary", "annealing", "optuna-tpe"])
def test_of_schedules_that_mean_the_same_one_is_asked(name: str) -> None:
    """Here the order is read with threads alone."""
    decisions = (
        Decision("threads", (1, 2), "binding", "m", "threads"),
        Decision("order", ("mn", "nm", "nn"), "order", "nest", "order of the loops"),
        Decision("rows", (1, 2, 4, 8), "tile", "m", "rows"),
    )

    def meaning(columns: Columns) -> NDArray[np.int32]:
        found = columns.matrix.astype(np.int32)
        found[columns["threads"] == 1, 1] = 0
        return found

    space = Space("toy", decisions, meaning=meaning)
    strategy = make_strategy(name, space, np.random.default_rng(0), trials=40)
    told = drive(strategy, 40, lambda some: [FakeOutcome() for _ in some], batch=5)
    keys = {(s["threads"], s["order"] if s["threads"] == 2 else "", s["rows"]) for s in told}
    assert len(told) == len(keys) == 16


def test_a_kernel_counts_once_among_the_best() -> None:
    space = small_space()
    history = History(space)
    rows = space.sample(np.random.default_rng(0), 31)
    schedules = history.asked(history.fresh(rows))
    same = [FakeOutcome(seconds=1.0 + n, kernel_key="k") for n in range(len(schedules))]
    history.told(schedules, same)
    best, seconds = history.best(8)
    assert len(best) == 1
    assert seconds[0] == 1.0


def test_an_unknown_strategy_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="nearest is 'evolutionary'"):
        find_strategy("evolutionry")
