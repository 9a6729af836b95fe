"""What searches of families left in the records: the schedule for extents that nobody measured.

The table of a family lies with the job of its first search. Knows stores; nothing of searching.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from explorer.recall import open_store, store_exists
from explorer.shapes.family import Point
from explorer.shapes.fitted import fitted
from explorer.shapes.table import Table
from records import Job

if TYPE_CHECKING:
    from explorer.winner import Winner
    from explorer.workload import Workload

OPTION = "family"  # of the job's options


def carried(workload: Workload, store: str | Path | None) -> Winner | None:
    """The newest family's schedule for a workload that was never measured; None without one.

    Its seconds are an estimate, from those of a near measured point.
    """
    from explorer.shapes.choice import choice_for
    from explorer.shapes.members import Members
    from explorer.winner import Winner
    from explorer.workload import Workload

    found = _found(workload, store)
    if found is None:
        return None
    table, point, job = found

    def member(other: Point) -> Workload:
        if other == point:
            return workload
        arguments = dict(workload.arguments) | dict(zip(table.names, other, strict=True))
        where = (workload.target, workload.threads, workload.memory)
        return Workload.of(workload.operator, arguments, *where)

    if workload.given is None:
        choice = choice_for(table, point, Members(member))
        if choice is None:
            return None
        return Winner(workload, choice.schedule, choice.seconds, job)
    return _nearest(workload, table, point, job)


def _nearest(workload: Workload, table: Table, point: Point, job: str) -> Winner | None:
    """Of an operator that cannot be built at other extents, as no name leads to it."""
    row = table.nearest(point)
    schedule = fitted(workload, row.schedule)
    seconds = row.seconds * workload.program.flops / max(1, row.flops)
    return None if schedule is None else Winner(workload, schedule, seconds, job)


def _found(workload: Workload, store: str | Path | None) -> tuple[Table, Point, str] | None:
    if not store_exists(store):
        return None
    with open_store(store, read_only=True) as records:
        for job in reversed(records.jobs()):
            table = _table_of(job, workload)
            point = None if table is None else _point(table, workload)
            if table is not None and point is not None:
                return table, point, job.id
    return None


def _table_of(job: Job, workload: Workload) -> Table | None:
    """The table that lies with a job, if it is of this operator on this machine."""
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
