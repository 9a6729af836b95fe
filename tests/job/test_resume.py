"""A resumed run is the undisturbed one: the same schedules in the same order, the same best."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer import job
from explorer.errors import DeviceLost
from explorer.job import PlanResult, Progress
from explorer.outcome import Outcome
from explorer.recall import DECIDING
from explorer.search import Search
from explorer.sharing import Sharing
from explorer.workload import Workload
from ir.errors import UsageError
from ir.schedule import Schedule
from records import Record, Store, StoreError
from records.errors import FullStore, UnknownJob
from tests.few import few
from tests.job.device import ScriptedDevice, by_key
from tests.job.killed import EXTENTS, OPTIONS

TRIALS = 44
ROOT = Path(__file__).parents[2]


def tune(path: Path, **options: Any) -> Any:
    given: dict[str, Any] = {"store": path} | OPTIONS | options
    return job.tune("matmul", EXTENTS, **given)


def stored(path: Path) -> list[str]:
    """What was measured, in the order of the store, finals left out."""
    with Store(path) as store:
        return [record.schedule for record in store.records() if record.strategy not in DECIDING]


def best_of(found: PlanResult) -> Schedule:
    (result,) = found.results
    return result.best


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Schedule]:
    """The schedules of a run that nothing interrupts, and its best."""
    path = tmp_path_factory.mktemp("undisturbed") / "records.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("explorer.search.Measurer", ScriptedDevice())
        best = tune(path).best
    return stored(path), best


def interrupt_at(number: int) -> Any:
    """A progress callback: Ctrl-C at that trial."""

    def progress(progress: Progress) -> None:
        if not progress.replayed and progress.trial == number:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("last", few([2, 17, 25, 46], [1, 3]))
def test_after_a_kill(
    last: int, device: ScriptedDevice, tmp_path: Path, undisturbed: tuple[list[str], Schedule]
) -> None:
    path = tmp_path / "records.db"
    command = [sys.executable, "-m", "tests.job.killed", str(path), str(last)]
    assert subprocess.run(command, cwd=ROOT, timeout=60, check=False).returncode == -9
    kept = min(last - 1, TRIALS)
    assert stored(path) == undisturbed[0][:kept]
    with Store(path) as store:
        assert [known.state for known in store.jobs()] == ["running"]

    found = job.resume(store=path)
    assert stored(path) == undisturbed[0]
    assert best_of(found) == undisturbed[1]
    assert (found.trials, found.results[0].resumed) == (TRIALS, kept)
    assert len(device.measured) == TRIALS - kept
    with Store(path) as store:
        assert [known.state for known in store.jobs()] == ["done"]


def test_seeds_and_kernels_that_ran_before_are_met_again(
    device: ScriptedDevice, tmp_path: Path
) -> None:
    """Many schedules share a kernel, and what is copied is no trial of either run."""
    device.rule = lambda schedule: replace(by_key(schedule), kernel_key=schedule.key[:2])
    tune(tmp_path / "before.db", strategy="random", seed=9)
    given = {"start_from": tmp_path / "before.db"}
    whole, broken = tmp_path / "whole.db", tmp_path / "broken.db"
    best = tune(whole, **given).best
    assert tune(broken, progress=interrupt_at(7), **given).interrupted
    for number in (30,):
        assert job.resume(store=broken, progress=interrupt_at(number)).interrupted
    assert best_of(job.resume(store=broken)) == best
    assert stored(broken) == stored(whole)
    kernels = [Schedule.from_json(text).key[:2] for text in stored(whole)]
    assert len(set(kernels)) == len(kernels) == TRIALS


def test_after_many_interruptions(
    device: ScriptedDevice, tmp_path: Path, undisturbed: tuple[list[str], Schedule]
) -> None:
    """Ctrl-C at the end of a batch, within one, at once after a resumption."""
    path = tmp_path / "records.db"
    assert tune(path, progress=interrupt_at(5)).interrupted
    for number in (6, 16, 31):
        assert job.resume(store=path, progress=interrupt_at(number)).interrupted
        assert len(stored(path)) == number
    found = job.resume(store=path)
    assert stored(path) == undisturbed[0]
    assert best_of(found) == undisturbed[1]
    assert not found.interrupted


@pytest.mark.parametrize("strategy", ["annealing", "exhaustive", "random"])
def test_every_strategy_goes_on(strategy: str, device: ScriptedDevice, tmp_path: Path) -> None:
    whole = tune(tmp_path / "whole.db", strategy=strategy)
    path = tmp_path / "records.db"
    tune(path, strategy=strategy, progress=interrupt_at(21))
    assert best_of(job.resume(store=path)) == whole.best
    assert stored(path) == stored(tmp_path / "whole.db")


def test_what_others_measured_since_is_not_told(device: ScriptedDevice, tmp_path: Path) -> None:
    """The store knew some trials before, and learns more while the run is interrupted."""
    paths = [tmp_path / "whole.db", tmp_path / "records.db"]
    for path in paths:
        tune(path, strategy="random", seed=9, trials=20)
    tune(paths[0])
    tune(paths[1], progress=interrupt_at(20))
    with Store(paths[1]) as store:
        (interrupted,) = store.jobs("stopped")
    tune(paths[1], strategy="random", seed=10, trials=20)
    found = job.resume(interrupted.id[:6], store=paths[1])
    assert found.results[0].known == 20
    with Store(paths[1]) as store:
        own = [r.schedule for r in store.records(job=interrupted.id) if r.strategy not in DECIDING]
    assert own == stored(paths[0])[20:]


def test_trials_that_are_not_asked_again_are_told(device: ScriptedDevice, tmp_path: Path) -> None:
    """As after another version of a library: nothing is measured twice, the budget holds."""
    path = tmp_path / "records.db"
    tune(path, progress=interrupt_at(30))
    with Store(path) as store:
        schedules = {r.schedule for r in store.records()}
    device.measured = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("numpy.random.default_rng", _other_generator())
        found = job.resume(store=path)
    assert found.trials == TRIALS
    fresh = {schedule.to_json() for schedule in device.measured}
    assert len(fresh) == TRIALS - 30
    assert not fresh & schedules


def _other_generator() -> Any:
    import numpy as np

    make = np.random.default_rng
    return lambda seed=None: make(12345)


def test_seconds_are_those_of_the_search(device: ScriptedDevice, tmp_path: Path) -> None:
    """The time before the interruption counts, the time between does not."""
    path = tmp_path / "records.db"
    now = iter(range(10_000))
    tune(path, seconds=50, clock=lambda: float(next(now)), progress=interrupt_at(8))
    later = iter(range(10**6, 2 * 10**6))
    found = job.resume(store=path, clock=lambda: float(next(later)))
    assert 12 < found.trials < 30
    assert 50 <= found.elapsed < 80


def test_a_lost_device_or_store_leaves_the_job_resumable(
    device: ScriptedDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.db"

    def lost(schedule: Schedule) -> Outcome:
        if len(device.measured) > 10:
            raise DeviceLost("the device is gone")
        return by_key(schedule)

    device.rule = lost
    with pytest.raises(DeviceLost):
        tune(path)
    device.rule = by_key
    add = Store.add_all

    def full(store: Store, records: Iterable[Record]) -> int:
        if store.count() == 20:
            raise FullStore("no room")
        return add(store, records)

    monkeypatch.setattr(Store, "add_all", full)
    with pytest.raises(StoreError):
        job.resume(store=path)
    monkeypatch.setattr(Store, "add_all", add)
    with Store(path) as store:
        assert [known.state for known in store.jobs()] == ["stopped"]
    assert job.resume(store=path).results[0].resumed == 20


def test_there_must_be_something_to_go_on_with(device: ScriptedDevice, tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with pytest.raises(UsageError, match="no such store"):
        job.resume(store=path)
    assert not path.exists()
    done = tune(path, trials=2)
    with pytest.raises(UsageError, match="no interrupted job"):
        job.resume(store=path)
    with pytest.raises(UsageError, match="is done"):
        job.resume(done.job, store=path)
    with pytest.raises(UnknownJob):
        job.resume("zz", store=path)


def test_another_machine_is_refused(
    device: ScriptedDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ir.targets.cpu.backend import CpuBackend

    path = tmp_path / "records.db"
    tune(path, progress=interrupt_at(3))
    hardware = CpuBackend().hardware()
    monkeypatch.setattr(CpuBackend, "hardware", lambda *_: replace(hardware, name="other"))
    with pytest.raises(UsageError, match="was begun with hardware"):
        job.resume(store=path)


def test_a_job_that_is_being_run_is_not_resumed(device: ScriptedDevice, tmp_path: Path) -> None:
    path, said = tmp_path / "records.db", []

    def meddle(progress: Progress) -> None:
        if progress.trial == 3:
            for name in (progress.job, None):
                with pytest.raises(UsageError) as caught:
                    job.resume(name, store=path)
                said.append((progress.job, str(caught.value)))
            raise KeyboardInterrupt

    assert tune(path, progress=meddle).interrupted
    for name, line in said:
        assert line.startswith(f"job {name} is being run by process {os.getpid()} of this machine")
        assert "since 20" in line
        assert "then resume it" in line
    assert len(said) == 2
    assert job.resume(said[0][0], store=path).trials == TRIALS


def test_a_job_that_is_being_run_starts_no_worker(
    device: ScriptedDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, workload = tmp_path / "records.db", Workload.of("matmul", EXTENTS)
    begun = tune(path, progress=interrupt_at(3)).job
    started: list[int] = []

    def start(*_: object, **__: object) -> ScriptedDevice:
        started.append(1)
        return device

    monkeypatch.setattr("explorer.search._measurer", start)
    with Store(path) as store:
        stopped, holder = store.job(begun), Sharing(store, workload)
        holder.run(stopped)
        with pytest.raises(UsageError, match="is being run by"):
            Search(workload, store, strategy="random", resume=stopped)
        assert not started
        holder.close()
        with Search(workload, store, strategy="random", resume=stopped) as search:
            assert (len(started), search.resumed) == (1, 3)


def test_the_newest_job_is_one_that_nobody_runs(
    device: ScriptedDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, resumed = tmp_path / "records.db", []
    idle = tune(path, seed=5, progress=interrupt_at(2)).job

    def meddle(progress: Progress) -> None:
        if progress.trial == 3:
            monkeypatch.setattr("explorer.search.Measurer", ScriptedDevice())
            resumed.append(job.resume(store=path).results[0].job)

    tune(path, progress=meddle)
    assert resumed == [idle]


def test_files_that_a_plan_names_are_found_from_another_folder(
    device: ScriptedDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("jobs", "elsewhere"):
        (tmp_path / name).mkdir()
    path, before = tmp_path / "records.db", tmp_path / "jobs" / "before.db"
    tune(before, strategy="random", trials=4, seed=9)
    file = tmp_path / "jobs" / "jobs.toml"
    arguments = ", ".join(f"{name} = {extent}" for name, extent in EXTENTS.items())
    file.write_text(
        f'trials = 8\n[[job]]\noperator = "matmul"\narguments = {{ {arguments} }}\n'
        'start_from = "before.db"\nmodel = "none"\n'
    )
    monkeypatch.chdir(tmp_path)
    assert job.tune_all("jobs/jobs.toml", store=path, progress=interrupt_at(6)).interrupted
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert job.resume(store=path).trials == 8
    assert set(stored(before)) <= set(stored(path))


def test_a_job_whose_listener_left_can_be_resumed(device: ScriptedDevice, tmp_path: Path) -> None:
    """As `tune | head` does."""
    path = tmp_path / "records.db"

    def gone(progress: Progress) -> None:
        if progress.trial == 3:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        tune(path, progress=gone)
    assert job.resume(store=path).results[0].resumed == 3
