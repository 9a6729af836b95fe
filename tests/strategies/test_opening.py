"""The first trials under a prior: in portions, each of which corrects what the prior says."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from costmodel.features import IDEAL
from explorer.strategies.contract import FakeOutcome
from explorer.strategies.evolutionary import Evolutionary
from explorer.strategies.evolutionary import Settings as EvolutionarySettings
from explorer.strategies.opening import (
    ESTIMATE,
    HARDLY,
    MOST,
    Correction,
    Opening,
    Routes,
    Settings,
)
from ir.space import Columns, Decision, Matrix, Space
from tests.space.toy import tiling_space, toy_seconds

SPACE = tiling_space()
BEST = float(toy_seconds(SPACE, SPACE.sample(np.random.default_rng(9), 2000)).min())


def _seconds(matrix: Matrix) -> NDArray[np.float64]:
    """The toy's times, but what packs A takes four times as long."""
    packed = SPACE.columns(matrix)["pack.A"] == 1
    return toy_seconds(SPACE, matrix) * np.where(packed, 4.0, 1.0)


class Flattering:
    """Knows the toy's times, and nothing of what packing A costs here."""

    def score(self, space: Space, matrix: Matrix) -> NDArray[np.float64]:
        return (BEST / toy_seconds(space, matrix)) ** 2


def _led(seed: int = 0) -> Evolutionary:
    strategy = Evolutionary(SPACE, np.random.default_rng(seed), trials=64)
    strategy.use_prior(Flattering())
    return strategy


def _told(strategy: Evolutionary, count: int) -> Matrix:
    space = strategy.space
    asked = strategy.ask(count)
    rows = np.array([space.encode(schedule) for schedule in asked])
    strategy.tell(asked, [FakeOutcome(seconds=float(time)) for time in _seconds(rows)])
    return rows


def test_a_prior_is_heard_in_portions_until_the_search_has_its_own_model() -> None:
    strategy = _led()
    assert strategy.portion(16) == Settings().portion
    assert strategy.portion(2) == 2
    for _ in range(4):
        assert len(_told(strategy, strategy.portion(16))) == 4
    settings = EvolutionarySettings()
    assert strategy.portion(16) == settings.early
    while len(strategy.history) < settings.few:
        _told(strategy, settings.early)
    assert strategy.portion(16) == settings.portion
    assert Evolutionary(tiling_space(), np.random.default_rng(0)).portion(16) == 16


def test_but_one_of_the_spaces_own_seeds_has_a_seat_for_certain() -> None:
    space = tiling_space()
    first = space.seed_rows(np.random.default_rng(0))[:1]
    rows = _told(_led(), 4)
    assert (rows[0] == first[0]).all()


def test_what_disappoints_is_tried_less() -> None:
    """What packs A is found slow, and left for the rest although the prior likes it."""
    first, last = [], []
    for seed in range(10):
        strategy = _led(seed)
        shares = [
            float((SPACE.columns(_told(strategy, 4))["pack.A"] == 1).mean()) for _ in range(4)
        ]
        first.append(shares[0])
        last.append(shares[-1])
    assert np.mean(first) > 0.4
    assert np.mean(last) < 0.75 * np.mean(first)


def test_a_correction_reaches_what_is_alike_and_fades() -> None:
    space = tiling_space()
    rows = space.sample(np.random.default_rng(0), 6)
    scores = np.full(6, 0.9)
    seconds = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 4.0])
    correction = Correction(space, rows, scores, seconds)
    there = correction(rows)
    assert there[-1] < -0.3 < there[:5].min()
    near = space.neighbours(rows[-1])
    far = space.sample(np.random.default_rng(7), 200)
    assert np.median(correction(near)) < np.median(correction(far))


def test_a_correction_by_thousands_stays_small() -> None:
    space = tiling_space()
    rows = space.sample(np.random.default_rng(0), 500)
    times = toy_seconds(space, rows)
    assert len(Correction(space, rows, np.ones(500), times).rows) == MOST


def test_the_pool_holds_what_was_measured_and_mutants_of_it() -> None:
    space, rng = tiling_space(), np.random.default_rng(0)
    measured = space.sample(np.random.default_rng(3), 2)
    draw = partial(space.sample, rng)
    pool = Opening(
        space, rng, Settings(drawn=8, mutants=400), draw, partial(space.seed_rows, rng)
    ).pool(measured)
    assert space.legal(pool).all()
    apart = (pool[:, None, :] != measured[None, :, :]).sum(axis=2).min(axis=1)
    assert (apart == 0).any()
    assert ((apart > 0) & (apart <= 2)).any()


