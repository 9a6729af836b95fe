"""A machine's peaks: those that its hardware facts state, and those that its runtime measures.

Measured in a worker process beside which no other program runs, and kept in the cache's folder. A
peak that was measured beside others is none: kernels would seem to reach more than the machine can.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

from explorer.busy import BUSY, ForeignLoad
from explorer.runtime.base import MeasuresPeaks, get_runtime
from explorer.runtime.process import Answer, Worker, process_server
from explorer.settings import cache_dir
from ir.target import Backend, Hardware, StatesPeaks

_RUNNER = "explorer.runtime.workers:Runner"
_TIMEOUT = 30.0
ATTEMPTS = 2
VERSION = 2  # raised when more is measured


def stated_peaks(backend: Backend, hardware: Hardware) -> dict[str, float]:
    """What a target's backend knows of the machine by its facts; empty where that is nothing."""
    return dict(backend.peaks(hardware)) if isinstance(backend, StatesPeaks) else {}


def measured_peaks(target: str, hardware: Hardware, cache: Path | None = None) -> dict[str, float]:
    """What the target's runtime measures of this machine; empty where it measures nothing."""
    if not isinstance(get_runtime(target), MeasuresPeaks):
        return {}
    folder = cache or cache_dir()
    file = _file(hardware, folder)
    kept = kept_peaks(hardware, folder)
    if kept is not None:
        return kept
    for _ in range(ATTEMPTS):
        found, disturbed = _measured(target, hardware, folder)
        if not disturbed:
            break
    else:
        return {}
    if found:
        with contextlib.suppress(OSError):  # a folder that cannot be written: measured each time
            file.write_text(json.dumps(found))
    return found


def kept_peaks(hardware: Hardware, cache: Path | None = None) -> dict[str, float] | None:
    """What was measured before; None if nothing was."""
    with contextlib.suppress(OSError, ValueError):
        kept: dict[str, float] = json.loads(_file(hardware, cache or cache_dir()).read_text())
        return kept
    return None


def forget_peaks(hardware: Hardware, cache: Path | None = None) -> None:
    """Measure anew next time: a kernel was faster than the peaks allow."""
    with contextlib.suppress(OSError):
        _file(hardware, cache or cache_dir()).unlink(missing_ok=True)


def _file(hardware: Hardware, folder: Path) -> Path:
    facts = repr((VERSION, hardware.key, hardware.isa, hardware.facts))
    return folder / f"peaks-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.json"


def _measured(target: str, hardware: Hardware, folder: Path) -> tuple[dict[str, float], bool]:
    """Peaks, and whether other programs disturbed the measurement."""
    load = ForeignLoad()
    worker = Worker(process_server(target, folder), _RUNNER, target, folder)
    pids = (worker.pid,)
    load.begin(pids)
    try:
        reply = worker.ask(_TIMEOUT, "peaks", hardware)
        disturbed = (load.share(pids) or 0.0) >= BUSY
    finally:
        worker.close()
    return (reply.value if isinstance(reply, Answer) else {}), disturbed
