"""Pages run in a folder of their own, with a store and a cache of their own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a test works in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(tmp_path / "default.db"))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("explorer.peaks.measured_peaks", lambda *_: {})
    return tmp_path
