"""Measuring schedules: compile in killable processes, then check and time in one killable process.

Turns schedules into outcomes, whatever the kernels do. Generated code is never compiled nor run in
this process. Knows no search and no records.
"""

from __future__ import annotations

import os
import select
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TypeGuard

from explorer.baseline import Baseline, LibraryTimer
from explorer.errors import DeviceLost, Uncheckable, WorkerError
from explorer.expectation import Expectation, Recipe
from explorer.outcome import Outcome, Status
from explorer.runtime.base import Binary, get_runtime
from explorer.runtime.process import (
    Answer,
    Died,
    ProcessServer,
    Raised,
    Reply,
    Worker,
    process_server,
)
from explorer.runtime.workers import Compiled, Examination, Timing, backend_at
from explorer.samples import examined, merged
from explorer.watch import Watch
from ir.program import Program
from ir.roundoff import Accumulations
from ir.schedule import Schedule
from ir.target import Hardware, StatesRoundoff
from records import MEMORIES

_WORKERS = "explorer.runtime.workers"
_MOST_COMPILERS = 16
_ORACLE_DEADLINE = 900.0
_READY_DEADLINE = 120.0
_REST_DEADLINE = 5.0
_LIBRARY_DEADLINE = 15.0  # CuPy compiles a kernel for each kind of op
_RESTARTS = 3  # attempts to get the timing worker back after it died
_PAUSE = 1.0  # seconds between them
_FINAL = Timing(fewest=5, most=9, budget=0.1, cut=float("inf"), slow=float("inf"), sustained=True)


class Measuring(Protocol):
    """What a search needs of whoever gives outcomes: `Measurer` here, records in `replay`.

    `best` (seconds) and `kernels` (outcomes by kernel) are what was known before.
    """

    best: float | None
    kernels: dict[str, Outcome]

    @property
    def baseline(self) -> Baseline | None:
        """What is known of the library's time; None as long as it was not asked for."""
        ...

    def measure(self, schedules: Sequence[Schedule]) -> Iterator[Outcome]:
        """Outcomes in the order of `schedules`."""
        ...

    def compete(
        self, schedules: Sequence[Schedule], rounds: int, library: bool = False
    ) -> list[Outcome]:
        """Outcomes of finalists; with `library` the baseline takes turns with them."""
        ...

    def rest(self) -> None:
        """Give back the device until the next call."""
        ...

    def close(self) -> None:
        """Let go of what was started."""
        ...


