"""A search in a process of its own, beside a program that goes on meanwhile.

It ends with that program, keeping what it has measured, and writes to nobody's terminal.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from explorer.interrupts import ends_at_once, interrupt_again, raises_from_now
from explorer.plan import Plan
from ir.errors import TilewrightError

_BOOT = "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1)); " + (
    "from explorer.background import main; sys.exit(main())"
)
_LOOK = 0.5  # seconds between looks for the program that wants it
_GRACE, _TIMES = 10.0, 6  # seconds in which an interrupted search ends, and how often it has them
_LONGEST = 2000  # characters that are told of what it said
_FAILED = 1


class BackgroundSearch:
    """A plan under way; `ended` is called once, on a thread, with why it failed or ""."""

    def __init__(self, plan: Plan, store: str | None, ended: Callable[[str], None]) -> None:
        facts = {"plan": plan.to_json(), "store": store, "parent": os.getpid()}
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the search)
        # -P: what lies in the current folder is not imported, be it called json.py
        command = [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            start_new_session=True,
        )
        atexit.register(self.stop)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError), self._process.stdin as stream:
            stream.write(json.dumps(facts).encode())
        self._ended = ended
        threading.Thread(target=self._wait, name="tilewright-search", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """Ask it to end; what it has measured is kept."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)

    def _wait(self) -> None:
        status = self._process.wait()
        atexit.unregister(self.stop)
        with self._said as stream:
            size = os.fstat(stream.fileno()).st_size
            stream.seek(max(0, size - _LONGEST))
            lines = stream.read().decode(errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        self._ended("" if status == 0 else (said or [f"it ended with status {status}"])[-1])


def main() -> int:
    """Do what standard input says: JSON of a plan, a store, and the process that wants it."""
    facts = json.load(sys.stdin)
    ends_at_once()
    threading.Thread(target=_follow, args=(facts["parent"],), daemon=True).start()
    from explorer.job import run_plan, single

    raises_from_now()
    try:
        single(run_plan(Plan.from_json(facts["plan"]), store=facts["store"]))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _FAILED
    except TilewrightError as error:
        print(error, file=sys.stderr)
        return _FAILED
    return 0


def _follow(parent: int) -> None:
    """Interrupt this process when the one that wants its search is gone: again if it goes on, for
    an interrupt may be lost where code of others catches it."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(_TIMES):
        time.sleep(_GRACE)
        interrupt_again()
    os._exit(_FAILED)
