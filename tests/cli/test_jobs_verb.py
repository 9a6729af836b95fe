"""`tilewright jobs`: what a store tells of its jobs, without building their programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from explorer import cli
from records import Store
from tests.cli.recorded import BEST, TRIALS, recorded


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = cli.EXIT_DONE) -> str:
    assert cli.invoke(["jobs", *words]) == code
    return capsys.readouterr().out


def test_each_job_is_a_line(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names, _ = recorded(store)
    lines = said(capsys).splitlines()
    assert [line.split()[0] for line in lines] == list(names)
    assert "done" in lines[0]
    assert f"matmul k=32 m=32 n=32 on cpu: {TRIALS} trials, best 0.9000 ms, " in lines[0]
    assert "GFLOP/s" in lines[0]


def test_one_state_and_none(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no job yet" in said(capsys)
    assert not store.exists()
    names, _ = recorded(store)
    with Store(store) as records:
        records.update_job(names[1], "stopped")
    assert said(capsys, "--state", "stopped").startswith(names[1])
    assert said(capsys, "--state", "running") == "no running job\n"
    assert cli.invoke(["jobs", "--state", "lost"]) == cli.EXIT_USAGE


def test_as_json(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names, best = recorded(store)
    rows = json.loads(said(capsys, "--format", "json"))["jobs"]
    assert [row["job"] for row in rows] == list(names)
    assert rows[0]["best_seconds"] == pytest.approx(BEST)
    assert rows[0]["arguments"] == {"m": 32, "n": 32, "k": 32}
    assert (rows[0]["trials"], rows[0]["settled"]) == (TRIALS, True)
    whole = json.loads(said(capsys, "show", names[0][:8], "--format", "json"))
    assert whole["outcomes"] == {"ok": TRIALS}
    assert whole["schedule"] == json.loads(best.to_json())
    assert whole["options"]["strategy"] == "random"


def test_one_job_in_full(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names, best = recorded(store)
    out = said(capsys, "show", names[0])
    assert f"schedule   {best.to_json()}" in out
    assert "random, seed 0" in out
    assert "--resume" not in out
    with Store(store) as records:
        records.update_job(names[0], "stopped")
    assert f"tilewright tune --resume {names[0]}" in said(capsys, "show", names[0])
    assert cli.invoke(["jobs", "show", "zz"]) != cli.EXIT_DONE
    assert "no such job" in capsys.readouterr().err


def test_jobs_without_trials_plans_or_a_loadable_operator(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list must not need what a job was made of."""
    with Store(store) as records:
        job = records.new_job("/gone/file.py:op", '{"m": 4}', "elsewhere")
        records.update_job(job.id, "failed")
        for options in ('{"plan": 3}', '{"plan": {"jobs": [{}]}, "member": 0, "pins": [1]}'):
            records.new_job("other", "{}", "cpu", options)
    assert "/gone/file.py:op m=4 on elsewhere: 0 trials, nothing valid" in said(capsys)
    assert "outcomes   none" in said(capsys, "show", job.id)
