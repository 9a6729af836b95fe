"""What stands in for parts of a farm: measurers that workers make, and an engine without Dask."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from explorer.farm.bench import Bench, Trouble
from explorer.farm.engine import Done, Result, Task
from explorer.farm.kinds import Kind
from explorer.farm.measurer import FarmMeasurer
from explorer.farm.station import Station
from explorer.measure import Measurer
from explorer.measuring import Measuring
from explorer.outcome import Outcome
from explorer.runtime.workers import Timing
from explorer.workload import Workload
from ir.errors import TilewrightError
from ir.schedule import Schedule
from tests.job.device import ScriptedDevice, by_key
from tests.runtime.fake_backend import HARDWARE, PROGRAM

LOG = "FARM_LOG"  # a file in which measurers of `logging_device` note what they measure
SECONDS = "FARM_SECONDS"  # what that takes them
HERE = "tests.farm.fakes"
BENCH = Bench(str(PROGRAM), "cpu", HARDWARE, "huge", maker=f"{HERE}:doubler")
ADDRESS = "tcp://nowhere:1"


def doubler(bench: Bench) -> Measuring:
    """A real measurer of real kernels, those of the fake backend."""
    from explorer.settings import cache_dir

    return Measurer(
        PROGRAM, "tests.runtime.fake_backend:FakeBackend", HARDWARE, cache_dir=cache_dir(),
        runtime="cpu", compilers=2, timing=Timing(budget=0.002),
    )  # fmt: skip


class _Logging(ScriptedDevice):
    """Notes each candidate when it begins and when it has ended, and takes its time."""

    def _answer(self, schedule: Schedule) -> Outcome:
        self._log("began", schedule)
        time.sleep(float(os.environ.get(SECONDS, "0.02")))
        self._log("ended", schedule)
        return by_key(schedule)

    def _log(self, what: str, schedule: Schedule) -> None:
        with Path(os.environ[LOG]).open("a") as file:  # one short write: processes do not mix
            file.write(f"{what} {schedule.key} {os.getpid()}\n")


def logging_device(bench: Bench) -> Measuring:
    """A measurer that answers by a rule, after a while."""
    return _Logging()


def broken_device(bench: Bench) -> Measuring:
    """There is none."""
    from explorer.errors import DeviceLost

    raise DeviceLost("cuda: the device does not answer any more")


@dataclass
class Sent:
    """A task as the engine was given it."""

    key: str
    tag: str
    method: str
    arguments: Sequence[Any]
    heard: Callable[[Result], None]
    forgotten: bool = False


class ScriptedEngine:
    """See `explorer.farm.measurer.Sends`; the test says what becomes of a task."""

    address = ADDRESS

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.retired: list[str] = []
        self.asked: list[Any] = []
        self.answers: dict[str, Any] = {}  # of `ask_all`, by worker

    def send(self, tag: str, method: str, tasks: Sequence[Task]) -> None:
        self.sent += [Sent(t.key, tag, method, t.arguments, t.heard) for t in tasks]

    def forget(self, keys: Sequence[str]) -> None:
        for sent in self.sent:
            sent.forgotten |= sent.key in keys

    def ask_all(self, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        self.asked.append((function, arguments))
        return dict(self.answers)

    def retire(self, worker: str) -> None:
        self.retired.append(worker)


class LocalEngine(ScriptedEngine):
    """Tasks run here, in turn on any of some stations, each task on a thread of its own."""

    def __init__(self, stations: Sequence[Station]) -> None:
        super().__init__()
        self._stations = stations

    def send(self, tag: str, method: str, tasks: Sequence[Task]) -> None:
        for task in tasks:
            super().send(tag, method, [task])
            station = self._stations[len(self.sent) % len(self._stations)]
            threading.Thread(target=self._run, args=(station, self.sent[-1]), daemon=True).start()

    def ask_all(self, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """Of `code_of`, which asks a station."""
        bench, kernels = arguments
        return {str(n): station.code(bench, kernels) for n, station in enumerate(self._stations)}

    def _run(self, station: Station, sent: Sent) -> None:
        try:
            result = Done(getattr(station, sent.method)(*sent.arguments).result())
        except (TilewrightError, OSError) as error:
            result = Done(Trouble(ADDRESS, type(error).__name__, str(error)))
        if not sent.forgotten:
            sent.heard(result)


def farm_measurer(
    engine: ScriptedEngine, slots: int = 2, library: bool = False, present: int = 1
) -> FarmMeasurer:
    """The measurer of a search on the fake backend's program."""
    workload = SimpleNamespace(
        program=PROGRAM, hardware=HARDWARE, target="fake", memory="huge",
        backend=SimpleNamespace(generator="0"),
    )  # fmt: skip
    kind = Kind(HARDWARE, "fake-tag", ("one", "two"), slots)
    made = cast(Workload, workload)
    return FarmMeasurer(engine, kind, made, BENCH, library, lambda: present)
