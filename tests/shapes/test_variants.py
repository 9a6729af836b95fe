"""Variants of good schedules that suit a member, by a model of what other members took."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from explorer.shapes.family import Point
from explorer.shapes.learnt import Learnt, Times
from explorer.shapes.members import Members
from explorer.shapes.variants import variants
from explorer.workload import Workload
from ir.schedule import Schedule

PINS: dict[str, Any] = {}
POINTS = ((16,), (24,), (64,), (200,))


def member(point: Point) -> Workload:
    return Workload.of("matmul", {"m": point[0], "n": 64, "k": 64}, "cpu", 1)


def seconds(point: Point, schedule: Schedule) -> float:
    """How many steps are written out is all that counts."""
    return point[0] * 1e-6 / int(schedule["unroll.s0"])


def drawn(point: Point, count: int) -> list[Schedule]:
    space = member(point).space()
    return list(map(space.schedule, space.sample(np.random.default_rng(point[0]), count)))


def told() -> dict[Point, dict[Schedule, float]]:
    return {point: {s: seconds(point, s) for s in drawn(point, 40)} for point in POINTS}


def taught(times: Times) -> Learnt:
    learnt = Learnt(Members(member), PINS, 0)
    learnt.learn(times)
    return learnt


def slow_ones() -> list[Schedule]:
    return [schedule for schedule in drawn((37,), 200) if schedule["unroll.s0"] == 1][:3]


def test_variants_are_one_decision_away_and_expected_to_be_faster() -> None:
    slow = slow_ones()
    found = variants(taught(told()), (37,), slow, 4)
    assert 0 < len(found) <= 4
    for schedule in found:
        assert member((37,)).space().refusal(schedule) is None
        assert any(len(changed(schedule, other)) == 1 for other in slow)
        assert int(schedule["unroll.s0"]) > 1
    assert not set(found) & set(slow)


def changed(one: Schedule, other: Schedule) -> set[str]:
    """The decisions in which two differ; what exists under one of them alone counts with it."""
    left, right = one.as_dict(), other.as_dict()
    return {name for name in left if name in right and left[name] != right[name]}


def test_what_is_known_is_not_told_again() -> None:
    learnt, slow = taught(told()), slow_ones()
    first = variants(learnt, (37,), slow, 2)
    assert first
    assert not set(variants(learnt, (37,), [*slow, *first], 99)) & set(first)


def test_nothing_is_told_where_little_is_known() -> None:
    few: dict[Point, dict[Schedule, float]] = {(16,): dict.fromkeys(drawn((16,), 3), 1.0)}
    assert variants(taught(few), (37,), drawn((37,), 2), 4) == []


def test_schedules_of_other_spaces_are_passed_over() -> None:
    strange = Schedule.of("cpu", {"tile.z.0": 4})
    times = told()
    times[(16,)][strange] = 1e-9
    learnt = taught(times)
    assert variants(learnt, (37,), [strange], 4) == []
    assert learnt.told((37,), [strange]) == {}
    assert variants(learnt, (37,), [strange, *drawn((37,), 40)[:2]], 4) is not None


@pytest.mark.parametrize("count", [0, 1])
def test_no_more_than_asked_for(count: int) -> None:
    slow = slow_ones()
    assert len(variants(taught(told()), (37,), slow, count)) == count


def test_what_two_models_tell_is_between_them_and_doubted_by_how_far_they_are_apart() -> None:
    learnt, schedules = taught(told()), drawn((37,), 30)
    found = learnt.told((37,), schedules)
    assert len(found) == len(set(schedules))
    space = member((37,)).space()
    for schedule, one in found.items():
        row = np.array([space.encode(schedule)], dtype=np.int16)
        assert learnt.seconds((37,), row)[0] == pytest.approx(one.seconds)
        assert one.doubt >= 0.1
    assert max(one.doubt for one in found.values()) > 0.1
