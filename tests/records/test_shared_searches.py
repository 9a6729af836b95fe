"""Searches that share a store, die, hang and meet full disks: nothing is lost, nothing done twice.

The device is scripted, so that only searching, leasing and recording are at work.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import event

from explorer import job
from explorer.errors import NothingValid
from explorer.job import JobResult, Progress
from explorer.outcome import Outcome
from explorer.search import Search
from explorer.sharing import Sharing
from explorer.workload import Workload
from ir.schedule import Schedule
from records import Store
from records.errors import FullStore, LockedStore
from tests.job.device import ScriptedDevice, by_key
from tests.records.postgres import Server

PROCESSES = multiprocessing.get_context("fork")
EXTENTS = {"m": 2, "n": 2, "k": 1}
PINS: dict[str, object] = {"stream": False, "lane.s0": "n"}  # leaves 768 points
SOME = PINS | {"unroll.s0": 1}  # a third of them
FEW = SOME | {"micro.s0": "rows"}  # half of those
ALL = 100_000
KILLS = (4, pytest.param(200, marks=pytest.mark.long))
HEARD = 3  # messages of a search that is killed: in its second measurement
PATIENCE = 120.0  # seconds in which every search has begun
SHARED_MEMORY = Path("/dev/shm")


class TellingDevice(ScriptedDevice):
    """Says through a pipe what it measures, before it does.

    It begins when all who share the barrier `start` do, and hangs in measurement number `hangs`.
    """

    def __init__(self, pipe: Connection, start: Barrier | None, hangs: int | None) -> None:
        super().__init__()
        self._pipe, self._start, self._hangs = pipe, start, hangs
        self._number = 0

    def _answer(self, schedule: Schedule) -> Outcome:
        if self._start and not self._number:
            self._start.wait(PATIENCE)
        self._number += 1
        self._pipe.send_bytes(f"measured {schedule.key}".encode())
        while self._number == self._hangs:
            time.sleep(1)
        return by_key(schedule)


class Child:
    """A process that searches; `measured` and `acknowledged` are what was heard of it."""

    def __init__(
        self,
        where: str | Path,
        start: Barrier | None = None,
        hangs: int | None = None,
        **options: Any,
    ) -> None:
        self._pipe, theirs = PROCESSES.Pipe(duplex=False)
        self.process: BaseProcess = PROCESSES.Process(
            target=_search_and_tell, args=(where, theirs, start, hangs, options)
        )
        self.process.start()
        theirs.close()
        self.measured: list[str] = []
        self.acknowledged: list[str] = []
        self.best = ""

    def hear(self, count: int) -> None:
        """Wait for so many messages."""
        for _ in range(count):
            try:
                word, _, key = self._pipe.recv_bytes().decode().partition(" ")
            except (EOFError, OSError):
                return
            if word == "best":
                self.best = key
            else:
                (self.measured if word == "measured" else self.acknowledged).append(key)

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> None:
        self.hear(10**9)
        self.process.join()


def _search(where: str | Path, **options: Any) -> JobResult:
    given: dict[str, Any] = {"trials": ALL, "strategy": "exhaustive", "pins": PINS} | options
    return job.tune("matmul", EXTENTS, store=where, **given)


def _search_and_tell(
    where: str | Path,
    pipe: Connection,
    start: Barrier | None,
    hangs: int | None,
    options: dict[str, Any],
) -> None:
    def progress(progress: Progress) -> None:
        pipe.send_bytes(f"acknowledged {progress.schedule.key}".encode())

    pytest.MonkeyPatch().setattr("explorer.search.Measurer", TellingDevice(pipe, start, hangs))
    result = _search(where, progress=progress, **options)
    pipe.send_bytes(f"best {result.best.key}".encode())


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> ScriptedDevice:
    scripted = ScriptedDevice()
    monkeypatch.setattr("explorer.search.Measurer", scripted)
    monkeypatch.setattr("explorer.uncommitted.TOGETHER", 0.0)  # each trial is there at once
    return scripted


@pytest.fixture
def fast(tmp_path: Path) -> Iterator[Path]:
    """A place for a store where a commit is quick: a kill does not harm a disk's cache."""
    if not SHARED_MEMORY.is_dir() or not os.access(SHARED_MEMORY, os.W_OK):
        yield tmp_path / "records.db"
        return
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as folder:
        yield Path(folder) / "records.db"


def _undisturbed(device: ScriptedDevice, pins: dict[str, object]) -> tuple[str, set[str]]:
    """The best schedule of a search that nobody disturbs, and all that it measures."""
    result = _search(":memory:", pins=pins)
    keys = [schedule.key for schedule in device.measured]
    assert len(keys) == len(set(keys)) > 100
    device.measured.clear()
    return result.best.key, set(keys)


