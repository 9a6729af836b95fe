"""The store: durable trials and jobs in a database, found again by their content.

A call that writes returns after its commit. It knows nothing of how trials come about.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, Unpack

from sqlalchemy import Column, ColumnElement, Connection, Row, Select, func, select, update

from records import audit, leases, schema
from records.address import Address
from records.audit import Examined
from records.canonical import content_key
from records.database import BUSY_SECONDS, Database
from records.errors import DamagedStore, InvalidRecord, UnknownJob, UnusableLocation
from records.failures import damaged_line
from records.glances import contenders, numbered
from records.prune import Pruned, Pruning, choose, remove
from records.record import Job, Record, utc_now
from records.rows import (
    Selection,
    age_of,
    best_of,
    column_of,
    conditions,
    from_job,
    from_record,
    insert_new,
    to_job,
    to_record,
    trial_rows,
)
from records.schema import facts, jobs, trials
from records.sqlite_file import CHECKED_BYTES
from records.tellings import (
    Damage,
    Glance,
    Rules,
    Tally,
    Tell,
    WorkloadCount,
)

PAGE = 1000

_log = logging.getLogger(__name__)


class Store:
    """A store of records at a path (SQLite, made when absent) or a URL; closes as a context.

    Several threads may share one, and several processes may each open their own; do not carry an
    open one over a fork. Raises a StoreError subclass when the location cannot be used. With
    `read_only`, a store that is there is read, and left as it is. `clock` stamps jobs;
    `lease_clock` (seconds) replaces the clock that all users of the database share.
    """

    def __init__(
        self,
        where: str | os.PathLike[str] | Address,
        *,
        busy_seconds: float = BUSY_SECONDS,
        clock: Callable[[], str] = utc_now,
        read_only: bool = False,
        lease_clock: Callable[[], float] | None = None,
    ) -> None:
        self._database = Database(where, busy_seconds, read_only=read_only)
        self._clock = clock
        self._lease_clock = lease_clock
        self._warned = False
        self._schema = schema.VERSION
        try:
            if read_only:
                self._prepare_reading()
            else:
                self._prepare()
        except BaseException:
            self.close()
            raise

    @property
    def location(self) -> str:
        """Where the records are, fit for a message: what is secret in a URL is hidden."""
        return self._database.location

    @property
    def is_file(self) -> bool:
        """Whether it is kept in a file, and so can be sealed."""
        return self._database.path is not None

    @property
    def older(self) -> bool:
        """Whether its tables are of an earlier version: it was opened to be read."""
        return self._schema < schema.VERSION

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

    def keep_texts(self, texts: Iterable[str]) -> int:
        """Keep texts under their hashes, such as those of programs; returns how many are new."""
        rows = [{"key": content_key(text), "text": text} for text in texts]
        if not rows:
            return 0
        with self._database.writing() as connection:
            return insert_new(connection, facts, rows)

    def text(self, key: str) -> str | None:
        """The text with this hash, if it is kept here; raises DamagedStore if it was altered."""
        with self._database.reading() as connection:
            found = connection.execute(select(facts.c.text).where(facts.c.key == key)).scalar()
        if found is not None and content_key(found) != key:
            raise DamagedStore(
                f"{self.location} is damaged (text {key[:12]}: its content does not match its "
                "hash): restore a copy"
            )
        return None if found is None else str(found)

    def texts(self) -> Iterator[str]:
        """The texts that are kept, other than the facts of the trials' hardware."""
        query = select(facts.c.key).where(facts.c.key.not_in(select(trials.c.facts)))
        with self._database.reading() as connection:
            keys = connection.execute(query.order_by(facts.c.key)).scalars().all()
        for key in keys:
            found = self.text(key)
            if found is not None:
                yield found

    def records(self, **selection: Unpack[Selection]) -> Iterator[Record]:
        """The selected trials, oldest first; read in pages, so a long walk blocks no writer.

        Damaged ones are passed over, with a warning.
        """
        return self.sound_records(self._warn, **selection)

    def sound_records(self, tell: Tell, **selection: Unpack[Selection]) -> Iterator[Record]:
        """As `records`; of those that do not match their hash, `tell` hears."""
        filed = "candidate" in selection
        return (
            record
            for _, record in self._walk(conditions(selection, self._schema), tell, filed=filed)
        )

    def count(self, **selection: Unpack[Selection]) -> int:
        """How many trials are selected."""
        query = select(func.count()).select_from(trials).where(*conditions(selection, self._schema))
        with self._database.reading() as connection:
            return int(connection.execute(query).scalar_one())

    def last(self) -> int:
        """The number of the newest trial; 0 where there is none."""
        with self._database.reading() as connection:
            return connection.execute(select(func.max(trials.c.number))).scalar_one() or 0

    def newer(
        self, number: int, apart: str = "", **selection: Unpack[Selection]
    ) -> tuple[int, tuple[Record, ...]]:
        """The selected trials after that number, oldest first, and the number of the last of all.

        Those of the job `apart` are left out. On a server, a trial may be committed after one with
        a higher number, and is not told then.
        """
        after = trials.c.number > number
        query = trial_rows(
            *conditions(selection, self._schema),
            after,
            trials.c.job != apart,
            version=self._schema,
        )
        with self._database.reading() as connection:
            last = connection.execute(select(func.max(trials.c.number)).where(after)).scalar_one()
            rows = connection.execute(query).all() if last is not None else []
        return last or number, tuple(record for _, record in self._sound(rows, self._warn))

    def contenders(self, rules: Rules, **selection: Unpack[Selection]) -> list[Glance]:
        """All trials of the candidates of which one is best by `rules`, oldest first."""
        with self._database.reading() as connection:
            return contenders(connection, selection, rules, self._schema)

    def numbered(self, number: int) -> Record | None:
        """The trial of this number; None if it is not as it was stored."""
        with self._database.reading() as connection:
            row = numbered(connection, number, self._schema)
        return next((record for _, record in self._sound((row,), self._warn)), None)

    def workloads(self) -> tuple[WorkloadCount, ...]:
        """Every workload on every machine with the number of its trials, ordered by operator."""
        return self.tally(WorkloadCount)

    def tally(self, kind: type[Tally]) -> tuple[Tally, ...]:
        """The number of trials by what `kind` names, such as the job, counted in the database."""
        what = [column_of(name, self._schema) for name in kind._fields[:-1]]
        query = select(*what, func.count()).group_by(*(c for c in what if isinstance(c, Column)))
        with self._database.reading() as connection:
            return tuple(sorted(map(kind._make, connection.execute(query))))

    def prune(self, pruning: Pruning, *, dry_run: bool = False) -> Pruned:
        """Delete what `pruning` lets go, in one commit; a dry run only counts."""
        if dry_run:
            with self._database.reading() as connection:
                return choose(connection, pruning, self._schema)[0]
        with self._database.writing() as connection:
            pruned, numbers = choose(connection, pruning)
            remove(connection, numbers)
        return pruned

    def compact(self) -> None:
        """Give the room of what was deleted back to the disk; takes a copy's room meanwhile."""
        self._database.compact()

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
        return best_of(self._walk(conditions(selection, self._schema), self._warn))

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
        """Store a job that was made elsewhere; of two with one identifier the newer stays.

        Of two that are equally new, the one with the later state stays, then that with the greater
        text, so that it does not matter which one came first.
        """
        values = from_job(job)
        mine = jobs.c.id == job.id
        with self._database.writing() as connection:
            if insert_new(connection, jobs, [values]):
                return True
            row = connection.execute(select(jobs).where(mine).with_for_update()).one()
            with suppress(InvalidRecord):  # a sound job takes the place of a damaged one
                if age_of(to_job(row)) >= age_of(job):
                    return False
            connection.execute(update(jobs).where(mine).values(values))
            return True

    def update_job(self, identifier: str, state: str, options: str | None = None) -> Job:
        """Set a job's state, and its options if given; raises UnknownJob.

        Its time never goes back, even if the clock did.
        """
        known = self.job(identifier)
        now = replace(known, updated=self._clock()).updated
        kept = known.options if options is None else options
        job = replace(known, state=state, options=kept, updated=max(now, known.updated))
        with self._database.writing() as connection:
            connection.execute(update(jobs).where(jobs.c.id == job.id).values(from_job(job)))
        return job

    def job(self, identifier: str) -> Job:
        """The job with this identifier, or the only one that begins with it."""
        query = self._job_rows().where(jobs.c.id.startswith(identifier, autoescape=True))
        with self._database.reading() as connection:
            found = connection.execute(query).all()
        exact = [row for row in found if row.id == identifier] or found
        if len(exact) == 1 and identifier:
            return self._job(exact[0])
        reason = f"{len(exact)} jobs begin with it; give more of it" if exact else "no such job"
        raise UnknownJob(f"job {identifier!r} in {self.location}: {reason}")

    def jobs(self, state: str | None = None) -> tuple[Job, ...]:
        """Every job, or those in one state, oldest first; damaged ones are passed over."""
        return self.sound_jobs(self._warn, state)

    def sound_jobs(self, tell: Tell, state: str | None = None) -> tuple[Job, ...]:
        """As `jobs`; of those that do not match their hash, `tell` hears."""
        query = self._job_rows().order_by(jobs.c.created, jobs.c.id)
        if state is not None:
            query = query.where(jobs.c.state == state)
        found = []
        with self._database.reading() as connection:
            for row in connection.execute(query):
                try:
                    found.append(to_job(row))
                except InvalidRecord as error:
                    tell(Damage("job", repr(row.id), str(error)))
        return tuple(found)

    def _job_rows(self) -> Select[Any]:
        hashed = self._schema >= schema.WITH_TALLIES
        return select(*(column for column in jobs.columns if hashed or column is not jobs.c.key))

    def _job(self, row: Row[Any]) -> Job:
        try:
            return to_job(row)
        except InvalidRecord as error:
            raise self._damaged(str(Damage("job", repr(row.id), str(error)))) from None

    # Leases

    def claim(self, candidates: Iterable[str], owner: str, seconds: float) -> set[str]:
        """Lease those candidates that no other living owner holds; returns what is now ours.

        A lease lasts `seconds` from now, unless a heartbeat renews it. One whose owner (see
        `new_owner`) was a process of this machine that has died is over at once.
        """
        with self._leasing() as connection:
            now = leases.present(connection, self._lease_clock)
            return leases.claim(connection, candidates, owner, seconds, now)

    def heartbeat(self, owner: str) -> int:
        """Let all leases of `owner` count from now; returns how many it still holds."""
        with self._leasing() as connection:
            return leases.renew(connection, owner, leases.present(connection, self._lease_clock))

    def release(self, owner: str, candidates: Collection[str] | None = None) -> int:
        """End these leases of `owner`, by default all; returns how many it held."""
        with self._leasing() as connection:
            return leases.end(connection, owner, candidates)

    def holder(self, candidate: str) -> str | None:
        """The living owner that holds the lease of `candidate`, if there is one."""
        with self._database.reading() as connection:
            if (self._version(connection) or 0) < schema.WITH_LEASES:
                return None
            now = leases.present(connection, self._lease_clock)
            return leases.holder(connection, candidate, now)

    @contextmanager
    def _leasing(self) -> Iterator[Connection]:
        """Leases are worth nothing after a power cut, so they do not wait for the disk."""
        with self._database.writing(fleeting=True) as connection:
            leases.take_turn(connection)
            yield connection

    # Soundness

    def check(self) -> int:
        """Read everything and compare it with its hashes; returns the number of trials.

        Raises DamagedStore.
        """
        return self.examine().trials

    def examine(self) -> Examined:
        """As `check`, and what there is. What is wrong is told row by row, and then of the file."""
        self._database.check()
        found: list[str] = []
        with self._database.reading() as connection:
            found += audit.missing_columns(connection, self._schema)
        if not found:
            found += self._faulty_rows()
        if found:
            raise self._damaged(audit.summary(found))
        self._database.check_seal()
        with self._database.reading() as connection:
            counts = {
                table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
                for table in (trials, jobs, facts)
            }
        return Examined(**counts, schema=self._schema, sealed=self._database.sealed)

    def _faulty_rows(self) -> list[str]:
        found: list[Damage] = []
        for _ in self._walk((), found.append, filed=True):
            pass
        self.sound_jobs(found.append)
        with self._database.reading() as connection:
            others = list(audit.faults(connection, self._schema))
        return [*map(str, found), *others]

    def _prepare(self) -> None:
        """Make, migrate or refuse the tables; changes nothing in a database it refuses."""
        with self._database.reading() as connection:
            version = self._version(connection)
        self._database.make_concurrent()
        if version != schema.VERSION:
            with self._database.writing() as connection:
                schema.create_or_migrate(connection, self.location)
        path = self._database.path
        if path is not None and path.stat().st_size <= CHECKED_BYTES:
            self._database.check(quick=True)

    def _prepare_reading(self) -> None:
        """Refuse what is no store. Trials and jobs of every version so far read alike."""
        with self._database.reading() as connection:
            version = self._version(connection)
        if version is None:
            raise UnusableLocation(f"{self.location} holds no store: name another, or make one")
        self._schema = version

    def _version(self, connection: Connection) -> int | None:
        return schema.readable_version(connection, self.location)

    def _walk(
        self, condition: tuple[ColumnElement[bool], ...], tell: Tell, *, filed: bool = False
    ) -> Iterator[tuple[int, Record]]:
        """Sound trials with their numbers; of the others, `tell` hears.

        With `filed`, those that stand under the name of another candidate are not sound.
        """
        number = 0
        while rows := self._page(condition, number):
            yield from self._sound(rows, tell, filed)
            if rows[-1].number <= number:
                raise self._damaged(f"trial {number} is followed by {rows[-1].number}")
            number = rows[-1].number

    def _page(self, condition: tuple[ColumnElement[bool], ...], after: int) -> list[Row[Any]]:
        where = (*condition, trials.c.number > after)
        query = trial_rows(*where, version=self._schema).limit(PAGE)
        with self._database.reading() as connection:
            return list(connection.execute(query))

    def _sound(
        self, rows: Iterable[Row[Any]], tell: Tell, filed: bool = False
    ) -> Iterator[tuple[int, Record]]:
        for row in rows:
            try:
                record = to_record(row)
                if filed and record.candidate != row.candidate:
                    raise InvalidRecord("it is filed under another candidate")
            except InvalidRecord as error:
                tell(Damage("trial", str(row.number), str(error)))
            else:
                yield row.number, record

    def _warn(self, damage: Damage) -> None:
        """Once for a store: its first damaged row stands for all."""
        if not self._warned:
            _log.warning("%s; such rows are passed over", self._damaged(str(damage)))
        self._warned = True

    def _damaged(self, reason: str) -> DamagedStore:
        if self._database.path is not None:
            return DamagedStore(damaged_line(self.location, reason))
        return DamagedStore(
            f"{self.location} is damaged ({reason}): restore a copy, or take what is sound with "
            "`tilewright db export FILE --salvage`"
        )
