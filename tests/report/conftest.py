"""A job on a scripted device that has everything a report shows: good times, failures, finals."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from explorer import job
from explorer.outcome import Outcome, Status
from ir.schedule import Schedule
from tests.job.device import ScriptedDevice

EXTENTS: dict[str, Any] = {"m": 64, "n": 64, "k": 64}
MARKUP = "<script>alert('x')</script> & more"
_FAILURES: dict[int, tuple[Status, str]] = {
    0: ("wrong_result", f"C: 3 of 4096 elements wrong, {MARKUP}"),
    1: ("timeout", "no answer within 10 s"),
    2: ("crash", "worker died of SIGSEGV"),
}


def timed(schedule: Schedule) -> Outcome:
    """Better with wide register tiles, worse with packing; one in five fails."""
    luck = int(schedule.key[:8], 16)
    if luck % 15 in _FAILURES:
        status, detail = _FAILURES[luck % 15]
        return Outcome(status, detail=detail)
    rows, vectors = int(schedule["rows.s0"]), int(schedule["vectors.s0"])
    tile = abs(math.log2(rows * vectors / 16))
    packed = 0.4 * (schedule["pack.s0.A"] != "no") + 0.2 * (schedule["pack.s0.B"] != "no")
    seconds = 2e-6 * (1 + 0.6 * tile + packed) * (1 + (luck % 97) / 970)
    notes = (("foreign_load", 0.02), ("turns", 5))
    quartiles = (0.98 * seconds, 1.03 * seconds)
    return Outcome("ok", seconds, quartiles, 9, kernel_key=schedule.key, notes=notes)


@pytest.fixture(scope="session")
def story_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one finished job of 80 trials."""
    path = tmp_path_factory.mktemp("report") / "records.db"
    now = iter(range(10_000))
    peaks = [{"peak_flops.f32": 4e11, "peak_bytes": 2e10}]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("explorer.search.Measurer", ScriptedDevice(timed))
        from explorer.budget import Budget

        plan = job.plan_one("matmul", EXTENTS, Budget(80, None, 16), pins={"unroll.s0": 1}, seed=2)
        job.run_plan(plan, store=path, clock=lambda: 0.1 * next(now), peaks=peaks)
    return path
