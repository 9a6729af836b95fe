"""How busy other programs keep the processors while something is measured, from /proc.

Processor time that was spent in all, less what this process and its workers spent, as a share of
what there was on the processors that this process may use. Time that a hypervisor took away counts
as foreign too. None where the operating system does not tell. Knows no trials.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

BUSY = 0.1  # foreign share from which times may be in doubt: a quiet machine's daemons take less
SHORTEST = 0.25  # seconds; the counters have ticks of a hundredth
_IDLE, _IOWAIT = 3, 4  # columns of /proc/stat
_COUNTED = 8  # user, nice, system, idle, iowait, irq, softirq, steal; guests are within user


@dataclass(frozen=True, slots=True)
class _Ticks:
    """Counters at one moment: of all processors that may be used, busy ones, and our own."""

    total: int
    busy: int
    own: int


class ForeignLoad:
    """The foreign share since it was made; `pids` gives the processes that count as our own.

    Processor time of children that ended counts for the process that waited for them.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = str(proc)
        self._tick = os.sysconf("SC_CLK_TCK")
        self._start: _Ticks | None = None
        self._processors = 1

    @property
    def known(self) -> bool:
        """Whether the operating system told of the processors at the beginning."""
        return self._start is not None

    @property
    def processors(self) -> int:
        """How many this process may use."""
        return self._processors

    def begin(self, pids: Iterable[int]) -> None:
        """Start anew."""
        self._start = self._ticks(pids)

    def share(self, pids: Iterable[int]) -> float | None:
        """Between 0 and 1; None if it is too early to say, or cannot be told."""
        now = self._ticks(pids)
        if self._start is None or now is None:
            return None
        total = now.total - self._start.total
        if total < max(1.0, SHORTEST * self._tick * self._processors):
            return None
        foreign = (now.busy - self._start.busy) - (now.own - self._start.own)
        return round(min(1.0, max(0.0, foreign / total)), 3)

    def crowds(self, share: float, threads: int) -> bool:
        """Whether that leaves fewer processors than a kernel of so many threads needs."""
        return share >= BUSY and share * self._processors > self._processors - threads

    def _ticks(self, pids: Iterable[int]) -> _Ticks | None:
        try:
            text = _read(f"{self._proc}/stat")
        except OSError:
            return None
        lines = text.partition("\nintr")[0].splitlines()  # what follows is long
        rows = [line.split() for line in lines if line.startswith("cpu")]
        usable = {f"cpu{number}" for number in _usable()}
        counts = [list(map(int, row[1 : 1 + _COUNTED])) for row in rows if row[0] in usable]
        if not counts:
            return None
        self._processors = len(counts)
        total = sum(map(sum, counts))
        idle = sum(row[_IDLE] + row[_IOWAIT] for row in counts)
        own = sum(self._spent(pid) for pid in {os.getpid(), *pids})
        return _Ticks(total, total - idle, own)

    def _spent(self, pid: int) -> int:
        """Ticks of a process and of its children that have ended; 0 if it is gone."""
        try:
            text = _read(f"{self._proc}/{pid}/stat")
        except OSError:
            return 0
        fields = text.rpartition(")")[2].split()  # the name before may hold anything
        return sum(map(int, fields[11:15]))


def _read(path: str) -> str:
    """A file of the system, which is small: twice a trial a dozen of them are read."""
    with open(path, "rb", buffering=0) as stream:
        return stream.read().decode(errors="replace")


def _usable() -> Iterable[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return range(os.cpu_count() or 1)
