"""What searches of families left in the records: the schedule for extents that nobody measured.

The table of a family lies with the job of its first search. It is found by that search's program,
as measured times are, however the operator is spelled. Knows stores; nothing of searching.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from explorer.rebuilding import Named, of_job
from explorer.recall import open_store, store_exists
from explorer.shapes.family import Point
from explorer.shapes.fitted import fitted
from explorer.shapes.table import Table
from ir.errors import TilewrightError
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

    found = _found(workload, store)
    if found is None:
        return None
    table, point, job = found

    def member(other: Point) -> Workload:
        if other == point:
            return workload
        return workload.at(dict(zip(table.names, other, strict=True)))

    if workload.origin is not None:
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
            if table is None or point is None:
                continue
            if _is_of(table, of_job(records, job), workload):
                return table, point, job.id
    return None


def _table_of(job: Job, workload: Workload) -> Table | None:
    """The table that lies with a job, if it is of this machine."""
    if job.target != workload.target or f'"{OPTION}"' not in job.options:
        return None
    options = json.loads(job.options)
    here = (workload.hardware.key, workload.backend.generator, workload.memory)
    if tuple(options.get(name) for name in ("hardware", "generator", "memory")) != here:
        return None
    return Table.from_data(options[OPTION])


def _point(table: Table, workload: Workload) -> Point | None:
    """The workload's values of what varies, if they are of those that the family has."""
    arguments = dict(workload.arguments)
    if any(arguments.get(name) not in extents for name, extents in table.varying):
        return None
    return tuple(int(arguments[name]) for name in table.names)


def _is_of(table: Table, first: Named, workload: Workload) -> bool:
    """Whether the operator makes of the extents of the family's first search that very program.

    Where that cannot be told, it is the same operator if it is spelled so, with the same arguments.
    """
    there = json.loads(first.extents)
    if workload.origin is not None and first.key and there.keys() >= set(table.names):
        try:
            return workload.at({n: there[n] for n in table.names}).program.key == first.key
        except TilewrightError:
            return False
    rest = {name: value for name, value in workload.arguments if name not in table.names}
    return first.operator == workload.operator and rest == dict(table.fixed)
