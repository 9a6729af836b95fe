"""Who measures next: each job once, then the one that is expected to gain most."""

from __future__ import annotations

import math

import pytest

from explorer.allocation import PATIENCE, WINDOW, Course, next_turn


def course(*turns: tuple[int, float | None], weight: float = 1.0) -> Course:
    made = Course(weight)
    for trials, best in turns:
        made.note(trials, best)
    return made


def test_every_job_has_a_turn_first() -> None:
    courses = [course((16, 100.0), weight=1e6), Course(), Course()]
    assert next_turn(courses, "total") == 1
    courses[1].note(16, 1e-9)
    assert next_turn(courses, "total") == 2


def test_the_longer_kernel_counts_in_total_and_not_in_ratio() -> None:
    courses = [course((16, 1e-6)), course((32, 1.0))]
    assert next_turn(courses, "total") == 1
    assert next_turn(courses, "ratio") == 0


def test_weights_multiply() -> None:
    assert next_turn([course((16, 1.0)), course((16, 1.0), weight=1.1)], "total") == 1
    assert course((16, 1.0), weight=3.0).gain(False) == pytest.approx(3 * 0.8 / 16)


def test_recent_success_is_followed() -> None:
    stuck = course((16, 1.0), (32, 1.0), (48, 1.0))
    falling = course((16, 2.0), (32, 1.5), (48, 1.0))
    assert next_turn([stuck, falling], "total") == 1
    assert falling.gain(False) == pytest.approx(0.2 * 1.0 / 32 + 0.8 / 48)


def test_success_long_ago_is_forgotten() -> None:
    old = course((16, 9.0), *((16 * n, 1.0) for n in range(2, WINDOW + 3)))
    trials = 16 * (WINDOW + 2)
    assert old.gain(False) == pytest.approx(0.8 / trials)


def test_hope_fades_with_trials() -> None:
    gains = [course((trials, 1.0)).gain(False) for trials in (16, 32, 64)]
    assert gains == sorted(gains, reverse=True)


def test_nothing_valid_is_tried_again_but_not_for_ever() -> None:
    hopeless = course((16, None), (32, None))
    assert math.isinf(hopeless.gain(True))
    hopeless = course(*((16 * n, None) for n in range(1, PATIENCE + 1)))
    assert hopeless.gain(True) == 0.0
    assert next_turn([hopeless, course((16, 1e-9))], "total") == 1


def test_a_first_valid_time_is_no_infinite_gain() -> None:
    assert math.isfinite(course((16, None), (32, 1.0)).gain(False))


def test_exhausted_jobs_have_no_turn() -> None:
    done = course((16, 1.0))
    done.exhausted = True
    assert next_turn([done], "total") is None
    assert next_turn([done, course((999, 1e-9))], "total") == 1


def best_after(job: int, trials: int) -> float:
    """Made-up jobs: the longer a kernel runs, the more trials it takes to come near its best."""
    longest = 1.0 / (1 + job) ** 2
    return longest * (0.3 + 0.7 * math.exp(-trials * (1 + job) / 100))


def total(turns: list[int], batch: int, jobs: int) -> float:
    return sum(best_after(job, batch * turns.count(job)) for job in range(jobs))


def test_a_budget_goes_further_than_in_even_shares() -> None:
    batch, jobs, count = 8, 6, 30
    courses = [Course() for _ in range(jobs)]
    turns: list[int] = []
    for _ in range(count):
        job = next_turn(courses, "total")
        assert job is not None
        turns.append(job)
        trials = batch * turns.count(job)
        courses[job].note(trials, best_after(job, trials))
    even = [turn % jobs for turn in range(count)]
    assert total(turns, batch, jobs) < 0.8 * total(even, batch, jobs)
    assert set(turns) == set(range(jobs))
