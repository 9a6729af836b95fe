"""Single kernels in a child process: run one, count its spills, disassemble it, assemble it for
export."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from explorer import settings
from explorer.errors import WorkerError
from explorer.runtime.base import Array
from explorer.runtime.process import Answer, Raised, Worker, process_server
from ir.errors import MissingTarget
from ir.kernel import Kernel

_RUNNER = "explorer.runtime.workers:Runner"


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
    folder = cache_dir or settings.cache_dir()
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


def disassembly_once(kernel: Kernel, *, cache_dir: Path | None = None) -> str:
    """The kernel's machine code as text; raises as `ask_once` does."""
    answer = ask_once(kernel, "disassembly", cache_dir=cache_dir)
    assert isinstance(answer, str)
    return answer
