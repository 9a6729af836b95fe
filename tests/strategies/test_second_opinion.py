"""Schedules as levels, and what is proposed by expected improvement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from explorer.strategies.contract import (
    FakeOutcome,
    drive,
    example_seconds,
    example_space,
    outcomes_of,
)
from explorer.strategies.embedding import Embedding, tables_of
from explorer.strategies.evolutionary import Evolutionary, Settings
from explorer.strategies.history import MOST_PENDING, History
from explorer.strategies.second_opinion import SecondOpinion, clipped
from explorer.strategies.second_opinion import Settings as OpinionSettings
from ir.schedule import Schedule
from ir.space import Decision, Space

SPACE = example_space()


def opinion_of(history: History, **settings: float) -> SecondOpinion:
    return SecondOpinion(history, replace(OpinionSettings(), **settings))  # type: ignore[arg-type]


def measured(count: int, seed: int = 0) -> History:
    """`count` random rows, told."""
    history = History(SPACE)
    rows = history.distinct(SPACE.sample(np.random.default_rng(seed), count))
    schedules = history.asked(rows)
    history.told(schedules, outcomes_of(SPACE, schedules))
    return history


def decision(*domain: int | str | bool) -> Decision:
    return Decision("d", domain, "tile", "m", "a choice")


def test_sizes_are_placed_by_their_logarithm_and_by_the_powers_of_two_in_them() -> None:
    (sizes,) = tables_of(decision(1, 2, 4, 16))
    assert sizes[:, 0].tolist() == [0.0, 0.25, 0.5, 1.0]
    sizes, twos = tables_of(decision(16, 32, 48, 64))
    assert sizes[2, 0] == pytest.approx(np.log2(3) / 2)
    assert twos[:, 0].tolist() == [0.0, 0.5, 0.0, 1.0]
    assert len(tables_of(decision(3, 5, 7))) == 1
    (counts,) = tables_of(decision(0, 1, 3))
    assert counts[:, 0].tolist() == [0.0, 0.5, 1.0]


def test_names_are_equally_far_from_each_other() -> None:
    (corners,) = tables_of(decision("mnk", "nmk", "kmn"))
    apart = np.linalg.norm(corners[:, None] - corners[None], axis=2)
    assert apart == pytest.approx(1 - np.eye(3))
    (sides,) = tables_of(decision(False, True))
    assert sides[:, 0].tolist() == [0.0, 1.0]


def test_what_is_not_in_force_stands_in_the_middle() -> None:
    depth = Decision("depth", (1, 2, 4), "pipeline", "k", "ring", when=("ring", True))
    space = Space("toy", (Decision("ring", (False, True), "pipeline", "k", "a ring"), depth))
    embedding = Embedding(space)
    codes = embedding(np.array([[0, 0], [1, 0], [1, 2]], dtype=np.int16))
    assert codes.tolist() == [[0, 3], [1, 0], [1, 2]]
    assert embedding.tables[1][:, 0].tolist() == [0.0, 0.5, 1.0, 0.5]


def test_what_is_pinned_is_no_factor() -> None:
    assert len(Embedding(SPACE.pin(order="mnk")).tables) == len(Embedding(SPACE).tables) - 1


def test_slow_times_and_failures_are_alike() -> None:
    seconds = np.exp([0.0, 1.0, 2.0, 9.0, np.nan])
    assert clipped(seconds, 2.0).tolist() == pytest.approx([0.0, 1.0, 2.0, 3.0, 3.0])


def test_it_tells_fast_from_slow() -> None:
    opinion = opinion_of(measured(60))
    opinion.learn()
    pool = SPACE.sample(np.random.default_rng(1), 400)
    best = pool[np.argsort(-opinion.score(pool))[:20]]
    assert np.median(example_seconds(SPACE, best)) < np.quantile(example_seconds(SPACE, pool), 0.15)


def test_what_is_on_its_way_counts_as_chosen() -> None:
    """Its neighbours wait for what it tells."""
    history = measured(40)
    opinion = opinion_of(history)
    opinion.learn()
    pool = history.fresh(SPACE.sample(np.random.default_rng(1), 200))
    odds = np.ones(len(pool))
    first, second = opinion.choose(pool, odds, 2)
    assert first == opinion.score(pool).argmax()
    history.asked(pool[first][None])
    others = np.delete(np.arange(len(pool)), first)
    assert others[opinion.choose(pool[others], odds[others], 1)[0]] == second
    odds[second] = 0.0
    assert others[opinion.choose(pool[others], odds[others], 1)[0]] != second


def test_it_learns_from_the_fastest_of_many_and_from_others() -> None:
    history = measured(300)
    opinion = opinion_of(history, most=64)
    opinion.learn()
    assert opinion.known == pytest.approx(64 / len(history))
    assert len(opinion.process.codes) == 64


def test_pending_rows_are_forgotten_in_the_end() -> None:
    history = History(SPACE)
    rows = history.distinct(SPACE.sample(np.random.default_rng(0), 200))
    schedules = history.asked(rows)
    assert history.pending.tolist() == rows[-MOST_PENDING:].tolist()
    history.told(schedules[-3:], [FakeOutcome()] * 3)
    assert history.pending.tolist() == rows[-MOST_PENDING:-3].tolist()


def test_asked_for_more_while_some_is_measured_it_proposes_something_else() -> None:
    """As many asks ahead as a device takes, told in another order than they were asked in."""
    strategy = Evolutionary(SPACE, np.random.default_rng(0), trials=96)
    drive(strategy, 32, lambda some: outcomes_of(SPACE, some))
    waiting, told = [strategy.ask(3) for _ in range(4)], 0
    keys = [schedule.key for batch in waiting for schedule in batch]
    while told < 48:
        batch = waiting.pop(told % len(waiting))
        strategy.tell(batch, outcomes_of(SPACE, batch))
        told += len(batch)
        waiting.append(strategy.ask(3))
        keys += [schedule.key for schedule in waiting[-1]]
    assert len(keys) == len(set(keys))
    assert len(strategy.history.pending) == 12


def test_the_same_answers_give_the_same_proposals_whatever_is_on_its_way() -> None:
    def asked() -> list[str]:
        strategy = Evolutionary(SPACE, np.random.default_rng(7), trials=64)
        drive(strategy, 24, lambda some: outcomes_of(SPACE, some))
        first, second = strategy.ask(4), strategy.ask(4)
        strategy.tell(second, outcomes_of(SPACE, second))
        return [schedule.key for schedule in [*first, *second, *strategy.ask(8)]]

    assert asked() == asked()


def test_names_beside_the_fastest_are_turned_each_in_its_turn() -> None:
    """Packing is slow wherever it is met, and is tried beside the fastest all the same."""
    sizes = tuple(range(1, 9))
    space = Space(
        "toy",
        (
            Decision("rows", sizes, "tile", "m", "rows"),
            Decision("depth", sizes, "tile", "k", "depth"),
            Decision("pack", (False, True), "layout", "A", "copy"),
            Decision("unit", ("a", "b"), "tensorize", "c", "instruction"),
        ),
    )
    strategy = Evolutionary(space, np.random.default_rng(0), trials=64)

    def outcomes(some: Sequence[Schedule]) -> list[FakeOutcome]:
        times = [1.0 + s["rows"] + s["depth"] + 9.0 * (s["pack"] is True) for s in some]  # type: ignore[operator]
        return [FakeOutcome(seconds=time) for time in times]

    told = drive(strategy, 64, outcomes, batch=8)
    fast = [schedule for schedule in told if outcomes([schedule])[0].seconds - 9.0 <= 5.0]  # type: ignore[operator]
    assert any(schedule["pack"] for schedule in fast)


def test_it_finds_more_with_few_trials_than_trees_alone() -> None:
    def best(settings: Settings, seed: int) -> float:
        rng = np.random.default_rng(seed)
        strategy = Evolutionary(SPACE, rng, trials=48, settings=settings)
        told = drive(strategy, 48, lambda some: outcomes_of(SPACE, some), batch=8)
        rows = np.array([SPACE.encode(schedule) for schedule in told])
        return float(example_seconds(SPACE, rows).min())

    both, trees = (
        np.mean([best(settings, seed) for seed in range(4)])
        for settings in (Settings(), Settings(second=0.0))
    )
    assert both < trees


def test_a_long_search_leaves_it_few_seats() -> None:
    strategy = Evolutionary(SPACE, np.random.default_rng(0), trials=2000)
    rows = SPACE.sample(np.random.default_rng(1), 4000)
    known = list({SPACE.schedule(row): None for row in rows})
    strategy.tell(known, outcomes_of(SPACE, known))
    assert strategy.second_share < 0.1


def test_what_is_known_may_all_lie_outside_of_what_is_pinned() -> None:
    pinned = SPACE.pin(order="mnk")
    rows = SPACE.sample(np.random.default_rng(1), 200)
    known = list({SPACE.schedule(row): None for row in rows})
    outside = [schedule for schedule in known if schedule["order"] != "mnk"][:24]
    strategy = Evolutionary(pinned, np.random.default_rng(0), trials=64)
    strategy.tell(outside, outcomes_of(SPACE, outside))
    told = drive(strategy, 24, lambda some: outcomes_of(SPACE, some), batch=4)
    assert len(told) == 24
    assert {schedule["order"] for schedule in told} == {"mnk"}
