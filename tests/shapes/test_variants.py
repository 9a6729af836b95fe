"""Variants of good schedules that suit a member, by a model of what other members took."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from explorer.shapes.family import Point
from explorer.shapes.variants import Variants
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


def slow_ones() -> list[Schedule]:
    return [schedule for schedule in drawn((37,), 200) if schedule["unroll.s0"] == 1][:3]


def test_variants_are_one_decision_away_and_expected_to_be_faster() -> None:
    slow = slow_ones()
    found = Variants(member, PINS, 0).near((37,), told(), slow, 4)
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
    variants, times = Variants(member, PINS, 0), told()
    slow = slow_ones()
    first = variants.near((37,), times, slow, 2)
    assert first
    assert not set(variants.near((37,), times, [*slow, *first], 99)) & set(first)


def test_nothing_is_told_where_little_is_known() -> None:
    few: dict[Point, dict[Schedule, float]] = {(16,): dict.fromkeys(drawn((16,), 3), 1.0)}
    assert Variants(member, PINS, 0).near((37,), few, drawn((37,), 2), 4) == []


def test_schedules_of_other_spaces_are_passed_over() -> None:
    strange = Schedule.of("cpu", {"tile.z.0": 4})
    times = told()
    times[(16,)][strange] = 1e-9
    variants = Variants(member, PINS, 0)
    assert variants.near((37,), times, [strange], 4) == []
    assert variants.near((37,), times, [strange, *drawn((37,), 40)[:2]], 4) is not None


@pytest.mark.parametrize("count", [0, 1])
def test_no_more_than_asked_for(count: int) -> None:
    slow = slow_ones()
    assert len(Variants(member, PINS, 0).near((37,), told(), slow, count)) == count
