"""What a Dask worker is told when it starts (`dask worker --preload explorer.farm.worker`).

It offers what its `--resources` name (`cpu=1`, `cuda=1`) under a tag that is that of its machine's
kind, so that a task finds no worker whose times would not compare, and one that is started again in
the place of another takes its place at once. Dask gives its worker; nothing of Dask is imported.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from explorer.farm.bench import Artifact, Bench
from explorer.farm.kinds import Described, Versions, tag_of
from explorer.farm.station import close_station, station_of
from ir.errors import TilewrightError
from ir.target import get_backend, target_names

PRELOAD = __name__
CALM = 1000.0  # milliseconds from one look of Dask's at its own worker to the next
AHEAD = 1  # tasks that a worker has for the moment in which it has measured another
_LOOKS = ("tick", "profile", "memory_monitor")  # up to a hundred times a second otherwise
_LOG = logging.getLogger(__name__)


def dask_setup(worker: Any) -> None:
    """Add tags to the worker's resources, before its scheduler hears of them, and have Dask look
    less often at a process that waits: it would disturb what is measured beside it.

    It is sent `AHEAD` tasks more than it measures at a time, so that what is measured next is there
    already, however long its scheduler, and this process, take to be told.
    """
    _calm(worker.periodic_callbacks)
    resources, room = worker.state.total_resources, worker.state.nthreads + AHEAD
    worker.state.nthreads = room
    for target in [name for name in target_names() if name in resources]:
        try:
            tag = tag_of(target)
        except TilewrightError as error:
            _LOG.error("target %s cannot be offered: %s", target, error)
            continue
        resources[tag] = worker.state.available_resources[tag] = room


def _calm(looks: Mapping[str, Any]) -> None:
    for look in [looks[name] for name in _LOOKS if name in looks]:
        look.callback_time = max(CALM, look.callback_time)


def dask_teardown(worker: Any) -> None:
    """End what measures."""
    close_station(str(worker.name))


def code_of(bench: Bench, kernels: Sequence[str], dask_worker: Any) -> tuple[Artifact, ...]:
    """What this worker compiled of those kernels."""
    return station_of(str(dask_worker.name)).code(bench, kernels)


def describe(target: str, threads: int | None, dask_worker: Any) -> Described:
    """What this worker measures for a target with so many threads, or why nothing."""
    versions, name = Versions.here(target), str(dask_worker.name)
    resources = dask_worker.state.total_resources
    if target not in resources:
        return Described(versions, name=name, why=f"it was started without --resources {target}=1")
    try:
        tag, hardware = tag_of(target), get_backend(target).hardware(threads)
    except TilewrightError as error:
        return Described(versions, name=name, why=str(error))
    if tag not in resources:
        return Described(versions, name=name, why=f"it was started without --preload {PRELOAD}")
    return Described(versions, hardware, tag, int(resources[tag]) - AHEAD, name)
