"""A worker's station: one bench after another, errors to whoever waits, nothing kept for long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from explorer.errors import DeviceLost, WorkerError
from explorer.farm import station as module
from explorer.farm.bench import Bench, Reading
from explorer.farm.station import Station, close_station, station_of
from explorer.outcome import Outcome
from ir.schedule import Schedule
from tests.farm.fakes import BENCH, HERE
from tests.job.device import ScriptedDevice, by_key
from tests.runtime.fake_backend import schedule

MADE: list[Scripted] = []


class Scripted(ScriptedDevice):
    """Says what was asked of it, and waits for `gate` before each outcome."""

    gate = threading.Event()

    def __init__(self, bench: Bench) -> None:
        super().__init__(self._ruled)
        self.bench = bench
        self.groups: list[int] = []
        self.rested = 0

    def _ruled(self, schedule: Schedule) -> Outcome:
        assert self.gate.wait(20)
        if schedule["do"] == "raise":
            raise DeviceLost("cuda: the device does not answer any more")
        return by_key(schedule)

    def begin(self, schedules: Any) -> None:
        self.groups.append(len(schedules))
        super().begin(schedules)

    def rest(self) -> None:
        self.rested += 1


def scripted(bench: Bench) -> Scripted:
    MADE.append(Scripted(bench))
    return MADE[-1]


FIRST, SECOND = (replace(BENCH, maker=f"{__name__}:scripted", seed=seed) for seed in range(2))


@pytest.fixture
def station() -> Iterator[Station]:
    MADE.clear()
    Scripted.gate.set()
    made = Station("w")
    yield made
    Scripted.gate.set()
    made.close()


def asked(station: Station, bench: Bench, what: str, variant: int) -> Future[Reading]:
    return station.measure(bench, schedule(what, variant).to_json(), 0.5)


def waiting(station: Station, count: int) -> None:
    """Until so many wait."""
    for _ in range(1000):
        if len(station._waiting) == count:
            return
        threading.Event().wait(0.005)
    raise AssertionError(len(station._waiting))


def closed(measurer: Scripted) -> None:
    """Until it is."""
    for _ in range(1000):
        if measurer.closed:
            return
        threading.Event().wait(0.005)
    raise AssertionError("not closed")


def test_what_waits_is_measured_together_and_knows_the_clients_best(station: Station) -> None:
    Scripted.gate.clear()
    first = asked(station, FIRST, "good", 0)
    while not (MADE and MADE[0].groups):
        threading.Event().wait(0.005)
    others = [asked(station, FIRST, "good", n) for n in range(1, 5)]
    waiting(station, 4)
    Scripted.gate.set()
    readings = [future.result(20) for future in (first, *others)]
    (measurer,) = MADE
    assert measurer.groups == [1, 4]
    assert measurer.best == 0.5
    outcomes = [reading.read[0] for reading in readings]
    assert [o.kernel_key for o in outcomes] == [schedule("good", n).key for n in range(5)]
    assert {dict(outcome.notes)["worker"] for outcome in outcomes} == {"w"}


def test_a_search_measures_anew_what_an_earlier_one_measured(station: Station) -> None:
    text = schedule("good", 1).to_json()
    for _ in range(2):
        assert not station.measure(FIRST, text, None).result(20).read[0].copied
    assert len(MADE[0].measured) == 2


def test_one_bench_at_a_time_and_the_other_gives_its_device_back(station: Station) -> None:
    text = schedule("good").to_json()
    for bench in (FIRST, SECOND, FIRST):
        station.measure(bench, text, None).result(20)
    assert [made.bench for made in MADE] == [FIRST, SECOND]
    assert [made.rested for made in MADE] == [1, 1]


def test_no_more_measurers_are_kept_than_a_few(station: Station) -> None:
    benches = [replace(FIRST, seed=seed) for seed in range(module.KEPT + 1)]
    for bench in benches:
        station.measure(bench, schedule("good").to_json(), None).result(20)
    assert [made.closed for made in MADE] == [True, *[False] * module.KEPT]


def test_a_lost_device_is_told_to_all_who_wait_and_tried_anew_after(station: Station) -> None:
    Scripted.gate.clear()
    found = [asked(station, FIRST, "raise", n) for n in range(3)]
    Scripted.gate.set()
    for future in found:
        with pytest.raises(DeviceLost):
            future.result(20)
    assert MADE[0].closed
    assert station.measure(FIRST, schedule("good").to_json(), None).result(20).read[0].ok


def test_a_measurer_that_cannot_be_made_is_an_error_of_whoever_asks(station: Station) -> None:
    none = replace(BENCH, maker=f"{HERE}:broken_device")
    for _ in range(2):
        with pytest.raises(DeviceLost):
            station.measure(none, schedule("good").to_json(), None).result(20)
        with pytest.raises(DeviceLost):
            station.compete(none, [], 1, False).result(20)


def test_who_asks_for_nothing_for_long_has_no_measurer(monkeypatch: pytest.MonkeyPatch) -> None:
    MADE.clear()
    Scripted.gate.set()
    monkeypatch.setattr(module, "IDLE", 0.05)
    station = Station("idle")
    station.measure(FIRST, schedule("good").to_json(), None).result(20)
    closed(MADE[0])
    station.close()


def test_a_closed_station_takes_nothing_and_leaves_nobody_waiting(station: Station) -> None:
    Scripted.gate.clear()
    first = asked(station, FIRST, "good", 0)
    while not (MADE and MADE[0].groups):
        threading.Event().wait(0.005)
    group = [asked(station, FIRST, "good", n) for n in (1, 2)]
    waiting(station, 2)
    Scripted.gate.set()
    assert first.result(20).read[0].ok
    Scripted.gate.clear()
    queued = asked(station, SECOND, "good", 1)
    station.close()
    Scripted.gate.set()
    ended = [future.exception(20) for future in (*group, queued)]
    assert all(error is None or isinstance(error, WorkerError) for error in ended)
    with pytest.raises(WorkerError, match="closed"):
        station.measure(FIRST, schedule("good").to_json(), None)
    closed(MADE[0])


def test_a_worker_has_one_station_until_it_is_closed() -> None:
    first = station_of("one")
    assert station_of("one") is first
    close_station("one")
    close_station("never")
    assert station_of("one") is not first
    close_station("one")
