"""What tests of jobs share: a scripted device in the place of the measurer, a store's path."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.job.device import ScriptedDevice


@pytest.fixture
def scripted() -> ScriptedDevice:
    """The device that answers; a module whose device says other things has its own."""
    return ScriptedDevice()


@pytest.fixture
def device(scripted: ScriptedDevice, monkeypatch: pytest.MonkeyPatch) -> ScriptedDevice:
    """What searches measure on: so fast that all would be one commit, so each has its own."""
    monkeypatch.setattr("explorer.search.Measurer", scripted)
    monkeypatch.setattr("explorer.uncommitted.TOGETHER", 0.0)
    return scripted


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.db"
