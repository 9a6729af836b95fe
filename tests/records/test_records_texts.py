"""Texts that trials and jobs name by their hash go wherever these go, and are never altered."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from records import Pruning, Record, Store, export_records, import_records, merge
from records.canonical import content_key
from records.errors import DamagedExport, DamagedStore
from records.salvage import repair

TEXT = "program two_lines\naxis i = 4\n"
KEY = content_key(TEXT)


@pytest.fixture
def store(tmp_path: Path, record: Callable[..., Record]) -> Store:
    store = Store(tmp_path / "a.db")
    store.keep_texts((TEXT,))
    store.add(record(workload=KEY))
    return store


def test_a_text_is_kept_once_and_found_by_its_hash(store: Store) -> None:
    assert store.keep_texts((TEXT, TEXT)) == 0
    assert store.text(KEY) == TEXT
    assert store.text("0" * 64) is None
    assert list(store.texts()) == [TEXT]  # and not the facts of the hardware


def test_an_altered_text_is_told(store: Store, tmp_path: Path) -> None:
    store.close()
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        connection.execute("UPDATE facts SET text = 'program evil' WHERE key = ?", (KEY,))
    with Store(tmp_path / "a.db") as again, pytest.raises(DamagedStore, match="text"):
        again.text(KEY)


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet", "x.json"])
def test_exports_carry_texts(store: Store, tmp_path: Path, name: str) -> None:
    export_records(store, tmp_path / name)
    with Store(tmp_path / "b.db") as other:
        import_records(other, tmp_path / name)
        assert other.text(KEY) == TEXT


def test_merging_pruning_and_repairs_keep_texts(store: Store, tmp_path: Path) -> None:
    with Store(tmp_path / "b.db") as other:
        merge(store, other)
        assert other.text(KEY) == TEXT
    store.prune(Pruning(keep_best=0))
    assert store.text(KEY) == TEXT
    store.close()
    repair(tmp_path / "b.db", tmp_path / "c.db")
    with Store(tmp_path / "c.db") as saved:
        assert saved.text(KEY) == TEXT


def test_a_text_that_is_none_is_refused(store: Store, tmp_path: Path) -> None:
    export_records(store, tmp_path / "x.jsonl")
    lines = (tmp_path / "x.jsonl").read_text().splitlines(keepends=True)
    assert '"kind":"text"' in lines[1]
    for content in (5, None, "nul \0", "\u00e4", "x" * (1 << 23)):
        text = json.dumps(content)
        digest = content_key("text" + text)
        lines[1] = f'{{"kind":"text","sha256":"{digest}","text":{text}}}\n'
        (tmp_path / "x.jsonl").write_text("".join(lines))
        with Store(tmp_path / "b.db") as other, pytest.raises(DamagedExport, match="line 2"):
            import_records(other, tmp_path / "x.jsonl")
