"""Schedules as values: equality, hash, canonical JSON, refusals of damaged text."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ir.errors import UsageError
from ir.schedule import Schedule, Value

VALUES = st.dictionaries(
    st.text(min_size=1, max_size=12), st.one_of(st.integers(), st.booleans(), st.text(max_size=8))
)


@given(VALUES, st.randoms())
def test_json_round_trip_is_canonical(values: dict[str, Value], shuffler: random.Random) -> None:
    schedule = Schedule.of("cpu", values)
    again = Schedule.from_json(schedule.to_json())
    assert again == schedule
    assert hash(again) == hash(schedule)
    items = list(values.items())
    shuffler.shuffle(items)
    assert Schedule("cpu", tuple(items)).key == again.key


def test_values_keep_the_order_of_the_space_when_printed() -> None:
    schedule = Schedule("cpu", (("tile.n", 64), ("order", "mk"), ("pack", True)))
    assert str(schedule) == "tile.n=64 order=mk pack=true"
    assert schedule["tile.n"] == 64
    assert schedule.get("none", 3) == 3
    assert "pack" in schedule


def test_numbers_and_booleans_are_told_apart() -> None:
    assert Schedule.of("cpu", {"a": 1}) != Schedule.of("cpu", {"a": True})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("[]", "must be"),
        ('{"target": "cpu"}', "must be"),
        ('{"target": 1, "values": {}}', "target must be a string"),
        ('{"target": "cpu", "values": {"a": 1.5}}', "a must be an integer"),
    ],
)
def test_damaged_text_is_refused_in_words(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Schedule.from_json(text)
