"""Pages run in a folder of their own with a store of their own; they share a code cache."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def code_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So that one process server does for all."""
    return tmp_path_factory.mktemp("code")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code_cache: Path) -> Path:
    """The folder that a test works in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(tmp_path / "default.db"))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(code_cache))
    monkeypatch.setattr("explorer.peaks.measured_peaks", lambda *_: {})
    monkeypatch.setattr("explorer.finals.ROUNDS", 2)  # of five: enough to choose one
    return tmp_path
