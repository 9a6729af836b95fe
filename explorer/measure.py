"""Measuring schedules: a pipeline of killable processes that compile, and one for each device.

Turns schedules into outcomes, whatever the kernels do. Generated code is never compiled nor run in
this process. Knows no search and no records.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from explorer.baseline import Baseline, LibraryTimer
from explorer.bound import Bound
from explorer.devices import Devices
from explorer.learning import Learning, cores_here
from explorer.measuring import depth_of
from explorer.outcome import Outcome
from explorer.peaks import stated_peaks
from explorer.recipe import recipe_of
from explorer.runtime.base import get_runtime
from explorer.runtime.blas import can_be_told
from explorer.runtime.process import (
    Answer,
    Died,
    ProcessServer,
    Raised,
    Reply,
    Worker,
    ended_of,
    process_server,
)
from explorer.runtime.workers import Timing, backend_at
from explorer.samples import merged
from explorer.stages import (
    LIBRARY_DEADLINE,
    WORKERS,
    Candidate,
    Compilers,
    Device,
)
from explorer.watch import Watch
from ir.program import Program
from ir.schedule import Schedule
from ir.target import Hardware
from records import MEMORIES

_MOST_COMPILERS = 16  # for one device
_OTHERS = 2  # processors for the strategy and a device's worker, where compilers run beside them
_ROOM = 2  # compiled candidates that may wait for a device, for each that one compiler works on
_BEFORE_LIBRARY = 16  # outcomes after which the library has its turn, if no device is free before
_FIRST = Devices()
_FINAL = Timing(
    fewest=5, most=9, budget=0.1, cut=float("inf"), slow=float("inf"), once=float("inf"),
    sustained=True,
)  # fmt: skip
_FINAL_CALLS = 20  # of a finalist, checks and both operand sets included, for its deadline


class Measurer:
    """Measures schedules of one program on this machine. Use as a context manager.

    Candidates flow: while devices examine some, others are compiled, and `ended` keeps all of it
    moving while it waits. Where kernels and compilers would share processors (`exclusive`, as on a
    CPU), one group of `begin` is compiled, then examined, before the next. `runtime` is the
    runtime's name, where it differs from the backend's. With `library` the baseline is measured
    behind the first candidates. What the machine states, and `peaks`, bounds a time. `memory` is
    what timed operands lie in.
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
        devices: Devices = _FIRST,
        peaks: Mapping[str, Any] | None = None,
        memory: str = MEMORIES[0],
    ) -> None:
        self._program, self._hardware, self._memory = program, hardware, memory
        self._deadline = deadline_s
        self._timing = timing or Timing()
        self._runtime = runtime or backend_name
        self._cache_dir = cache_dir
        self._server = process_server(self._runtime, cache_dir)
        self._folder = tempfile.mkdtemp(prefix="job-", dir=self._server.folder)
        self._exclusive = get_runtime(self._runtime).exclusive and not devices.spare
        self._devices = self._devices_of(devices)
        recipe = recipe_of(program, seed, backend_at(backend_name), hardware)
        self._right = Learning(self._server, self._runtime, recipe, self._folder)
        self._wake()
        self._right.begin(cache_dir)
        arguments = (program, backend_name, hardware, self._runtime, cache_dir, devices.spare)
        server = self._compiling_server()
        cores = len(devices.spare) or cores_here() - (0 if self._exclusive else _OTHERS)
        count = compilers or max(1, min(cores, _MOST_COMPILERS * len(self._devices)))
        pool = [Worker(server, f"{WORKERS}:Compiler", *arguments) for _ in range(count)]
        self._compilers = Compilers(pool, compile_deadline_s)
        self._watch = Watch(self._pids, hardware.threads)
        self._watched = not self._exclusive  # since the group's first candidate was examined
        stated = stated_peaks(backend_at(backend_name), hardware)
        self._stated: dict[str, Any] = {**dict(hardware.facts), **stated}
        self.bounded_by(peaks or {})
        self._alone: Worker | None = None  # examines the library where it needs its own process
        self._library = LibraryTimer(self._ask_library)
        self._wanted = library
        self._beside = hardware.threads > 1  # the library has a process with as many
        if library:
            self._library_server()
        self._numbered = 0
        self._under_way: dict[int, Schedule] = {}  # by ticket; of others no outcome is given
        self._groups: deque[deque[int]] = deque()  # waiting for a compiler, one for each `begin`
        self._waiting: list[tuple[int, Candidate]] = []  # compiled
        self._alike: dict[str, list[tuple[int, Candidate]]] = {}  # wait for a kernel under way
        self._done: deque[tuple[int, Outcome]] = deque()
        self._seen = 0  # outcomes given
        self.abreast = len(self._devices)
        self.depth = depth_of(self._runtime, self.abreast)
        self.best: float | None = None
        self.kernels: dict[str, Outcome] = {}  # what ran already, by the key of the kernel
        self.binaries: dict[str, str] = {}  # where code lies that was compiled, by the same key

    def _devices_of(self, devices: Devices) -> list[Device]:
        several = len(devices.numbers) > 1
        return [
            Device(
                self._server, self._runtime, number, several, self._memory,
                devices.processors_of(place),
            )
            for place, number in enumerate(devices.numbers)
        ]  # fmt: skip

    def bounded_by(self, peaks: Mapping[str, Any]) -> None:
        """What was measured of the machine bounds times, besides what it states."""
        self._bound = Bound.of(self._program, self._stated | dict(peaks))

    def _wake(self) -> None:
        """Start the devices that rest, once it is known what is right."""
        if self._right.source is not None:
            for device in self._devices:  # which draw operands, ask the oracle
                device.wake(self._right.source, self._right.apart)

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
        found = (*(device.worker for device in self._devices), self._alone)
        there = tuple(worker for worker in found if worker is not None)
        return (*self._compilers.workers, *self._right.workers, *there)

    @property
    def examined(self) -> tuple[float, ...]:
        """Seconds in which each device had a candidate."""
        return tuple(device.examined for device in self._devices)

    def rest(self) -> None:
        """Give back the devices and the operands on them until the next call."""
        self.forget()
        for device in self._devices:
            device.close()
        if self._alone is not None:
            self._alone.close()
        self._alone = None

    def close(self) -> None:
        """End all workers and remove the job's files."""
        for worker in self.workers:
            worker.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- the flow -------------------------------------------------------------------------------

    def begin(self, schedules: Sequence[Schedule]) -> None:
        """Have these measured, behind what is under way; does not wait.

        A kernel runs once: schedules that lower to one of `kernels` are given its outcome, copied.
        Each that ran notes as `foreign_load` how busy other programs kept the processors since the
        group began (since it was compiled, where that comes before), and as `crowded` if that left
        too few of them; nothing where that was too short a time to tell.
        """
        tickets = range(self._numbered, self._numbered + len(schedules))
        self._numbered += len(schedules)
        self._under_way.update(zip(tickets, schedules, strict=True))
        self._groups.append(deque(tickets))
        if not self._exclusive:
            self._watch.begin()
        self._wake()
        self._move(alone=False)

    def ended(self, alarm: int | None = None) -> tuple[Schedule, Outcome] | None:
        """See `Measuring`; raises DeviceLost, Uncheckable, WorkerError."""
        while True:
            while self._done:
                ticket, outcome = self._done.popleft()
                schedule = self._under_way.pop(ticket, None)
                if schedule is not None:
                    self._seen += 1
                    return schedule, outcome
            self._move(alone=alarm is None)
            if self._done:
                continue
            if not self._under_way or not self._wait(alarm):
                return None

    def forget(self) -> None:
        """Give no outcome of what is under way; what has begun comes to its end unheard."""
        self._under_way.clear()
        self._groups.clear()
        self._waiting.clear()
        self._alike.clear()
        self._done.clear()

    def measure(self, schedules: Sequence[Schedule]) -> Iterator[Outcome]:
        """Outcomes in the order of `schedules`, as `begin` and `ended` give them."""
        self.begin(schedules)
        have: dict[Schedule, list[Outcome]] = {}
        try:
            for schedule in schedules:
                while not have.get(schedule):
                    ended = self.ended()
                    assert ended is not None
                    have.setdefault(ended[0], []).append(ended[1])
                yield have[schedule].pop(0)
        finally:
            self.forget()

    def _move(self, alone: bool) -> None:
        """Begin what can begin; `alone` tells that the caller's process rests meanwhile."""
        while self._groups and not self._groups[0]:
            through = not (self._compilers.busy or self._waiting or self._examining)
            if self._exclusive and not through and self._right.source is not None:
                break  # before it is known what is right, the next group may be compiled as well
            self._groups.popleft()
        self._compile_more()
        if self._exclusive and (self._compiling or not alone):
            return
        self._examine_more()

    @property
    def _examining(self) -> bool:
        return any(device.examining for device in self._devices)

    @property
    def _compiling(self) -> bool:
        """Whether the group under way is still being compiled."""
        return bool(self._compilers.busy or (self._groups and self._groups[0]))

    def _compile_more(self) -> None:
        """Give free compilers something to do, as long as there is room for what they make."""
        if self._exclusive and self._examining:
            return
        most = None if self._exclusive else _ROOM * len(self._compilers.workers)
        groups = list(self._groups)[: 1 if self._exclusive else None]
        for group in groups:
            while group and self._compilers.free:
                if most is not None and len(self._waiting) >= most:
                    return
                ticket = group.popleft()
                self._compilers.begin(ticket, self._under_way[ticket])
                self._watched = not self._exclusive

    def _examine_more(self) -> None:
        """Give free devices something to do: the library when its turn has come, else candidates;
        then, where kernels share no processor with this process, one more to go on with.

        The candidate that was begun first goes first; what has no binary, or a kernel that ran,
        needs no device.
        """
        waiting = sorted(self._waiting, key=lambda pair: pair[0])
        self._waiting = [pair for pair in waiting if not self._stands(*pair)]
        for device in self._devices:
            if device.free and self._library_due and not self._first_library(device):
                continue
            while device.free and self._waiting:
                self._examine(device.begin)
        if not self._exclusive and not self._library_due:
            for device in self._devices:
                while device.has_room and self._waiting:
                    self._examine(device.begin_next)

    def _examine(self, begin: Callable[..., None]) -> None:
        """Have a device begin the next candidate, unless its outcome stands already."""
        ticket, candidate = self._waiting.pop(0)
        if self._stands(ticket, candidate):
            return
        if not self._watched:
            self._watch.begin()
            self._watched = True
        self._alike[candidate.key or ""] = []
        begin(ticket, candidate, self.best, self._timing, self._deadline)

    def _stands(self, ticket: int, candidate: Candidate) -> bool:
        """Whether an outcome is there or will be without another run, in which case it is noted."""
        if candidate.binary is None:
            self._done.append((ticket, self._watch.noted(candidate.outcome)))
        elif candidate.key in self.kernels:
            self._done.append((ticket, replace(self.kernels[candidate.key or ""], copied=True)))
        elif candidate.key in self._alike:
            self._alike[candidate.key or ""].append((ticket, candidate))
        else:
            return False
        return True

    def _wait(self, alarm: int | None) -> bool:
        """Until something ends, and take it; False if nothing will before the alarm does."""
        owners: dict[Worker, Device | None] = dict.fromkeys(self._compilers.busy)
        owners |= {d.worker: d for d in self._devices if d.worker is not None and d.busy}
        if self._right.pending is not None:
            owners[self._right.pending] = None
        if not owners:
            return False
        rung, ready = ended_of(tuple(owners), alarm)
        for worker in ready:
            self._take(worker, owners[worker])
        return bool(ready) or not rung

    def _take(self, worker: Worker, device: Device | None) -> None:
        """What a worker that has ended something leaves."""
        if device is not None:
            self._heard(device)
        elif worker is self._right.pending:
            self._right.hear(worker.collect())
            self._wake()
        else:
            ticket, candidate = self._compilers.end(worker)
            if candidate.binary is not None:
                self.binaries[candidate.binary.key] = candidate.binary.path
            if ticket in self._under_way:
                self._waiting.append((ticket, candidate))

    def _heard(self, device: Device) -> None:
        """The end of what a device did."""
        ended = device.end()
        if not isinstance(ended, tuple):
            if ended is not None:
                self._library.hear(ended)
                self._library.note(self._watch.noted)
            return
        ticket, outcome = ended
        outcome = self._watch.noted(self._judged(outcome))
        key = outcome.kernel_key
        alike = self._alike.pop(key, [])
        if ticket not in self._under_way:
            return  # forgotten
        if outcome.ok and outcome.seconds is not None:
            self.best = min(outcome.seconds, self.best or outcome.seconds)
        self.kernels[key] = outcome
        self._done.append((ticket, outcome))
        for other, _ in alike:
            self._done.append((other, replace(outcome, copied=True)))

    # --- finals ---------------------------------------------------------------------------------

    def compete(
        self, schedules: Sequence[Schedule], rounds: int, library: bool = False
    ) -> list[Outcome]:
        """Finalists, measured in turns so that drift meets all alike; medians over all rounds.

        All of them on the first device. With `library` the baseline has a turn in every round, as
        long as it has time for it.
        """
        self.forget()
        compiled = self._compiled(schedules)
        device = self._ready_device()
        self._watch.begin()
        turns: list[list[Outcome]] = [[] for _ in schedules]
        for number in range(rounds):
            for place in range(len(schedules)):
                index = (place + number) % len(schedules)
                if all(outcome.ok for outcome in turns[index]):
                    turns[index].append(self._final(device, compiled[index]))
            if library:
                self._library.turn(_FINAL)
        self._watch.wait()
        if library and self._library.turns:
            self._library.note(self._watch.noted)
        return [self._watch.noted(merged(outcomes)) for outcomes in turns]

    def _compiled(self, schedules: Sequence[Schedule]) -> list[Candidate]:
        """One candidate per schedule, compiled by whichever worker is free."""
        left = deque(enumerate(schedules))
        found: dict[int, Candidate] = {}
        while len(found) < len(schedules):
            while left and self._compilers.free:
                number, schedule = left.popleft()
                self._compilers.begin(-1 - number, schedule)  # others' tickets are not negative
            for worker in ended_of(self._compilers.busy)[1]:
                ticket, candidate = self._compilers.end(worker)
                if ticket < 0:
                    found[-1 - ticket] = candidate
        return [found[number] for number in range(len(schedules))]

    def _ready_device(self) -> Device:
        """The first device, waited for: its operands, the oracle, what it still has to do."""
        self._wake()
        while not self._devices[0].free:
            self._wait(None)
            self._wake()
        return self._devices[0]

    def _final(self, device: Device, candidate: Candidate) -> Outcome:
        if candidate.binary is None:
            return candidate.outcome
        known = self.kernels.get(candidate.key or "")
        seconds = known.seconds if known is not None and known.seconds is not None else 0.0
        deadline = self._deadline + _FINAL_CALLS * seconds
        self._ready_device().begin(-1, candidate, None, _FINAL, deadline)
        ended = device.end()
        assert isinstance(ended, tuple)
        return self._judged(ended[1])

    # --- the library ----------------------------------------------------------------------------

    @property
    def _library_due(self) -> bool:
        """Behind the first candidates: as soon as nothing waits, and before many were measured."""
        wanted = self._wanted and self.baseline is None and self._seen > 0
        return wanted and (self._exclusive or not self._waiting or self._seen >= _BEFORE_LIBRARY)

    def _first_library(self, device: Device) -> bool:
        """Examine the library, or have the device begin to; whether the device is free then."""
        self._watch.begin()
        if not self._beside:
            device.begin_library(self._program, self._timing)
        elif self._library.first().seconds is not None:
            self._library.note(self._watch.noted)
        return device.free

    def _pids(self) -> tuple[int, ...]:
        servers = [self._server.pid, self._compiling_server().pid]
        if self._wanted:
            servers.append(self._library_server().pid)
        return (*servers, *(worker.pid for worker in self.workers if worker.pid))

    def _compiling_server(self) -> ProcessServer:
        return process_server(self._runtime, self._cache_dir, task="compile")

    def _library_server(self) -> ProcessServer:
        """Where the library has as many threads as kernels have: its worker sees to it, unless BLAS
        heeds only what it is started with."""
        threads = 1 if self._told else self._hardware.threads
        return process_server(self._runtime, self._cache_dir, threads)

    @cached_property
    def _told(self) -> bool:
        return can_be_told()

    def _ask_library(self, timing: Timing) -> Reply:
        """Have the library examined, by the first device if that has as many threads."""
        device = self._ready_device()
        if not self._beside:
            device.begin_library(self._program, timing)
            reply = device.end()
            assert isinstance(reply, Answer | Raised | Died)
            return reply
        for other in self._devices:  # their threads would wait for the next kernel awake
            other.rest()
        if self._alone is None:
            place = f"{WORKERS}:LibraryExaminer"
            self._alone = Worker(
                self._library_server(), place, self._right.source, self._runtime, self._memory,
                self._hardware.threads,
            )  # fmt: skip
        return self._alone.ask(LIBRARY_DEADLINE, "library", self._program, timing)

    def _judged(self, outcome: Outcome) -> Outcome:
        """The outcome of an examined candidate; a time that the hardware cannot reach is not ok."""
        return self._bound.judged(outcome)
