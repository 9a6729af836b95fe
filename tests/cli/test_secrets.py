"""Passwords in the address of a store: no verb prints them, and nothing is kept or carried out."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from explorer import cli
from explorer.plan import JobPlan, Plan, plan_of, start_of
from records import Store, export_records
from tests.records.conftest import make_record

SECRET = "hunter22"
AWAY = (
    f"postgresql://someone:{SECRET}@127.0.0.1:1/base?connect_timeout=2",
    f"postgresql://someone@127.0.0.1:1/base?connect_timeout=2&password={SECRET}",
)
TUNE = ("tune", "softmax", "m=4", "n=4", "--trials", "1")


@pytest.mark.parametrize("url", AWAY)
@pytest.mark.parametrize(
    "words",
    [
        ("top",),
        ("doctor",),
        ("db", "check"),
        ("db", "stats"),
        ("db", "merge", "URL"),
        ("db", "repair", "new.db"),
        ("db", "prune", "--keep-best", "1"),
        (*TUNE, "--start-from", "URL"),
        (*TUNE, "--replay", "URL"),
        ("train", "--records", "URL", "--out", "model"),
    ],
    ids=" ".join,
)
def test_no_verb_prints_one(
    words: tuple[str, ...],
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("records.database.BUSY_SECONDS", 0.1)
    if "URL" not in words:
        monkeypatch.setenv("TILEWRIGHT_RECORDS", url)
    cli.invoke([url if word == "URL" else word for word in words])
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize("url", AWAY)
def test_a_job_keeps_none(url: str, store: Path, tmp_path: Path) -> None:
    job = JobPlan("softmax", (("m", 4), ("n", 4)), start_from=start_of(url))
    plan = Plan((job,), plan_of({"job": [{"operator": "softmax"}]}).budget)
    assert SECRET not in plan.to_json() + repr(plan)
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.anchored(tmp_path) == plan
    with Store(store) as records:
        records.new_job("softmax", "{}", "cpu", json.dumps({"plan": json.loads(plan.to_json())}))
        export_records(records, tmp_path / "out.jsonl")
    assert SECRET.encode() not in store.read_bytes()
    assert SECRET not in (tmp_path / "out.jsonl").read_text()


def test_a_file_of_jobs_keeps_none() -> None:
    table = {"operator": "softmax", "arguments": {"m": 4, "n": 4}, "start_from": AWAY[0]}
    assert SECRET not in plan_of({"job": [table]}).to_json()


def test_damaged_rows_are_not_exported_as_sound(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import sqlite3

    with Store(store) as records:
        records.add_all([make_record(number) for number in range(1, 4)])
    connection = sqlite3.connect(store)
    connection.execute("UPDATE trials SET seconds = 1e-9 WHERE number = 2")
    connection.commit()
    connection.close()
    goal = str(tmp_path / "out.jsonl")
    assert cli.invoke(["db", "export", goal]) == 8
    assert "trial 2" in capsys.readouterr().err
    assert cli.invoke(["db", "check"]) == 8
    assert "trial 2" in capsys.readouterr().err
    assert cli.invoke(["db", "export", goal, "--salvage"]) == 0
    said = capsys.readouterr()
    assert "wrote 2 trials" in said.out
    assert "left out: trial 2" in said.err
    assert cli.invoke(["db", "merge", str(store), "--records", str(tmp_path / "new.db")]) == 0
    assert "1 damaged ones left out" in capsys.readouterr().out
    assert cli.invoke(["db", "repair", str(tmp_path / "saved.db")]) == 0
    assert "1 that are altered" in capsys.readouterr().out


def test_a_sound_store_says_what_it_holds(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(store) as records:
        records.add(make_record(1))
        assert cli.invoke(["db", "check"]) == 0
        assert "not sealed" in capsys.readouterr().out
    assert cli.invoke(["db", "check", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "store": str(store), "sound": True, "older": False, "trials": 1, "jobs": 0, "facts": 1,
        "schema": 1, "tables": 5, "sealed": True,
    }  # fmt: skip


def test_unpacked_exports_are_not_addresses(tmp_path: Path) -> None:
    """A path is shown as it was given."""
    (tmp_path / "a.jsonl.xz").write_bytes(lzma.compress(b"{}"))
    assert str(start_of(tmp_path / "a.jsonl.xz")) == str(tmp_path / "a.jsonl.xz")
