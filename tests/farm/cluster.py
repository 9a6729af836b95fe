"""A real scheduler and real workers of Dask on loopback, each a process that may be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[2]
PRELOAD = ("--preload", "explorer.farm.worker")
CPU = ("--resources", "cpu=1", *PRELOAD)
START = 60.0  # seconds for a process to be there, on a busy machine
_QUIET = {
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "30s",
    "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "False",
}


class Cluster:
    """Use as a context manager: what was started is ended. `folder` is for logs and caches."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        cache = {"TILEWRIGHT_CACHE": str(folder / "code"), "PYTHONPATH": paths}
        self._environment = os.environ | _QUIET | cache | dict(settings or {})
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        file = folder / "scheduler.json"
        words = ["scheduler", "--port", "0", "--scheduler-file", str(file)]
        self._start("scheduler", words)
        self.address = self._address(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in reversed(self._processes):
            self.kill(name, signal.SIGTERM)
        for process in self._processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(15)
            process.kill()
            process.wait()

    def worker(self, name: str, words: Sequence[str] = CPU, threads: int = 1) -> None:
        """Start one; with a nanny, as Dask does, that starts it again when it dies."""
        local = self._folder / f"{name}-files"
        about = ["--nthreads", str(threads), "--name", name, "--local-directory", str(local)]
        self._start(name, ["worker", self.address, *about, *words])

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Of a worker this ends its nanny."""
        with suppress(ProcessLookupError):
            self._processes[name].send_signal(number)

    def pid(self, name: str) -> int:
        """The process that was started under this name."""
        return self._processes[name].pid

    def said(self, name: str) -> str:
        """What a process wrote."""
        return (self._folder / f"{name}.log").read_text()

    def _start(self, name: str, words: Sequence[str]) -> None:
        about = ["--host", "127.0.0.1", "--no-dashboard"]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "dask", *words, *about],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment,
                cwd=self._folder,
            )  # fmt: skip

    def _address(self, file: Path) -> str:
        until = time.monotonic() + START
        while time.monotonic() < until:
            with suppress(OSError, ValueError):
                found: dict[str, Any] = json.loads(file.read_text())
                return str(found["address"])
            time.sleep(0.05)
        raise AssertionError(self.said("scheduler"))