class Measurer:
    """Measures schedules of one program on this machine. Use as a context manager.

    `runtime` is the runtime's name, where it differs from the backend's. With `library` the
    baseline is measured before the first candidate. `memory` is what timed operands lie in.
    """

    def __init__(
        self,
        program: Program,
        backend_name: str,
        hardware: Hardware,
        *,
        cache_dir: Path,
        deadline_s: float = 10.0,
        compile_deadline_s: float = 20.0,
        seed: int = 0,
        compilers: int | None = None,
        runtime: str | None = None,
        timing: Timing | None = None,
        library: bool = False,
        memory: str = MEMORIES[0],
    ) -> None:
        self._program = program
        self._hardware = hardware
        self._memory = memory
        self._deadline = deadline_s
        self._compile_deadline = compile_deadline_s
        self._timing = timing or Timing()
        self._runtime = runtime or backend_name
        self._server = process_server(self._runtime, cache_dir)
        self._folder = tempfile.mkdtemp(prefix="job-", dir=self._server.folder)
        arguments = (program, backend_name, hardware, self._runtime, cache_dir)
        count = compilers or min(_cores(), _MOST_COMPILERS)
        self._compilers = [
            Worker(self._server, f"{_WORKERS}:Compiler", *arguments) for _ in range(count)
        ]
        self._examiner: Worker | None = None
        self._expectation: Expectation | None = None
        self._doubtful = False  # whether the timing worker died, and has not answered since
        self._watch = Watch(self._pids, hardware.threads)
        self._recipe = Recipe(program, seed, _accumulations(backend_name, hardware))
        self._apart = get_runtime(self._runtime).apart
        self._maker = None if self._apart else self._start_oracle()
        self._cache_dir = cache_dir
        self._alone: Worker | None = None  # examines the library where it needs its own process
        self._library = LibraryTimer(self._ask_library)
        self._wanted = library
        if library:
            self._library_server()
        self.best: float | None = None
        self.kernels: dict[str, Outcome] = {}  # what ran already, by the key of the kernel

    @staticmethod
    def boot(runtime: str, cache_dir: Path) -> None:
        """Start what workers are forked from, which takes a while beside the caller's own start."""
        process_server(runtime, cache_dir)

    def _start_oracle(self) -> Worker:
        place = "explorer.expectation:ExpectationMaker"
        maker = Worker(self._server, place, self._recipe, self._folder)
        maker.post(_ORACLE_DEADLINE, "make")
        return maker

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def baseline(self) -> Baseline | None:
        """What is known of the library's time."""
        return self._library.result

    @property
    def workers(self) -> tuple[Worker, ...]:
        """The worker processes of this job."""
        timing = (worker for worker in (self._examiner, self._alone) if worker)
        return (*self._compilers, *((self._maker,) if self._maker else ()), *timing)

    def rest(self) -> None:
        """Give back the device and the operands on it until the next call."""
        for worker in (self._examiner, self._alone):
            if worker is not None:
                worker.close()
        self._examiner = self._alone = None

    def close(self) -> None:
        """End all workers and remove the job's files."""
        for worker in self.workers:
            worker.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def measure(self, schedules: Sequence[Schedule]) -> Iterator[Outcome]:
        """Outcomes in the order of `schedules`. All are compiled before the first is timed.

        A kernel runs once: schedules that lower to one of `kernels` are given its outcome, copied.
        Each that ran notes as `foreign_load` how busy other programs kept the processors since the
        call, and as `crowded` if that left too few of them.
        """
        self._watch.begin()
        found = self._compile(schedules)
        if self._wanted and self.baseline is None:
            self._examine_library()
            self._watch.begin()
        for compiled in found:
            key = compiled.outcome.kernel_key
            if key in self.kernels:
                yield replace(self.kernels[key], copied=True)
                continue
            outcome = self._watch.noted(self._outcome(compiled, self._timing, self.best))
            if outcome.ok and outcome.seconds is not None:
                self.best = min(outcome.seconds, self.best or outcome.seconds)
            if key:
                self.kernels[key] = outcome
            yield outcome

    def compete(
        self, schedules: Sequence[Schedule], rounds: int, library: bool = False
    ) -> list[Outcome]:
        """Finalists, measured in turns so that drift meets all alike; medians over all rounds.

        With `library` the baseline has a turn in every round, as long as it has time for it.
        """
        compiled = self._compile(schedules)
        self._watch.begin()
        turns: list[list[Outcome]] = [[] for _ in schedules]
        for number in range(rounds):
            for place in range(len(schedules)):
                index = (place + number) % len(schedules)
                if all(outcome.ok for outcome in turns[index]):
                    turns[index].append(self._outcome(compiled[index], _FINAL, None))
            if library:
                self._library.turn(_FINAL)
        self._watch.wait()
        if library and self._library.turns:
            self._library.note(self._watch.noted)
        return [self._watch.noted(merged(outcomes)) for outcomes in turns]

    def _examine_library(self) -> None:
        """The baseline before the first candidate, and what else the machine did meanwhile."""
        self._known_expectation()
        self._watch.begin()
        if self._library.first().seconds is not None:
            self._watch.wait()
            self._library.note(self._watch.noted)

    def _pids(self) -> tuple[int, ...]:
        servers = [self._server.pid]
        if self._wanted:
            servers.append(self._library_server().pid)
        return (*servers, *(worker.pid for worker in self.workers if worker.pid))

    def _library_server(self) -> ProcessServer:
        """Where the library has as many threads as kernels have."""
        return process_server(self._runtime, self._cache_dir, self._hardware.threads)

    def _ask_library(self, timing: Timing) -> Reply:
        """Have the library examined, by the timing worker if that has as many threads."""
        if self._library_server() is self._server:
            examiner = self._ready_examiner()
            reply = examiner.ask(_LIBRARY_DEADLINE, "library", self._program, timing)
            self._doubtful = isinstance(reply, Died)
            return reply
        if self._examiner is not None:  # its threads would wait for the next kernel awake
            self._doubtful |= isinstance(self._examiner.ask(_REST_DEADLINE, "rest"), Died)
        if self._alone is None:
            place, known = f"{_WORKERS}:LibraryExaminer", self._known_expectation()
            self._alone = Worker(self._library_server(), place, known, self._runtime, self._memory)
        return self._alone.ask(_LIBRARY_DEADLINE, "library", self._program, timing)

    def _compile(self, schedules: Sequence[Schedule]) -> list[_Candidate]:
        """One candidate per schedule, compiled by whichever worker is free."""
        found: dict[int, _Candidate] = {}
        waiting = list(enumerate(schedules))[::-1]
        busy: dict[Worker, int] = {}
        while waiting or busy:
            for worker in self._compilers:
                if waiting and worker not in busy:
                    index, schedule = waiting.pop()
                    busy[worker] = index
                    worker.post(self._compile_deadline, "compile", schedule)
            for worker in _finished(tuple(busy)):
                found[busy.pop(worker)] = _candidate(worker.collect())
        return [found[index] for index in range(len(schedules))]

    def _outcome(self, compiled: _Candidate, timing: Timing, best: float | None) -> Outcome:
        if compiled.binary is None:
            return compiled.outcome
        examiner = self._ready_examiner()
        reply = examiner.ask(self._deadline, "examine", compiled.binary, best, timing)
        if isinstance(reply, Answer):
            return self._judged(compiled.outcome, reply.value)
        self._doubtful = isinstance(reply, Died)
        return replace(compiled.outcome, status=_run_status(reply), detail=_detail(reply))

    def _ready_examiner(self) -> Worker:
        """The timing worker; the first call waits for the oracle. Raises DeviceLost."""
        if self._examiner is None:
            place, known = f"{_WORKERS}:Examiner", self._known_expectation()
            self._examiner = Worker(self._server, place, known, self._runtime, self._memory)
            self._doubtful |= self._apart  # it draws operands and asks the oracle first
        if self._doubtful:
            self._wait_for(self._examiner)
        return self._examiner

    def _known_expectation(self) -> Expectation | Recipe:
        """The oracle's answer, waited for once, or how to come by it; raises WorkerError."""
        if self._maker is None:
            return self._recipe
        if self._expectation is None:
            reply = self._maker.collect()
            self._maker.close()
            self._expectation = self._understood(reply).value
        return self._expectation

    def _understood(self, reply: Reply) -> Answer:
        """What the oracle said; raises Uncheckable or WorkerError where it said nothing."""
        if isinstance(reply, Answer):
            return reply
        if _is_uncheckable(reply):
            raise Uncheckable(reply.message)
        raise WorkerError(f"{self._program.name}: the oracle failed: {_detail(reply)}")

    def _wait_for(self, examiner: Worker) -> None:
        """After a death: the fresh worker must reach the device again; raises DeviceLost."""
        said = ""
        for attempt in range(_RESTARTS):
            time.sleep(_PAUSE if attempt else 0.0)
            reply = examiner.ask(_READY_DEADLINE, "ready")
            if isinstance(reply, Answer):
                self._doubtful = False
                return
            if _is_uncheckable(reply):
                self._understood(reply)
            said = _detail(reply)
        raise DeviceLost(
            f"{self._runtime}: the device does not answer any more ({said}); what was "
            "measured is kept, and `tilewright tune --resume` goes on from it"
        )

    def _judged(self, outcome: Outcome, seen: Examination) -> Outcome:
        """The outcome of an examined candidate; a time that the hardware cannot reach is not ok."""
        outcome = examined(outcome, seen)
        if not outcome.ok:
            return outcome
        floor = roofline_seconds(self._program, self._hardware)
        if outcome.seconds is not None and outcome.seconds < floor:
            detail = f"{outcome.seconds:.3g} s; this hardware needs {floor:.3g} s at least"
            return replace(outcome, status="below_roofline", detail=detail)
        return outcome


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A compiled schedule: its binary, or the outcome that stands already."""

    binary: Binary | None
    outcome: Outcome


def _candidate(reply: Reply) -> _Candidate:
    if not isinstance(reply, Answer):
        return _Candidate(None, Outcome(_compile_status(reply), detail=_detail(reply)))
    compiled: Compiled = reply.value
    binary = compiled.binary
    if binary is None:
        outcome = Outcome("illegal", detail=compiled.detail, compile_seconds=compiled.seconds)
        return _Candidate(None, outcome)
    outcome = Outcome(
        "ok", compile_seconds=compiled.seconds, kernel_key=binary.key, notes=binary.notes
    )
    return _Candidate(binary, outcome)


def _accumulations(backend_name: str, hardware: Hardware) -> Accumulations:
    """How the target adds up products, where it says so."""
    backend = backend_at(backend_name)
    return backend.accumulations(hardware) if isinstance(backend, StatesRoundoff) else ()


def _is_uncheckable(reply: Reply) -> TypeGuard[Raised]:
    return isinstance(reply, Raised) and reply.kind == Uncheckable.__name__


def _compile_status(reply: Raised | Died) -> Status:
    if isinstance(reply, Raised):
        return "out_of_memory" if reply.kind == "MemoryError" else "compile_error"
    return "timeout" if reply.status == "timeout" else "compile_error"


def _run_status(reply: Raised | Died) -> Status:
    if isinstance(reply, Died):
        return reply.status
    kinds: dict[str, Status] = {"MemoryError": "out_of_memory", "CompileError": "compile_error"}
    return kinds.get(reply.kind, "crash")


def _detail(reply: Raised | Died) -> str:
    return reply.detail if isinstance(reply, Died) else f"{reply.kind}: {reply.message}"


def _finished(workers: Sequence[Worker]) -> list[Worker]:
    """Those with a reply, a death or a passed deadline; waits until there is one."""
    now = time.monotonic()
    wait = max(0.0, min(worker.deadline for worker in workers) - now)
    ready: list[Worker] = select.select(workers, [], [], wait)[0]
    now = time.monotonic()
    return ready or [worker for worker in workers if worker.deadline <= now]


def roofline_seconds(program: Program, hardware: Hardware) -> float:
    """What the hardware needs at least, where its record has `peak_flops` (operations a second)."""
    peak = dict(hardware.facts).get("peak_flops", 0)
    return program.flops / float(peak) if peak else 0.0


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
