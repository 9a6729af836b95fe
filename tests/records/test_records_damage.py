"""Damage anywhere in a store is told, and no damaged row is taken for a sound one."""

from __future__ import annotations

import logging
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from records import Job, Pruning, Record, Store, export_records, export_sound, import_records, merge
from records.errors import DamagedStore
from tests.records.conftest import make_record
from tests.records.damage import Kept, clear, cuts, flips, refusal, wrong_rows
from tests.records.postgres import Server

Make = Callable[..., Record]


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with all that there may be in one: jobs, leases, long rows, free pages."""
    path = tmp_path_factory.mktemp("used") / "records.db"
    with Store(path) as store:
        for number in range(3):
            job = store.new_job("matmul", '{"m":512}', "cpu", f'{{"trials":{number}}}')
            store.update_job(job.id, "done")
        store.add_all([make_record(n, detail="x" * 150 * n) for n in range(45)])
        store.claim(["one", "two"], "somebody", 60)
        store.prune(Pruning(keep_best=25))
        store.release("somebody", ["one"])
    return path


@pytest.fixture(scope="module")
def kept(used: Path) -> Kept:
    return Kept.of(used)


def test_every_flipped_bit_and_lost_end_is_told(used: Path, kept: Kept, path: Path) -> None:
    whole, rng = used.read_bytes(), random.Random(11)
    for number, (what, content) in enumerate([*flips(whole, 40, rng), *cuts(whole, 16, rng)]):
        path.write_bytes(content)
        assert refusal(path), what
        assert wrong_rows(path, kept, read_only=number % 3 > 0) == 0, what
        clear(path)


def test_flipped_bits_of_the_header_are_told(used: Path, path: Path) -> None:
    whole = used.read_bytes()
    for place in range(0, 100, 4):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        assert refusal(path), place
        clear(path)


def test_one_more_byte_is_told(used: Path, path: Path) -> None:
    path.write_bytes(used.read_bytes() + b"\0")
    assert "should have" in refusal(path)


def test_what_an_open_store_does_not_tell_is_harmless(
    used: Path, kept: Kept, path: Path, tmp_path: Path
) -> None:
    """A writer that was killed leaves no seal: bytes that hold no data are not compared."""
    shutil.copy(used, tmp_path / "open.db")
    code = "import sys, os; from records import Store; s = Store(sys.argv[1]); s.add_all(()); "
    code += "s.claim(['x'], 'me', 60); s._database.engine.dispose(); os._exit(0)"
    subprocess.run([sys.executable, "-c", code, tmp_path / "open.db"], check=True)
    with Store(tmp_path / "open.db", read_only=True) as store:
        assert not store.examine().sealed
    whole, rng = (tmp_path / "open.db").read_bytes(), random.Random(12)
    for what, content in [*flips(whole, 20, rng), *cuts(whole, 8, rng)]:
        path.write_bytes(content)
        if not refusal(path):
            assert Kept.of(path) == kept, what
        clear(path)


def test_a_seal_that_does_not_fit_is_not_mended_by_writing(
    used: Path, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    connection = sqlite3.connect(shutil.copy(used, path))
    connection.execute("PRAGMA application_id = 7")
    connection.close()
    with caplog.at_level(logging.WARNING, "records"), Store(path) as store:
        store.add(make_record(999))
    assert "seal" in caplog.text
    assert "do not match its seal" in refusal(path)


def sql(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA foreign_keys = OFF")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DELETE FROM facts", "facts of its hardware are lost"),
        ("UPDATE facts SET text = '{}'", "does not match"),
        ("DELETE FROM trials WHERE number = 3", "table trials has 119 rows, and 120 were kept"),
        ("DELETE FROM jobs", "table jobs has 0 rows, and 1 were kept"),
        ("UPDATE jobs SET options = '{\"trials\":9}'", "does not match its hash"),
        ("UPDATE jobs SET state = 'gone'", "job 'job-1'"),
        ("UPDATE trials SET seconds = 1e-9 WHERE number = 7", "trial 7"),
        ("UPDATE trials SET seconds = 'soon' WHERE number = 7", "trial 7"),
        ("UPDATE trials SET schedule = x'00ff' WHERE number = 7", "trial 7"),
        ("UPDATE trials SET candidate = 'x' WHERE number = 7", "another candidate"),
        ("DELETE FROM tallies", "None were kept"),
        ("UPDATE leases SET began = 'then'", "has no time"),
        ("DELETE FROM sqlite_sequence", "the next trial would get"),
        ("DROP TABLE leases", "table leases is missing"),
        ("ALTER TABLE jobs DROP COLUMN state", "no column state"),
        ("UPDATE tilewright_schema SET version = 2", "seal"),
        ("CREATE TABLE birds (name TEXT)", "seal"),
    ],
)
def test_what_other_programs_change_is_told(
    sealed_store: Path, path: Path, statement: str, words: str
) -> None:
    shutil.copy(sealed_store, path)
    sql(path, statement)
    assert words in refusal(path)
    assert "\n" not in refusal(path)


@pytest.fixture(scope="module")
def sealed_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sealed") / "records.db"
    with Store(path) as store:
        store.put_job(make_job())
        store.add_all([make_record(n) for n in range(120)])
        store.claim(["one"], "somebody", 60)
    return path


def make_job() -> Job:
    moment = "2026-01-02T03:04:05+00:00"
    return Job(
        id="job-1", operator="matmul", extents="{}", target="cpu", created=moment, updated=moment
    )


class DamagedRows:
    """Subclasses say how a statement reaches the tables behind a store's back."""

    @pytest.fixture
    def where(self) -> str:
        raise NotImplementedError

    def alter(self, where: str, statement: str) -> None:
        raise NotImplementedError

    @pytest.fixture
    def damaged(self, where: str, record: Make) -> str:
        """Trial 2 looks as if it were the fastest."""
        with Store(where) as store:
            store.new_job("matmul", "{}", "cpu")
            store.add_all([record(n) for n in range(1, 5)])
        self.alter(where, "UPDATE trials SET seconds = 1e-9 WHERE number = 2")
        return where

    def test_are_passed_over_with_one_warning(
        self, damaged: str, record: Make, caplog: pytest.LogCaptureFixture
    ) -> None:
        sound = [record(1), record(3), record(4)]
        with caplog.at_level(logging.WARNING, "records"), Store(damaged, read_only=True) as store:
            caplog.clear()
            assert list(store.records()) == sound
            assert store.best("a" * 64, "cpu", "b" * 64) == record(1)
            assert store.newer(0)[1] == tuple(sound)
        (line,) = [entry.getMessage() for entry in caplog.records]
        assert "trial 2: its content does not match its hash" in line
        assert "\n" not in line

    def test_are_told_by_check(self, damaged: str) -> None:
        assert "trial 2" in refusal(damaged)

    @pytest.mark.parametrize("ending", ["jsonl", "json", "parquet"])
    def test_are_never_exported_as_sound(self, damaged: str, tmp_path: Path, ending: str) -> None:
        if ending == "parquet":
            pytest.importorskip("duckdb")
        goal = tmp_path / f"out.{ending}"
        with Store(damaged, read_only=True) as store:
            with pytest.raises(DamagedStore, match=r"trial 2.*--salvage"):
                export_records(store, goal)
            assert not goal.exists()
            done = export_sound(store, goal)
        assert done.trials == 3
        assert [found.name for found in done.left_out] == ["2"]
        with Store(":memory:") as other:
            assert import_records(other, goal).added == 3

    def test_are_not_merged(self, damaged: str, record: Make) -> None:
        with Store(damaged, read_only=True) as store, Store(":memory:") as other:
            assert merge(store, other).damaged == (2,)
            assert list(other.records()) == [record(1), record(3), record(4)]

    def test_of_jobs_are_told(self, damaged: str) -> None:
        self.alter(damaged, "UPDATE jobs SET target = 'cuda'")
        with Store(damaged, read_only=True) as store:
            assert store.jobs() == ()
            with pytest.raises(DamagedStore, match="content does not match its hash"):
                store.job(self.job_name(damaged))

    def job_name(self, where: str) -> str:
        raise NotImplementedError


