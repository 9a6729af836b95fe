"""Between values and table rows: how a record is laid out in columns, and how rows are selected.

Pure translation: nothing here opens, commits or closes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from statistics import median
from typing import Any, TypedDict

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, select

from records.canonical import content_key
from records.record import Job, Record
from records.schema import facts, trials

# A candidate that did any of these once is not offered as the best, however fast it was.
DISTRUSTED = frozenset({"wrong_result", "crash", "below_roofline"})

_PLAIN = tuple(
    column.name
    for column in trials.columns
    if column.name
    not in ("number", "key", "candidate", "facts", "lower_quartile", "upper_quartile")
)


class Selection(TypedDict, total=False):
    """Which trials: those that have every one of the given values, or one of the given tuple."""

    workload: str
    operator: str
    target: str
    hardware: str
    generator: str
    threads: int
    job: str
    strategy: str
    status: str
    schedule_key: str
    kernel_key: str
    candidate: str | tuple[str, ...]


def conditions(selection: Mapping[str, Any]) -> tuple[ColumnElement[bool], ...]:
    """The selection as SQL; raises TypeError for what cannot be selected by."""
    if unknown := set(selection) - set(Selection.__annotations__):
        raise TypeError(f"records cannot be selected by {', '.join(sorted(unknown))}")
    return tuple(
        trials.c[name].in_(value) if isinstance(value, tuple) else trials.c[name] == value
        for name, value in selection.items()
    )


def trial_rows(*where: ColumnElement[bool]) -> Select[Any]:
    """The query for whole trials, oldest first, from which `to_record` makes records."""
    query = select(trials, facts.c.text.label("hardware_facts")).join(facts)
    return query.where(*where).order_by(trials.c.number)


def from_record(record: Record) -> dict[str, Any]:
    """The row of a trial."""
    lower, upper = record.quartiles or (None, None)
    row = {name: getattr(record, name) for name in _PLAIN}
    row |= {"key": record.key, "candidate": record.candidate}
    row |= {"facts": content_key(record.hardware_facts)}
    return row | {"lower_quartile": lower, "upper_quartile": upper}


def to_record(row: Row[Any]) -> Record:
    """The trial of a row; raises InvalidRecord when somebody changed it by hand."""
    return plain_record(dict(row._mapping), row.hardware_facts)


def plain_record(values: Mapping[str, Any], hardware_facts: str) -> Record:
    """The trial of a row's columns by name; raises InvalidRecord."""
    quartiles = None
    if values["lower_quartile"] is not None:
        quartiles = (values["lower_quartile"], values["upper_quartile"])
    plain = {name: values[name] for name in _PLAIN}
    return Record(**plain, quartiles=quartiles, hardware_facts=hardware_facts)


def to_job(row: Row[Any]) -> Job:
    """The job of a row; raises InvalidRecord when somebody changed it by hand."""
    return Job(**row._mapping)


def from_job(job: Job) -> dict[str, Any]:
    """The row of a job."""
    return asdict(job)


def insert_of(connection: Connection, table: Table) -> Any:
    """An insert in the database's own form, which may say what to do about conflicts.

    Each form is imported where it is needed, because that of a server takes long.
    """
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)


def insert_new(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> int:
    """Insert the rows whose key is not there yet; returns how many these were."""
    statement = insert_of(connection, table).on_conflict_do_nothing()
    counted = statement.execution_options(preserve_rowcount=True)  # not kept for inserts otherwise
    return connection.execute(counted, rows).rowcount


def best_number(rows: Iterable[Row[int, str, str, float | None]]) -> int | None:
    """Among (number, candidate, status, seconds): the newest good trial of the best candidate.

    The median over a candidate's trials decides, so one lucky run does not.
    """
    times: dict[str, list[float]] = {}
    newest: dict[str, int] = {}
    distrusted = set()
    for number, candidate, status, seconds in rows:
        if status in DISTRUSTED:
            distrusted.add(candidate)
        elif status == "ok" and seconds is not None:
            times.setdefault(candidate, []).append(seconds)
            newest[candidate] = max(number, newest.get(candidate, 0))
    medians = {name: median(times[name]) for name in times if name not in distrusted}
    if not medians:
        return None
    return newest[min(medians, key=lambda name: (medians[name], newest[name]))]
