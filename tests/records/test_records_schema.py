"""Versions of the schema: old stores migrate as a whole or not at all; newer ones are refused."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection

from records import Record, Store, schema
from records.errors import DamagedStore, ForeignFile, InvalidRecord, NewerStore
from records.tellings import KindCount

Make = Callable[..., Record]
STORES = Path(__file__).parent / "stores"
NOW, LATER = schema.VERSION, schema.VERSION + 2
OLD_STORES = sorted([*STORES.glob("v*.sql"), *STORES.glob("v*.db")])


def restore(dump: Path, path: Path) -> None:
    """Make the old store at `path`, of its text or of the very file."""
    if dump.suffix == ".db":
        shutil.copy(dump, path)
        return
    with sqlite3.connect(path) as connection:
        connection.executescript(dump.read_text())
    connection.close()


def tables_of(path: Path) -> set[tuple[str, ...]]:
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT type, name, tbl_name FROM sqlite_master").fetchall()
    found += [
        (table, *map(str, column[1:]))
        for table in schema.metadata.tables
        for column in connection.execute(f"PRAGMA table_info({table})")
    ]
    connection.close()
    return set(found)


def test_every_version_has_its_fixture() -> None:
    dumps = [dump.stem for dump in OLD_STORES if dump.suffix == ".sql"]
    assert dumps == [f"v{n + 1}" for n in range(schema.VERSION)]


@pytest.mark.parametrize("dump", OLD_STORES, ids=lambda dump: dump.name)
def test_old_store_is_read_and_written(dump: Path, path: Path, record: Make) -> None:
    restore(dump, path)
    with Store(path) as store:
        assert list(store.records())[:2] == [
            record(1),
            record(2, status="crash", seconds=None, quartiles=None, detail="signal 11"),
        ]
        assert [job.id for job in store.jobs()] == ["job-1"]
        assert store.add(record(3))
        assert store.check() == 3
        assert store.claim(["c"], "somebody", 60) == {"c"}


@pytest.mark.parametrize("dump", OLD_STORES, ids=lambda dump: dump.name)
@pytest.mark.parametrize("read_only", [True, False])
def test_old_trials_are_of_huge_pages(dump: Path, path: Path, read_only: bool) -> None:
    restore(dump, path)
    with Store(path, read_only=read_only) as store:
        assert [trial.memory for trial in store.records(memory="huge")] == ["huge", "huge"]
        assert store.count(memory="plain") == 0
        assert {row.memory for row in store.workloads()} == {"huge"}
        assert {row.memory for row in store.tally(KindCount)} == {"huge"}


def test_memories_are_told_apart(path: Path, record: Make) -> None:
    huge, plain = record(1), record(1, memory="plain")
    assert huge.key == Record.from_json(huge.to_json()).key != plain.key
    assert huge.candidate != plain.candidate
    with pytest.raises(InvalidRecord, match="'cold' is none of huge, plain"):
        record(1, memory="cold")
    with Store(path) as store:
        store.add_all([huge, plain])
        assert list(store.records(memory="plain")) == [plain]
        assert store.check() == 2


@pytest.mark.parametrize("dump", OLD_STORES, ids=lambda dump: dump.name)
def test_old_store_is_read_without_being_migrated(dump: Path, path: Path, record: Make) -> None:
    restore(dump, path)
    before = path.read_bytes()
    with Store(path, read_only=True) as store:
        assert store.check() == 2
        assert [job.id for job in store.jobs()] == ["job-1"]
    assert path.read_bytes() == before


@pytest.mark.parametrize("dump", OLD_STORES, ids=lambda dump: dump.name)
def test_migrated_tables_are_those_of_a_new_store(dump: Path, path: Path, tmp_path: Path) -> None:
    restore(dump, path)
    Store(path).close()
    Store(tmp_path / "new.db").close()
    assert tables_of(path) == tables_of(tmp_path / "new.db")


def add_column(connection: Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE trials ADD COLUMN colour TEXT DEFAULT 'red'")


def fail(connection: Connection) -> None:
    raise RuntimeError("half way")


def columns(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    names = [row[1] for row in connection.execute("PRAGMA table_info(trials)")]
    connection.close()
    return names


def test_migration_runs_its_steps(
    path: Path, record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(path) as store:
        store.add(record(1))
    monkeypatch.setattr(schema, "VERSION", LATER)
    monkeypatch.setattr(schema, "MIGRATIONS", {NOW: add_column, NOW + 1: lambda connection: None})
    with Store(path) as store:
        assert list(store.records()) == [record(1)]
    assert "colour" in columns(path)
    monkeypatch.undo()
    with pytest.raises(NewerStore, match=rf"schema {LATER}, this one knows {NOW}\): upgrade"):
        Store(path)


def test_migration_that_fails_changes_nothing(
    path: Path, record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(path) as store:
        store.add(record(1))
    monkeypatch.setattr(schema, "VERSION", LATER)
    monkeypatch.setattr(schema, "MIGRATIONS", {NOW: add_column, NOW + 1: fail})
    with pytest.raises(RuntimeError, match="half way"):
        Store(path)
    monkeypatch.undo()
    assert "colour" not in columns(path)
    with Store(path) as store:
        assert list(store.records()) == [record(1)]


def test_newer_store_is_left_as_it_is(path: Path, record: Make) -> None:
    with Store(path) as store:
        store.add(record(1))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE tilewright_schema SET version = 99")
        connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(NewerStore):
        Store(path)
    assert path.read_bytes() == before


def test_somebody_elses_database_is_left_as_it_is(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE birds (name TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ForeignFile, match="has a table 'birds'"):
        Store(path)
    assert path.read_bytes() == before


def test_store_without_its_version_is_damaged(path: Path) -> None:
    Store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM tilewright_schema")
    connection.close()
    with pytest.raises(DamagedStore, match="0 schema versions"):
        Store(path)