@pytest.mark.parametrize("kills", KILLS)
def test_kills_lose_nothing_and_repeat_nothing(
    device: ScriptedDevice, fast: Path, kills: int
) -> None:
    best, everything = _undisturbed(device, PINS)
    moments = random.Random(11)
    acknowledged: set[str] = set()
    for _ in range(kills):
        child = Child(fast)
        heard = moments.choice((0, 0, 1, 2, 3, 4))
        child.hear(heard)
        time.sleep(moments.uniform(0, 0.004 if heard else 0.03))
        child.kill()
        assert child.process.exitcode == -signal.SIGKILL
        assert not acknowledged & set(child.measured)
        acknowledged.update(child.acknowledged)
    assert len(acknowledged) > kills / 2
    last = Child(fast)
    last.end()
    assert last.process.exitcode == 0
    assert not acknowledged & set(last.measured)
    assert last.best == best
    with Store(fast) as store:
        found = [r.schedule_key for r in store.records(strategy="exhaustive")]
        assert store.check() >= len(everything)
        assert Counter(found) == Counter(everything)
        assert acknowledged <= set(found)


class SharingContract:
    """Eight searches at once; subclasses say where their store is."""

    @pytest.fixture
    def where(self) -> str | Path:
        raise NotImplementedError

    def test_four_of_eight_are_killed(self, where: str | Path, device: ScriptedDevice) -> None:
        best, everything = _undisturbed(device, FEW)
        Store(where).close()
        start = PROCESSES.Barrier(8)
        hang = [2] * 4 + [None] * 4
        children = [Child(where, start, hangs, pins=FEW, batch=4) for hangs in hang]
        for child in children[:4]:
            child.hear(HEARD)
        for child in children[:4]:
            child.process.kill()
        for child in children[:4]:
            child.end()
            assert child.process.exitcode == -signal.SIGKILL
        for child in children[4:]:
            child.end()
        assert [child.process.exitcode for child in children[4:]] == [0] * 4
        assert {child.best for child in children[4:]} == {best}
        acknowledged = Counter(key for child in children for key in child.acknowledged)
        assert set(acknowledged.values()) == {1}
        lived = Counter(key for child in children[4:] for key in child.measured)
        assert set(lived.values()) == {1}
        with Store(where) as store:
            found = Counter(r.schedule_key for r in store.records(strategy="exhaustive"))
            assert set(found) == everything
            assert set(found.values()) == {1}
            store.check()


class TestFile(SharingContract):
    @pytest.fixture
    def where(self, fast: Path) -> Path:
        return fast


class TestPostgres(SharingContract):
    @pytest.fixture
    def where(self, postgres: Server) -> str:
        return postgres.new_schema()


@pytest.fixture
def workload() -> Workload:
    return Workload.of("matmul", EXTENTS)


def test_two_searches_take_turns_and_tell_each_other(
    device: ScriptedDevice, workload: Workload, fast: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        Store(fast) as store,
        Store(fast) as other,
        Search(workload, store, strategy="random", pins=PINS) as one,
        Search(workload, other, strategy="random", pins=PINS) as two,
    ):
        told: list[Schedule] = []
        tell = two.strategy.tell

        def overhear(schedules: Sequence[Schedule], outcomes: Sequence[Outcome]) -> None:
            told.extend(schedules)
            tell(schedules, outcomes)

        monkeypatch.setattr(two.strategy, "tell", overhear)
        first = iter(one.step(6))
        begun = [next(first)[0], next(first)[0]]
        theirs = [schedule for schedule, _ in two.step(6)]
        assert told[:2] == begun
        assert two.best_seconds == min(by_key(s).seconds or 1.0 for s in (*begun, *theirs))
        rest = [schedule for schedule, _ in first]
        more = [schedule for schedule, _ in two.step(6)]
        assert set(rest) <= set(told)
        keys = [schedule.key for schedule in (*begun, *rest, *theirs, *more)]
        assert len(keys) == len(set(keys)) == 18


def test_what_a_search_leaves_another_takes(
    device: ScriptedDevice, workload: Workload, fast: Path
) -> None:
    with Store(fast) as store, Search(workload, store, strategy="exhaustive", pins=PINS) as two:
        with Search(workload, store, strategy="exhaustive", pins=PINS) as one:
            first = iter(one.step(ALL))
            measured = next(first)[0]
            step = two.step(16)
            taker = threading.Timer(0.3, first.close)  # type: ignore[attr-defined]
            taker.start()
            theirs = [schedule for schedule, _ in step]
            taker.join()
        assert len(theirs) == 16
        assert measured not in theirs