def test_seeds_have_seats_later_whatever_a_prior_thinks() -> None:
    drawn = SPACE.sample(np.random.default_rng(4), 12)
    space = replace(SPACE, seeds=tuple(SPACE.schedule(row).as_dict() for row in drawn))
    settings = EvolutionarySettings(seed_later=1.0)
    strategy = Evolutionary(space, np.random.default_rng(0), trials=64, settings=settings)
    strategy.use_prior(Flattering())
    seeds = {row.tobytes() for row in drawn}
    asked = [row.tobytes() for _ in range(3) for row in _told(strategy, 4)]
    assert {*asked} == seeds


def two_routes(told: bool = False) -> Space:
    """A way through one kernel and one through two; what is estimated is `cost` in powers of two,
    on both alike, and of a second if that is `told`."""

    def features(columns: Columns) -> tuple[tuple[str, ...], NDArray[np.float32]]:
        cost = np.asarray(columns["cost"], dtype=np.float32)
        both = np.stack([cost, np.zeros_like(cost)], axis=1)
        return ((ESTIMATE, IDEAL), both) if told else ((ESTIMATE,), both[:, :1])

    return Space(
        "toy",
        (
            Decision("way", ("one", "two"), "tensorize", "", "of two"),
            Decision("cost", tuple(range(12)), "tile", "", "of each"),
        ),
        features=features,
    )


def test_a_route_that_was_not_measured_is_hoped_for() -> None:
    space = two_routes()
    routes = Routes(space)
    rows = np.array([(way, cost) for way in (0, 1) for cost in range(12)], dtype=np.int16)
    assert routes.order(rows)[:2].tolist() == [[0, 0], [1, 0]]
    routes.told(np.array([[0, 1], [0, 2]], dtype=np.int16), np.array([16.0, 32.0]))
    assert routes.order(rows)[0].tolist() == [0, 0]  # both as far off, for all that is known
    routes.told(np.array([[1, 3]], dtype=np.int16), np.array([16.0]))  # less far off
    assert routes.order(rows)[:3].tolist() == [[1, 0], [1, 1], [0, 0]]


def test_of_a_route_that_was_not_measured_the_estimate_is_believed() -> None:
    """All that was measured took eight times as long as told: worse ones of the other are first."""
    routes = Routes(two_routes(told=True))
    routes.told(np.array([[0, 1]], dtype=np.int16), np.array([16.0]))
    rows = np.array([[0, 0], [1, 2], [1, 4]], dtype=np.int16)
    assert routes.order(rows).tolist() == [[1, 2], [0, 0], [1, 4]]


def test_a_route_near_the_fastest_that_was_hardly_tried_is_neglected() -> None:
    routes = Routes(two_routes())
    assert routes.neglected() is None
    most, _ = HARDLY[-1]
    first = np.array([[0, cost] for cost in range(most)], dtype=np.int16)
    routes.told(first, 1.0 + np.arange(float(most)))
    routes.told(np.array([[1, 3], [1, 4]], dtype=np.int16), np.array([1.4, np.nan]))
    found = routes.neglected()
    assert found is not None
    assert found.tolist() == [1, 3]
    both = np.array([[0, 0], [1, 7]], dtype=np.int16)
    assert routes.beside(both, found).tolist() == [[1, 7]]
    routes.told(np.array([[1, 5]] * most, dtype=np.int16), np.full(most, 2.0))
    assert routes.neglected() is None  # it was tried


def test_the_farther_behind_a_route_is_the_sooner_it_is_left_alone() -> None:
    routes = Routes(two_routes())
    (few, far), (_, near) = HARDLY
    routes.told(np.array([[0, 1]], dtype=np.int16), np.array([1.0]))
    for number in range(few):
        assert (routes.neglected() is None) == (not number)
        routes.told(np.array([[1, number]], dtype=np.int16), np.array([(far + near) / 2]))
    assert routes.neglected() is None


def test_a_route_far_behind_is_left_alone() -> None:
    routes = Routes(two_routes())
    routes.told(np.array([[0, 1], [1, 1]], dtype=np.int16), np.array([1.0, 4.5]))
    assert routes.neglected() is None


def test_failures_say_nothing_of_a_route() -> None:
    space = two_routes()
    routes = Routes(space)
    routes.told(np.array([[0, 1], [1, 1]], dtype=np.int16), np.array([np.nan, 4.0]))
    rows = np.array([[0, 5], [1, 4]], dtype=np.int16)
    assert routes.order(rows).tolist() == [[1, 4], [0, 5]]
