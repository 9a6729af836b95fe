"""The process server: a warm, single-threaded process that forks workers in milliseconds.

Runs in a process of its own, started by `explorer.runtime.process`. It has imported everything
slow, so a worker that a bad kernel took down is replaced at the price of a fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from explorer.runtime import wire
from explorer.runtime.base import get_runtime
from explorer.runtime.wire import FRAME, SPAWN

_LARGEST_FILE = 1 << 36  # inputs of the largest workloads; a kernel that writes on is still stopped
_PR_SET_PDEATHSIG = 1
_ended: dict[int, int] = {}  # wait statuses of workers that were reaped


def main(arguments: Sequence[str]) -> None:
    """Serve until the parent closes its end. Arguments: descriptor, JSON facts."""
    gc.disable()  # what is imported is no garbage
    channel = socket.socket(fileno=int(arguments[0]))
    facts = json.loads(arguments[1])
    for module in facts["modules"]:
        import_module(module)
    runtime = get_runtime(facts["runtime"])
    if not runtime.apart:  # the oracle's worker is asked for first, and needs no more than that
        _serve(channel, waiting=True)
    for module in facts["slow"]:
        import_module(module)
    try:
        runtime.preload(Path(facts["cache_dir"]), facts["task"])
    except OSError as error:  # a full disk, a folder that cannot be written
        sys.exit(f"{facts['cache_dir']}: {error.strerror}: free some room, or name another folder")
    gc.collect()
    gc.freeze()
    gc.enable()
    _serve(channel)
    shutil.rmtree(facts["folder"], ignore_errors=True)  # its parent is gone; else it may go on


def _serve(channel: socket.socket, *, waiting: bool = False) -> None:
    """Answer until nobody will ask any more, or only what is `waiting` to be answered."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the parent is gone
        while not waiting or select.select((channel,), (), (), 0)[0]:
            if not _answered(channel):
                return


def _answered(channel: socket.socket) -> bool:
    """Do what is asked next; False when nobody will ask any more."""
    message, descriptors, _, _ = socket.recv_fds(channel, FRAME.size, 2)
    if not message:
        return False
    verb, number, pid = FRAME.unpack(message)
    answer = _spawn(channel, *descriptors) if verb == SPAWN else _end(pid)
    channel.sendall(FRAME.pack(verb, number, answer))
    return True


def _end(pid: int) -> int:
    """Kill and reap one worker; returns its wait status, which tells how it really ended.

    Who was interrupted before it heard that asks once more.
    """
    if pid not in _ended:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _ended[pid] = os.waitpid(pid, 0)[1]
    return _ended[pid]


def _spawn(server_channel: socket.socket, channel: int, errors: int) -> int:
    server = os.getpid()
    pid = os.fork()
    if pid:
        _ended.pop(pid, None)
        os.close(channel)
        os.close(errors)
        return pid
    gc.enable()  # the server may not be through with its imports
    server_channel.close()
    _isolate(server, errors)
    _work(socket.socket(fileno=channel))


def _isolate(server: int, errors: int) -> None:
    """Die with the server, write to nobody's terminal, fill nobody's disk."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:  # it was gone before anybody was told
        os._exit(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(errors, 2)
    fcntl.fcntl(2, fcntl.F_SETFL, fcntl.fcntl(2, fcntl.F_GETFL) | os.O_APPEND)
    for kind, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, _LARGEST_FILE)):
        _lower(kind, most)


def _lower(kind: int, most: int) -> None:
    """Limit a resource to `most`, or to what it was limited to before if that is less: nobody may
    raise a hard limit."""
    soft, hard = (
        most if limit == resource.RLIM_INFINITY else min(limit, most)
        for limit in resource.getrlimit(kind)
    )
    resource.setrlimit(kind, (soft, hard))


def _work(channel: socket.socket) -> NoReturn:
    """Answer requests with the methods of one object until the parent goes away."""
    try:
        module, attribute, arguments = wire.receive(channel)
        worker: Any = None
        while True:
            method, values = wire.receive(channel)
            reply: tuple[object, ...]
            try:
                if worker is None:
                    worker = getattr(import_module(module), attribute)(*arguments)
                reply = ("answer", getattr(worker, method)(*values))
            except Exception as error:  # noqa: BLE001 (what generated or user code raises is an outcome)
                reply = ("raised", type(error).__name__, str(error))
            wire.send(channel, reply)
            if os.fstat(2).st_size:
                os.ftruncate(2, 0)
    except wire.Closed:
        os._exit(0)
    finally:
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
