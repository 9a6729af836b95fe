"""A search on a scripted device that is killed at a given measurement: `python -m ... STORE N`."""

from __future__ import annotations

import os
import signal
import sys

from explorer import job, search, uncommitted
from explorer.outcome import Outcome
from ir.schedule import Schedule
from tests.job.device import ScriptedDevice, by_key

EXTENTS = {"m": 64, "n": 64, "k": 64}
OPTIONS = {"trials": 44, "strategy": "evolutionary", "batch": 16, "seed": 3}


def main(store: str, last: int) -> None:
    """Tune; the process dies by SIGKILL at measurement `last`, finals included."""
    count = 0

    def deadly(schedule: Schedule) -> Outcome:
        nonlocal count
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return by_key(schedule)

    setattr(search, "Measurer", ScriptedDevice(deadly))  # noqa: B010 (a class stands there)
    uncommitted.TOGETHER = 0.0  # what was measured before is stored
    job.tune("matmul", EXTENTS, store=store, **OPTIONS)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
