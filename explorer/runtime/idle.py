"""Whether the other threads of this process run: those of a BLAS spin for a while after their work.

What the operating system says of them, from /proc; without it a fixed time is waited.
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

DROWSY = 0.15  # seconds; OpenBLAS's threads spin for 2^28 clocks before they sleep
LONGEST = 0.5  # seconds; MKL's spin for 200 ms
_LOOK = 0.001  # seconds between two looks


def wait_until_alone(longest: float = LONGEST, tasks: Path = Path("/proc/self/task")) -> bool:
    """Wait until every other thread of this process sleeps; False if one still ran at the end."""
    if not tasks.is_dir():
        time.sleep(DROWSY)
        return True
    end = time.monotonic() + longest
    while awake(tasks):
        if time.monotonic() >= end:
            return False
        time.sleep(_LOOK)
    return True


def awake(tasks: Path = Path("/proc/self/task")) -> int:
    """How many other threads of this process run, or wait for a processor."""
    count = 0
    for task in tasks.iterdir():
        if task.name != str(threading.get_native_id()):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                count += (task / "stat").read_text().rpartition(")")[2].split()[0] == "R"
    return count
