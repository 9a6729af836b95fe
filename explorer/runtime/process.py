"""Worker processes as the parent sees them: start, ask with a deadline, kill, replace.

Everything that answers has a deadline: workers, and the server that forks them.

Knows how processes die, and says so in words; not what they work on.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from explorer.errors import ServerLost, WorkerError
from explorer.runtime import wire
from explorer.runtime.known import RUNTIMES, SHARED
from explorer.runtime.wire import END, FRAME, SPAWN

BOOT_DEADLINE = 60.0  # seconds until the first answer: a server imports what is slow to import
ANSWER_DEADLINE = 15.0  # seconds of a fork, or of a worker's end
CLOSE_DEADLINE = 2.0
RESTARTS = 1  # servers in a row that may be lost without an answer
HELP = "its error output, if any, stands above; `tilewright doctor` looks further"
_BEGINNING = 2.0  # times as long as others may take, of a worker's first request
_TAIL = 2000
_BOOT = "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1)); " + (
    "from explorer.runtime.server import main; main(sys.argv[1:])"
)
_MODULES = ("numpy", "ir.oracle", "explorer.runtime.workers")  # of every worker
_SLOW = ("networkx",)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the worker's method returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The worker's method raised; the worker lives on."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Died:
    """The worker is gone. `status` is "timeout", "crash" or "out_of_memory"."""

    status: Literal["timeout", "crash", "out_of_memory"]
    detail: str


Reply = Answer | Raised | Died
_Request = tuple[float, str, tuple[object, ...]]  # seconds, a method, its arguments
Task = Literal["run", "compile"]


class ProcessServer:
    """The parent's end of one `explorer.runtime.server` process, which is replaced when it is lost.

    `folder` is for files that workers share; whichever of both processes ends last removes it.
    `threads` are those of numpy's BLAS in its workers, `task` what these are for, which is imported
    before they are forked. Each answer has a deadline: a server that is
    late is killed, and its workers die with it. `generation` counts servers, so that a worker knows
    whether its own is the one that runs.
    """

    def __init__(self, runtime: str, cache_dir: Path, threads: int = 1, task: Task = "run") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tilewright-"))
        self.generation = 0
        self._facts = json.dumps(
            {
                "modules": _MODULES,
                "slow": _SLOW,
                "runtime": runtime,
                "cache_dir": str(cache_dir),
                "folder": str(self.folder),
                "task": task,
            }
        )
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        self._environment = os.environ | dict.fromkeys(names, str(threads))
        self._lock = threading.Lock()
        self._number = 0  # of the last request
        self._lost = 0  # servers in a row that gave no answer
        self._booted = False  # whether the one that runs has answered
        self._answered = False  # whether one ever has
        self._boot()

    def _boot(self) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        ours, theirs = socket.socketpair()
        # -P: what lies in the current folder is not imported, be it called json.py
        command = [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path)]
        self._process = subprocess.Popen(
            [*command, str(theirs.fileno()), self._facts],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=self._environment,
            start_new_session=True,
        )
        theirs.close()
        self._channel = ours
        self._booted = False
        self.generation += 1

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def spawn(self, channel: int, errors: int) -> tuple[int, int]:
        """Fork a worker that owns these descriptors; returns its process id and generation.

        A server that is gone or late is replaced, unless that happens again and again; raises
        ServerLost.
        """
        with self._lock:
            while True:
                try:
                    return self._asked(SPAWN, 0, channel, errors), self.generation
                except _NoAnswer as error:
                    self._replace(str(error))

    def end(self, pid: int, generation: int) -> int | None:
        """Kill and reap a worker; returns its wait status, None if it died with its server."""
        with self._lock:
            if generation != self.generation or not self.alive:
                return None
            try:
                return self._asked(END, pid)
            except _NoAnswer:
                self._kill()
                return None

    def _replace(self, why: str) -> None:
        """Boot another server; raises ServerLost where that would be no use."""
        failed = self._process.poll() is not None and not self._booted
        self._kill()
        self._lost += 1
        if failed or self._lost > RESTARTS:
            kind = ServerLost if self._answered else WorkerError
            raise kind(f"the process server {why}; another one would not do better: {HELP}")
        self._boot()

    def _asked(self, verb: bytes, value: int, *descriptors: int) -> int:
        """The answer to a request; raises _NoAnswer."""
        timeout = ANSWER_DEADLINE if self._booted else BOOT_DEADLINE
        self._number += 1
        try:
            self._channel.settimeout(timeout)
            socket.send_fds(self._channel, [FRAME.pack(verb, self._number, value)], descriptors)
            number, answer = self._answer()
            while number != self._number:  # left by a request that Ctrl-C interrupted
                number, answer = self._answer()
        except TimeoutError:
            raise _NoAnswer(f"did not answer within {timeout:.3g} s") from None
        except OSError:
            raise _NoAnswer("is gone") from None
        self._booted, self._answered, self._lost = True, True, 0
        return answer

    def _answer(self) -> tuple[int, int]:
        """The number of a request, and what is answered to it; raises OSError."""
        data = self._channel.recv(FRAME.size, socket.MSG_WAITALL)
        if len(data) < FRAME.size:
            raise ConnectionResetError
        _, number, answer = FRAME.unpack(data)
        return number, answer

    def _kill(self) -> None:
        """End the process, whatever state it is in; its workers die with it."""
        self._channel.close()
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        if not self._booted:
            self._kill()  # it would hear of it when it has imported all
        self._channel.close()
        try:
            self._process.wait(CLOSE_DEADLINE)
        except subprocess.TimeoutExpired:
            self._kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class _NoAnswer(Exception):
    """The server's end of its channel is silent; the message goes on after "the process server"."""