def test_a_lease_is_renewed_while_a_kernel_runs(workload: Workload, fast: Path) -> None:
    schedule = workload.space().schedule(next(iter(workload.space().exhaustive()))[0])
    with Store(fast) as store, Store(fast) as other:
        slow, rival = Sharing(store, workload, 1.0), Sharing(other, workload, 1.0)
        assert slow.take([schedule]) == [schedule]
        until = time.monotonic() + 2.0
        while time.monotonic() < until:
            assert rival.take([schedule]) == []
            time.sleep(0.1)
        slow.close()
        assert rival.take([schedule]) == [schedule]
        rival.close()


def test_waiting_for_others_does_not_outlast_the_budget(
    device: ScriptedDevice, workload: Workload, fast: Path
) -> None:
    with Store(fast) as store:
        rival = Sharing(store, workload)
        rival.take(
            [
                workload.space().schedule(row)
                for row in workload.space(FEW).sample(np.random.default_rng(0), 2000)
            ]
        )
        began = time.monotonic()
        with pytest.raises(NothingValid):
            _search(fast, pins=FEW, seconds=0.5)
        assert 0.4 < time.monotonic() - began < 10.0
        rival.close()


def test_a_heartbeat_that_fails_is_tried_again(
    workload: Workload, fast: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = workload.space().schedule(next(iter(workload.space().exhaustive()))[0])
    with Store(fast) as store, Store(fast) as other:
        beat, failures = store.heartbeat, iter(range(1))
        beaten = threading.Event()

        def falter(owner: str) -> int:
            if next(failures, None) is not None:
                raise LockedStore("locked for a while")
            beaten.set()
            return beat(owner)

        monkeypatch.setattr(store, "heartbeat", falter)
        sharing = Sharing(store, workload, 2.0)
        assert sharing.take([schedule]) == [schedule]
        assert beaten.wait(10)
        assert Sharing(other, workload, 2.0).take([schedule]) == []
        sharing.close()


def test_what_a_stopped_process_holds_is_free_after_a_while(workload: Workload, fast: Path) -> None:
    schedule = workload.space().schedule(next(iter(workload.space().exhaustive()))[0])

    def hold(pipe: Connection) -> None:
        with Store(fast) as store:
            assert Sharing(store, workload, 1.5).take([schedule])
            pipe.send_bytes(b"held")
            time.sleep(60)

    ours, theirs = PROCESSES.Pipe(duplex=False)
    child = PROCESSES.Process(target=hold, args=(theirs,))
    child.start()
    assert child.pid
    assert ours.recv_bytes()
    try:
        with Store(fast) as store:
            sharing = Sharing(store, workload, 1.5)
            assert sharing.take([schedule]) == []
            os.kill(child.pid, signal.SIGSTOP)
            assert sharing.wait(1) == [schedule]
            sharing.close()
    finally:
        child.kill()
        child.join()


def _measure_all(search: Search, seen: list[str]) -> None:
    while search.trials == len(seen):
        seen += (schedule.key for schedule, _ in search.step(4))


def test_a_full_store_ends_a_search_which_goes_on_later(
    device: ScriptedDevice, workload: Workload, path: Path
) -> None:
    def limit(pages: int) -> None:
        engine = store._database.engine
        event.listen(engine, "begin", lambda c: c.exec_driver_sql(f"PRAGMA max_page_count={pages}"))

    seen: list[str] = []
    best, _ = _undisturbed(device, SOME)
    with Store(path) as store:
        search = Search(workload, store, strategy="exhaustive", pins=SOME)
        limit(50)
        with pytest.raises(FullStore, match="all that was acknowledged is kept"):
            _measure_all(search, seen)
        assert seen
        assert {record.schedule_key for record in store.records()} == set(seen)
        limit(ALL)
        search.close()
    device.measured.clear()
    result = _search(path, pins=SOME)
    assert result.known == len(seen)
    assert not set(seen) & {schedule.key for schedule in device.measured}
    assert result.best.key == best


def test_a_clock_set_back_changes_no_result(device: ScriptedDevice, path: Path) -> None:
    times = [f"2026-01-02T03:04:{59 - second:02}+00:00" for second in range(60)]
    with Store(path, clock=lambda: times.pop(0)) as store:
        made = store.new_job("matmul", "{}", "cpu")
        done = store.update_job(made.id, "done")
        assert done.updated == made.updated
        assert not store.put_job(made)  # a copy from before does not bring the old state back
        assert store.job(made.id).state == "done"
