"""The stages that a candidate goes through: compiled by any of a pool, examined on a device.

Both hold worker processes and never wait for them: whoever moves candidates selects over `busy`.
A device checks and times one candidate at a time, since two would disturb each other. Knows worker
processes and outcomes; no search.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from explorer.errors import DeviceLost, Uncheckable
from explorer.expectation import Expectation, Recipe
from explorer.outcome import Outcome, Status
from explorer.runtime.base import Binary
from explorer.runtime.process import Answer, Died, ProcessServer, Raised, Reply, Worker
from explorer.runtime.workers import Compiled, Timing
from explorer.samples import examined
from ir.program import Program
from ir.schedule import Schedule
from records import MEMORIES

WORKERS = "explorer.runtime.workers"
READY_DEADLINE = 120.0
REST_DEADLINE = 5.0
LIBRARY_DEADLINE = 15.0  # CuPy compiles a kernel for each kind of op
RESTARTS = 3  # attempts to get a device's worker back after it died
PAUSE = 1.0  # seconds between them
DEVICE = "device"  # the note that says which of several devices measured


@dataclass(frozen=True, slots=True)
class Candidate:
    """A compiled schedule: its binary, or the outcome that stands already."""

    binary: Binary | None
    outcome: Outcome

    @property
    def key(self) -> str | None:
        """The kernel's key, none where there is no kernel."""
        return self.outcome.kernel_key


class Compilers:
    """Worker processes that lower and compile; a ticket is what its owner knows a schedule by."""

    def __init__(self, workers: Sequence[Worker], deadline_s: float) -> None:
        self.workers = tuple(workers)
        self._deadline = deadline_s
        self._busy: dict[Worker, int] = {}

    @property
    def busy(self) -> tuple[Worker, ...]:
        return tuple(self._busy)

    @property
    def free(self) -> int:
        """How many schedules could begin now."""
        return len(self.workers) - len(self._busy)

    def begin(self, ticket: int, schedule: Schedule) -> None:
        """Have a free worker compile."""
        worker = next(worker for worker in self.workers if worker not in self._busy)
        self._busy[worker] = ticket
        worker.post(self._deadline, "compile", schedule)

    def end(self, worker: Worker) -> tuple[int, Candidate]:
        """What one that has answered, died or is late was given, and what became of it."""
        return self._busy.pop(worker), _candidate(worker.collect())


@dataclass(frozen=True, slots=True)
class _Turn:
    """A candidate on its way to a device: see `Device.begin`."""

    ticket: int
    candidate: Candidate
    best: float | None
    timing: Timing
    within: float

    @property
    def asked(self) -> tuple[object, ...]:
        """What the worker is given."""
        return self.candidate.binary, self.best, self.timing


