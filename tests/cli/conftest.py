"""Every test of the command line has a store and a code cache of its own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "store" / "records.db"
    path.parent.mkdir()
    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(path))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("explorer.peaks.measured_peaks", lambda *_: {})
    return path
