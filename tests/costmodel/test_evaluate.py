"""Evaluation: its measures on known orders, and models on workloads that they have not seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costmodel.dataset import Group, fit_groups
from costmodel.evaluate import cross_validate, evaluate, lines, regret, spearman
from costmodel.model import Settings
from ir.errors import UsageError
from tests.costmodel.groups import group, groups

QUICK = Settings(rounds=60, depth=4, label="ratio", least=5.0)


def test_regret_is_the_best_of_the_head_over_the_best_of_all() -> None:
    seconds = np.array([4.0, 1.0, 2.0, 8.0])
    scores = np.array([4.0, 1.0, 3.0, 2.0])
    assert [regret(scores, seconds, top) for top in (1, 2, 3, 4)] == [4.0, 2.0, 2.0, 1.0]


def test_a_lucky_time_is_not_the_best_where_enough_were_measured_again() -> None:
    """Kernel 0 was measured once and lowest; the fastest of the confirmed ones is kernel 3."""
    some = replace(group("op", "n=1", 30, 3), seconds=1.0 + np.arange(30.0))
    sure = np.arange(30) >= 3
    assert some.best == 1.0
    assert replace(some, confirmed=sure).best == 4.0
    assert replace(some, confirmed=sure & (np.arange(30) < 7)).best == 1.0  # too few
    first = -np.arange(30.0)
    assert regret(first, some.seconds, 1, best=4.0) == 1.0
    assert regret(-first, some.seconds, 1, best=4.0) == 30.0 / 4.0


def test_rank_correlation_on_known_orders() -> None:
    rising = np.arange(10.0)
    assert spearman(rising, np.exp(rising)) == pytest.approx(1.0)
    assert spearman(rising, -rising) == pytest.approx(-1.0)
    assert spearman(rising, np.ones(10)) == 0.0
    # ties share the mean of their ranks: (1, 2.5, 2.5, 4) against (1, 2, 3, 4)
    left, right = np.array([1.0, 2.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0])
    assert spearman(left, right) == pytest.approx(0.9486832980505138)


@pytest.mark.parametrize("split", ["workload", "operator"])
def test_left_out_workloads_are_ranked_better_than_by_rivals(split: str) -> None:
    found = cross_validate(groups(), split, settings=QUICK)
    summary = found.summary()
    assert set(summary) == {"model", "traffic", "neighbour", "random"}
    assert summary["model"]["workloads"] == 6
    for rival in ("traffic", "neighbour", "random"):
        assert summary["model"]["correlation"] > summary[rival]["correlation"]
    for rival in ("traffic", "random"):
        assert summary["model"]["top5.mean"] < summary[rival]["top5.mean"]
    assert summary["model"]["correlation"] > 0.8
    assert summary["model"]["top5.mean"] < 1.05
    seen = found.calibration
    assert seen.valid_given > 0.9 > 0.3 > seen.failed_given
    assert seen.failures == sum(int((~g.ok).sum()) for g in groups())


def test_every_fold_is_left_out_of_what_its_model_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    learnt: list[set[str]] = []

    def spy(some: list[Group], **options: object) -> object:
        learnt.append({g.operator for g in some})
        return fit_groups(some, settings=QUICK)

    monkeypatch.setattr("costmodel.evaluate.fit_groups", spy)
    told: list[str] = []
    cross_validate(groups(), "operator", progress=told.append)
    assert told == ["op0", "op1", "op2"]
    assert learnt == [{"op1", "op2"}, {"op0", "op2"}, {"op0", "op1"}]


def test_a_finished_model_is_evaluated_and_told_in_lines() -> None:
    some = groups()
    model = fit_groups(some[:4], settings=QUICK)
    found = evaluate(model, some[4:])
    assert set(found.summary()) == {"model", "traffic", "random"}
    text = list(lines(found))
    assert text[0].startswith("ranking")
    assert any(line.startswith("model") for line in text)
    assert any("failures; Brier score" in line for line in text)
    with pytest.raises(UsageError, match="differ in feature schema"):
        evaluate(model, [replace(g, names=("other",)) for g in some])


def test_what_cannot_be_evaluated_is_refused() -> None:
    with pytest.raises(UsageError, match="no split 'axis'; there are workload, operator"):
        cross_validate(groups(), "axis")
    with pytest.raises(UsageError, match="one operator only"):
        cross_validate(groups()[:2], "operator", settings=QUICK)
    with pytest.raises(UsageError, match="nothing to rank"):
        cross_validate([group("op", "n=1", 10, 0)], settings=QUICK)
    with pytest.raises(UsageError, match="different features"):
        fit_groups([groups()[0], replace(groups()[1], names=("other",))])
    with pytest.raises(UsageError, match="too few valid trials"):
        fit_groups([])


def test_failures_teach_through_the_validity_head() -> None:
    """The same times with and without the failures give the same ranks and another score."""
    some = groups()
    without = [replace(g, features=g.rows[g.ok], seconds=g.seconds[g.ok]) for g in some]
    fresh = group("op9", "n=9", 300, 9)
    taught, blind = (fit_groups(list(g), settings=QUICK) for g in (some, without))
    assert (blind.validity(fresh.rows) == 1).all()
    assert taught.validity(fresh.rows)[~fresh.ok].max() < 0.5
    assert taught.predict(fresh.rows)[~fresh.ok].mean() < (
        0.5 * blind.predict(fresh.rows)[~fresh.ok].mean()
    )
