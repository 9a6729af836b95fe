"""JSON Lines: exports are whole and exact, imports verify before they store, damage is located."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from records import Imported, Record, Store, export_records, import_records
from records.errors import DamagedExport, StoreUnavailable, UnusableLocation
from records.jsonl import _line

Make = Callable[..., Record]


@pytest.fixture
def full(path: Path, record: Make) -> Store:
    store = Store(path)
    store.add_all([record(index, detail="ünïcode\n") for index in range(5)])
    store.new_job("matmul", "{}", "cpu")
    return store


@pytest.fixture
def export(full: Store, tmp_path: Path) -> Path:
    goal = tmp_path / "out.jsonl"
    assert export_records(full, goal) == 5
    return goal


def test_round_trip_is_exact(full: Store, export: Path, tmp_path: Path) -> None:
    with Store(":memory:") as other:
        assert import_records(other, export) == Imported(read=5, added=5, jobs=1)
        assert list(other.records()) == list(full.records())
        assert other.jobs() == full.jobs()
        again = tmp_path / "again.jsonl"
        export_records(other, again)
        assert again.read_bytes() == export.read_bytes()


def test_import_twice_adds_once(full: Store, export: Path, record: Make) -> None:
    full.add(record(9))
    assert import_records(full, export) == Imported(read=5, added=0, jobs=0)
    assert full.count() == 6


def test_pages_are_joined(full: Store, export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("records.files.PAGE", 2)
    with Store(":memory:") as other:
        assert import_records(other, export).added == 5
        assert list(other.records()) == list(full.records())


def test_export_takes_a_selection(full: Store, tmp_path: Path, record: Make) -> None:
    full.add(record(7, status="crash", seconds=None))
    assert export_records(full, tmp_path / "some.jsonl", status="crash") == 1
    with Store(":memory:") as other:
        assert import_records(other, tmp_path / "some.jsonl").read == 1


@given(st.data())
@settings(
    max_examples=45, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_flipped_or_missing_byte_is_refused(export: Path, data: st.DataObject) -> None:
    whole = export.read_bytes()
    position = data.draw(st.integers(0, len(whole) - 2))
    bit = 1 << data.draw(st.integers(0, 7))
    flipped = whole[:position] + bytes([whole[position] ^ bit]) + whole[position + 1 :]
    damaged = data.draw(st.sampled_from([flipped, whole[:position]]))
    copy = export.with_name("copy.jsonl")
    copy.write_bytes(damaged)
    with Store(":memory:") as store:
        with pytest.raises(DamagedExport) as refusal:
            import_records(store, copy)
        assert (store.count(), store.jobs()) == (0, ())
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda lines: lines[:-1], "line 7: it ends early"),
        (lambda lines: [], "line 0: it ends early"),
        (lambda lines: lines[:3] + lines[4:], "lines are missing"),
        (lambda lines: [lines[0], *lines[-2:0:-1], lines[-1]], "not in their places"),
        (lambda lines: lines + lines, "line 9: more follows"),
        (lambda lines: lines[1:], "line 1: the header is not the first"),
        (lambda lines: [*lines[:2], b"hello\n", *lines[2:]], "line 3: it is not a line of an"),
    ],
)
def test_damage_is_located(
    export: Path, edit: Callable[[list[bytes]], list[bytes]], words: str
) -> None:
    export.write_bytes(b"".join(edit(export.read_bytes().splitlines(keepends=True))))
    with Store(":memory:") as store, pytest.raises(DamagedExport, match=words):
        import_records(store, export)


def test_salvage_stores_the_good_lines(export: Path, full: Store) -> None:
    lines = export.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b"matmul", b"MATMUL")
    export.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    with Store(":memory:") as store:
        assert import_records(store, export, salvage=True) == Imported(4, 4, 1, damaged=(4, 8))
        first, _, *rest = full.records()
        assert list(store.records()) == [first, *rest]


def test_newer_format_is_refused(export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("records.jsonl.FORMAT", 2)
    with Store(":memory:") as store, pytest.raises(DamagedExport, match="not known here"):
        import_records(store, export)


def test_failed_export_leaves_the_old_one(
    full: Store, export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = export.read_bytes()

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(StoreUnavailable, match="No space left on device"):
        export_records(full, export)
    assert export.read_bytes() == before
    assert not list(export.parent.glob("*.part"))


def test_refuses_paths_that_cannot_be(full: Store, path: Path, tmp_path: Path) -> None:
    for call in (export_records, import_records):
        with pytest.raises(UnusableLocation, match="is the store itself"):
            call(full, path)
    with pytest.raises(StoreUnavailable, match="No such file"):
        import_records(full, tmp_path / "none.jsonl")
    with pytest.raises(StoreUnavailable, match="No such file"):
        export_records(full, tmp_path / "none" / "out.jsonl")


def test_newer_job_state_wins(full: Store, export: Path) -> None:
    job = full.jobs()[0]
    done = replace(job, state="done", updated="2099-01-01T00:00:00+00:00")
    full.put_job(done)
    assert import_records(full, export).jobs == 0
    assert full.jobs() == (done,)


@pytest.mark.parametrize("kind", ["trial", "job", "end", "header"])
@pytest.mark.parametrize("content", [None, 1, "x", [], [[]], {}, {"id": None}, {"threads": {}}])
def test_what_is_no_row_is_told_in_one_line(
    export: Path, tmp_path: Path, kind: str, content: object
) -> None:
    """Lines whose checksums are right, and that hold nothing of use."""
    file = tmp_path / "odd.jsonl"
    first, *lines = export.read_text().splitlines(keepends=True)
    odd = _line(kind, content)
    file.write_text("".join([odd, *lines] if kind == "header" else [first, odd, *lines]))
    with Store(":memory:") as other:
        with pytest.raises(DamagedExport, match=r"line [12]: .*nothing was imported") as refusal:
            import_records(other, file)
        assert "\n" not in str(refusal.value)
        assert import_records(other, file, salvage=True).damaged[0] in (1, 2)
        assert other.check() == 5
