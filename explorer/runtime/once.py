"""Single kernels in a child process: run one, count its spills, assemble it for export."""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from explorer.errors import WorkerError
from explorer.runtime.base import Array
from explorer.runtime.process import Answer, Raised, Worker, process_server
from ir.errors import MissingTarget
from ir.kernel import Kernel

_RUNNER = "explorer.runtime.workers:Runner"


def default_cache_dir() -> Path:
    """Where machine code is kept unless the caller says otherwise."""
    return Path(tempfile.gettempdir()) / f"tilewright-{_user()}"


def _user() -> str:
    """The user's name, or number where the system knows no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # by the version of Python
        return str(os.getuid())


def ask_once(
    kernel: Kernel,
    method: str,
    *values: object,
    runtime: str = "",
    cache_dir: Path | None = None,
    timeout: float = 60.0,
) -> object:
    """One method of `Runner` on `kernel`, in a process of its own.

    Raises WorkerError, or MissingTarget where the target's toolchain is not there.
    """
    folder = cache_dir or default_cache_dir()
    name = runtime or kernel.target
    worker = Worker(process_server(name, folder), _RUNNER, name, folder)
    try:
        reply = worker.ask(timeout, method, kernel, *values)
    finally:
        worker.close()
    if isinstance(reply, Answer):
        return reply.value
    if isinstance(reply, Raised) and reply.kind == MissingTarget.__name__:
        raise MissingTarget(reply.message)
    raise WorkerError(f"{kernel.name}: {reply}")


def run_once(
    kernel: Kernel,
    arrays: Sequence[Array],
    *,
    cache_dir: Path | None = None,
    timeout: float = 60.0,
) -> tuple[float, list[Array]]:
    """Run `kernel` on inputs and outputs in its order; seconds, and the outputs afterwards."""
    answer = ask_once(kernel, "run", list(arrays), cache_dir=cache_dir, timeout=timeout)
    assert isinstance(answer, tuple)
    return answer


def spills_once(kernel: Kernel, *, cache_dir: Path | None = None) -> int:
    """Vector spills and reloads in the innermost loops of the kernel's machine code."""
    answer = ask_once(kernel, "spills", cache_dir=cache_dir)
    assert isinstance(answer, int)
    return answer
