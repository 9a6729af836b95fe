"""Which point is searched again, by made-up times."""

from __future__ import annotations

from explorer.shapes.effort import Effort
from explorer.shapes.family import Point

LEAST: dict[Point, float] = {(1,): 1.0, (8,): 8.0, (64,): 64.0}


def effort() -> Effort:
    return Effort(LEAST.__getitem__)


def test_trials_go_where_a_time_is_farthest_from_the_least() -> None:
    some = effort()
    assert some.most(LEAST) is None
    for point, seconds in (((1,), 2.0), ((8,), 40.0), ((64,), 100.0)):
        some.note(point, seconds)
    assert some.most(LEAST) == (8,)
    assert some.most([(1,), (64,)]) == (64,)


def test_and_no_longer_there_when_they_win_nothing() -> None:
    some = effort()
    for point, seconds in (((1,), 2.0), ((8,), 40.0), ((64,), 100.0)):
        some.note(point, seconds)
    before = some.worth((8,))
    some.note((8,), 39.9)
    assert some.worth((8,)) < 0.6 * before
    some.note((8,), 30.0)
    assert some.worth((8,)) > 0.6 * before
    for _ in range(20):
        some.note((8,), 31.0)
    assert some.most(LEAST) == (64,)


def test_little_work_takes_as_long_as_a_kernel_does_to_begin() -> None:
    some = Effort(lambda point: 1e-3 * point[0])
    for point, seconds in (((1,), 3.0), ((2,), 3.1), ((4,), 3.0), ((8000,), 12.0)):
        some.note(point, seconds)
    assert some.most([(1,), (2,), (4,), (8000,)]) == (8000,)
    assert some.worth((2,)) < 0.2


def test_what_is_told_in_other_units_ranks_points_all_the_same() -> None:
    some = Effort(lambda point: 1e9 * LEAST[point])  # operations
    for point, seconds in (((1,), 2.0), ((8,), 40.0), ((64,), 100.0)):
        some.note(point, seconds)
    assert some.most(LEAST) == (8,)
    assert min(map(some.worth, LEAST)) > 0
