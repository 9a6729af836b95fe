"""Every test of the command line has a store and a code cache of its own, and hears Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
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


@pytest.fixture(autouse=True, scope="session")
def heard() -> Iterator[None]:
    """Tests that run in the background of a script inherit that Ctrl-C is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
