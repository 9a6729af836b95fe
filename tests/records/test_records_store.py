"""What every store does, whatever database is behind it: one contract, a class per store."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from records import Record, Store
from records.errors import InvalidRecord, StoreUnavailable, UnknownJob, UnusableLocation
from records.tellings import JobCount
from tests.records.postgres import Server

Make = Callable[..., Record]


def ticking() -> Callable[[], str]:
    """A clock that moves on by one second at every reading."""
    seconds = iter(range(60))
    return lambda: f"2026-01-01T00:00:{next(seconds):02}.000000+00:00"


class StoreContract:
    """Subclasses say where a fresh store is."""

    @pytest.fixture
    def where(self) -> Any:
        raise NotImplementedError

    @pytest.fixture
    def store(self, where: str) -> Iterator[Store]:
        with Store(where, clock=ticking()) as store:
            yield store

    def test_starts_empty(self, store: Store) -> None:
        assert list(store.records()) == []
        assert (store.count(), store.check(), store.jobs()) == (0, 0, ())
        assert store.best("w", "cpu", "h") is None

    def test_keeps_what_it_is_given(self, store: Store, record: Make) -> None:
        good, failed = record(1), record(2, status="timeout", seconds=None, quartiles=None)
        assert store.add(good)
        assert store.add(failed)
        assert list(store.records()) == [good, failed]
        assert store.check() == 2

    def test_trials_of_jobs_are_counted(self, store: Store, record: Make) -> None:
        failed = record(2, status="crash", seconds=None, quartiles=None)
        store.add_all([record(3), record(1), failed, record(4, job="job-2")])
        store.add(record(6, strategy="final"))
        assert store.tally(JobCount) == (
            ("job-1", "evolutionary", "crash", 1),
            ("job-1", "evolutionary", "ok", 2),
            ("job-1", "final", "ok", 1),
            ("job-2", "evolutionary", "ok", 1),
        )

    def test_same_record_is_stored_once(self, store: Store, record: Make) -> None:
        assert store.add(record(1))
        assert not store.add(record(1))
        assert store.add_all([record(1), record(2), record(2), record(3)]) == 2
        assert store.add_all([]) == 0
        assert store.count() == 3

    def test_repeats_of_a_candidate_are_trials_of_their_own(
        self, store: Store, record: Make
    ) -> None:
        again = record(1, created="2026-01-02T03:04:06+00:00")
        assert store.add_all([record(1), again]) == 2
        assert store.count(candidate=again.candidate) == 2

    def test_walks_through_more_than_a_page(
        self, store: Store, record: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("records.store.PAGE", 3)
        batch = [record(index) for index in range(8)]
        assert store.add_all(batch) == 8
        assert list(store.records()) == batch
        assert store.check() == 8

    def test_can_write_while_it_is_read(self, store: Store, record: Make) -> None:
        store.add_all([record(1), record(2)])
        for found in store.records(status="ok"):
            store.add(replace(found, status="unstable"))
        assert store.count() == 4

    def test_selects_by_every_field(self, store: Store, record: Make) -> None:
        one = record(1, job="j1", status="crash", operator="softmax", threads=1, strategy="random")
        two = record(2, job="j2", workload="w2", target="cuda", hardware="h2", generator="g2")
        store.add_all([one, two])
        names = ("workload", "operator", "target", "hardware", "generator", "threads", "job")
        for name in (*names, "strategy", "status", "schedule_key", "kernel_key", "candidate"):
            for wanted in (one, two):
                selection: Any = {name: getattr(wanted, name)}
                assert list(store.records(**selection)) == [wanted], name
                assert store.count(**selection) == 1, name
        assert store.count(job="j1", status="ok") == 0
        with pytest.raises(TypeError, match="colour"):
            store.records(colour="red")  # type: ignore[call-arg]

    def test_best_is_the_lowest_median(self, store: Store, record: Make) -> None:
        lucky = [record(1, seconds=seconds) for seconds in (1.0, 9.0, 9.5)]
        steady = [record(2, seconds=seconds) for seconds in (2.0, 2.1)]
        store.add_all([*lucky, *steady, record(3, seconds=5.0)])
        assert store.best("a" * 64, "cpu", "b" * 64) == steady[-1]

    @pytest.mark.parametrize("status", ["wrong_result", "crash", "below_roofline"])
    def test_best_passes_over_what_failed_once(
        self, store: Store, record: Make, status: str
    ) -> None:
        store.add_all([record(1, seconds=1.0), record(2, seconds=2.0)])
        store.add(record(1, seconds=None, quartiles=None, status=status))
        assert store.best("a" * 64, "cpu", "b" * 64) == record(2, seconds=2.0)

    def test_best_keeps_to_its_workload_and_hardware(self, store: Store, record: Make) -> None:
        store.add_all([record(1, workload="w2"), record(1, target="cuda"), record(1, hardware="h")])
        assert store.best("a" * 64, "cpu", "b" * 64) is None
        store.add_all([record(5), record(1, threads=1), record(2, generator="cpu-2")])
        assert store.best("a" * 64, "cpu", "b" * 64) == record(1, threads=1)
        assert store.best("a" * 64, "cpu", "b" * 64, threads=2) == record(2, generator="cpu-2")
        found = store.best("a" * 64, "cpu", "b" * 64, threads=2, generator="cpu-1")
        assert found == record(5)

    def test_job_runs_through_its_states(self, store: Store) -> None:
        job = store.new_job("matmul", '{"m": 4}', "cpu", '{"trials": 256}')
        assert (job.state, job.extents, job.options) == ("running", '{"m":4}', '{"trials":256}')
        assert store.job(job.id) == job
        done = store.update_job(job.id, "done")
        assert done.updated > job.updated
        assert store.job(job.id) == done
        assert store.jobs() == (done,)
        assert (store.jobs("done"), store.jobs("running")) == ((done,), ())
        with pytest.raises(InvalidRecord):
            store.update_job(job.id, "asleep")

    def test_options_of_a_job_may_grow(self, store: Store) -> None:
        job = store.new_job("matmul", "{}", "cpu", '{"trials": 256}')
        grown = store.update_job(job.id, "running", '{"trials": 256, "baseline": {}}')
        assert grown.options == '{"baseline":{},"trials":256}'
        assert store.job(job.id) == grown
        assert store.update_job(job.id, "done").options == grown.options

    def test_job_is_found_by_its_beginning(self, store: Store) -> None:
        first = store.new_job("matmul", "{}", "cpu")
        for name in ("qb1", "qb2", "qb", "x%"):
            store.put_job(replace(first, id=name))
        assert store.job(first.id[:8]) == first
        assert store.job("qb").id == "qb"
        assert store.job("qb1").id == "qb1"
        vague = {"q": "3 jobs begin", "": "5 jobs begin", "%": "no such job", "zz": "no such job"}
        for name, words in vague.items():
            with pytest.raises(UnknownJob, match=words):
                store.job(name)

    def test_of_two_versions_of_a_job_the_newer_stays(self, store: Store) -> None:
        job = store.new_job("matmul", "{}", "cpu")
        newer = replace(job, state="done", updated="2030-01-01T00:00:00+00:00")
        assert store.put_job(newer)
        assert not store.put_job(job)
        assert store.jobs() == (newer,)

    def test_of_two_equally_new_versions_the_same_one_stays(self, store: Store) -> None:
        job = store.new_job("matmul", "{}", "cpu")
        done = replace(job, state="done")
        other = replace(done, options='{"trials":8}')
        orders = ((job, done, other), (other, job, done), (done, other, job))
        for number, versions in enumerate(orders):
            for version in versions:
                store.put_job(replace(version, id=f"tie-{number}"))
        kept = {(found.state, found.options) for found in store.jobs() if found.id != job.id}
        assert kept == {("done", max(done.options, other.options))}

    def test_tells_what_is_newer(self, store: Store, record: Make) -> None:
        assert (store.last(), store.newer(0)) == (0, (0, ()))
        store.add_all([record(1), record(2, operator="softmax")])
        last = store.last()
        assert store.newer(last) == (last, ())
        store.add_all([record(3), record(4, operator="softmax"), record(5)])
        assert store.newer(last, operator="matmul") == (store.last(), (record(3), record(5)))

    def test_newer_ones_of_a_job_may_be_left_out(self, store: Store, record: Make) -> None:
        store.add_all([record(1), record(2, job="mine"), record(3), record(4, job="mine")])
        assert store.newer(0, "mine") == (store.last(), (record(1), record(3)))

    def test_selects_one_of_several(self, store: Store, record: Make) -> None:
        store.add_all([record(1), record(2), record(3)])
        wanted = (record(1).candidate, record(3).candidate)
        assert list(store.records(candidate=wanted)) == [record(1), record(3)]

    def test_threads_share_a_store(self, store: Store, record: Make) -> None:
        def write(first: int) -> None:
            for index in range(first, first + 10):
                store.add(record(index))

        threads = [threading.Thread(target=write, args=(10 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.check() == 40

    def test_two_stores_see_each_other(self, where: str, store: Store, record: Make) -> None:
        if where == ":memory:":
            pytest.skip("a store in memory is its own")
        with Store(where) as other:
            other.add(record(1))
            assert store.count() == 1
            store.add(record(2))
            assert other.count() == 2
        with Store(where) as again:
            assert again.check() == 2


class TestFile(StoreContract):
    @pytest.fixture
    def where(self, path: Path) -> str:
        return str(path)


class TestFileUrl(StoreContract):
    @pytest.fixture
    def where(self, path: Path) -> str:
        return f"sqlite:///{path}"


class TestMemory(StoreContract):
    @pytest.fixture
    def where(self) -> str:
        return ":memory:"


class TestPostgres(StoreContract):
    @pytest.fixture
    def where(self, postgres: Server) -> str:
        return postgres.new_schema()


def test_makes_the_folders_above_it(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "records.db"
    with Store(path) as store:
        assert store.location == str(path)
        assert repr(store) == f"Store({str(path)!r})"
    assert path.is_file()


@pytest.mark.parametrize(
    "where", ["", "a\0b", "mysql://host/base", "nonsense://x", "postgresql://h:port/x", "://"]
)
def test_refuses_what_is_no_location(where: str) -> None:
    with pytest.raises(UnusableLocation):
        Store(where)


def test_unreachable_server_is_told_without_the_password() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StoreUnavailable) as refusal:
        Store("postgresql://someone:secret@127.0.0.1:1/none")
    assert re.search(r"someone:\*\*\*@127.0.0.1", str(refusal.value))
    assert "secret" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_missing_driver_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreUnavailable, match=r"pip install 'tilewright\[postgres\]'"):
        Store("postgresql://someone@127.0.0.1:1/none")
