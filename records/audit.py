"""Looking for what is wrong in the tables of a store: rows that are gone, altered or out of place.

Each fault is a few words. It changes nothing, and knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, inspect, select, text

from records.canonical import content_key
from records.schema import (
    COUNTED,
    WITH_LEASES,
    WITH_MEMORY,
    WITH_TALLIES,
    facts,
    jobs,
    leases,
    metadata,
    tallies,
    trials,
)

_TOLD = 5
ADDED = {(jobs.name, "key"): WITH_TALLIES, (trials.name, "memory"): WITH_MEMORY}
SINCE = {leases.name: WITH_LEASES, tallies.name: WITH_TALLIES}


@dataclass(frozen=True, slots=True)
class Examined:
    """What a sound store holds. `schema` is the version of its tables; a `sealed` one is a file
    of which every byte is as it was written, and not only what holds data.
    """

    trials: int
    jobs: int
    facts: int
    schema: int
    sealed: bool


def faults(connection: Connection, version: int) -> Iterator[str]:
    """What is wrong beyond the content of trials and jobs."""
    yield from _missing(connection, version)
    yield from _altered_facts(connection)
    if version >= WITH_LEASES:
        yield from _odd_leases(connection)
    if connection.dialect.name == "sqlite":
        yield from _numbers_to_come(connection)


def summary(found: Sequence[str]) -> str:
    """The first faults, and how many there are more."""
    more = f"; and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
    return "; ".join(found[:_TOLD]) + more


def missing_columns(connection: Connection, version: int) -> Iterator[str]:
    """Columns that the tables of this version must have and do not."""
    kept = [table for table in metadata.sorted_tables if version >= SINCE.get(table.name, 1)]
    inspector = inspect(connection)
    for table in kept:
        if not inspector.has_table(table.name):
            yield f"table {table.name} is missing"
            continue
        there = {column["name"] for column in inspector.get_columns(table.name)}
        for column in table.columns:
            since = ADDED.get((table.name, column.name), 1)
            if column.name not in there and version >= since:
                yield f"table {table.name} has no column {column.name}"


def _missing(connection: Connection, version: int) -> Iterator[str]:
    if version < WITH_TALLIES:
        return
    # One statement sees one state, whoever writes meanwhile.
    counts = [
        select(func.count()).select_from(table).scalar_subquery().label(table.name)
        for table in COUNTED
    ]
    noted = [
        select(tallies.c.total)
        .where(tallies.c.name == table.name)
        .scalar_subquery()
        .label(f"{table.name}_noted")
        for table in COUNTED
    ]
    row = connection.execute(select(*counts, *noted)).one()._mapping
    for table in COUNTED:
        there, wanted = row[table.name], row[f"{table.name}_noted"]
        if there != wanted:
            yield f"table {table.name} has {there} rows, and {wanted} were kept"


def _altered_facts(connection: Connection) -> Iterator[str]:
    for key, content in connection.execute(select(facts.c.key, facts.c.text)):
        if not isinstance(content, str) or content_key(content) != key:
            yield f"facts {str(key)[:12]} do not match their hash"


def _odd_leases(connection: Connection) -> Iterator[str]:
    for row in connection.execute(select(leases)):
        if not all(isinstance(value, int | float) for value in (row.began, row.seconds)):
            yield f"lease {str(row.candidate)[:12]} has no time"


def _numbers_to_come(connection: Connection) -> Iterator[str]:
    """Numbers of trials must never be used again, or whoever pages by them misses some."""
    last = connection.execute(select(func.max(trials.c.number))).scalar_one() or 0
    query = text("SELECT max(seq) FROM sqlite_sequence WHERE name = 'trials'")
    noted = connection.execute(query).scalar_one() or 0
    if not isinstance(noted, int) or noted < last:
        yield f"the next trial would get number {noted} + 1, and there is {last} already"
