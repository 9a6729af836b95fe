"""Candidates flow: nothing that compiles waits for what is measured, where both may run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from explorer.devices import Devices
from explorer.measure import Measurer
from explorer.outcome import Outcome
from explorer.runtime.cpu import CpuRuntime
from explorer.runtime.workers import Timing
from ir.schedule import Schedule
from tests.runtime.fake_backend import HARDWARE, PROGRAM, schedule

PLACE = "tests.runtime.fake_backend:FakeBackend"
HERE = "tests.runtime.test_pipeline"
ALONE = Devices()
FIRST = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0


class BesideRuntime(CpuRuntime):
    """The CPU, as if kernels ran on a device of their own."""

    exclusive = False


def make(
    cache: Path,
    runtime: str,
    devices: Devices = ALONE,
    compile_deadline_s: float = 20.0,
    deadline_s: float = 10.0,
) -> Measurer:
    return Measurer(
        PROGRAM, PLACE, HARDWARE, cache_dir=cache, runtime=runtime, compilers=2,
        timing=Timing(budget=0.002), devices=devices, compile_deadline_s=compile_deadline_s,
        deadline_s=deadline_s,
    )  # fmt: skip


def drained(measurer: Measurer) -> Iterator[tuple[Schedule, Outcome]]:
    while (ended := measurer.ended()) is not None:
        yield ended


def begun(measurer: Measurer, schedules: Sequence[Schedule]) -> None:
    measurer.begin(schedules)


def test_a_slow_compilation_holds_nobody_up(tmp_path: Path) -> None:
    with make(tmp_path, f"{HERE}:BesideRuntime", compile_deadline_s=1.0) as measurer:
        begun(measurer, [schedule("lower_hang"), schedule("good"), schedule("good", 1)])
        order = [(s["do"], o.status) for s, o in drained(measurer)]
    assert order == [("good", "ok"), ("good", "ok"), ("lower_hang", "timeout")]


def test_a_group_is_compiled_before_it_is_measured_where_that_would_disturb(
    tmp_path: Path,
) -> None:
    with make(tmp_path, "cpu", compile_deadline_s=0.5) as measurer:
        begun(measurer, [schedule("lower_hang"), schedule("good")])
        begun(measurer, [schedule("good", 1)])
        order = [(s["do"], s["variant"], o.status) for s, o in drained(measurer)]
    assert order == [("lower_hang", 0, "timeout"), ("good", 0, "ok"), ("good", 1, "ok")]


def test_nothing_is_measured_while_the_caller_is_busy(tmp_path: Path) -> None:
    """An alarm says that somebody here works on: kernels that share its processors wait for it."""
    ours, rope = os.pipe()
    with make(tmp_path, "cpu") as measurer:
        begun(measurer, [schedule("good")])
        assert measurer.ended(ours) is None
        os.write(rope, b".")
        ended = measurer.ended()
        assert ended is not None
        assert ended[1].ok
    with make(tmp_path, f"{HERE}:BesideRuntime") as measurer:
        begun(measurer, [schedule("good")])
        while (ended := measurer.ended(ours)) is None:
            pass
        assert ended[1].ok
    os.close(ours)
    os.close(rope)


def test_several_devices_measure_and_a_kernel_runs_on_one(tmp_path: Path) -> None:
    devices = Devices((0, 3), ((FIRST,), (FIRST,)))
    same = [
        Schedule.of("fake", {**schedule("slow").as_dict(), "unread": number}) for number in range(4)
    ]
    with make(tmp_path, f"{HERE}:BesideRuntime", devices) as measurer:
        begun(measurer, [*same, *(schedule("good", n) for n in range(8))])
        found = [outcome for _, outcome in drained(measurer)]
        assert len(measurer.examined) == 2
        (final,) = measurer.compete([schedule("good")], 1)
    assert all(outcome.ok for outcome in found)
    ran = [outcome for outcome in found if not outcome.copied]
    assert len(ran) == 9
    assert {dict(outcome.notes)["device"] for outcome in ran} == {0, 3}
    assert dict(final.notes)["device"] == 0


def test_what_is_forgotten_is_not_known_either(tmp_path: Path) -> None:
    with make(tmp_path, f"{HERE}:BesideRuntime") as measurer:
        begun(measurer, [schedule("slow", n) for n in range(4)])
        assert measurer.ended() is not None
        measurer.forget()
        assert measurer.ended() is None
        assert len(measurer.kernels) == 1
        assert [outcome.copied for outcome in measurer.measure([schedule("slow", 3)])] == [False]


@pytest.mark.parametrize(
    ("what", "status"), [("segfault", "crash"), ("hang", "timeout"), ("wrong", "wrong_result")]
)
def test_what_waits_in_a_device_s_hands_has_its_turn_whatever_came_before(
    what: str, status: str, tmp_path: Path
) -> None:
    """Candidates are given to a device one ahead; one that dies with its worker takes none along,
    and no time of its own is lost to it."""
    order = [schedule("slow"), schedule(what), *(schedule("good", n) for n in range(3))]
    with make(tmp_path, f"{HERE}:BesideRuntime", deadline_s=2.0) as measurer:
        begun(measurer, order)
        found = {s.key: o for s, o in drained(measurer)}
    assert [found[s.key].status for s in order] == ["ok", status, "ok", "ok", "ok"]
    assert found[order[0].key].kernel_key != found[order[2].key].kernel_key


def test_a_device_has_the_next_candidate_before_it_is_through(tmp_path: Path) -> None:
    with make(tmp_path, f"{HERE}:BesideRuntime") as measurer:
        begun(measurer, [schedule("slow", n) for n in range(4)])
        ended = measurer.ended()
        assert ended is not None
        (device,) = measurer._devices
        assert device.examining
        time.sleep(1.0)  # compiled meanwhile
        measurer._move(alone=True)
        assert not device.has_room
        assert len(list(drained(measurer))) == 3
    with make(tmp_path, "cpu") as measurer:
        begun(measurer, [schedule("slow", n) for n in range(4)])
        assert measurer.ended() is not None
        assert all(device.has_room or device.free for device in measurer._devices)
