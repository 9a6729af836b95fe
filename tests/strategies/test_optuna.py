"""Optuna's samplers keep the contract too, learn, and say what is missing where Optuna is."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from explorer.strategies.base import make_strategy
from explorer.strategies.contract import (
    FakeOutcome,
    StrategyContract,
    drive,
    example_space,
    outcomes_of,
)
from explorer.strategies.optuna_samplers import Sampled
from ir.errors import MissingTarget

pytest.importorskip("optuna")
pytest.importorskip("cmaes")


class TestTpe(StrategyContract):
    name = "optuna-tpe"


class TestRandom(StrategyContract):
    name = "optuna-random"


class TestCmaes(StrategyContract):
    name = "optuna-cmaes"


class TestNsgaii(StrategyContract):
    name = "optuna-nsgaii"


@pytest.mark.parametrize("name", ["optuna-tpe", "optuna-nsgaii"])
def test_what_is_told_makes_later_proposals_faster(name: str) -> None:
    space = example_space()
    gains = []
    for seed in range(3):  # together: of one, the first proposals may happen to be good
        strategy = make_strategy(name, space, np.random.default_rng(seed), trials=64)
        told = drive(strategy, 64, lambda some: outcomes_of(space, some), batch=8)
        times = [outcome.seconds or np.inf for outcome in outcomes_of(space, told)]
        gains.append(np.mean(times[-24:]) / np.mean(times[:16]))
    assert np.mean(gains) < 0.9


def test_refused_proposals_and_failures_are_told_as_pruned() -> None:
    space = example_space()
    strategy = make_strategy("optuna-tpe", space, np.random.default_rng(0), trials=32)
    assert isinstance(strategy, Sampled)
    asked = drive(strategy, 32, lambda some: [FakeOutcome("crash", None)] * len(some))
    pruned = [trial for trial in strategy._study.trials if trial.state.name == "PRUNED"]
    assert len(pruned) >= len(asked) == 32


@pytest.mark.parametrize(
    ("package", "name"), [("optuna.samplers", "optuna-tpe"), ("cmaes", "optuna-cmaes")]
)
def test_what_is_missing_is_said_in_one_line(
    package: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingTarget, match=r"not installed: pip install 'tilewright\[optuna\]'"):
        make_strategy(name, example_space(), np.random.default_rng(0))
