"""What searches of families left in the records: the schedule for extents that nobody measured.

The table of a family lies with the job that ended it. Knows stores; nothing of searching.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from explorer.recall import open_store, store_exists
from explorer.shapes.extents import Extents
from explorer.shapes.family import Point, distance
from explorer.shapes.fitted import fitted
from ir.errors import UsageError
from ir.schedule import Schedule
from records import Job

if TYPE_CHECKING:
    from explorer.winner import Winner
    from explorer.workload import Workload

OPTION = "family"  # of the job's options


@dataclass(frozen=True, slots=True)
class Settled:
    """A measured point, the schedule that it was given, and the seconds and FLOPs of its kernel."""

    point: Point
    schedule: Schedule
    seconds: float
    flops: int


@dataclass(frozen=True, slots=True)
class Table:
    """The schedules of a family by measured points; any other point has that of the nearest one."""

    varying: tuple[tuple[str, Extents], ...]
    fixed: tuple[tuple[str, Any], ...]
    rows: tuple[Settled, ...]

    def nearest(self, point: Point) -> Settled:
        return min(self.rows, key=lambda row: distance(row.point, point))

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        return tuple(dict.fromkeys(row.schedule for row in self.rows))

    def to_data(self) -> dict[str, object]:
        """As JSON takes it."""
        return {
            "varying": {name: str(extents) for name, extents in self.varying},
            "fixed": dict(self.fixed),
            "schedules": [schedule.to_json() for schedule in self.schedules],
            "rows": [
                [list(row.point), self.schedules.index(row.schedule), row.seconds, row.flops]
                for row in self.rows
            ],
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Table | None:
        """The inverse of `to_data`; None for what is none."""
        try:
            varying = tuple((n, _extents(n, text)) for n, text in data["varying"].items())
            schedules = [Schedule.from_json(text) for text in data["schedules"]]
            rows = tuple(
                Settled(tuple(map(int, point)), schedules[number], float(seconds), int(flops))
                for point, number, seconds, flops in data["rows"]
            )
            return cls(varying, tuple(data["fixed"].items()), rows) if rows else None
        except (UsageError, ValueError, TypeError, KeyError, IndexError, AttributeError):
            return None


def _extents(name: str, text: str) -> Extents:
    found = Extents.of(name, text if ".." in text or "," in text else [int(text)])
    assert found is not None
    return found


def carried(workload: Workload, store: str | Path | None) -> Winner | None:
    """The newest family's schedule for a workload that was never measured; None without one.

    Its seconds are an estimate: those of the nearest measured point by arithmetic operations.
    """
    from explorer.winner import Winner

    found = _found(workload, store)
    if found is None:
        return None
    row, job = found
    schedule = fitted(workload, row.schedule)
    if schedule is None:
        return None
    seconds = row.seconds * workload.program.flops / max(1, row.flops)
    return Winner(workload, schedule, seconds, job)


def _found(workload: Workload, store: str | Path | None) -> tuple[Settled, str] | None:
    if not store_exists(store):
        return None
    with open_store(store, read_only=True) as records:
        for job in reversed(records.jobs()):
            table = _table_of(job, workload)
            point = None if table is None else _point(table, workload)
            if table is not None and point is not None:
                return table.nearest(point), job.id
    return None


def _table_of(job: Job, workload: Workload) -> Table | None:
    """The table that a job ended with, if it is of this operator on this machine."""
    if (job.operator, job.target) != (workload.operator, workload.target):
        return None
    if f'"{OPTION}"' not in job.options:
        return None
    options = json.loads(job.options)
    here = (workload.hardware.key, workload.backend.generator, workload.memory)
    if tuple(options.get(name) for name in ("hardware", "generator", "memory")) != here:
        return None
    return Table.from_data(options[OPTION])


def _point(table: Table, workload: Workload) -> Point | None:
    """The workload's values of what varies, if it is a member of the family."""
    arguments = dict(workload.arguments)
    names = dict(table.varying)
    rest = {name: value for name, value in arguments.items() if name not in names}
    if rest != dict(table.fixed) or any(arguments.get(n) not in e for n, e in names.items()):
        return None
    return tuple(int(arguments[name]) for name in names)
