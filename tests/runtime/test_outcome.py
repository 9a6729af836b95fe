"""Outcomes are values: they round-trip through JSON and refuse anything else."""

from __future__ import annotations

import pytest

from explorer.outcome import STATUSES, Outcome, Status
from explorer.runtime.workers import Examination
from explorer.samples import examined, merged


@pytest.mark.parametrize("status", STATUSES)
def test_round_trip(status: Status) -> None:
    outcome = Outcome(status, 1e-3, (9e-4, 2e-3), 7, 1e-6, "words", 0.02, 3.5, "ab", (("r", 4),))
    assert Outcome.from_json(outcome.to_json()) == outcome
    assert Outcome.from_json(Outcome(status).to_json()) == Outcome(status)


@pytest.mark.parametrize("text", ["[]", '{"status": "fine"}', '{"status": "ok", "speed": 1}'])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="outcome"):
        Outcome.from_json(text)


def test_the_parts_of_a_run_are_a_note() -> None:
    seen = Examination("ok", (3e-6, 3e-6), parts=(("first", 1e-6), ("tw_second", 2.25e-6)))
    outcome = examined(Outcome("ok"), seen)
    assert outcome.parts == (("first", 1e-6), ("tw_second", 2.25e-6))
    assert Outcome.from_json(outcome.to_json()).parts == outcome.parts
    assert merged([outcome, outcome]).parts == outcome.parts
    assert examined(Outcome("ok"), Examination("ok", (1e-6, 1e-6))).parts == ()
