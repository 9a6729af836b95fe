"""Outcomes are values: they round-trip through JSON and refuse anything else."""

from __future__ import annotations

import pytest

from explorer.outcome import STATUSES, Outcome, Status


@pytest.mark.parametrize("status", STATUSES)
def test_round_trip(status: Status) -> None:
    outcome = Outcome(status, 1e-3, (9e-4, 2e-3), 7, 1e-6, "words", 0.02, 3.5, "ab", (("r", 4),))
    assert Outcome.from_json(outcome.to_json()) == outcome
    assert Outcome.from_json(Outcome(status).to_json()) == Outcome(status)


@pytest.mark.parametrize("text", ["[]", '{"status": "fine"}', '{"status": "ok", "speed": 1}'])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="outcome"):
        Outcome.from_json(text)
