"""Values of an argument: how they are written, what is refused, which of them are looked at."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from explorer.shapes.extents import Extents, parted
from explorer.shapes.family import Family, distance
from ir import UsageError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("64,128,512", "64,128,512"),
        ("512,64", "64,512"),
        ("1..8192", "1..8192"),
        (range(1, 9), "1..8"),
        (range(8, 33, 8), "8,16,24,32"),
        ([3, 1], "1,3"),
        ("7..7", "7..7"),
    ],
)
def test_values_are_written_as_they_are_read(value: Any, text: str) -> None:
    found = Extents.of("m", value)
    assert str(found) == text
    assert str(Extents.of("m", text)) == text


@pytest.mark.parametrize("value", ["64", 64, "f32", True, None, "../a,b", "a..b"])
def test_one_value_stays_one(value: Any) -> None:
    assert Extents.of("m", value) is None
    assert parted({"m": value}) == ({"m": value}, {})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("8192..1", "m=8192..1: the range is empty; give the smaller end first"),
        (range(5, 5), "the range is empty"),
        ("1..x", "'x' is no whole number"),
        ("1..", "a number is missing"),
        ("1,,2", "a number is missing"),
        ("1..2..3", "one range or a list"),
        ("1..4,8..16", "one range or a list"),
        ("4,4", "4 is there twice"),
        ("0..4", "extents are from 1"),
        ("1..99999999999", "'99999999999' is no whole number"),
        ([], "a list without values"),
        ([1, 2.5], "must be whole numbers"),
    ],
)
def test_what_is_no_range_is_refused_in_a_line(value: Any, said: str) -> None:
    with pytest.raises(UsageError) as refusal:
        Extents.of("m", value)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_points_lie_at_equal_ratios_with_both_ends() -> None:
    found = Extents(1, 1024).spread(11)
    assert found == tuple(2**n for n in range(11))
    assert Extents(3, 5).spread(11) == (3, 4, 5)
    assert Extents(2, 9, (2, 3, 5, 9)).spread(2) == (2, 9)


def test_a_family_builds_its_members() -> None:
    family = Family.of("matmul", {"m": "8..64", "n": [16, 32], "k": 8})
    assert family.names == ("m", "n")
    assert family.count == 57 * 2
    assert dict(family.workload((9, 16)).arguments) == {"m": 9, "n": 16, "k": 8}
    assert {(8, 16), (64, 32)} <= set(family.grid(16))
    assert distance((8, 16), (16, 32)) == pytest.approx(distance((1, 1), (2, 2)))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"m": "1..8", "n": 4}, "missing k"),
        ({"mm": "1..8", "n": 4, "k": 4}, "did you mean 'm'"),
        ({"m": 4, "n": 4, "k": 4, "ta": [0, 1]}, "extents are from 1"),
        ({"m": 4, "n": 4, "k": 4, "ta": [1, 2]}, "ta"),
    ],
)
def test_a_family_that_cannot_be_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Family.of("matmul", arguments)


def test_points_of_a_grid_are_round_and_ragged_in_turn() -> None:
    found = Extents(128, 131072).varied(25)
    assert (found[0], found[-1]) == (128, 131072)
    assert all(1.1 < after / before < 1.8 for before, after in pairwise(found))
    for low in (1024, 8192, 32768):
        octave = [value for value in found if low <= value < 4 * low]
        assert any(value % (low // 4) == 0 for value in octave)  # splits in many ways
        assert any(value % 16 == 8 for value in octave)
        assert any(value % 2 for value in octave)


def test_few_values_and_lists_are_taken_as_they_are() -> None:
    assert Extents(3, 5).varied(11) == (3, 4, 5)
    assert Extents(7, 1000, (7, 99, 1000)).varied(2) == (7, 1000)
