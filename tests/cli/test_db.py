"""`tilewright db` and `tilewright top`: what stores hold, carried out, in and together."""

from __future__ import annotations

import json
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


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_check_and_stats(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.invoke(["db", "check", "--format", "json"]) == cli.EXIT_DONE
    found = json.loads(said(capsys))
    assert (found["trials"], found["sound"]) == (SOME, True)
    assert cli.invoke(["db", "stats", "--format", "json"]) == cli.EXIT_DONE
    counted = json.loads(said(capsys))["operators"]
    assert sum(sum(row.values()) for row in counted.values()) == SOME


def test_a_flipped_bit_is_found(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(filled.read_bytes())
    at = data.rindex(b'"target"')
    data[at + 2] ^= 1
    filled.write_bytes(data)
    assert cli.invoke(["db", "check"]) == 8
    assert "damaged" in capsys.readouterr().err


def test_export_import_merge(
    filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, other = tmp_path / "records.jsonl", str(tmp_path / "other.db")
    assert cli.invoke(["db", "export", str(out)]) == cli.EXIT_DONE
    assert f"wrote {SOME} trials" in said(capsys)
    for new in (SOME, 0):
        assert cli.invoke(["db", "import", str(out), "--records", other]) == cli.EXIT_DONE
        assert f"{new} of them new" in said(capsys)
    third = str(tmp_path / "third.db")
    assert cli.invoke(["db", "merge", other, str(filled), "--records", third]) == cli.EXIT_DONE
    lines = said(capsys).splitlines()
    assert lines[0].endswith(f"{SOME} trials, {SOME} of them new")
    assert lines[1].endswith(f"{SOME} trials, 0 of them new")
    with Store(third) as merged, Store(str(filled)) as first:
        assert {r.key for r in merged.records()} == {r.key for r in first.records()}


def test_damaged_exports_are_refused_or_salvaged(
    filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, other = tmp_path / "records.jsonl", str(tmp_path / "other.db")
    assert cli.invoke(["db", "export", str(out)]) == cli.EXIT_DONE
    lines = out.read_text().splitlines(keepends=True)
    lines[3] = lines[3].replace("m", "n", 1)
    out.write_text("".join(lines))
    assert cli.invoke(["db", "import", str(out), "--records", other]) == 8
    assert cli.invoke(["db", "import", str(out), "--records", other, "--salvage"]) == 0
    assert "passed over" in said(capsys)


def test_looking_makes_no_store(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code in (
        (("db", "check"), cli.EXIT_USAGE),
        (("db", "stats"), cli.EXIT_USAGE),
        (("db", "export", "x.jsonl"), cli.EXIT_USAGE),
        (("top",), cli.EXIT_NOTHING),
    ):
        assert cli.invoke(list(arguments)) == code
        assert capsys.readouterr().err.count("\n") == 1
    assert not store.exists()


def test_top_lists_the_best_of_each_workload(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for m in ("24", "40"):
        words = ["tune", "matmul", f"m={m}", "n=40", "k=33", "--trials", "4"]
        assert cli.invoke(words) == cli.EXIT_DONE
    said(capsys)
    assert cli.invoke(["top", "--format", "json"]) == cli.EXIT_DONE
    rows = json.loads(said(capsys))["records"]
    assert [row["arguments"]["m"] for row in rows] == [24, 40]
    assert all(row["gflops"] > 0 and row["trials"] >= 4 for row in rows)
    assert cli.invoke(["top", "matmul"]) == cli.EXIT_DONE
    assert "GFLOP/s" in said(capsys)
    assert cli.invoke(["top", "softmax"]) == cli.EXIT_NOTHING