class Device:
    """One device and the worker process that has it, which is replaced when a kernel kills it.

    `number` is the device's; with `named` its outcomes say it. `memory` is what timed operands
    lie in, `processors` are those that it may use, if not all. The worker must show that it reaches
    the device (`begin` may be called once it is `free`): before its first candidate if `doubtful`,
    and after each death.
    """

    def __init__(
        self,
        server: ProcessServer,
        runtime: str,
        number: int,
        named: bool,
        memory: str = MEMORIES[0],
        processors: tuple[int, ...] = (),
    ) -> None:
        self.number, self._memory, self._processors = number, memory, processors
        self._server, self._runtime, self._named = server, runtime, named
        self.worker: Worker | None = None
        self._doing = ""  # the method that is under way, if any
        self._doubtful = False  # whether the worker died, and has not answered since
        self._attempts = 0
        self._began = 0.0
        self._ticket = -1
        self._candidate = Candidate(None, Outcome("ok"))
        self._next: _Turn | None = None  # the candidate that waits in the worker's hands
        self._set_up = 0.0  # seconds in which the worker made its first operands and bounds
        self.examined = 0.0  # seconds in which it had a candidate

    def wake(self, source: Expectation | Recipe, doubtful: bool) -> None:
        """Start the worker, if there is none."""
        if self.worker is None:
            self.worker = Worker(
                self._server, f"{WORKERS}:Examiner", source, self._runtime, self._memory,
                self.number, self._processors,
            )  # fmt: skip
            self._doubtful |= doubtful
            if self._doubtful:
                self._attempts = 0
                self._post(READY_DEADLINE, "ready")

    @property
    def busy(self) -> bool:
        """Whether an answer is waited for."""
        return bool(self._doing)

    @property
    def examining(self) -> bool:
        """Whether it has a candidate or the library."""
        return self._doing in ("examine", "library")

    @property
    def free(self) -> bool:
        return self.worker is not None and not self._doing

    @property
    def has_room(self) -> bool:
        """Whether it examines a candidate and none waits behind that."""
        return self._doing == "examine" and self._next is None

    def begin(
        self, ticket: int, candidate: Candidate, best: float | None, timing: Timing, within: float
    ) -> None:
        """Examine a candidate that has a binary, for `within` seconds at most, beside what a second
        set of operands may take that the first contender needs."""
        self._turn(_Turn(ticket, candidate, best, timing, within))

    def begin_next(
        self, ticket: int, candidate: Candidate, best: float | None, timing: Timing, within: float
    ) -> None:
        """As `begin`, behind the candidate under way: the worker goes on with it by itself, while
        whoever asked is busy elsewhere."""
        assert self.has_room
        assert self.worker is not None
        self._next = turn = _Turn(ticket, candidate, best, timing, within)
        self.worker.post_ahead(turn.within + self._set_up, "examine", *turn.asked)

    def _turn(self, turn: _Turn) -> None:
        self._ticket, self._candidate = turn.ticket, turn.candidate
        self._post(turn.within + self._set_up, "examine", *turn.asked)

    def begin_library(self, program: Program, timing: Timing) -> None:
        """Examine the program in the device's array library; `heard` gives the reply."""
        self._post(LIBRARY_DEADLINE, "library", program, timing)

    def end(self) -> tuple[int, Outcome] | Reply | None:
        """Of a candidate its ticket and outcome, of the library the reply; None otherwise.

        Raises DeviceLost, or Uncheckable where the oracle knows nothing.
        """
        assert self.worker is not None
        doing, self._doing = self._doing, ""
        reply = self.worker.collect()
        if doing != "ready":
            self.examined += time.monotonic() - self._began
        elif isinstance(reply, Answer):
            self._doubtful, self._attempts = False, 0
            self._set_up = time.monotonic() - self._began
        else:
            self._again(reply)
        found = (self._ticket, self._outcome(reply)) if doing == "examine" else None
        if doing != "ready" and isinstance(reply, Died):
            self._doubtful = True
            self._post(READY_DEADLINE, "ready")
        elif not self._doing and self._next is not None:
            self._go_on(in_hand=doing == "examine")
        return reply if doing == "library" else found

    def _go_on(self, in_hand: bool) -> None:
        """The next candidate is under way, if the worker has it; else it is posted again."""
        assert self._next is not None
        assert self.worker is not None
        turn, self._next = self._next, None
        if not in_hand:
            self._turn(turn)
            return
        self._ticket, self._candidate = turn.ticket, turn.candidate
        self._doing, self._began = "examine", time.monotonic()
        self.worker.advance()

    def rest(self) -> bool:
        """Have threads that wait for the next kernel sleep; False where that could not be said."""
        if self.worker is None or self._doing:
            return False
        died = isinstance(self.worker.ask(REST_DEADLINE, "rest"), Died)
        if died:
            self._doubtful = True
            self._post(READY_DEADLINE, "ready")
        return not died

    def close(self) -> None:
        """End the worker; `wake` starts another."""
        if self.worker is not None:
            self.worker.close()
        self.worker, self._doing, self._next = None, "", None

    def _post(self, timeout: float, method: str, *values: object) -> None:
        assert self.worker is not None
        self._doing, self._began = method, time.monotonic()
        self.worker.post(timeout, method, *values)

    def _again(self, reply: Raised | Died) -> None:
        """Ask once more whether the device answers; raises DeviceLost when that has no use."""
        if is_uncheckable(reply):
            raise Uncheckable(reply.message)
        self._attempts += 1
        if self._attempts >= RESTARTS:
            why = "the device does not answer any more"
            if isinstance(reply, Raised) and reply.kind.endswith("MemoryError"):
                why = "too little of the device's memory is free: end what else uses it"
            raise DeviceLost(
                f"{self._runtime}: {why} ({detail_of(reply)}); what was measured is kept, and "
                "`tilewright tune --resume` goes on from it"
            )
        time.sleep(PAUSE)
        self._post(READY_DEADLINE, "ready")

    def _outcome(self, reply: Reply) -> Outcome:
        known = self._candidate.outcome
        if self._named:
            known = replace(known, notes=(*known.notes, (DEVICE, self.number)))
        if isinstance(reply, Answer):
            return examined(known, reply.value)
        return replace(known, status=_run_status(reply), detail=detail_of(reply))


def is_uncheckable(reply: Reply) -> TypeGuard[Raised]:
    """Whether the oracle said that it knows nothing of the outputs."""
    return isinstance(reply, Raised) and reply.kind == Uncheckable.__name__


def detail_of(reply: Raised | Died) -> str:
    """What became of a request, in words."""
    return reply.detail if isinstance(reply, Died) else f"{reply.kind}: {reply.message}"


def _candidate(reply: Reply) -> Candidate:
    if not isinstance(reply, Answer):
        return Candidate(None, Outcome(_compile_status(reply), detail=detail_of(reply)))
    compiled: Compiled = reply.value
    binary = compiled.binary
    if binary is None:
        outcome = Outcome("illegal", detail=compiled.detail, compile_seconds=compiled.seconds)
        return Candidate(None, outcome)
    outcome = Outcome(
        "ok", compile_seconds=compiled.seconds, kernel_key=binary.key, notes=binary.notes
    )
    return Candidate(binary, outcome)


def _compile_status(reply: Raised | Died) -> Status:
    if isinstance(reply, Raised):
        return "out_of_memory" if reply.kind == "MemoryError" else "compile_error"
    return "timeout" if reply.status == "timeout" else "compile_error"


def _run_status(reply: Raised | Died) -> Status:
    if isinstance(reply, Died):
        return reply.status
    kinds: dict[str, Status] = {"MemoryError": "out_of_memory", "CompileError": "compile_error"}
    return kinds.get(reply.kind, "crash")
