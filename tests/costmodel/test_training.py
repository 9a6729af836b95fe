"""From records to rows: times on one scale, and schedules of versions with fewer decisions."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from costmodel.dataset import _weights, described
from explorer.disturbance import CROWDED_WEIGHT
from explorer.outcome import Outcome
from explorer.recall import FINAL, to_record
from explorer.training import group_of
from explorer.workload import Workload
from ir.schedule import Schedule
from records import Record

WORKLOAD = Workload.of("matmul", {"m": 64, "n": 64, "k": 64}, "cpu")
SCHEDULES = [
    WORKLOAD.space().schedule(row) for row in WORKLOAD.space().sample(np.random.default_rng(0), 8)
]


def _record(number: int, seconds: float, strategy: str = "random", status: str = "ok") -> Record:
    outcome = Outcome(status, seconds, (seconds, seconds), 5, kernel_key=f"kernel{number}")  # type: ignore[arg-type]
    return to_record(WORKLOAD, SCHEDULES[number], outcome, "", strategy)


def _of(schedule: Schedule) -> Record:
    return replace(_record(0, 1.0), schedule=schedule.to_json(), schedule_key="")


def _seconds(records: list[Record]) -> list[float]:
    group = group_of(WORKLOAD, records)
    assert group is not None
    return [round(float(time), 9) for time in group.seconds]


def test_finals_at_other_clocks_do_not_put_the_finalists_behind() -> None:
    """Finals 20 % slower throughout: what was only searched is brought to their scale."""
    searched = [_record(number, 1.0 + number) for number in range(8)]
    finals = [_record(number, 1.2 * (1.0 + number), FINAL) for number in range(5)]
    expected = [round(1.2 * (1.0 + number), 9) for number in range(8)]
    assert _seconds(searched + finals) == expected
    assert _seconds(searched) == [1.0 + number for number in range(8)]


def test_a_final_beside_other_work_does_not_count() -> None:
    searched = [_record(number, 1.0 + number) for number in range(8)]
    finals = [_record(number, 1.0 + number, FINAL) for number in range(1, 6)]
    finals.append(_record(0, 3.0, FINAL))
    assert _seconds(searched + finals)[0] == 1.0
    group = group_of(WORKLOAD, searched + finals)
    assert group is not None
    assert group.confirmed is not None
    assert group.confirmed.tolist() == [False, *[True] * 5, False, False]
    assert group.best == 2.0


def test_a_kernel_that_once_was_wrong_has_no_time() -> None:
    records = [_record(0, 1.0), _record(0, 1.0, FINAL), _record(1, 2.0)]
    records.append(_record(0, 1.0, FINAL, "wrong_result"))
    assert math.isnan(_seconds(records)[0])


def test_a_decision_of_later_times_takes_its_first_value() -> None:
    old = SCHEDULES[0].as_dict()
    first = WORKLOAD.space().decision("stream").domain[0]
    assert old.pop("stream") is not None
    record = _of(Schedule.of("cpu", old))
    group, same = (
        group_of(WORKLOAD, [record, _record(1, 2.0)]),
        SCHEDULES[0].as_dict() | {"stream": first},
    )
    other = group_of(WORKLOAD, [_of(Schedule.of("cpu", same)), _record(1, 2.0)])
    assert group is not None
    assert other is not None
    assert (group.rows == other.rows)[~np.isnan(other.rows)].all()


def test_a_workload_measured_often_has_more_weight() -> None:
    once = group_of(WORKLOAD, [_record(number, 1.0) for number in range(8)])
    assert once is not None
    assert once.weight == pytest.approx(0.5)


def _beside_others(record: Record) -> Record:
    return replace(record, notes='{"foreign_load": 0.9, "processors": 2, "crowded": true}')


def test_times_beside_other_programs_count_where_there_is_no_other_and_weigh_less() -> None:
    records = [_record(number, 1.0 + number) for number in range(8)]
    records += [_beside_others(_record(0, 90.0)), _beside_others(_record(0, 80.0, FINAL))]
    records[3] = _beside_others(records[3])
    group = group_of(WORKLOAD, records)
    assert group is not None
    assert group.trust is not None
    assert [round(time, 9) for time in group.seconds] == [1.0 + number for number in range(8)]
    assert group.trust.tolist() == [1.0, 1.0, 1.0, CROWDED_WEIGHT, *[1.0] * 4]
    assert _weights(group).tolist() == [w * group.weight for w in group.trust]
    calm = group_of(WORKLOAD, [_record(number, 1.0 + number) for number in range(8)])
    assert calm is not None
    assert described([calm])["fingerprint"] != described([group])["fingerprint"]
