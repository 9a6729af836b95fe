"""Schedules carried to other extents are legal there, and the same in every process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import explorer
from explorer.shapes.fitted import fitted, nearest_route
from explorer.workload import Workload
from ir.schedule import Schedule
from tests.targets.cuda_cases import HARDWARE


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


def test_the_nearest_route_differs_in_its_number_alone() -> None:
    offered = ("usual", "all-stored", "parts-8", "parts-32")
    assert nearest_route("parts-64", offered) == "parts-32"
    assert nearest_route("parts-4", offered) == "parts-8"
    assert nearest_route("slices-8", offered) is None
    assert nearest_route("all-kept", offered) is None


def test_a_split_is_carried_to_the_nearest_split_with_what_is_decided_in_it() -> None:
    """131072 splits into 64 parts, 5000 into 27 that are long enough."""
    heads: dict[str, Any] = {"b": 2, "heads": 32, "kv_heads": 8, "d": 128, "dtype": "bf16"}
    far, here = (
        replace(explorer.load("decode_attention", target="cuda", sk=sk, **heads), machine=HARDWARE)
        for sk in (131072, 5000)
    )
    space = far.space({"residence": "parts-64"})
    schedule = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
    found = fitted(here, schedule)
    assert found is not None
    assert found["residence"] == "parts-27"
    assert here.space().refusal(found) is None
    for name in ("engine", "stages.0", "consumers.0", "tile.g.0"):
        assert found[f"parts-27.{name}"] == schedule[f"parts-64.{name}"]
