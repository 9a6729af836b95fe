"""How much of the machine others used while we measured: processor time that is not ours.

Load slows contestants unequally (threads that spin suffer more than threads that yield), so a
ratio taken on a busy machine is no ratio. Linux only; elsewhere nothing is known.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DISTURBED = 0.03  # share of all processors' time from which a case should be measured again
_IDLE = (3, 4)  # idle, and waiting for disks


@dataclass(frozen=True, slots=True)
class Usage:
    """Ticks since the start: of all processors, of these not idle, and of our processes."""

    total: int
    busy: int
    ours: int


def usage(pids: Sequence[int]) -> Usage | None:
    """Ticks so far, ours being this process and `pids` with all their threads."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
        ticks = [int(field) for field in fields]
        ours = sum(map(_of, (os.getpid(), *pids)))
    except (OSError, ValueError, IndexError):
        return None
    idle = sum(ticks[place] for place in _IDLE)
    return Usage(sum(ticks), sum(ticks) - idle, ours)


def _of(pid: int) -> int:
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(after_name[11]) + int(after_name[12])


def others(before: Usage | None, after: Usage | None) -> float | None:
    """The share of all processors' time that others used, other virtual machines included."""
    if before is None or after is None or after.total <= before.total:
        return None
    used = (after.busy - before.busy) - (after.ours - before.ours)
    return max(0.0, used / (after.total - before.total))
