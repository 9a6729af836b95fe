"""What whoever measures for a search must do, wherever the kernels run."""

from __future__ import annotations

import os

import pytest

from explorer.measuring import Measuring
from explorer.outcome import Outcome
from ir.schedule import Schedule
from tests.runtime.fake_backend import schedule


def drained(measurer: Measuring) -> list[tuple[Schedule, Outcome]]:
    found = []
    while (ended := measurer.ended()) is not None:
        found.append(ended)
    return found


class MeasuringContract:
    """Inherit, and give a fixture `measurer` of the fake backend's program."""

    @pytest.fixture(autouse=True)
    def _nothing_known(self, measurer: Measuring) -> None:
        measurer.forget()
        measurer.kernels = {}
        measurer.best = None

    def test_each_has_one_outcome_and_failures_are_outcomes(self, measurer: Measuring) -> None:
        asked = ["good", "refuse", "wrong", "segfault", "bad_ir"]
        measurer.begin([schedule(what) for what in asked])
        found = [(s["do"], o.status) for s, o in drained(measurer)]
        assert sorted(found) == [
            ("bad_ir", "compile_error"),
            ("good", "ok"),
            ("refuse", "illegal"),
            ("segfault", "crash"),
            ("wrong", "wrong_result"),
        ]

    def test_a_kernel_that_ran_is_told_as_a_copy(self, measurer: Measuring) -> None:
        same = [
            Schedule.of("fake", {**schedule("good", 7).as_dict(), "unread": number})
            for number in range(3)
        ]
        measurer.begin(same)
        measurer.begin([schedule("good", 8)])
        found = [outcome for _, outcome in drained(measurer)]
        assert sorted(outcome.copied for outcome in found) == [False, False, True, True]
        assert len({outcome.kernel_key for outcome in found}) == len(measurer.kernels) == 2
        assert len({outcome.seconds for outcome in found}) == 2
        measurer.begin(same[:1])
        assert [outcome.copied for _, outcome in drained(measurer)] == [True]

    def test_what_is_forgotten_has_no_outcome_and_may_be_asked_again(
        self, measurer: Measuring
    ) -> None:
        measurer.begin([schedule("good", 20 + n) for n in range(4)])
        measurer.forget()
        assert measurer.ended() is None
        measurer.begin([schedule("good", 21)])
        (ended,) = drained(measurer)
        assert ended[1].ok
        assert not ended[1].copied

    def test_finalists_come_in_the_order_of_asking(self, measurer: Measuring) -> None:
        finalists = [schedule("good", 30), schedule("refuse"), schedule("slow", 31)]
        outcomes = measurer.compete(finalists, 2)
        assert [outcome.status for outcome in outcomes] == ["ok", "illegal", "ok"]
        assert outcomes[0].seconds is not None
        assert outcomes[2].seconds is not None
        assert outcomes[0].seconds < outcomes[2].seconds
        assert dict(outcomes[0].notes)["turns"] == 2

    def test_the_library_is_timed_if_that_is_wanted(self, measurer: Measuring) -> None:
        measurer.compete([schedule("good", 40)], 1, library=True)
        assert measurer.baseline is not None
        assert measurer.baseline.seconds

    def test_the_fastest_is_known_and_so_is_what_devices_did(self, measurer: Measuring) -> None:
        measurer.begin([schedule("slow", 50), schedule("good", 50)])
        times = [outcome.seconds for _, outcome in drained(measurer) if outcome.seconds]
        assert measurer.best == min(times)
        assert sum(measurer.examined) > 0

    def test_an_alarm_is_heard(self, measurer: Measuring) -> None:
        ours, rope = os.pipe()
        os.write(rope, b".")
        measurer.begin([schedule("slow", 60)])
        assert measurer.ended(ours) is None
        measurer.forget()
        os.close(ours)
        os.close(rope)
