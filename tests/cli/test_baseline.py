"""tune, run, explain and top beside the array library, on a scripted device and for real."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import explorer
from explorer import cli
from explorer.baseline import Baseline
from explorer.busy import ForeignLoad
from explorer.outcome import Outcome
from tests.job.device import ScriptedDevice, by_key
from tests.job.test_baseline import LATER, NONE, QUICK, in_turns

WORDS = ("matmul", "m=32", "n=32", "k=32")
TUNE = ("tune", *WORDS, "--trials", "8", "--strategy", "random")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> ScriptedDevice:
    scripted = ScriptedDevice(by_key, in_turns, QUICK, LATER)
    monkeypatch.setattr("explorer.search.Measurer", scripted)
    return scripted


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.invoke(list(words)) == cli.EXIT_DONE
    return capsys.readouterr().out


def test_the_summary_has_the_ratio_and_its_noise(
    device: ScriptedDevice, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(capsys, *TUNE)
    assert re.search(r"trial +\d+ of 8 .*, [\d.]+x BLAS \(arrays 1\)$", text, re.M)
    assert re.search(r"^[\d.]+x BLAS \(arrays 1\).*, joint noise 0\.\d %; that takes 2\.100 ms$",
                     text, re.M)  # fmt: skip
    again = said(capsys, *TUNE, "--seed", "1")
    assert "the best before" in again


def test_json_has_all_of_it(device: ScriptedDevice, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, *TUNE)
    row = json.loads(said(capsys, *TUNE, "--seed", "1", "--format", "json"))
    assert Baseline.from_facts(row["baseline"]) == LATER
    assert row["beside_baseline"]["ratio"] == pytest.approx(2.1e-3 / row["seconds"])
    assert row["beside_incumbent"]["name"] == "the best before"
    assert row["kept"] in (True, False)


def test_without_a_baseline_there_is_no_word_of_it(
    device: ScriptedDevice, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(capsys, *TUNE, "--no-baseline")
    assert "BLAS" not in text
    assert "baseline" not in text
    row = json.loads(said(capsys, *TUNE, "--no-baseline", "--format", "json"))
    assert (row["baseline"], row["beside_baseline"]) == (None, None)


def test_a_program_without_one_is_told_so_once(
    device: ScriptedDevice, capsys: pytest.CaptureFixture[str]
) -> None:
    device.library = NONE
    assert said(capsys, *TUNE).count("no baseline: array libraries have no carry") == 1


def test_top_lists_kernels_alone(
    device: ScriptedDevice, capsys: pytest.CaptureFixture[str]
) -> None:
    device.library = device.contested = Baseline("lib", Outcome("ok", 1e-9, (1e-9, 1e-9), 5))
    row = json.loads(said(capsys, *TUNE, "--format", "json"))
    (best,) = json.loads(said(capsys, "top", "--format", "json"))
    assert best["schedule"] == row["schedule"]
    assert best["seconds"] == row["seconds"] > 1e-9


def test_explain_names_it(device: ScriptedDevice, capsys: pytest.CaptureFixture[str]) -> None:
    job = json.loads(said(capsys, *TUNE, "--format", "json"))["job"]
    for words in ((*WORDS, "--schedule", "best"), ("--job", job)):
        text = said(capsys, "explain", *words)
        assert re.search(
            r"^baseline: BLAS \(arrays 1\) takes 2\.100 ms; the schedule: [\d.]+x BLAS", text, re.M
        )
        found = json.loads(said(capsys, "explain", *words, "--format", "json"))
        assert found["baseline"]["library"] == "BLAS (arrays 1)"


def test_run_beside_numpy(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For real, on one thread; whatever else this machine does."""
    monkeypatch.setattr(ForeignLoad, "share", lambda *_: 0.0)
    space = explorer.load("matmul", threads=1, m=32, n=32, k=32).space()
    seed = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
    words = ("run", *WORDS, "--threads", "1", "--baseline")
    text = said(capsys, *words, "--schedule", seed.to_json())
    assert re.search(
        r"^[\d.]+x \w+ \(numpy [\d.]+\).* joint noise [\d.]+ %; that takes", text, re.M
    )
