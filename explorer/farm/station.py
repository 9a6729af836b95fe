"""A worker's measurers, each kept for as long as its bench is asked for, and who is next.

Lives in a Dask worker's process, whose tasks wait for what it answers; what is generated is
compiled and run in processes of its own, as on any machine. One thread has the device: candidates
of one bench flow through its measurer together, and finals run alone. Knows measuring by its
interface; no Dask.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from explorer import peaks
from explorer.errors import WorkerError
from explorer.farm.artifacts import packed, unpack
from explorer.farm.bench import Artifact, Bench, Reading
from explorer.measuring import KeepsBinaries, Measuring
from explorer.outcome import Outcome
from explorer.runtime.base import get_runtime
from explorer.runtime.known import RUNTIMES
from explorer.settings import cache_dir
from ir.schedule import Schedule
from ir.target import Hardware

IDLE = 60.0  # seconds without a request after which devices and operands are given back
KEPT = 3  # measurers at a time: processes that compile belong to each
WORKER = "worker"  # the note that says which of several workers measured
_CLOSED = "the worker is being closed"


def measurer_of(bench: Bench) -> Measuring:
    """The measurer of this machine for a bench."""
    from explorer.measure import Measurer
    from ir.text import parse

    return Measurer(
        parse(bench.program), bench.target, bench.hardware,
        cache_dir=cache_dir(), seed=bench.seed, memory=bench.memory,
    )  # fmt: skip


def _answer() -> Future[Any]:
    """An answer that nobody can cancel: what a worker has begun comes to its end."""
    made = Future[Any]()
    made.set_running_or_notify_cancel()
    return made


@dataclass(slots=True)
class _Candidate:
    """A schedule whose outcome somebody waits for; `best` (seconds) is the client's."""

    bench: Bench
    schedule: Schedule
    best: float | None
    answer: Future[Reading] = field(default_factory=_answer)


@dataclass(slots=True)
class _Alone:
    """What is done while nothing else is measured."""

    call: Callable[[], Any]
    answer: Future[Any] = field(default_factory=_answer)


