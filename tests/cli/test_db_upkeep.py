"""`tilewright db`: forms of export, pruning, repairing; what cannot be used is told in a line."""

from __future__ import annotations

import json
import os
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from explorer import cli
from records import Store
from tests.records.conftest import make_record

SOME = 30


@pytest.fixture
def filled(store: Path) -> Path:
    with Store(str(store)) as records:
        records.add_all([make_record(number) for number in range(SOME)])
    return store


def done(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command says that ends well."""
    code = cli.invoke(["db", *arguments])
    said = capsys.readouterr()
    assert (code, said.err) == (cli.EXIT_DONE, "")
    return said.out


def refused(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> str:
    """The one line of a command that is refused."""
    assert cli.invoke(["db", *arguments]) == code
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    return said.err


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet", "out.json"])
def test_every_form_goes_out_and_in(
    filled: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("duckdb")
    file, other = str(tmp_path / name), str(tmp_path / "other.db")
    before = filled.read_bytes()
    assert f"wrote {SOME} trials" in done(capsys, "export", file)
    assert filled.read_bytes() == before
    assert f"{SOME} of them new" in done(capsys, "import", file, "--records", other)
    assert " 0 of them new" in done(capsys, "import", file, "--records", other)
    with Store(other) as second, Store(filled) as first:
        assert list(second.records()) == list(first.records())


def test_the_form_may_be_named(
    filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "out")
    done(capsys, "export", file, "--format", "t4")
    assert json.loads(Path(file).read_text())["schema_version"] == "1.0.0"
    done(capsys, "import", file, "--format", "t4", "--records", str(tmp_path / "other.db"))
    refused(capsys, cli.EXIT_USAGE, "export", file, "--format", "csv")
    assert "line 1" in refused(capsys, 8, "import", file)


def test_one_workload_is_chosen_by_its_key(
    filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(filled) as records:
        records.add(make_record(1, workload="ab" * 32, operator="softmax"))
    file = str(tmp_path / "out.json")
    assert "select one workload" in refused(capsys, 8, "export", file)
    rows = json.loads(done(capsys, "stats", "--workloads", "--format", "json"))["workloads"]
    assert [(row["operator"], row["trials"]) for row in rows] == [("matmul", SOME), ("softmax", 1)]
    listed = done(capsys, "stats", "--workloads").splitlines()
    key = listed[1].split()[0]
    assert "wrote 1 trials" in done(capsys, "export", file, "--workload", key)
    assert "2 workloads begin" in refused(capsys, 2, "export", file, "--workload", "a")
    assert "no workload begins" in refused(capsys, 2, "export", file, "--workload", "x")


def test_pruning_counts_first_and_deletes_when_told(
    filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = filled.read_bytes()
    counted = done(capsys, "prune", "--keep-best", "5")
    assert counted.splitlines()[0] == "would delete 25 trials of 25 candidates (matmul 25), keeps 5"
    assert "--yes" in counted
    assert filled.read_bytes() == before
    told = json.loads(done(capsys, "prune", "--keep-best", "5", "--yes", "--format", "json"))
    assert told == {
        "schema": 1,
        "trials": 25,
        "candidates": 25,
        "kept": 5,
        "operators": {"matmul": 25},
        "deleted": True,
    }
    assert "deleted 0 trials" in done(capsys, "prune", "--keep-best", "5", "--yes")
    with Store(filled) as records:
        assert records.count() == 5


def test_pruning_by_age_and_generator(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = datetime.now(UTC).isoformat()
    with Store(filled) as records:
        records.add_all([make_record(99, created=now), make_record(98, generator="cpu-2")])
    assert "delete 31 trials" in done(capsys, "prune", "--older-than", "12h")
    words = ("prune", "--older-than", "2w", "--generator", "cpu-2", "--yes")
    assert "deleted 1 trials" in done(capsys, *words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "prune needs a condition"),
        (("--older-than", "soon"), "give hours, days or weeks"),
        (("--older-than", "999999w"), "longer ago than there are dates"),
        (("--keep-best", "-1"), "--keep-best"),
    ],
)
def test_pruning_for_no_reason_is_refused(
    filled: Path, arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in refused(capsys, cli.EXIT_USAGE, "prune", *arguments)


def test_repair_saves_what_it_can(
    filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytearray(filled.read_bytes())
    data[data.rindex(b'"target"') + 2] ^= 1
    filled.write_bytes(data)
    assert "db repair" in refused(capsys, 8, "check")
    new = str(tmp_path / "new.db")
    told = json.loads(done(capsys, "repair", new, "--format", "json"))
    assert (told["trials"], told["altered"], told["unreadable"]) == (SOME - 1, 1, 0)
    assert filled.read_bytes() == data
    assert f"{SOME - 1} trials" in done(capsys, "check", "--records", new)
    assert "is there already" in refused(capsys, 8, "repair", new)
    text = done(capsys, "repair", str(tmp_path / "again.db"))
    assert f"saved {SOME - 1} trials" in text
    assert "1 that are altered" in text


def test_merge_tells_what_it_did(
    filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    third = str(tmp_path / "third.db")
    merged = done(capsys, "merge", str(filled), "--records", third, "--format", "json")
    told = json.loads(merged)["stores"]
    assert told == [{"store": str(filled), "read": SOME, "added": SOME, "jobs": 0, "damaged": 0}]
    missing = str(tmp_path / "none.db")
    refused(capsys, cli.EXIT_USAGE, "merge", str(filled), missing, "--records", missing + "2")
    assert not Path(missing + "2").exists()


READING = (("check",), ("stats",), ("prune", "--keep-best", "1"), ("export", "out.jsonl"))
WRITING = (("import", "in.jsonl"), ("prune", "--keep-best", "1", "--yes"), ("merge", "other.db"))


@pytest.fixture
def place(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the verbs above need."""
    from records import export_records

    monkeypatch.chdir(tmp_path)
    with Store(filled) as records:
        export_records(records, "in.jsonl")
    with Store("other.db") as other:
        other.add(make_record(77))
    return filled


@pytest.mark.parametrize("arguments", [*READING, *WRITING])
def test_a_damaged_store_ends_with_8(
    place: Path, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    os.truncate(place, place.stat().st_size // 2 // 4096 * 4096)
    before = place.read_bytes()
    assert "is damaged" in refused(capsys, 8, *arguments)
    assert place.read_bytes() == before


@pytest.mark.parametrize("arguments", [*READING, *WRITING])
def test_a_newer_store_ends_with_8(
    place: Path, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with sqlite3.connect(place) as connection:
        connection.execute("UPDATE tilewright_schema SET version = 99")
    connection.close()
    assert "newer Tilewright" in refused(capsys, 8, *arguments)


@pytest.mark.parametrize("arguments", WRITING)
def test_a_locked_store_ends_with_8(
    place: Path,
    arguments: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("records.store.Store.__init__.__kwdefaults__", _impatient())
    rival = sqlite3.connect(place, isolation_level=None)
    rival.execute("BEGIN IMMEDIATE")
    assert "is locked" in refused(capsys, 8, *arguments)
    rival.close()


def _impatient() -> dict[str, object]:
    defaults = Store.__init__.__kwdefaults__ or {}
    return {**defaults, "busy_seconds": 0.1}


@pytest.mark.parametrize("arguments", READING[:3])
def test_a_locked_store_is_read(
    place: Path, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    rival = sqlite3.connect(place, isolation_level=None)
    rival.execute("BEGIN IMMEDIATE")
    assert done(capsys, *arguments)
    rival.close()


def test_a_full_store_ends_with_8(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy import Connection

    from records import sqlite_file

    begin = sqlite_file._on_begin

    def begin_with_little_room(connection: Connection) -> None:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")  # no less than there are
        begin(connection)

    with Store("other.db") as other:
        before = other.count()
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_file, "_on_begin", begin_with_little_room)
        assert "is full" in refused(capsys, 8, "import", "in.jsonl", "--records", "other.db")
    with Store("other.db") as other:
        assert other.check() == other.count() == before
    assert f"{SOME} of them new" in done(capsys, "import", "in.jsonl", "--records", "other.db")
