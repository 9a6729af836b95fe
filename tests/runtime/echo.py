"""A worker that does little, and a runtime that takes no time to load."""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path

ENOUGH = 20.0  # seconds within which everything ends, on the busiest machine


class Echo:
    """What the workers of these tests do."""

    def pid(self) -> int:
        return os.getpid()

    def slow(self, seconds: float) -> str:
        time.sleep(seconds)
        return "done"

    def limits(self) -> dict[str, tuple[int, int]]:
        kinds = {"core": resource.RLIMIT_CORE, "file": resource.RLIMIT_FSIZE}
        return {name: resource.getrlimit(kind) for name, kind in kinds.items()}

    def length(self, data: bytes) -> int:
        return len(data)

    def unlucky(self, mark: Path) -> str:
        """Takes the server along, the first time or always."""
        if not mark.exists():
            mark.touch()
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(ENOUGH)
        return "done"

    def deadly(self) -> None:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(ENOUGH)


class Nothing:
    """See `explorer.runtime.base.Runtime`; of it only what a server calls."""

    apart = True

    def preload(self, cache_dir: Path, task: str = "run") -> None:
        pass
