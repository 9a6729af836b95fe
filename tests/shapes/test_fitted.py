"""Schedules carried to other extents are legal there, and the same in every process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import explorer
from explorer.shapes.fitted import fitted
from explorer.workload import Workload
from ir.schedule import Schedule


def _load(operator: str, m: int) -> Workload:
    given: dict[str, Any] = {"n": 48, "k": 96} if operator == "matmul" else {"n": 96}
    return explorer.load(operator, threads=2, m=m, **given)


def _drawn(workload: Workload, count: int) -> list[Schedule]:
    space = workload.space()
    return [space.schedule(row) for row in space.sample(np.random.default_rng(1), count)]


@pytest.mark.parametrize("operator", ["matmul", "softmax"])
def test_any_schedule_fits_any_extent(operator: str) -> None:
    for schedule in _drawn(_load(operator, 256), 3):
        for extent in (1, 7, 300):
            there = _load(operator, extent)
            found = fitted(there, schedule)
            assert found is not None
            assert there.space().refusal(found) is None
            assert fitted(_load(operator, extent), schedule) == found


def test_a_schedule_is_itself_where_it_is_legal() -> None:
    workload = _load("matmul", 64)
    for schedule in _drawn(workload, 4):
        assert fitted(workload, schedule) == schedule


def test_pins_hold() -> None:
    workload = _load("matmul", 40)
    found = fitted(workload, _drawn(_load("matmul", 64), 1)[0], {"stream": True})
    assert found is not None
    assert found["stream"] is True
