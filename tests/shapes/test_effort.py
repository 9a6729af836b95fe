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
    assert some.most([(1,), (64,)]) == (1,)


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
    assert some.most(LEAST) == (1,)


def test_where_no_bound_is_known_the_nearest_point_is_the_measure() -> None:
    """Of two families that differ in what is taken to be the least by a factor alone, the same."""
    times = {(1,): 2.0, (8,): 40.0, (64,): 100.0}
    one, other = effort(), Effort(lambda point: 1e9 * LEAST[point])
    for some in (one, other):
        for point, seconds in times.items():
            some.note(point, seconds)
    assert [round(one.worth(p), 9) for p in LEAST] == [round(other.worth(p), 9) for p in LEAST]
    assert min(one.worth(p) for p in LEAST) > 0
