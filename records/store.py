"""The store: durable trials and jobs in a database, found again by their content.

A call that writes returns after its commit. It knows nothing of how trials come about.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, Unpack

from sqlalchemy import ColumnElement, Connection, Row, func, select, text, update

from records import schema
from records.canonical import content_key
from records.database import BUSY_SECONDS, Database
from records.errors import DamagedStore, InvalidRecord, UnknownJob
from records.record import Job, Record, utc_now
from records.rows import (
    Selection,
    best_number,
    conditions,
    from_job,
    from_record,
    insert_new,
    to_job,
    to_record,
    trial_rows,
)
from records.schema import facts, jobs, trials

PAGE = 1000
CHECKED_BYTES = 32 << 20  # files up to this size are checked whole when opened
_CREATION_LOCK = 0x54494C45


class Store:
    """A store of records at a path (SQLite, made when absent) or a URL; closes as a context.

    Several threads may share one, and several processes may each open their own; do not carry an
    open one over a fork. Raises a StoreError subclass when the location cannot be used.
    """

    def __init__(
        self,
        where: str | os.PathLike[str],
        *,
        busy_seconds: float = BUSY_SECONDS,
        clock: Callable[[], str] = utc_now,
    ) -> None:
        self._database = Database(where, busy_seconds)
        self._clock = clock
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    @property
    def location(self) -> str:
        """Where the records are, fit for a message: a password in a URL is hidden."""
        return self._database.location

    def __repr__(self) -> str:
        return f"Store({self.location!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database; nothing is pending, so nothing is written."""
        self._database.close()

    # Trials

    def add(self, record: Record) -> bool:
        """Store a trial; when this returns it is durable. False if that very record was there."""
        return self.add_all((record,)) == 1

    def add_all(self, records: Iterable[Record]) -> int:
        """Store trials, all or none, in one commit; returns how many were new."""
        batch = tuple(records)
        if not batch:
            return 0
        texts = {content_key(record.hardware_facts): record.hardware_facts for record in batch}
        with self._database.writing() as connection:
            insert_new(connection, facts, [{"key": k, "text": t} for k, t in texts.items()])
            return insert_new(connection, trials, [from_record(record) for record in batch])

    def records(self, **selection: Unpack[Selection]) -> Iterator[Record]:
        """The selected trials, oldest first; read in pages, so a long walk blocks no writer."""
        condition = conditions(selection)
        return self._pages(condition)

    def count(self, **selection: Unpack[Selection]) -> int:
        """How many trials are selected."""
        query = select(func.count()).select_from(trials).where(*conditions(selection))
        with self._database.reading() as connection:
            return int(connection.execute(query).scalar_one())

    def best(
        self,
        workload: str,
        target: str,
        hardware: str,
        *,
        generator: str | None = None,
        threads: int | None = None,
    ) -> Record | None:
        """The newest good record of the candidate whose median over its trials is the lowest.

        A candidate that was ever wrong, crashed or beat the roofline is passed over.
        """
        selection: Selection = {"workload": workload, "target": target, "hardware": hardware}
        if generator is not None:
            selection["generator"] = generator
        if threads is not None:
            selection["threads"] = threads
        columns = (trials.c.number, trials.c.candidate, trials.c.status, trials.c.seconds)
        query = select(*columns).where(*conditions(selection)).order_by(trials.c.number)
        with self._database.reading() as connection:
            number = best_number(connection.execute(query).all())
            if number is None:
                return None
            return self._read(connection.execute(trial_rows(trials.c.number == number)).one())

    # Jobs

    def new_job(self, operator: str, extents: str, target: str, options: str = "{}") -> Job:
        """Store a running job under a fresh identifier."""
        now = self._clock()
        job = Job(
            id=secrets.token_hex(6),
            operator=operator,
            extents=extents,
            target=target,
            options=options,
            created=now,
            updated=now,
        )
        self.put_job(job)
        return job

    def put_job(self, job: Job) -> bool:
        """Store a job that was made elsewhere; of two with one identifier the newer stays."""
        values = from_job(job)
        older = (jobs.c.id == job.id) & (jobs.c.updated < job.updated)
        with self._database.writing() as connection:
            if insert_new(connection, jobs, [values]):
                return True
            return connection.execute(update(jobs).where(older).values(values)).rowcount == 1

    def update_job(self, identifier: str, state: str) -> Job:
        """Set a job's state; raises UnknownJob."""
        job = replace(self.job(identifier), state=state, updated=self._clock())
        values = {"state": job.state, "updated": job.updated}
        with self._database.writing() as connection:
            connection.execute(update(jobs).where(jobs.c.id == job.id).values(values))
        return job

    def job(self, identifier: str) -> Job:
        """The job with this identifier, or the only one that begins with it."""
        query = select(jobs).where(jobs.c.id.startswith(identifier, autoescape=True))
        with self._database.reading() as connection:
            found = [to_job(row) for row in connection.execute(query)]
        exact = [job for job in found if job.id == identifier] or found
        if len(exact) == 1 and identifier:
            return exact[0]
        reason = f"{len(exact)} jobs begin with it; give more of it" if exact else "no such job"
        raise UnknownJob(f"job {identifier!r} in {self.location}: {reason}")

    def jobs(self, state: str | None = None) -> tuple[Job, ...]:
        """Every job, or those in one state, oldest first."""
        query = select(jobs).order_by(jobs.c.created, jobs.c.id)
        if state is not None:
            query = query.where(jobs.c.state == state)
        with self._database.reading() as connection:
            return tuple(to_job(row) for row in connection.execute(query))

    # Soundness

    def check(self) -> int:
        """Read everything and compare it with its hashes; returns the number of trials.

        Raises DamagedStore.
        """
        self._database.check()
        number = count = 0
        while rows := self._page((), number):
            for row in rows:
                if self._read(row).key != row.key:
                    raise self._altered(row, "its content does not match its hash")
            number, count = rows[-1].number, count + len(rows)
        return count

    def _prepare(self) -> None:
        """Make, migrate or refuse the tables; changes nothing in a database it refuses."""
        with self._database.reading() as connection:
            version = self._version(connection)
        self._database.make_concurrent()
        if version != schema.VERSION:
            self._create_or_migrate()
        path = self._database.path
        if path is not None and path.stat().st_size <= CHECKED_BYTES:
            self._database.check()

    def _create_or_migrate(self) -> None:
        with self._database.writing() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})"))
            version = self._version(connection)  # another process may have been quicker
            if version is None:
                schema.create(connection)
            else:
                schema.migrate(connection, version)

    def _version(self, connection: Connection) -> int | None:
        version = schema.found_version(connection, self.location)
        if version is not None:
            schema.refuse_newer(version, self.location)
        return version

    def _pages(self, condition: tuple[ColumnElement[bool], ...]) -> Iterator[Record]:
        number = 0
        while rows := self._page(condition, number):
            for row in rows:
                yield self._read(row)
            number = rows[-1].number

    def _page(self, condition: tuple[ColumnElement[bool], ...], after: int) -> list[Row[Any]]:
        query = trial_rows(*condition, trials.c.number > after).limit(PAGE)
        with self._database.reading() as connection:
            return list(connection.execute(query))

    def _read(self, row: Row[Any]) -> Record:
        try:
            return to_record(row)
        except InvalidRecord as error:
            raise self._altered(row, str(error)) from error

    def _altered(self, row: Row[Any], reason: str) -> DamagedStore:
        return DamagedStore(
            f"{self.location} is damaged (trial {row.number}: {reason}): restore a copy, or delete "
            "that trial"
        )