class TestDamagedRowsOfFiles(DamagedRows):
    @pytest.fixture
    def where(self, path: Path) -> str:
        return str(path)

    def alter(self, where: str, statement: str) -> None:
        sql(Path(where), statement)

    def job_name(self, where: str) -> str:
        connection = sqlite3.connect(where)
        (name,) = connection.execute("SELECT id FROM jobs").fetchone()
        connection.close()
        return str(name)


class TestDamagedRowsOfServers(DamagedRows):
    @pytest.fixture
    def where(self, postgres: Server) -> str:
        return postgres.new_schema()

    def alter(self, where: str, statement: str) -> None:
        import psycopg

        with psycopg.connect(where) as connection:
            connection.execute(statement.encode())

    def job_name(self, where: str) -> str:
        import psycopg

        with psycopg.connect(where) as connection:
            row = connection.execute("SELECT id FROM jobs").fetchone()
        assert row is not None
        return str(row[0])

    def test_rows_that_are_gone_are_told(self, where: str, record: Make) -> None:
        with Store(where) as store:
            store.add_all([record(1), record(2)])
            self.alter(where, "DELETE FROM trials WHERE number = 1")
            with pytest.raises(DamagedStore, match="1 rows, and 2 were kept"):
                store.check()


def test_a_sound_job_takes_the_place_of_a_damaged_one(path: Path) -> None:
    with Store(path) as store:
        store.put_job(make_job())
        sql(path, "UPDATE jobs SET state = 'gone', updated = '2999'")
        assert store.put_job(make_job())
        assert store.jobs() == (make_job(),)


def test_sealing_waits_for_nobody(path: Path, record: Make) -> None:
    store = Store(path, busy_seconds=20)
    store.add(record(1))
    rival = sqlite3.connect(path, isolation_level=None)
    rival.execute("BEGIN IMMEDIATE")
    store.close()
    rival.execute("COMMIT")
    rival.close()
    with Store(path, read_only=True) as again:
        assert not again.examine().sealed
    with Store(path) as again:
        again.add(record(2))
    with Store(path, read_only=True) as again:
        assert again.examine().sealed


def test_compacting_keeps_a_seal_that_fits(used: Path, path: Path) -> None:
    shutil.copy(used, path)
    with Store(path) as store:
        store.compact()
    with Store(path, read_only=True) as store:
        assert store.examine().sealed
    assert os.path.getsize(path) <= os.path.getsize(used)
