"""What workers of these experiments measure with: the real measurer with a log beside it, and one
that takes as long as recorded trials took, and answers as they ended.

Imported by Dask workers as `experiments.farm.makers`.
"""

from __future__ import annotations

import json
import lzma
import os
import select
import time
from collections import deque
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from explorer.farm.bench import Bench
from explorer.measure import Measurer
from explorer.outcome import Outcome
from explorer.settings import cache_dir
from ir.schedule import Schedule
from ir.text import parse

LOG, STRETCH = "FARM_LOG", "FARM_STRETCH"
RECORDS = Path(__file__).parents[1] / "h200" / "records-cuda-1.jsonl.xz"
EXAMINED = 0.1  # seconds that a candidate is taken to have been examined for
_SEEN = 4000  # trials that are read


def note(what: str, key: str) -> None:
    """One line of the log, written at once."""
    line = f"{time.time():.6f} {what} {key} {os.getpid()}\n".encode()
    file = os.open(os.environ[LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line)
    os.close(file)


class Noted(Measurer):
    """Notes each schedule that it begins with, and each that has an outcome."""

    def begin(self, schedules: Sequence[Schedule]) -> None:
        for schedule in schedules:
            note("began", schedule.key)
        super().begin(schedules)

    def ended(self, alarm: int | None = None) -> tuple[Schedule, Outcome] | None:
        found = super().ended(alarm)
        if found is not None:
            note("ended", found[0].key)
        return found


def noted(bench: Bench) -> Noted:
    """As `explorer.farm.station.measurer_of`, with a log."""
    return Noted(
        parse(bench.program), bench.target, bench.hardware,
        cache_dir=cache_dir(), seed=bench.seed, memory=bench.memory,
    )  # fmt: skip


@cache
def recorded() -> tuple[dict[str, Any], ...]:
    """Trials of searches on an H200."""
    found = []
    with lzma.open(RECORDS, "rt") as lines:
        for line in lines:
            row = json.loads(line)
            if row["kind"] == "trial" and row["trial"].get("compile_seconds"):
                found.append(row["trial"])
                if len(found) == _SEEN:
                    break
    return tuple(found)


def trial_of(schedule: Schedule) -> dict[str, Any]:
    """The recorded trial whose outcome and times a schedule is given."""
    trials = recorded()
    return trials[int(schedule.key[:12], 16) % len(trials)]


def seconds_of(trial: dict[str, Any]) -> float:
    """What a trial took a worker, stretched as the environment says."""
    return float(os.environ.get(STRETCH, "1")) * (trial["compile_seconds"] + EXAMINED)


class Recorded:
    """See `explorer.measuring.Measuring`: one candidate after another, each for its time."""

    depth = 1
    baseline = None

    def __init__(self) -> None:
        self.best: float | None = None
        self.kernels: dict[str, Outcome] = {}
        self._begun: deque[Schedule] = deque()
        self._spent = 0.0

    @property
    def examined(self) -> tuple[float, ...]:
        return (self._spent,)

    def bounded_by(self, peaks: Any) -> None:
        """Every time is believed."""

    def begin(self, schedules: Sequence[Schedule]) -> None:
        self._begun.extend(schedules)

    def ended(self, alarm: int | None = None) -> tuple[Schedule, Outcome] | None:
        if not self._begun:
            return None
        schedule = self._begun.popleft()
        trial = trial_of(schedule)
        began = time.monotonic()
        note("began", schedule.key)
        select.select([], [], [], seconds_of(trial))
        note("ended", schedule.key)
        self._spent += time.monotonic() - began
        return schedule, Outcome(
            trial["status"], trial["seconds"], tuple(trial["quartiles"] or ()) or None,
            trial["repeats"], trial["error"], trial["detail"], trial["compile_seconds"],
            trial["clock_ghz"], schedule.key,
        )  # fmt: skip

    def forget(self) -> None:
        self._begun.clear()

    def compete(
        self, schedules: Sequence[Schedule], rounds: int, library: bool = False
    ) -> list[Outcome]:
        self.begin(schedules)
        return [found[1] for _ in schedules if (found := self.ended()) is not None]

    def rest(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing was started."""


def simulated(bench: Bench) -> Recorded:
    """A worker that takes its time and measures nothing."""
    recorded()
    return Recorded()
