"""Few schedules for many points, on tables of numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from explorer.shapes.cover import covering, filled, next_point, owners, smoothed

POINTS = [(1,), (4,), (16,), (64,)]


def test_a_schedule_that_is_nearly_best_everywhere_is_enough() -> None:
    losses = np.array([[0.01, 0.0, 0.5], [0.0, 0.3, 0.5], [0.01, 0.3, 0.0]])
    assert covering(losses, 0.02) == (0,)
    assert owners(losses, (0,), 0.02) == [0, 0, 0]


def test_others_are_added_until_all_points_are_within_the_tolerance() -> None:
    losses = np.array([[0.0, 0.9, 0.6], [0.0, 0.9, 0.6], [0.9, 0.0, 0.6], [0.9, 0.0, 0.6]])
    assert set(covering(losses, 0.02)) == {0, 1}
    assert owners(losses, (0, 1), 0.02) == [0, 0, 1, 1]


def test_no_schedule_is_added_that_helps_nowhere() -> None:
    losses = np.array([[0.1, 0.2], [0.1, 0.3]])
    assert covering(losses, 0.02) == (0,)


def test_what_was_not_measured_is_as_near_points_have_it_and_in_doubt() -> None:
    times = np.array([[1.0, 2.0], [1.0, math.nan], [1.0, 1.5], [2.0, 1.0]])
    losses = filled(POINTS, times)
    assert losses[0].tolist() == [0.0, 1.0]
    assert 0.5 < losses[1, 1] < 1.1  # between its neighbours' 1.0 and 0.5, and some doubt
    assert not np.isnan(losses).any()


def test_a_schedule_that_was_right_nowhere_is_never_chosen() -> None:
    times = np.array([[1.0, math.nan], [1.0, math.nan]])
    assert covering(filled(POINTS[:2], times), 0.02) == (0,)


def test_one_lucky_point_among_others_decides_nothing() -> None:
    points = [(2**n,) for n in range(5)]
    losses = np.zeros((5, 2))
    losses[:, 1] = 0.2
    losses[2] = 0.05, 0.0
    near = smoothed(points, losses)
    assert covering(near, 0.02) == (0,)
    assert (near >= 0).all()


def test_the_next_point_is_where_losses_grow_fastest_and_nothing_is_near() -> None:
    points = [(1,), (8,), (64,), (512,), (4096,)]
    assert next_point(points, [(1,), (4096,)], [0.1, 0.1]) == (64,)
    searched, rates = [(1,), (64,), (4096,)], [0.5, 0.0, 0.0]
    assert next_point(points, searched, rates) == (8,)
    assert next_point(points, searched, rates[::-1]) == (512,)
    assert next_point(points[:1], [(1,)], [0.0]) is None


@pytest.mark.parametrize("seed", range(5))
def test_the_chosen_are_as_good_as_all_within_the_tolerance(seed: int) -> None:
    losses = np.random.default_rng(seed).exponential(0.1, (12, 8))
    losses -= losses.min(axis=1, keepdims=True)
    chosen = covering(losses, 0.02)
    assert losses[:, list(chosen)].min(axis=1).max() <= 0.02
    mine = owners(losses, chosen, 0.02)
    assert all(losses[n, owner] <= 0.025 for n, owner in enumerate(mine))
