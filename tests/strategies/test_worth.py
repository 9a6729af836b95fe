"""What is hopeless on paper is not measured, as long as there is something else."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from explorer.strategies.contract import FakeOutcome
from explorer.strategies.evolutionary import Evolutionary
from explorer.strategies.opening import ESTIMATE
from explorer.strategies.worth import FAR, LOOKED, Worth
from ir.space import Columns, Decision, Features, Matrix, Space

SLOWER = 1000.0  # times, on the other route


def space(slower: float = SLOWER) -> Space:
    """Two routes of which one is so much slower by the estimate, whatever the tile is."""
    route = Decision("route", ("plain", "tensor"), "tensorize", "", "what computes")
    tiles = tuple(
        Decision(f"tile.{axis}", (8, 16, 32, 64), "tile", axis, "a tile") for axis in "mn"
    )

    def features(columns: Columns) -> Features:
        plain = columns.is_("route", "plain")
        return (ESTIMATE,), np.where(plain, np.log2(slower), 0.0)[:, None].astype(np.float32)

    return Space("toy", (route, *tiles), (), features=features)


def asked(space: Space, count: int, told: float = 1e-3) -> list[str]:
    strategy = Evolutionary(space, np.random.default_rng(0))
    found: list[str] = []
    while len(found) < count and (batch := strategy.ask(4)):
        strategy.tell(batch, [FakeOutcome("ok", told, schedule.key) for schedule in batch])
        found += [str(schedule.as_dict()["route"]) for schedule in batch]
    return found


def test_a_hopeless_route_comes_when_nothing_else_is_left() -> None:
    found = asked(space(), 32)
    assert found[:16] == ["tensor"] * 16
    assert found[16:] == ["plain"] * 16


def test_what_the_caller_names_is_measured_whatever_it_is_thought_of() -> None:
    toy = space()
    rows = np.concatenate(list(toy.exhaustive()))
    every = [toy.schedule(row) for row in rows]
    fast, slow = ([s for s in every if s.as_dict()["route"] == r] for r in ("tensor", "plain"))
    named = [fast[0], *slow[:2]]
    strategy = Evolutionary(toy, np.random.default_rng(0), seeds=named)
    first = strategy.ask(8)
    assert first[:3] == named
    assert {schedule.as_dict()["route"] for schedule in first[3:]} == {"tensor"}


def test_a_slow_route_has_its_share() -> None:
    assert "plain" in asked(space(FAR / 2), 8)


def test_the_fastest_as_measured_is_the_measure() -> None:
    """An estimate may be wrong about its favourite: what it thinks of the fastest counts."""
    toy = space()
    worth = Worth(toy)
    rows = np.concatenate(list(toy.exhaustive()))
    plain = np.array([toy.schedule(row).as_dict()["route"] == "plain" for row in rows])
    assert (worth(rows, None) == ~plain).all()
    assert worth(rows, rows[plain][0]).all()


@pytest.mark.parametrize(("slower", "looks"), [(2.0, False), (SLOWER, True)])
def test_nobody_looks_on_where_nothing_is_far(
    slower: float, looks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = space(slower)
    rows = np.concatenate(list(toy.exhaustive()))
    worth = Worth(toy)
    for _ in range(LOOKED // len(rows) + 1):
        worth(rows, None)
    calls: list[int] = []

    def counted(space: Space, rows: Matrix) -> NDArray[np.float64]:
        calls.append(len(rows))
        return np.zeros(len(rows))

    monkeypatch.setattr("explorer.strategies.worth.estimates", counted)
    worth(rows, None)
    assert bool(calls) is looks