class Station:
    """One for each Dask worker, called `name` in outcomes. Its methods do not wait.

    Their answers raise what measurers raise. WorkerError is raised once it is closed.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: deque[_Candidate | _Alone] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._measurers: dict[Bench, Measuring] = {}
        self._examined = 0.0  # as the measurer in use had it when it was last asked
        self._bell, self._rope = os.pipe()
        os.set_blocking(self._bell, False)
        threading.Thread(target=self._work, name="station", daemon=True).start()

    def measure(self, bench: Bench, schedule: str, best: float | None) -> Future[Reading]:
        """The outcome of one schedule."""
        asked = _Candidate(bench, Schedule.from_json(schedule), best)
        self._put(asked)
        return asked.answer

    def compete(
        self,
        bench: Bench,
        schedules: Sequence[str],
        rounds: int,
        library: bool,
        code: Sequence[Artifact] = (),
    ) -> Future[Reading]:
        """Outcomes of finalists in turns, whose code may be known, with the library's if that is
        wanted; without finalists the library's alone."""
        return self._alone(partial(self._compete, bench, schedules, rounds, library, code))

    def code(self, bench: Bench, kernels: Sequence[str]) -> tuple[Artifact, ...]:
        """The compiled code of those kernels of a bench that were compiled here."""
        measurer = self._measurers.get(bench)
        if not isinstance(measurer, KeepsBinaries):
            return ()
        known = measurer.binaries
        found = (packed(Path(known[key])) for key in kernels if key in known)
        return tuple(file for files in found for file in files)

    def peaks(self, target: str, hardware: Hardware) -> Future[dict[str, float]]:
        """What this machine can do at most, as `explorer.peaks` measures it."""
        return self._alone(partial(peaks.measured_peaks, target, hardware))

    def _alone(self, call: Callable[[], Any]) -> Future[Any]:
        """What `call` gives, when nothing else is measured."""
        asked = _Alone(call)
        self._put(asked)
        return asked.answer

    def close(self) -> None:
        """End what measures, soon; who waits is told."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # --- the thread that has the device ---------------------------------------------------------

    def _put(self, asked: _Candidate | _Alone) -> None:
        with self._changed:
            if self._closed:
                raise WorkerError(_CLOSED)
            self._waiting.append(asked)
            self._changed.notify_all()
        with suppress(BlockingIOError):
            os.write(self._rope, b".")

    def _work(self) -> None:
        while not self._closed:
            with self._changed:
                if not self._waiting and not self._changed.wait(IDLE):
                    self._let_go(0)
                first = self._waiting[0] if self._waiting else None
            if isinstance(first, _Alone):
                self._waiting.popleft()
                _settle(first.answer, first.call)
            elif first is not None:
                self._flow(first.bench)
        self._let_go(0)
        for left in self._waiting:
            left.answer.set_exception(WorkerError(_CLOSED))

    def _flow(self, bench: Bench) -> None:
        """Measure what waits of a bench; where that disturbs nothing, with what joins meanwhile."""
        under_way: list[_Candidate] = []
        try:
            measurer = self._measurer(bench)
            measurer.kernels = {}  # what ran is for the client to know: each search measures anew
            bell = None if _exclusive(bench.target) else self._bell
            self._begin(measurer, bench, under_way)
            while under_way and not self._closed:
                ended = measurer.ended(bell)
                if ended is not None:
                    self._answer(measurer, under_way, *ended)
                if bell is not None:
                    self._begin(measurer, bench, under_way)
            for left in under_way:
                left.answer.set_exception(WorkerError(_CLOSED))
        except Exception as error:  # noqa: BLE001 (whoever waits is told; the next is served)
            self._drop(bench)
            for left in under_way or self._taken(bench):
                left.answer.set_exception(error)

    def _begin(self, measurer: Measuring, bench: Bench, under_way: list[_Candidate]) -> None:
        """Have those measured that wait before anything else does."""
        with suppress(BlockingIOError):
            os.read(self._bell, 4096)
        taken = self._taken(bench)
        if not taken:
            return
        measurer.best = min((c.best for c in taken if c.best is not None), default=None)
        under_way += taken
        measurer.begin([candidate.schedule for candidate in taken])

    def _taken(self, bench: Bench) -> list[_Candidate]:
        taken: list[_Candidate] = []
        with self._changed:
            while self._waiting and isinstance(first := self._waiting[0], _Candidate):
                if first.bench != bench:
                    break
                self._waiting.popleft()
                taken.append(first)
        return taken

    def _answer(
        self, measurer: Measuring, under_way: list[_Candidate], schedule: Schedule, outcome: Outcome
    ) -> None:
        candidate = next(c for c in under_way if c.schedule == schedule)
        under_way.remove(candidate)
        signed = self._signed(replace(outcome, copied=False))
        candidate.answer.set_result(Reading(self._name, (signed,), self._spent(measurer)))

    def _compete(
        self,
        bench: Bench,
        schedules: Sequence[str],
        rounds: int,
        library: bool,
        code: Sequence[Artifact],
    ) -> Reading:
        unpack(code, cache_dir())
        try:
            measurer = self._measurer(bench)
            finalists = [Schedule.from_json(text) for text in schedules]
            outcomes = measurer.compete(finalists, rounds, library=library)
        except Exception:
            self._drop(bench)
            raise
        known = measurer.baseline if library else None
        baseline = json.dumps(known.to_facts()) if known is not None else ""
        texts = tuple(self._signed(outcome) for outcome in outcomes)
        return Reading(self._name, texts, self._spent(measurer), baseline)

    def _spent(self, measurer: Measuring) -> float:
        """Seconds in which the device had a candidate, since it was last asked."""
        total = sum(measurer.examined)
        spent, self._examined = total - self._examined, total
        return max(0.0, spent)

    def _signed(self, outcome: Outcome) -> str:
        notes = (*outcome.notes, (WORKER, self._name))
        return replace(outcome, notes=notes).to_json()

    # --- measurers ------------------------------------------------------------------------------

    def _measurer(self, bench: Bench) -> Measuring:
        """The one of a bench; others give the device back."""
        if bench not in self._measurers:
            self._let_go(KEPT - 1)
            module, _, function = bench.maker.partition(":")
            self._measurers[bench] = getattr(import_module(module), function)(bench)
        measurer = self._measurers.pop(bench)
        for other in self._measurers.values():
            other.rest()
        self._measurers[bench] = measurer  # the one used last stands last
        self._examined = sum(measurer.examined)
        return measurer

    def _let_go(self, kept: int) -> None:
        """Close all measurers but so many, those first that were not used for longest."""
        for bench in list(self._measurers)[: max(0, len(self._measurers) - kept)]:
            self._drop(bench)

    def _drop(self, bench: Bench) -> None:
        measurer = self._measurers.pop(bench, None)
        if measurer is not None:
            measurer.close()


_STATIONS: dict[str, Station] = {}
_LOCK = threading.Lock()


def station_of(name: str) -> Station:
    """The station of the Dask worker called so, in this process."""
    with _LOCK:
        if name not in _STATIONS:
            _STATIONS[name] = Station(name)
        return _STATIONS[name]


def close_station(name: str) -> None:
    """End it, if there is one."""
    with _LOCK:
        station = _STATIONS.pop(name, None)
    if station is not None:
        station.close()


def _exclusive(target: str) -> bool:
    """Whether what else this machine does would disturb the kernels of a target."""
    known = target in RUNTIMES or ":" in target
    return known and get_runtime(target).exclusive


def _settle(answer: Future[Any], call: Callable[[], Any]) -> None:
    try:
        answer.set_result(call())
    except Exception as error:  # noqa: BLE001 (whoever waits is told; the next is served)
        answer.set_exception(error)
