"""Few schedules for many points, on tables of numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from explorer.shapes.cover import covering, losses_of, next_point, owners


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


def test_what_was_not_measured_at_a_point_is_not_chosen_there() -> None:
    times = np.array([[1.0, 2.0], [math.nan, 1.0], [3.0, math.nan]])
    losses = losses_of(times)
    assert losses[0].tolist() == [0.0, 1.0]
    assert losses[1, 0] == losses[2, 1] == math.inf
    chosen = covering(losses, 0.02)
    assert owners(losses, chosen, 0.005) == [0, 1, 0]


def test_a_schedule_that_was_right_nowhere_is_never_chosen() -> None:
    times = np.array([[1.0, math.nan], [1.0, math.nan]])
    assert covering(losses_of(times), 0.02) == (0,)


def test_the_fastest_at_a_measured_point_wins_there_whatever_its_neighbours_have() -> None:
    losses = np.zeros((5, 2))
    losses[:, 1] = 0.2
    losses[2] = 0.17, 0.0
    assert owners(losses, covering(losses, 0.01), 0.005) == [0, 0, 1, 0, 0]


def test_the_next_point_is_where_losses_grow_fastest_and_nothing_is_near() -> None:
    points = [(1,), (8,), (64,), (512,), (4096,)]
    assert next_point(points, [(1,), (4096,)], [0.1, 0.1]) == (64,)
    searched, rates = [(1,), (64,), (4096,)], [0.5, 0.0, 0.0]
    assert next_point(points, searched, rates) == (8,)
    assert next_point(points, searched, rates[::-1]) == (512,)
    assert next_point(points[:1], [(1,)], [0.0]) is None


def test_the_next_point_is_far_from_others_in_what_tells_members_apart() -> None:
    points = [(1,), (8,), (64,), (512,), (4096,)]

    def apart(one: tuple[int, ...], other: tuple[int, ...]) -> float:
        return abs(max(one[0], 500) - max(other[0], 500)) / 500  # all small ones are alike

    assert next_point(points, [(1,), (4096,)], [0.1, 0.1], apart) == (512,)


@pytest.mark.parametrize("seed", range(5))
def test_the_chosen_are_as_good_as_all_within_the_tolerance(seed: int) -> None:
    losses = np.random.default_rng(seed).exponential(0.1, (12, 8))
    losses -= losses.min(axis=1, keepdims=True)
    chosen = covering(losses, 0.02)
    assert losses[:, list(chosen)].min(axis=1).max() <= 0.02
    mine = owners(losses, chosen, 0.005)
    assert all(losses[n, owner] <= 0.025 for n, owner in enumerate(mine))
