"""Between values and table rows: how a record is laid out in columns, and how rows are selected.

Pure translation: nothing here opens, commits or closes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import lru_cache
from statistics import median
from typing import Any, TypedDict

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    bindparam,
    literal,
    select,
    update,
)

from records.canonical import content_key
from records.errors import InvalidRecord
from records.record import JOB_STATES, MEMORIES, Job, Record
from records.schema import VERSION, WITH_MEMORY, facts, tallies, trials

# A candidate that did any of these once is not offered as the best, however fast it was.
DISTRUSTED = frozenset({"wrong_result", "crash", "below_roofline"})

_PLAIN = tuple(
    column.name
    for column in trials.columns
    if column.name
    not in ("number", "key", "candidate", "facts", "lower_quartile", "upper_quartile")
)


_SELECTED = (*(column.name for column in trials.columns), "hardware_facts")


LATER = ("memory",)  # columns that the first versions lacked, behind theirs


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
    memory: str


def column_of(name: str, version: int = VERSION) -> ColumnElement[Any]:
    """A column of the trials, or what stands for it in tables of a version that lacked it."""
    if name == "memory" and version < WITH_MEMORY:
        return literal(MEMORIES[0]).label(name)
    return trials.c[name]


def conditions(
    selection: Mapping[str, Any], version: int = VERSION
) -> tuple[ColumnElement[bool], ...]:
    """The selection as SQL; raises TypeError for what cannot be selected by."""
    if unknown := set(selection) - set(Selection.__annotations__):
        raise TypeError(f"records cannot be selected by {', '.join(sorted(unknown))}")
    named = ((column_of(name, version), value) for name, value in selection.items())
    return tuple(
        column.in_(value) if isinstance(value, tuple) else column == value
        for column, value in named
    )


def trial_rows(*where: ColumnElement[bool], version: int = VERSION) -> Select[Any]:
    """The query for whole trials, oldest first, from which `to_record` makes records."""
    # A trial whose facts are lost is damaged, not absent.
    columns = (column_of(column.name, version) for column in trials.columns)
    query = select(*columns, facts.c.text.label("hardware_facts"))
    query = query.select_from(trials).outerjoin(facts)
    return query.where(*where).order_by(trials.c.number)


def from_record(record: Record) -> dict[str, Any]:
    """The row of a trial."""
    lower, upper = record.quartiles or (None, None)
    row = {name: getattr(record, name) for name in _PLAIN}
    row |= {"key": record.key, "candidate": record.candidate}
    row |= {"facts": content_key(record.hardware_facts)}
    return row | {"lower_quartile": lower, "upper_quartile": upper}


def to_record(row: Row[Any]) -> Record:
    """The trial of a row; raises InvalidRecord unless it is the one that was stored."""
    values = dict(zip(_SELECTED, row, strict=True))
    hardware_facts = values["hardware_facts"]
    if hardware_facts is None:
        raise InvalidRecord("the facts of its hardware are lost")
    try:
        record = plain_record(values, hardware_facts)
    except (TypeError, UnicodeError) as error:
        raise InvalidRecord(f"it holds what no trial does ({error})") from None
    if record.key != values["key"]:
        raise InvalidRecord("its content does not match its hash")
    return record


def plain_record(values: Mapping[str, Any], hardware_facts: str) -> Record:
    """The trial of a row's columns by name; raises InvalidRecord."""
    quartiles = None
    if values["lower_quartile"] is not None:
        quartiles = (values["lower_quartile"], values["upper_quartile"])
    plain = {name: values[name] for name in _PLAIN if name in values or name not in LATER}
    return Record(**plain, quartiles=quartiles, hardware_facts=hardware_facts)


def to_job(row: Row[Any]) -> Job:
    """The job of a row; raises InvalidRecord unless it is the one that was stored."""
    return plain_job(row._asdict())


def plain_job(values: Mapping[str, Any]) -> Job:
    """The job of a row's columns by name; raises InvalidRecord.

    Stores of the first versions have no hash of it.
    """
    told = dict(values)
    key = told.pop("key", None)
    try:
        job = Job(**told)
    except (TypeError, UnicodeError) as error:
        raise InvalidRecord(f"it holds what no job does ({error})") from None
    if key not in (None, job.key):
        raise InvalidRecord("its content does not match its hash")
    return job


def age_of(job: Job) -> tuple[str, int, str]:
    """By which of two with one identifier the newer is told; see `Store.put_job`."""
    return job.updated, JOB_STATES.index(job.state), job.to_json()


def from_job(job: Job) -> dict[str, Any]:
    """The row of a job."""
    return asdict(job) | {"key": job.key}


def insert_of(connection: Connection, table: Table) -> Any:
    """An insert in the database's own form, which may say what to do about conflicts.

    Each form is imported where it is needed, because that of a server takes long.
    """
    return _insert(connection.dialect.name, table)


def _insert(dialect: str, table: Table) -> Any:
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)


@lru_cache
def _insertion(dialect: str, table: Table) -> Any:
    """An insert that passes over rows whose key is there: made once, for each trial takes it."""
    statement = _insert(dialect, table).on_conflict_do_nothing()
    return statement.execution_options(preserve_rowcount=True)  # not kept for inserts otherwise


_GROWTH = update(tallies).where(tallies.c.name == bindparam("table"))
_GROWTH = _GROWTH.values(total=tallies.c.total + bindparam("more"))


def insert_new(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> int:
    """Insert the rows whose key is not there yet; returns how many these were."""
    statement = _insertion(connection.dialect.name, table)
    return tally(connection, table, connection.execute(statement, rows).rowcount)


def tally(connection: Connection, table: Table, more: int) -> int:
    """Note that a table has so many rows more, and return that number."""
    if more:
        connection.execute(_GROWTH, {"table": table.name, "more": more})
    return more


def best_of(rows: Iterable[tuple[int, Record]]) -> Record | None:
    """Among trials with their numbers: the newest good one of the best candidate.

    The median over a candidate's trials decides, so one lucky run does not.
    """
    times: dict[str, list[float]] = {}
    newest: dict[str, tuple[int, Record]] = {}
    distrusted = set()
    for number, record in rows:
        candidate = record.candidate
        if record.status in DISTRUSTED:
            distrusted.add(candidate)
        elif record.ok and record.seconds is not None:
            times.setdefault(candidate, []).append(record.seconds)
            newest[candidate] = (number, record)
    medians = {name: median(times[name]) for name in times if name not in distrusted}
    if not medians:
        return None
    return newest[min(medians, key=lambda name: (medians[name], newest[name][0]))][1]
