"""A store on a server: it goes away and comes back, locks, dies, is shared with other tables."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from records import Record, Store, merge
from records.errors import LockedStore, ReadOnlyStore, ServerAway, StoreUnavailable
from tests.records.postgres import Server

psycopg = pytest.importorskip("psycopg", reason="no driver: pip install 'tilewright[postgres]'")

Make = Callable[..., Record]


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.new_schema()


@pytest.fixture
def away(postgres: Server) -> Iterator[Server]:
    """A server that may be stopped: it is there again afterwards."""
    yield postgres
    if not postgres.running:
        postgres.start()


def test_server_that_is_away_is_told_in_one_line(url: str, away: Server, record: Make) -> None:
    with Store(url, busy_seconds=0.3) as store:
        store.add(record(1))
        away.stop()
        actions: tuple[Callable[[], object], ...] = (
            lambda: store.add(record(2)),
            lambda: store.count(),
            lambda: store.heartbeat("me"),
        )
        for action in actions:
            with pytest.raises(ServerAway) as refusal:
                action()
            assert "\n" not in str(refusal.value)
            assert "does not answer" in str(refusal.value)
            assert refusal.value.exit_code == 8
        with pytest.raises(ServerAway):
            Store(url)
        away.start()
        assert list(store.records()) == [record(1)]
        assert store.add(record(2))
        assert store.check() == 2


def test_server_that_comes_back_is_waited_for(
    url: str, away: Server, record: Make, caplog: pytest.LogCaptureFixture
) -> None:
    with Store(url) as store, caplog.at_level(logging.WARNING, "records"):
        store.add(record(1))
        away.stop()
        starter = threading.Timer(0.5, away.start)
        starter.start()
        assert store.add(record(2))
        starter.join()
        assert list(store.records()) == [record(1), record(2)]
    assert len(caplog.records) == 1
    assert "does not answer" in caplog.records[0].getMessage()


def test_server_that_dies_under_its_writers_keeps_what_it_acknowledged(
    url: str, away: Server, record: Make
) -> None:
    acknowledged: list[Record] = []
    begun = threading.Barrier(4)

    def write(writer: int) -> None:
        with Store(url) as store:
            begun.wait()
            for number in range(100):
                trial = record(number, job=f"writer-{writer}")
                try:
                    store.add(trial)
                except StoreUnavailable:
                    continue  # the server went while it was at this very trial
                acknowledged.append(trial)

    Store(url).close()
    writers = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for writer in writers:
        writer.start()
    begun.wait()
    while len(acknowledged) < 20:
        time.sleep(0.005)
    away.stop()
    before = len(acknowledged)
    away.start()
    for writer in writers:
        writer.join()
    assert len(acknowledged) > before
    with Store(url) as store:
        assert {trial.key for trial in acknowledged} <= {found.key for found in store.records()}
        assert store.check() <= 300


def test_connection_that_is_cut_is_made_again(url: str, record: Make) -> None:
    with Store(url) as store, psycopg.connect(url) as admin:
        store.add(record(1))
        others = "FROM pg_stat_activity WHERE datname = current_database()"
        admin.execute(f"SELECT pg_terminate_backend(pid) {others} AND pid <> pg_backend_pid()")
        assert store.add(record(2))
        assert store.count() == 2


def test_table_that_is_locked_is_refused_after_the_timeout(url: str, record: Make) -> None:
    with Store(url, busy_seconds=0.2) as store:
        with psycopg.connect(url) as rival:
            rival.execute("LOCK TABLE trials IN EXCLUSIVE MODE")
            with pytest.raises(LockedStore, match="is locked"):
                store.add(record(1))
        assert store.add(record(1))


def test_store_opened_to_be_read_changes_nothing(url: str, record: Make) -> None:
    with Store(url) as store:
        store.add(record(1))
    with Store(url, read_only=True) as store:
        assert store.check() == 1
        with pytest.raises(ReadOnlyStore, match="opened to be read"):
            store.add(record(2))


def test_database_whose_users_may_only_read(postgres: Server, record: Make) -> None:
    url = postgres.new_database()
    with Store(url) as store:
        store.add(record(1))
    with psycopg.connect(url, autocommit=True) as admin:
        name = admin.info.dbname
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with Store(url) as store, pytest.raises(ReadOnlyStore):
        store.add(record(2))


def test_tables_of_others_are_left_alone(url: str, record: Make) -> None:
    with psycopg.connect(url) as other:
        other.execute("CREATE TABLE birds (name TEXT)")
    with Store(url) as store:
        assert store.add(record(1))


def test_rivals_make_the_tables_once(url: str, record: Make) -> None:
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            with Store(url) as store:
                store.add(record(number))
        except Exception as error:  # noqa: BLE001 - a thread's error must reach the test
            failures.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with Store(url) as store:
        assert store.check() == 4


def test_records_go_from_a_file_to_a_server_and_back(url: str, record: Make, path: Path) -> None:
    batch = [record(n, detail="ünï \N{GRINNING FACE}") for n in range(5)]
    with Store(path) as file, Store(url) as server, Store(":memory:") as third:
        file.new_job("matmul", "{}", "cpu")
        file.add_all(batch)
        assert merge(file, server).added == 5
        assert merge(server, file).added == 0
        assert merge(server, third).added == 5
        assert list(third.records()) == batch
        assert third.jobs() == file.jobs()
        assert server.workloads() == file.workloads()


def test_first_version_migrates(url: str, record: Make) -> None:
    with Store(url) as store:
        store.add(record(1))
        job = store.new_job("matmul", "{}", "cpu")
    with psycopg.connect(url) as admin:
        admin.execute("DROP TABLE leases")
        admin.execute("DROP TABLE tallies")
        admin.execute("ALTER TABLE jobs DROP COLUMN key")
        admin.execute("ALTER TABLE trials DROP COLUMN memory")
        admin.execute("UPDATE tilewright_schema SET version = 1")
    with Store(url) as store:
        assert store.check() == 1
        assert list(store.records()) == [record(1)]
        assert store.jobs() == (job,)
        assert store.claim(["c"], "one", 60) == {"c"}
