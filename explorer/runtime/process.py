"""Worker processes as the parent sees them: start, ask with a deadline, kill, replace.

Knows how processes die, and says so in words; not what they work on.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from explorer.errors import WorkerError
from explorer.runtime import wire
from explorer.runtime.server import END, FRAME, SPAWN

_TAIL = 2000
_BOOT = "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1)); " + (
    "from explorer.runtime.server import main; main(sys.argv[1:])"
)
_MODULES = ("numpy", "networkx", "ir.oracle", "explorer.runtime.workers")


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


class ProcessServer:
    """The parent's end of one `explorer.runtime.server` process.

    `folder` is for files that workers share; the server removes it when this process is gone.
    `threads` are those of numpy's BLAS in its workers.
    """

    def __init__(self, runtime: str, cache_dir: Path, threads: int = 1) -> None:
        ours, theirs = socket.socketpair()
        self.folder = Path(tempfile.mkdtemp(prefix="tilewright-"))
        facts: dict[str, object] = {
            "modules": _MODULES,
            "runtime": runtime,
            "cache_dir": str(cache_dir),
        }
        facts["folder"] = str(self.folder)
        command = [sys.executable, "-c", _BOOT, json.dumps(sys.path)]
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        self._process = subprocess.Popen(
            [*command, str(theirs.fileno()), json.dumps(facts)],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=os.environ | dict.fromkeys(names, str(threads)),
            start_new_session=True,
        )
        theirs.close()
        self._channel = ours
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def spawn(self, channel: int, errors: int) -> int:
        """Fork a worker that owns these descriptors; returns its process id."""
        with self._lock:
            self._tell(FRAME.pack(SPAWN, 0), channel, errors)
            return self._answer()

    def end(self, pid: int) -> int:
        """Kill and reap a worker; returns its wait status."""
        with self._lock:
            self._tell(FRAME.pack(END, pid))
            return self._answer()

    def _tell(self, frame: bytes, *descriptors: int) -> None:
        try:
            socket.send_fds(self._channel, [frame], descriptors)
        except OSError as error:
            raise WorkerError(f"the process server is gone: {error}") from None

    def _answer(self) -> int:
        try:
            data = self._channel.recv(FRAME.size, socket.MSG_WAITALL)
        except OSError:
            data = b""
        if len(data) < FRAME.size:
            raise WorkerError("the process server is gone; its error output tells why")
        return int(FRAME.unpack(data)[1])

    def close(self) -> None:
        self._channel.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@cache
def _server(runtime: str, cache_dir: Path, threads: int, parent: int) -> ProcessServer:
    server = ProcessServer(runtime, cache_dir, threads)
    atexit.register(server.close)
    return server


def process_server(runtime: str, cache_dir: Path, threads: int = 1) -> ProcessServer:
    """The server of this process for one runtime and BLAS of `threads`, started on first use."""
    server = _server(runtime, cache_dir, threads, os.getpid())
    if not server.alive:
        _server.cache_clear()
        server = _server(runtime, cache_dir, threads, os.getpid())
    return server


class Worker:
    """One worker process around one object, `module:attribute(*arguments)`, replaced when it dies.

    Requests name a method of that object. One request is under way at a time.
    """

    def __init__(self, server: ProcessServer, place: str, *arguments: object) -> None:
        self._server = server
        self._place = place.partition(":")
        self._arguments = arguments
        self._pid = 0
        self._deadline = 0.0
        self._timeout = 0.0
        self._start()

    def _start(self) -> None:
        self._channel, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the worker)
        with theirs:
            self._pid = self._server.spawn(theirs.fileno(), self._errors.fileno())
        wire.send(self._channel, (self._place[0], self._place[2], self._arguments))

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
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        with contextlib.suppress(wire.Closed):  # `collect` finds out how it died
            wire.send(self._channel, (method, values))

    def collect(self) -> Reply:
        """The reply of the request under way; a dead or late worker is replaced."""
        try:
            reply = wire.receive(self._channel, self._deadline)
        except wire.Late:
            self._replace()
            return Died("timeout", f"no answer within {self._timeout:.3g} s")
        except wire.Closed:
            return _cause(*self._replace())
        return Answer(reply[1]) if reply[0] == "answer" else Raised(reply[1], reply[2])

    def ask(self, timeout: float, method: str, *values: object) -> Reply:
        """One request and its reply."""
        self.post(timeout, method, *values)
        return self.collect()

    def _replace(self) -> tuple[int, str]:
        status, said = self._stop()
        self._start()
        return status, said

    def _stop(self) -> tuple[int, str]:
        status = self._server.end(self._pid)
        self._pid = 0
        said = _tail(self._errors.fileno())
        self._channel.close()
        self._errors.close()
        return status, said

    def close(self) -> None:
        if self._pid and self._server.alive:
            self._stop()


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