@cache
def _server(runtime: str, cache_dir: Path, threads: int, task: Task, parent: int) -> ProcessServer:
    server = ProcessServer(runtime, cache_dir, threads, task)
    atexit.register(server.close)
    return server


def process_server(
    runtime: str, cache_dir: Path, threads: int = 1, task: Task = "run"
) -> ProcessServer:
    """The server of this process for one runtime and BLAS of `threads`, started on first use.

    Both tasks have the same one where a runtime's `preload` does the same for both: see `SHARED`.
    """
    return _server(runtime, cache_dir, threads, "run" if runtime in SHARED else task, os.getpid())


def boot(target: str, cache_dir: Path) -> None:
    """Start the servers of a known target, so that they are ready when they are needed."""
    tasks: tuple[Task, ...] = ("run", "compile")
    for task in tasks if target in RUNTIMES else ():
        process_server(target, cache_dir, task=task)


class Worker:
    """One worker process around one object, `module:attribute(*arguments)`, replaced when it dies.

    Requests name a method of that object. One request is under way at a time, and one more may wait
    in the worker's hands (`post_ahead`). If the server died, and its worker with it, both are made
    once more.
    """

    def __init__(self, server: ProcessServer, place: str, *arguments: object) -> None:
        self._server = server
        self._place = place.partition(":")
        self._arguments = arguments
        self._pid = 0
        self._generation = 0
        self._deadline = 0.0
        self._request: _Request = (0.0, "", ())
        self._ahead: _Request | None = None
        self._again = False  # whether the request under way was made once more
        self._fresh = True  # whether it has answered nothing
        self._start()

    def _start(self) -> None:
        self._fresh = True
        self._channel, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the worker)
        with theirs:
            self._pid, self._generation = self._server.spawn(theirs.fileno(), self._errors.fileno())
        self._send((self._place[0], self._place[2], self._arguments), ANSWER_DEADLINE)

    def _send(self, message: object, timeout: float) -> None:
        """Send, or leave it to `collect` to find out why that cannot be."""
        with contextlib.suppress(wire.Closed, wire.Late):
            wire.send(self._channel, message, time.monotonic() + timeout)

    @property
    def pid(self) -> int:
        """The process id, 0 once closed."""
        return self._pid

    def fileno(self) -> int:
        return self._channel.fileno()

    @property
    def deadline(self) -> float:
        """Monotonic time at which the request under way is late."""
        return self._deadline

    def post(self, timeout: float, method: str, *values: object) -> None:
        """Begin a request; `collect` gets its reply."""
        self._again = False
        self._post((timeout, method, values))

    def post_ahead(self, timeout: float, method: str, *values: object) -> None:
        """Leave the worker another request, which it begins with as soon as it has replied."""
        self._ahead = (timeout, method, values)
        self._send((method, values), timeout)

    def advance(self) -> None:
        """The reply was collected, and the request that waited is under way: its time begins."""
        assert self._ahead is not None
        self._request, self._ahead, self._again = self._ahead, None, False
        self._deadline = time.monotonic() + self._request[0]

    def _post(self, request: _Request) -> None:
        self._request = request
        _, method, values = request
        self._deadline = time.monotonic() + self._patience
        self._send((method, values), self._patience)

    @property
    def _patience(self) -> float:
        """Seconds that the request under way may take: longer where a worker begins with it, which
        has to find its device, operands and what checks take, beside others that do."""
        return self._request[0] * (_BEGINNING if self._fresh else 1.0)

    def collect(self) -> Reply:
        """The reply of the request under way; a dead or late worker is replaced, and what waited in
        its hands is nowhere then."""
        while True:
            try:
                reply = wire.receive(self._channel, self._deadline)
            except wire.Late:
                within = self._patience
                self._replace()
                return Died("timeout", f"no answer within {within:.3g} s")
            except wire.Closed:
                status, said = self._replace()
                if status is not None:
                    return _cause(status, said)
                if self._again:
                    self._ahead = None
                    return Died("crash", "worker died with the process server, twice")
                self._again = True
                self._post(self._request)
                if self._ahead is not None:
                    self.post_ahead(self._ahead[0], self._ahead[1], *self._ahead[2])
            else:
                self._fresh = False
                return Answer(reply[1]) if reply[0] == "answer" else Raised(reply[1], reply[2])

    def ask(self, timeout: float, method: str, *values: object) -> Reply:
        """One request and its reply."""
        self.post(timeout, method, *values)
        return self.collect()

    def _replace(self) -> tuple[int | None, str]:
        status, said = self._stop()
        self._start()
        if status is not None:
            self._ahead = None
        return status, said

    def _stop(self) -> tuple[int | None, str]:
        """How it ended (None: with its server), and its last words."""
        status = self._server.end(self._pid, self._generation)
        self._pid = 0
        said = _tail(self._errors.fileno())
        self._channel.close()
        self._errors.close()
        return status, said

    def close(self) -> None:
        if self._pid:
            self._stop()


