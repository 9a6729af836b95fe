"""`tilewright doctor`: one line for each part, and exit code 6 when nothing can be tuned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from explorer import cli
from explorer.cli import doctor


def findings(capsys: pytest.CaptureFixture[str], code: int) -> dict[str, dict[str, str]]:
    assert cli.invoke(["doctor", "--format", "json"]) == code
    return {row["what"]: row for row in json.loads(capsys.readouterr().out)["findings"]}


def test_this_machine_is_well(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = findings(capsys, cli.EXIT_DONE)
    well = ("python", "numpy", "llvmlite", "cpu model", "cuda model", "jinja2", "cpu target")
    for what in (*well, "worker", "cache"):
        assert found[what]["verdict"] == "ok", found[what]
    assert {"xgboost-cpu", "xgboost"} & set(found)
    assert "not made yet" in found["records"]["found"]
    assert not store.exists()
    assert cli.invoke(["doctor"]) == cli.EXIT_DONE
    assert "worker: compiled, ran and checked" in capsys.readouterr().out


def test_a_missing_package_is_named_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "_NEEDED", {"no-such-package": doctor.ALL})
    found = findings(capsys, cli.EXIT_TARGET)
    assert found["no-such-package"]["advice"] == "pip install no-such-package"


def test_a_broken_store_is_found(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store.write_bytes(b"not a database" * 100)
    assert findings(capsys, cli.EXIT_STORE)["records"]["verdict"] == "bad"


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from ir.errors import MissingTarget
    from ir.targets.cuda.backend import CudaBackend

    def missing(*_: object) -> None:
        raise MissingTarget("no driver")

    monkeypatch.setattr(CudaBackend, "hardware", missing)


@pytest.mark.usefixtures("no_gpu")
def test_a_missing_target_counts_only_if_it_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.invoke(["doctor"]) == cli.EXIT_DONE
    assert "note  cuda: no GPU to tune for; no driver" in capsys.readouterr().out
    assert cli.invoke(["doctor", "--target", "cpu"]) == cli.EXIT_DONE
    capsys.readouterr()
    assert cli.invoke(["doctor", "--target", "cpu", "--target", "cuda"]) == cli.EXIT_TARGET
    assert "bad   cuda: no GPU to tune for" in capsys.readouterr().out
    assert cli.invoke(["doctor", "--target", "cdua"]) == cli.EXIT_USAGE
    assert "did you mean 'cuda'" in capsys.readouterr().err


@pytest.mark.usefixtures("no_gpu")
def test_without_any_target_there_is_nothing_to_tune_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    found = findings(capsys, cli.EXIT_TARGET)
    assert found["cpu target"]["verdict"] == found["worker"]["verdict"] == "bad"
    assert found["cuda"]["verdict"] == "note"


def test_a_target_of_another_package_may_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from importlib.metadata import EntryPoint

    entry = EntryPoint("far", "tests.docs.test_recipes:Relabelled", "tilewright.targets")
    monkeypatch.setattr("ir.target.entry_points", lambda group: (entry,))
    assert cli.invoke(["doctor", "--target", "far"]) == cli.EXIT_DONE
    assert "ok    far target: " in capsys.readouterr().out


def test_no_linker_is_a_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("explorer.exporter.find_linker", lambda: None)
    assert findings(capsys, cli.EXIT_DONE)["linker"]["verdict"] == "note"


def test_missing_and_damaged_models_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An install without its data files searches blind, and must not look well."""
    from ir.errors import UsageError

    def shipped(target: str) -> None:
        if target == "cuda":
            raise UsageError("it is damaged")

    monkeypatch.setattr("costmodel.saved.shipped_model", shipped)
    found = findings(capsys, cli.EXIT_DONE)
    assert (found["cpu model"]["verdict"], found["cuda model"]["verdict"]) == ("note", "note")
    assert "searches start without one" in found["cpu model"]["found"]
    assert "install Tilewright again" in found["cpu model"]["advice"]
    assert found["cuda model"]["found"] == "it is damaged"


def test_either_distribution_of_xgboost_will_do_but_not_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = {"xgboost": "3.2.0"}
    monkeypatch.setattr(doctor, "_version", there.get)
    assert doctor._package("xgboost-cpu", doctor.ALL).verdict == doctor.GOOD
    there["xgboost-cpu"] = "3.2.0"
    both = doctor._package("xgboost-cpu", doctor.ALL)
    assert both.verdict == doctor.NOTE
    assert "one folder" in both.found
    there.clear()
    assert doctor._package("xgboost-cpu", doctor.ALL).advice == "pip install xgboost-cpu"


def test_missing_extras_are_notes_with_their_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ir.errors import MissingTarget

    def missing() -> str:
        raise MissingTarget("no NVRTC; install the extra")

    monkeypatch.setattr("explorer.runtime.nvrtc.version", missing)
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "jinja2" else "1.0")
    found = findings(capsys, cli.EXIT_DONE)
    assert (found["NVRTC"]["verdict"], found["jinja2"]["verdict"]) == ("note", "note")
    assert "install the extra" in found["NVRTC"]["advice"]
    assert found["jinja2"]["advice"] == "pip install jinja2"
