"""Pages run in a folder of their own with a store of their own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code_cache: Path) -> Path:
    """The folder that a test works in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(tmp_path / "default.db"))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(code_cache))
    monkeypatch.setattr("explorer.peaks.measured_peaks", lambda *_: {})
    monkeypatch.setattr("explorer.finals.ROUNDS", 2)  # of five: enough to choose one
    monkeypatch.setattr("explorer.watch.Watch.wait", lambda _: None)  # what else runs is no matter
    return tmp_path
