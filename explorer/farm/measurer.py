"""A search's measurer whose candidates are tasks of a farm: one goes out for each, one outcome
comes back.

A task's key is its candidate's, so that what a lost worker had is measured again by another one,
and nothing twice; a schedule whose kernel ran is a copy, whichever worker ran it. Knows tasks by
the engine; no Dask and no records.
"""

from __future__ import annotations

import math
import os
import select
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from explorer.baseline import Baseline
from explorer.bound import Bound
from explorer.errors import FarmLost, NoFarm, Uncheckable, WorkerError
from explorer.farm.bench import Artifact, Bench, Reading, Trouble, texts_of
from explorer.farm.engine import Broken, Done, Gone, Lost, Result, Task
from explorer.farm.kinds import Kind
from explorer.farm.worker import AHEAD, code_of
from explorer.outcome import Outcome
from explorer.peaks import stated_peaks
from explorer.recall import candidate_of
from explorer.workload import Workload
from ir.schedule import Schedule

ATTEMPTS = 5  # times that a task is sent whose workers were lost with it, three each time
PATROL = 5.0  # seconds without a word after which it is looked whether there are workers
ABSENT = 90.0  # seconds without any, after which a job ends: others may be starting
SPARE = 4  # candidates on their way for each that is measured: a group waits for its slowest
_UNCHECKABLE = Uncheckable.__name__


class Sends(Protocol):
    """What is needed of the engine."""

    address: str

    def send(self, tag: str, method: str, tasks: Sequence[Task]) -> None: ...

    def forget(self, keys: Sequence[str]) -> None: ...

    def retire(self, worker: str) -> None: ...

    def ask_all(self, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]: ...


@dataclass(slots=True)
class _Errand:
    """A task that is under way, and who hears what it gave."""

    key: str
    method: str
    arguments: tuple[Any, ...]
    heard: Callable[[Reading], None]
    attempts: int = 1

    @property
    def sent(self) -> str:
        """The key of the task, another one for each attempt."""
        return f"{self.key}-{self.attempts}"


