"""A measurer that is started early is used once, and closed if nobody uses it."""

from __future__ import annotations

import pytest

from explorer.early import Early
from explorer.errors import WorkerError
from tests.job.device import ScriptedDevice


def test_it_is_taken_once() -> None:
    early, device, other = Early(), ScriptedDevice(), ScriptedDevice()
    early.start("one", lambda: device)
    assert early.take("one", lambda: other) is device
    assert early.take("one", lambda: other) is other
    assert not device.closed


def test_nobody_s_is_closed() -> None:
    early, device, other = Early(), ScriptedDevice(), ScriptedDevice()
    early.start("one", lambda: device)
    assert early.take("two", lambda: other) is other
    early.drop()
    early.drop()
    assert device.closed


def test_what_fails_is_said_where_it_is_taken() -> None:
    def failing() -> ScriptedDevice:
        raise WorkerError("no process")

    early = Early()
    early.start("one", failing)
    with pytest.raises(WorkerError, match="no process"):
        early.take("one", ScriptedDevice)
    early.start("one", failing)
    early.drop()
