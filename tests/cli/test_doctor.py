"""`tilewright doctor`: one line for each part, and exit code 6 when nothing can be tuned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from explorer import cli
from explorer.cli import doctor


def findings(capsys: pytest.CaptureFixture[str], code: int) -> dict[str, dict[str, str]]:
    assert cli.invoke(["doctor", "--format", "json"]) == code
    return {row["what"]: row for row in json.loads(capsys.readouterr().out)}


def test_this_machine_is_well(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = findings(capsys, cli.EXIT_DONE)
    for what in ("python", "numpy", "llvmlite", "xgboost", "cpu target", "worker", "cache"):
        assert found[what]["verdict"] == "ok", found[what]
    assert "not made yet" in found["records"]["found"]
    assert not store.exists()
    assert cli.invoke(["doctor"]) == cli.EXIT_DONE
    assert "worker: compiled, ran and checked" in capsys.readouterr().out


def test_a_missing_package_is_named_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "_NEEDED", ("no-such-package",))
    found = findings(capsys, cli.EXIT_TARGET)
    assert found["no-such-package"]["advice"] == "pip install no-such-package"


def test_a_broken_store_is_found(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store.write_bytes(b"not a database" * 100)
    assert findings(capsys, cli.EXIT_TARGET)["records"]["verdict"] == "bad"


def test_no_linker_is_a_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("explorer.exporter.find_linker", lambda: None)
    assert findings(capsys, cli.EXIT_DONE)["linker"]["verdict"] == "note"