class FarmMeasurer:
    """See `explorer.measuring.Measuring`. Its methods raise FarmLost, Uncheckable, WorkerError.

    `present` tells how many workers of the kind there are now; it is asked when nothing is heard.
    """

    def __init__(
        self,
        engine: Sends,
        kind: Kind,
        workload: Workload,
        bench: Bench,
        library: bool,
        present: Callable[[], int],
    ) -> None:
        self._engine, self._kind, self._present = engine, kind, present
        self._workload, self._bench = workload, bench
        self._wanted = library
        self._numbered = 0
        self._errands: dict[int, _Errand] = {}
        self._schedules: dict[int, Schedule] = {}  # of candidates under way
        self._queued: deque[int] = deque()  # those of them that were not sent yet
        self._replies: SimpleQueue[tuple[int, int, Result]] = SimpleQueue()
        self._bell, self._rope = os.pipe()
        os.set_blocking(self._bell, False)
        self._done: deque[tuple[Schedule, Outcome]] = deque()
        self._examined: dict[str, float] = {}
        self._kernel_of: dict[str, str] = {}  # by the schedule's key
        self._trouble = ""
        self._there_at = time.monotonic()
        self.baseline: Baseline | None = None
        self.best: float | None = None
        self.kernels: dict[str, Outcome] = {}
        self.depth, self.abreast = 1 + math.ceil(SPARE * kind.slots / kind.batch), 1
        self.bounded_by({})

    def bounded_by(self, peaks: Mapping[str, Any]) -> None:
        """What was measured of the workers' machine bounds times, besides what it states."""
        hardware = self._workload.hardware
        stated = dict(hardware.facts) | stated_peaks(self._workload.backend, hardware)
        self._bound = Bound.of(self._workload.program, stated | dict(peaks))

    @property
    def examined(self) -> tuple[float, ...]:
        """Seconds in which each worker's device had a candidate."""
        return tuple(self._examined.values())

    def begin(self, schedules: Sequence[Schedule]) -> None:
        """Send these, as workers have room for them; does not wait."""
        if self._wanted and schedules and self.baseline is None:
            self._wanted = False
            self._compete("library", ((), 1, True), self._hear_library)
        for schedule in schedules:
            self._schedules[self._numbered] = schedule
            self._queued.append(self._numbered)
            self._numbered += 1
        self._send_queued()

    def ended(self, alarm: int | None = None) -> tuple[Schedule, Outcome] | None:
        while not self._done:
            if not self._schedules or not self._listen(alarm):
                return None
        return self._done.popleft()

    def forget(self) -> None:
        sent = [ticket for ticket in self._schedules if ticket in self._errands]
        self._engine.forget([self._errands.pop(ticket).sent for ticket in sent])
        self._schedules.clear()
        self._queued.clear()
        self._done.clear()

    def compete(
        self, schedules: Sequence[Schedule], rounds: int, library: bool = False
    ) -> list[Outcome]:
        """Finalists in turns, all on one worker, which is sent their code if it is there already.

        A worker that is lost begins again elsewhere: nothing of it was told.
        """
        self.forget()
        found: list[Reading] = []
        arguments = (texts_of(schedules), rounds, library, self._code(schedules))
        self._compete("finals", arguments, found.append)
        while not found:
            self._listen(None)
        if library:
            self.baseline = found[0].library or self.baseline
        return [self._bound.judged(outcome) for outcome in found[0].read]

    def rest(self) -> None:
        """Workers give back their devices when they are asked for something else, or nothing."""
        self.forget()

    def close(self) -> None:
        self._engine.forget([errand.sent for errand in self._errands.values()])
        self._errands.clear()
        self._schedules.clear()
        self._queued.clear()

    # --- tasks ----------------------------------------------------------------------------------

    def _send_queued(self) -> None:
        """As many candidates as workers have room for: to have more of them wait at one worker than
        it measures next would bind them to it, while others have nothing."""
        room = (1 + AHEAD) * self._kind.slots - (len(self._schedules) - len(self._queued))
        tickets = [self._queued.popleft() for _ in range(min(room, len(self._queued)))]
        for ticket in tickets:
            schedule = self._schedules[ticket]
            name = f"tilewright-measure-{candidate_of(self._workload, schedule)}"
            arguments = (self._bench, schedule.to_json(), self.best)
            hear = partial(self._hear, ticket)
            self._errands[ticket] = _Errand(name, "measure", arguments, hear)
        if tickets:
            self._engine.send(self._kind.tag, "measure", [self._task(one) for one in tickets])

    def _compete(
        self, key: str, arguments: tuple[Any, ...], heard: Callable[[Reading], None]
    ) -> None:
        ticket, self._numbered = self._numbered, self._numbered + 1
        name = f"tilewright-compete-{key}-{os.getpid()}-{id(self)}-{ticket}"
        self._errands[ticket] = _Errand(name, "compete", (self._bench, *arguments), heard)
        self._engine.send(self._kind.tag, "compete", [self._task(ticket)])

    def _task(self, ticket: int) -> Task:
        errand = self._errands[ticket]
        attempt = errand.attempts

        def hear(result: Result) -> None:
            self._replies.put((ticket, attempt, result))
            with suppress(OSError):
                os.write(self._rope, b".")

        return Task(errand.sent, errand.arguments, hear)

    def _listen(self, alarm: int | None) -> bool:
        """Until there is a reply, and take all; False if the alarm rings before."""
        bells = [self._bell] if alarm is None else [self._bell, alarm]
        rung = select.select(bells, [], [], PATROL)[0]
        if self._bell in rung:
            with suppress(BlockingIOError):
                os.read(self._bell, 4096)
            self._there_at = time.monotonic()
        with suppress(Empty):
            while True:
                self._take(*self._replies.get_nowait())
        self._send_queued()
        if not rung:
            self._look()
        return alarm not in rung or self._bell in rung

    def _take(self, ticket: int, attempt: int, result: Result) -> None:
        errand = self._errands.get(ticket)
        if errand is None or attempt != errand.attempts:
            return
        match result:
            case Done(Trouble() as trouble):
                self._again(ticket, errand, self._refused(trouble))
            case Done(value):
                del self._errands[ticket]
                errand.heard(value)
            case Lost(why):
                self._again(ticket, errand, why)
            case Gone(why):
                raise FarmLost(self._ended_by(f"the scheduler does not answer any more ({why})"))
            case Broken(why):
                raise WorkerError(f"{self._engine.address}: a worker's task failed: {why}")

    def _refused(self, trouble: Trouble) -> str:
        """Take leave of a worker whose device does not answer; raises what all would say."""
        if trouble.kind == _UNCHECKABLE:
            raise Uncheckable(trouble.message)
        self._engine.retire(trouble.address)
        self._trouble = f"{trouble.address}: {trouble.message}"
        return self._trouble

    def _again(self, ticket: int, errand: _Errand, why: str) -> None:
        """Send once more what was lost."""
        if errand.attempts >= ATTEMPTS:
            raise FarmLost(self._ended_by(f"a task was lost again and again ({why})"))
        errand.attempts += 1
        self._engine.send(self._kind.tag, errand.method, [self._task(ticket)])

    def _look(self) -> None:
        """Nothing was heard: raises FarmLost if for long there has been nobody who could say it."""
        if self._present():
            self._there_at = time.monotonic()
        elif time.monotonic() - self._there_at >= ABSENT:
            last = f"; the last said: {self._trouble}" if self._trouble else ""
            raise FarmLost(
                self._ended_by(f"no worker of {self._kind.key} for {ABSENT:.0f} s{last}")
            )

    def _ended_by(self, why: str) -> str:
        return (
            f"{self._engine.address}: {why}; what was measured is kept, and `tilewright tune "
            "--resume --workers ADDRESS` goes on from it"
        )

    # --- what was measured ----------------------------------------------------------------------

    def _hear(self, ticket: int, found: Reading) -> None:
        """A candidate's outcome; that of a kernel which ran before is a copy."""
        schedule = self._schedules.pop(ticket)
        outcome = self._bound.judged(found.read[0])
        self._examined[found.worker] = self._examined.get(found.worker, 0.0) + found.examined
        key = outcome.kernel_key
        if key and key in self.kernels:
            self._done.append((schedule, replace(self.kernels[key], copied=True)))
            return
        if key:
            self.kernels[key] = outcome
            self._kernel_of[schedule.key] = key
        if outcome.ok and outcome.seconds is not None:
            self.best = min(outcome.seconds, self.best or outcome.seconds)
        self._done.append((schedule, outcome))

    def _code(self, schedules: Sequence[Schedule]) -> tuple[Artifact, ...]:
        """What workers have compiled of these, each once; what a lost one had is not known."""
        kernels = tuple(k for s in schedules if (k := self._kernel_of.get(s.key)) is not None)
        if not kernels:
            return ()
        try:
            answers = self._engine.ask_all(code_of, self._bench, kernels).values()
        except NoFarm as error:
            raise FarmLost(f"{error}; what was measured is kept") from None
        files = [file for answer in answers if isinstance(answer, tuple) for file in answer]
        return tuple({file.name: file for file in files}.values())

    def _hear_library(self, found: Reading) -> None:
        self.baseline = self.baseline or found.library
