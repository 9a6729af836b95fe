"""A small file can hold a great deal: what an import unpacks to and takes in is bounded."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from records import Record, Store, documents, export_records, import_records, jsonl, parquet
from records.errors import DamagedExport, InvalidRecord
from records.packed import SMALL, Unpackable, most_of, unpacked


def _packed(path: Path, data: bytes) -> Path:
    path.write_bytes(lzma.compress(data, preset=0))
    return path


def test_what_is_packed_unpacks_in_pieces(tmp_path: Path) -> None:
    path = _packed(tmp_path / "x.xz", b"12" * (1 << 20))
    pieces = list(unpacked(path))
    assert b"".join(pieces) == b"12" * (1 << 20)
    assert max(map(len, pieces)) <= 1 << 20


def test_a_bomb_is_told_before_it_bursts(tmp_path: Path) -> None:
    assert most_of(1000) == SMALL
    assert most_of(10 << 20) == 2000 << 20
    path = _packed(tmp_path / "x.xz", bytes(4 << 20))
    with pytest.raises(Unpackable, match="more than 1 MiB"):
        list(unpacked(path, 1 << 20))


@pytest.mark.parametrize("place", [0, 7, -1])
def test_what_is_cut_or_no_xz_is_told(tmp_path: Path, place: int) -> None:
    path = _packed(tmp_path / "x.xz", b"content")
    path.write_bytes(path.read_bytes()[:place])
    with pytest.raises(Unpackable):
        list(unpacked(path))
    path.write_bytes(gzip.compress(b"content"))
    with pytest.raises(Unpackable):
        list(unpacked(path))


@pytest.mark.parametrize(
    ("name", "module", "setting"),
    [
        ("x.jsonl", jsonl, "LONGEST_LINE"),
        ("x.json", documents, "LARGEST"),
        ("x.parquet", parquet, "LARGEST"),
        ("x.parquet", parquet, "LONGEST"),
    ],
)
def test_every_form_has_its_bounds(
    tmp_path: Path, record: Callable[..., Record], monkeypatch: pytest.MonkeyPatch,
    name: str, module: object, setting: str,
) -> None:  # fmt: skip
    with Store(tmp_path / "a.db") as store:
        store.add(record(detail="why " * 100))
        export_records(store, tmp_path / name)
    monkeypatch.setattr(module, setting, 64)
    with Store(tmp_path / "b.db") as store, pytest.raises(DamagedExport) as caught:
        import_records(store, tmp_path / name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("field", ["operator", "hardware", "generator", "job", "strategy"])
def test_names_are_printable(record: Callable[..., Record], field: str) -> None:
    for name in ("\x1b[31mred", "two\nlines", "\u202egnp", "\x9b5m"):
        with pytest.raises(InvalidRecord, match="not printable"):
            record(**{field: name})
