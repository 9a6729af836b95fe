"""A device that goes away in the middle of a job ends it, instead of failing every candidate."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from explorer.errors import DeviceLost
from explorer.measure import Measurer
from explorer.runtime.cpu import CpuRuntime
from explorer.runtime.workers import Timing
from tests.runtime.fake_backend import HARDWARE, PROGRAM, schedule

PLACE = "tests.runtime.fake_backend:FakeBackend"
GONE = "GONE"


class LeavingRuntime(CpuRuntime):
    """The CPU, as long as no file called GONE is in the cache's folder."""

    def preload(self, cache_dir: Path, task: str = "run") -> None:
        os.environ[GONE] = str(cache_dir / GONE)
        super().preload(cache_dir, task)

    def prepare(self, device: int = 0) -> None:
        if Path(os.environ[GONE]).exists():
            why = Path(os.environ[GONE]).read_text()
            raise MemoryError(why) if "memory" in why else RuntimeError(why)
        super().prepare(device)


@pytest.fixture
def measurer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measurer:
    monkeypatch.setattr("explorer.stages.PAUSE", 0.01)
    runtime = "tests.runtime.test_lost_device:LeavingRuntime"
    timing = Timing(budget=0.005)
    return Measurer(PROGRAM, PLACE, HARDWARE, cache_dir=tmp_path, runtime=runtime, timing=timing)


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("no device", r"does not answer any more \(RuntimeError: no device"),
        ("no memory", r"memory is free: end what else uses it \(MemoryError: no memory"),
    ],
)
def test_a_device_that_does_not_come_back(
    measurer: Measurer, tmp_path: Path, why: str, said: str
) -> None:
    with measurer:
        outcomes = measurer.measure([schedule("good"), schedule("segfault"), schedule("good", 1)])
        assert next(outcomes).ok
        (tmp_path / GONE).write_text(why)
        assert next(outcomes).status == "crash"
        with pytest.raises(DeviceLost, match=said):
            next(outcomes)


def test_a_device_that_does(measurer: Measurer) -> None:
    with measurer:
        names = ("segfault", "good", "abort", "good")
        found = [outcome.status for outcome in measurer.measure([schedule(n) for n in names])]
    assert found == ["crash", "ok", "crash", "ok"]


def test_rest_gives_the_device_back_until_it_is_needed(measurer: Measurer) -> None:
    with measurer:
        assert next(measurer.measure([schedule("good")])).ok
        count = len(measurer.workers)
        measurer.rest()
        measurer.rest()
        assert len(measurer.workers) == count - 1
        assert next(measurer.measure([schedule("good", 1)])).ok
        assert len(measurer.workers) == count


def test_foreign_load_is_noted_once_it_can_be_told(
    measurer: Measurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("explorer.busy.SHORTEST", 0.0)
    with measurer:
        (outcome,) = measurer.measure([schedule("good")])
    assert 0.0 <= float(dict(outcome.notes)["foreign_load"]) <= 1.0