def ended_of(workers: Sequence[Worker], alarm: int | None = None) -> tuple[bool, list[Worker]]:
    """Whether the alarm rings, and the workers with a reply, a death or a passed deadline.

    Waits until there is one or the other.
    """
    wait = max(0.0, min(worker.deadline for worker in workers) - time.monotonic())
    bell: list[int | Worker] = [] if alarm is None else [alarm]
    readable = select.select([*workers, *bell], [], [], wait)[0]
    ready = [worker for worker in workers if worker in readable]
    now = time.monotonic()
    late = [] if ready else [worker for worker in workers if worker.deadline <= now]
    return bool(bell) and alarm in readable, ready or late


def _tail(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    data = os.pread(descriptor, _TAIL, max(0, size - _TAIL))
    lines = [line.strip() for line in data.decode(errors="replace").splitlines() if line.strip()]
    return " / ".join(lines[-3:])


def _cause(status: int, said: str) -> Died:
    """How a worker that was not killed by us came to its end."""
    words = f": {said}" if said else ""
    if not os.WIFSIGNALED(status):
        code = os.waitstatus_to_exitcode(status)
        return Died("crash", f"worker exited with status {code} without an answer{words}")
    number = os.WTERMSIG(status)
    if number == signal.SIGKILL:
        return Died("out_of_memory", "worker was killed, most likely for want of memory")
    return Died("crash", f"worker died of {signal.Signals(number).name}{words}")
