"""The tables of a store, their version, and how an older store becomes the present one.

Policy: every change of a table raises `VERSION` and adds one step to `MIGRATIONS`. Steps run in one
transaction when a store is opened, and are never edited afterwards. A later version is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    func,
    insert,
    inspect,
    select,
    table,
    text,
    update,
)

from records.canonical import canonical_json, content_key
from records.errors import DamagedStore, ForeignFile, NewerStore

VERSION = 5
WITH_LEASES = 2  # the version that has them
WITH_TALLIES = 3  # and hashes of jobs
WITH_MEMORY = 4  # of trials: what their operands lay in

Migration = Callable[[Connection], None]
_CREATION_LOCK = 0x54494C45


def _add_leases(connection: Connection) -> None:
    Table(
        "leases",
        MetaData(),
        Column("candidate", String(64), primary_key=True),
        Column("owner", String(255), nullable=False, index=True),
        Column("began", Double, nullable=False),
        Column("seconds", Double, nullable=False),
    ).create(connection)


def _add_hashes_and_tallies(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE jobs ADD COLUMN key VARCHAR(64) DEFAULT '' NOT NULL"))
    defaults = {"options": "{}", "state": "running"}
    for row in connection.execute(text("SELECT * FROM jobs")).mappings().all():
        told = {name: value for name, value in row.items() if value != defaults.get(name)}
        del told["key"]
        values = {"key": content_key(canonical_json(told)), "id": row["id"]}
        connection.execute(text("UPDATE jobs SET key = :key WHERE id = :id"), values)
    made = Table(
        "tallies",
        MetaData(),
        Column("name", String(32), primary_key=True),
        Column("total", BigInteger, nullable=False),
    )
    made.create(connection)
    for name in ("facts", "jobs", "trials"):
        total = connection.execute(select(func.count()).select_from(table(name))).scalar_one()
        connection.execute(insert(made).values(name=name, total=total))


def _add_memory(connection: Connection) -> None:
    column = "memory VARCHAR(16) DEFAULT 'huge' NOT NULL"
    connection.execute(text(f"ALTER TABLE trials ADD COLUMN {column}"))


def _index_best(connection: Connection) -> None:
    columns = "workload, target, hardware, generator, memory, status, strategy, seconds, candidate"
    connection.execute(text("DROP INDEX IF EXISTS ix_trials_workload"))
    connection.execute(text(f"CREATE INDEX ix_trials_best ON trials ({columns})"))


# From a version to the next one.
MIGRATIONS: Mapping[int, Migration] = MappingProxyType(
    {1: _add_leases, 2: _add_hashes_and_tallies, 3: _add_memory, 4: _index_best}
)

metadata = MetaData()

schema_table = Table(
    "tilewright_schema",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
)

# Long texts of which there are few, each kept once under its hash: the facts of hardware, and the
# text of a program, whose hash is the workload's key in the trials.
facts = Table(
    "facts",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("text", Text, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(255), primary_key=True),
    Column("operator", Text, nullable=False),
    Column("extents", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("options", Text, nullable=False),
    Column("state", String(32), nullable=False),
    Column("created", String(32), nullable=False),
    Column("updated", String(32), nullable=False),
    Column("key", String(64), nullable=False, server_default=""),
)

trials = Table(
    "trials",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("key", String(64), nullable=False, unique=True),
    Column("candidate", String(64), nullable=False, index=True),
    Column("workload", Text, nullable=False),
    Column("operator", Text, nullable=False),
    Column("extents", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("hardware", Text, nullable=False),
    Column("facts", String(64), ForeignKey("facts.key"), nullable=False),
    Column("generator", Text, nullable=False),
    Column("threads", Integer, nullable=False),
    Column("schedule", Text, nullable=False),
    Column("schedule_key", String(64), nullable=False),
    Column("kernel_key", Text, nullable=False),
    Column("status", String(32), nullable=False),
    Column("seconds", Double),
    Column("lower_quartile", Double),
    Column("upper_quartile", Double),
    Column("repeats", Integer, nullable=False),
    Column("error", Double),
    Column("detail", Text, nullable=False),
    Column("compile_seconds", Double),
    Column("clock_ghz", Double),
    Column("notes", Text, nullable=False),
    Column("created", String(32), nullable=False),
    Column("job", Text, nullable=False, index=True),
    Column("strategy", Text, nullable=False),
    Column("memory", String(16), nullable=False, server_default="huge"),
    # What is known of a workload on a machine; and who is best of it, without reading whole rows.
    Index(
        "ix_trials_best",
        *("workload", "target", "hardware", "generator", "memory"),
        *("status", "strategy", "seconds", "candidate"),
    ),
    sqlite_autoincrement=True,  # numbers are never used again, so readers may page by them
)

# How many rows there must be: a row that is gone leaves no trace of its own.
tallies = Table(
    "tallies",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("total", BigInteger, nullable=False),
)
COUNTED = (facts, jobs, trials)

# Who is about to measure what. Worth nothing after a restart of the machine or the server.
leases = Table(
    "leases",
    metadata,
    Column("candidate", String(64), primary_key=True),
    Column("owner", String(255), nullable=False, index=True),
    Column("began", Double, nullable=False),
    Column("seconds", Double, nullable=False),
)


def found_version(connection: Connection, location: str) -> int | None:
    """The version of the store behind `connection`, None where the database is empty."""
    names = set(inspect(connection).get_table_names())
    if not names:
        return None
    if schema_table.name not in names:
        if connection.dialect.name != "sqlite" and not names & set(metadata.tables):
            return None  # a server's database may be shared with other tables
        raise ForeignFile(
            f"{location} is a database of something else (it has a table {min(names)!r}): "
            "name another file for the records"
        )
    versions = connection.execute(select(schema_table.c.version)).scalars().all()
    if len(versions) != 1:
        raise DamagedStore(
            f"{location} is damaged: it states {len(versions)} schema versions instead of one; "
            "restore a copy, or import an export into a new store"
        )
    if not isinstance(versions[0], int):
        raise DamagedStore(
            f"{location} is damaged: its schema version is {versions[0]!r}; restore a copy, or "
            "import an export into a new store"
        )
    return versions[0]


def refuse_newer(version: int, location: str) -> None:
    """Raise NewerStore for a version this code does not know."""
    if version > VERSION:
        raise NewerStore(
            f"{location} was written by a newer Tilewright (schema {version}, this one knows "
            f"{VERSION}): upgrade Tilewright, or name another store"
        )


def readable_version(connection: Connection, location: str) -> int | None:
    """The version of a store; None where there is none. Refuses a newer one."""
    version = found_version(connection, location)
    if version is not None:
        refuse_newer(version, location)
    return version


def create_or_migrate(connection: Connection, location: str) -> None:
    """Tables of this version, whatever another process has made meanwhile."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})"))
    version = readable_version(connection, location)
    if version is None:
        create(connection)
    else:
        migrate(connection, version)


def create(connection: Connection) -> None:
    """Make the tables of the present version in an empty database."""
    metadata.create_all(connection)
    connection.execute(insert(schema_table).values(version=VERSION))
    connection.execute(insert(tallies), [{"name": kept.name, "total": 0} for kept in COUNTED])


def migrate(connection: Connection, version: int) -> None:
    """Bring the tables from `version` to the present one, step by step, in one transaction."""
    for current in range(version, VERSION):
        MIGRATIONS[current](connection)
        connection.execute(update(schema_table).values(version=current + 1))
