"""Every test of the command line has a store of its own, and hears Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code_cache: Path) -> Path:
    path = tmp_path / "store" / "records.db"
    path.parent.mkdir()
    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(path))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(code_cache))
    monkeypatch.setattr("explorer.peaks.measured_peaks", lambda *_: {})
    monkeypatch.setattr("explorer.finals.ROUNDS", 2)  # of five: enough to choose one
    monkeypatch.setattr("explorer.watch.Watch.wait", lambda _: None)  # what else runs is no matter
    return path


@pytest.fixture(autouse=True, scope="session")
def heard() -> Iterator[None]:
    """Tests that run in the background of a script inherit that Ctrl-C is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
