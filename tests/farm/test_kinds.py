"""Who measures together: kinds of workers, and in a line why others do not."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from explorer.errors import NoFarm
from explorer.farm.bench import Bench
from explorer.farm.farm import Farm
from explorer.farm.kinds import Described, Survey, Versions, tag_of
from explorer.farm.measurer import FarmMeasurer
from explorer.farm.worker import AHEAD, dask_setup, describe
from explorer.job import plan_one
from explorer.turns import prepare
from explorer.workload import Workload
from ir.errors import MissingTarget, UsageError
from ir.target import Hardware, get_backend

OURS = Versions.here("cpu")
BIG = Hardware("cpu", "big", ("avx512f",), 8, (("l2_bytes", 2048),))
SMALL = Hardware("cpu", "small", ("avx2",), 2, (("l2_bytes", 1024),))


def described(hardware: Hardware, name: str, slots: int = 1, **about: Any) -> Described:
    return Described(OURS, hardware, f"tag of {hardware}", slots, name, **about)


def survey(*found: Described | str) -> Survey:
    return Survey.of({f"tcp://{n}:1": said for n, said in enumerate(found)}, OURS)


def test_workers_of_one_machines_kind_are_one_kind_and_the_largest_comes_first() -> None:
    found = survey(described(SMALL, "a"), described(BIG, "b", 2), described(BIG, "c", 2))
    assert [(kind.key, kind.workers, kind.slots) for kind in found.kinds] == [
        ("cpu:big:8", ("b", "c"), 4),
        ("cpu:small:2", ("a",), 1),
    ]
    assert not found.left_out


def test_other_versions_are_left_out_in_one_line() -> None:
    """Whatever else they say: outcomes of another generator are of other kernels."""
    newer = replace(described(BIG, "b"), versions=Versions("9.9", OURS.generator))
    other = replace(described(BIG, "c"), versions=Versions(OURS.tilewright, "cpu-0"))
    python = replace(described(BIG, "d"), versions=replace(OURS, python="3.99"))
    found = survey(newer, other, python)
    assert [kind.workers for kind in found.kinds] == [("d",)]
    (_, first), (_, second) = found.left_out
    assert first.startswith("it has tilewright 9.9 with code generator")
    assert first.endswith(f"here is {OURS}: install the same")
    assert "code generator cpu-0" in second


def test_machines_that_records_could_not_tell_apart_do_not_measure_together() -> None:
    twin = replace(BIG, facts=(("l2_bytes", 4096),))
    found = survey(described(BIG, "a"), described(twin, "b", 2))
    assert [kind.workers for kind in found.kinds] == [("b",)]
    ((name, why),) = found.left_out
    assert name == "a"
    assert why.startswith("another machine that is called cpu:big:8")


LOOKS = {"tick": 20.0, "memory_monitor": 200.0, "profile": 10.0, "heartbeat": 500.0}


def dask_worker(**resources: float) -> Any:
    """As much of a Dask worker as the preload knows."""
    state = SimpleNamespace(
        total_resources=resources, available_resources=dict(resources), nthreads=4
    )
    looks = {name: SimpleNamespace(callback_time=time) for name, time in LOOKS.items()}
    return SimpleNamespace(state=state, name="w", periodic_callbacks=looks)


def test_a_worker_offers_what_its_resources_name_under_its_machines_tag() -> None:
    worker = dask_worker(cpu=1)
    dask_setup(worker)
    tag = tag_of("cpu")
    assert worker.state.total_resources == {"cpu": 1, tag: 4 + AHEAD}
    assert worker.state.nthreads == 4 + AHEAD
    assert worker.state.available_resources == worker.state.total_resources
    said = describe("cpu", 1, worker)
    assert (said.tag, said.slots, said.why) == (tag, 4, "")
    assert said.hardware == get_backend("cpu").hardware(1)
    assert "--resources cuda=1" in describe("cuda", None, worker).why
    assert "threads=99" in describe("cpu", 99, worker).why
    assert "--preload explorer.farm.worker" in describe("cpu", None, dask_worker(cpu=1)).why


def test_dask_looks_less_often_at_a_process_that_waits() -> None:
    worker = dask_worker()
    worker.periodic_callbacks["memory_monitor"].callback_time = 5000.0
    dask_setup(worker)
    found = {name: look.callback_time for name, look in worker.periodic_callbacks.items()}
    assert found == LOOKS | {"tick": 1000.0, "memory_monitor": 5000.0, "profile": 1000.0}


def test_a_target_that_is_not_there_is_not_offered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing(target: str) -> str:
        raise MissingTarget(f"{target}: no driver")

    monkeypatch.setattr("explorer.farm.worker.tag_of", missing)
    worker = dask_worker(cpu=1)
    dask_setup(worker)
    assert worker.state.total_resources == {"cpu": 1}
    assert "cpu: no driver" in caplog.text
    assert describe("cpu", None, worker).why == "cpu: no driver"


class FakeEngine:
    """Of a scheduler whose workers say these things of themselves."""

    def __init__(self, *answers: Any) -> None:
        self.address = "tcp://somewhere:8786"
        self._answers = answers

    def ask_all(self, function: Any, *arguments: Any) -> dict[str, Any]:
        return {f"tcp://{n}:1": answer for n, answer in enumerate(self._answers)}

    def close(self) -> None:
        """Nothing is open."""


def farm_of(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> Farm:
    monkeypatch.setattr("explorer.farm.farm.Engine", lambda _: FakeEngine(*answers))
    return Farm("tcp://somewhere:8786")


def test_each_kind_is_a_workload_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    farm = farm_of(monkeypatch, described(SMALL, "a", 40), described(BIG, "b", 2))
    plan = farm.placed(plan_one("matmul", {"m": 8, "n": 8, "k": 8}, budget()))
    assert [job.hardware for job in plan.jobs] == ["cpu:small:2", "cpu:big:8"]
    assert plan.jobs[1].title == "matmul m=8 n=8 k=8 on cpu:big:8"
    workloads = prepare(plan, machines=farm)
    assert [workload.hardware for workload in workloads] == [SMALL, BIG]
    measurers = [farm.measurer(workload, 0, library=False) for workload in workloads]
    benches = [m._bench for m in measurers if isinstance(m, FarmMeasurer)]
    assert benches == [Bench.of(workload, 0) for workload in workloads]
    assert measurers[0].depth > measurers[1].depth
    assert plan.budget.batch == 40  # one for each that is measured at a time
    large = plan_one("matmul", {"m": 8, "n": 8, "k": 8}, replace(budget(), batch=50))
    assert farm.placed(large).budget.batch == 50


def budget() -> Any:
    from explorer.budget import Budget

    return Budget.of(trials=4)


def test_a_resumed_job_asks_for_workers_of_its_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    farm = farm_of(monkeypatch, described(SMALL, "a"))
    workload = Workload.of("matmul", {"m": 8, "n": 8, "k": 8})
    with pytest.raises(NoFarm, match=r"no worker of cpu:big:8; there are cpu:small:2"):
        farm.on(workload, BIG.key)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ((), "the scheduler has no workers; start some with `dask worker tcp://somewhere:8786"),
        ((Described(OURS, why="it rests"),), "no worker measures target cpu: tcp://0:1: it rests"),
        ((ModuleNotFoundError("explorer.farm"),), "it has no such Tilewright as this one"),
        ((OSError("gone"),), "OSError: gone"),
        ([Described(OURS, why="x")] * 5, "and 2 more"),
    ],
)
def test_where_nobody_measures_the_line_says_why(
    answers: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = farm_of(monkeypatch, *answers)
    with pytest.raises(NoFarm) as raised:
        farm.kinds("cpu")
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_devices_are_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    farm = farm_of(monkeypatch, described(SMALL, "a"))
    plan = plan_one("matmul", {"m": 8, "n": 8, "k": 8}, budget(), devices="0,1")
    with pytest.raises(UsageError, match="each worker of a farm has its own"):
        prepare(farm.placed(plan), machines=farm)


def test_without_dask_the_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(NoFarm, match=r"pip install 'tilewright\[farm\]'$"):
        Farm("tcp://somewhere:8786")
