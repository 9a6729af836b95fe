"""Records and jobs as values: what they accept, what they refuse, and that they round-trip."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from records import JOB_STATES, STATUSES, Job, Record, Store
from records.errors import InvalidRecord

Make = Callable[..., Record]

scalars = (
    st.integers() | st.booleans() | st.text() | st.floats(allow_nan=False, allow_infinity=False)
)
objects = st.dictionaries(st.text(), scalars, max_size=4).map(json.dumps)
names = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), max_size=20)
anything = st.text(st.characters(), max_size=40)  # lone surrogates and NUL included
numbers = st.none() | st.floats() | st.floats(1e-9, 10)
moments = st.datetimes(timezones=st.timezones()).map(lambda moment: moment.isoformat())


@st.composite
def records(draw: st.DrawFn) -> Record:
    status = draw(st.sampled_from(STATUSES))
    low, high = sorted(draw(st.tuples(*[st.floats(0, 1e6)] * 2)))
    return Record(
        workload=draw(names.filter(bool)),
        operator=draw(names.filter(bool)),
        extents=draw(objects),
        target=draw(names.filter(bool)),
        hardware=draw(names.filter(bool)),
        hardware_facts=draw(objects),
        generator=draw(names.filter(bool)),
        threads=draw(st.integers(0, 2**31 - 1)),
        schedule=draw(objects),
        kernel_key=draw(names),
        status=status,
        seconds=draw(st.floats(1e-12, 1e9) if status == "ok" else numbers),
        quartiles=draw(st.none() | st.just((low, high))),
        repeats=draw(st.integers(0, 1000)),
        error=draw(numbers),
        detail=draw(anything),
        compile_seconds=draw(numbers),
        clock_ghz=draw(numbers),
        notes=draw(objects),
        created=draw(moments),
        job=draw(names),
        strategy=draw(names),
    )


@given(records())
@settings(max_examples=35, deadline=None)
def test_json_round_trip_is_exact(record: Record) -> None:
    back = Record.from_json(record.to_json())
    assert back == record
    assert (hash(back), back.key, back.candidate) == (hash(record), record.key, record.candidate)


@given(st.lists(records(), max_size=4))
@settings(max_examples=20, deadline=None)
def test_store_round_trip_is_exact(batch: list[Record]) -> None:
    with Store(":memory:") as store:
        store.add_all(batch)
        assert list(store.records()) == list(dict.fromkeys(batch))
        assert store.check() == len(set(batch))


def test_equal_content_is_an_equal_record(record: Make) -> None:
    spaced = record(
        extents='{ "n": 512, "m": 512,\n"k": 512 }', created="2026-01-02T04:04:05+01:00"
    )
    assert spaced == record()
    assert spaced.key == record().key


def test_candidate_is_shared_by_repeats_alone(record: Make) -> None:
    first = record()
    assert record(seconds=5.0, status="ok", job="other").candidate == first.candidate
    for change in ({"threads": 1}, {"generator": "cpu-2"}, {"schedule": "{}"}, {"hardware": "c"}):
        assert record(**change).candidate != first.candidate


def test_field_added_later_changes_no_key(record: Make) -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class LaterRecord(Record):
        colour: str = "red"

    values = json.loads(record().to_json())
    assert LaterRecord(**values).key == record().key
    assert LaterRecord(**values, colour="blue").key != record().key


def test_schedule_key_is_derived_and_verified(record: Make) -> None:
    key = record().schedule_key
    assert record(schedule_key=key).schedule_key == key
    with pytest.raises(InvalidRecord, match="schedule_key"):
        record(schedule_key="0" * 64)


def test_record_is_frozen_and_prints_what_matters(record: Make) -> None:
    with pytest.raises(FrozenInstanceError):
        record().status = "timeout"  # type: ignore[misc]
    assert "matmul" in str(record())
    assert "1000.0 us" in str(record())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_number_is_none(record: Make, value: float) -> None:
    wrong = record(status="wrong_result", seconds=value, error=value, quartiles=(value, 1.0))
    assert (wrong.seconds, wrong.error, wrong.quartiles) == (None, None, None)


def test_numpy_like_numbers_become_plain(record: Make) -> None:
    class Half:
        def __float__(self) -> float:
            return 0.5

    assert record(seconds=Half()).seconds == 0.5
    assert str(record(error=-0.0).error) == "0.0"


def test_a_trial_is_not_lost_for_its_message(record: Make) -> None:
    failed = record(status="crash", seconds=None, detail="a\0b\udcff" + "x" * 100_000 + "end")
    assert len(failed.detail) <= 16_000
    assert failed.detail.startswith("a\ufffdb\ufffd")
    assert failed.detail.endswith("end")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"status": "fine"}, "status 'fine' is none of ok, illegal"),
        ({"seconds": None}, "needs seconds above 0"),
        ({"seconds": 0.0}, "needs seconds above 0"),
        ({"seconds": math.nan}, "needs seconds above 0"),
        ({"seconds": "fast"}, "seconds must be a number"),
        ({"quartiles": (2.0, 1.0)}, "quartiles must be"),
        ({"quartiles": (1.0,)}, "quartiles must be"),
        ({"workload": ""}, "workload must be a non-empty text"),
        ({"operator": "a\0b"}, "operator holds a character"),
        ({"job": None}, "job must be a text"),
        ({"extents": "m=512"}, "extents is not canonical JSON"),
        ({"extents": "[1]"}, "extents must be a JSON object, not list"),
        ({"notes": '{"a":NaN}'}, "notes is not canonical JSON"),
        ({"schedule": None}, "schedule is not canonical JSON"),
        ({"repeats": 1.5}, "repeats must be a whole number"),
        ({"threads": -1}, "threads must be a whole number"),
        ({"detail": 3}, "detail must be a text"),
        ({"created": "yesterday"}, "is not ISO 8601"),
        ({"created": "2026-01-02T03:04:05"}, "no offset from UTC"),
    ],
)
def test_contradictions_are_refused_in_one_line(
    record: Make, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidRecord) as refusal:
        record(**change)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_from_json_names_what_is_wrong(record: Make) -> None:
    values = json.loads(record().to_json())
    with pytest.raises(InvalidRecord, match="unknown fields: colour; upgrade"):
        Record.from_dict(values | {"colour": 1})
    del values["status"]
    with pytest.raises(InvalidRecord, match="lacks fields: status"):
        Record.from_dict(values)
    values = json.loads(record(notes="{}", strategy="").to_json())
    del values["strategy"], values["notes"]
    assert Record.from_dict(values) == record(strategy="")
    for text in ("{", "[]", "[" * 100_000):
        with pytest.raises(InvalidRecord):
            Record.from_json(text)


def test_job_round_trips_and_refuses() -> None:
    now = "2026-01-02T03:04:05+00:00"
    job = Job(id="1f", operator="matmul", extents="{}", target="cpu", created=now, updated=now)
    assert Job.from_json(job.to_json()) == job
    assert job.state in JOB_STATES
    with pytest.raises(InvalidRecord, match="job state"):
        replace(job, state="asleep")


def test_importing_records_loads_no_database_library() -> None:
    code = "import sys, records; records.Record; print('sqlalchemy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    import records as package

    with pytest.raises(AttributeError, match="no attribute 'Shop'"):
        package.Shop  # noqa: B018
