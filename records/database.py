"""The connection to a database: how it is opened, how it locks, and how it waits for a server.

It knows the engines (SQLite, PostgreSQL), and nothing of records.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from records.errors import (
    DamagedStore,
    LockedStore,
    MovedStore,
    ReadOnlyStore,
    ServerAway,
    StoreUnavailable,
    UnusableLocation,
)
from records.failures import damaged_line, explain, read_only_line
from records.sqlite_file import (
    MEMORY,
    engine_of,
    identity,
    path_of,
    reading_engine,
    refuse_unreadable,
    refuse_unwritable,
    tidy,
    untouched,
)

BUSY_SECONDS = 30.0
_RETRY_SECONDS = 0.2
_LEAST_CONNECT_SECONDS = 2  # what the PostgreSQL client takes at the least

_log = logging.getLogger(__name__)


class Database:
    """An open database. `reading()` and `writing()` are its transactions.

    When `writing()` ends without an exception its content is on the disk. With `read_only`, the
    database is left as it is: nothing is made, changed, or left behind.
    """

    def __init__(
        self,
        where: str | os.PathLike[str],
        busy_seconds: float = BUSY_SECONDS,
        *,
        read_only: bool = False,
    ) -> None:
        url = parse_location(where)
        self.path = path_of(url)
        self.read_only = read_only
        self._busy_seconds = busy_seconds
        memory = url.get_backend_name() == "sqlite" and self.path is None
        self.location = MEMORY if memory else str(self.path or url.render_as_string())
        # A database in memory is one connection, so its threads take turns.
        self._turn = threading.RLock() if memory else nullcontext()
        self._tidies = False
        self.engine = self._engine(url)
        self._identity: tuple[int, int] | None = None
        self._met = False

    def _engine(self, url: URL) -> Engine:
        if url.get_backend_name() != "sqlite":
            return _server_engine(url, self.location, self._busy_seconds, self.read_only)
        if self.path is None or not self.read_only:
            if self.path is not None:
                refuse_unwritable(self.path)
            return engine_of(self.path, self._busy_seconds)
        refuse_unreadable(self.path)
        self._tidies = untouched(self.path)
        return reading_engine(self.path, self._busy_seconds)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database."""
        with self._transaction(self.engine) as connection:
            yield connection

    @contextmanager
    def writing(self, *, fleeting: bool = False) -> Iterator[Connection]:
        """A transaction that holds the write lock from its start, and is durable at its end.

        A `fleeting` one is cheap: a power cut, but not the end of a process, may take it back.
        """
        if self.read_only:
            raise ReadOnlyStore(read_only_line(self.location, "it was opened to be read"))
        engine = self.engine.execution_options(writing=True, fleeting=fleeting)
        with self._transaction(engine) as connection:
            if fleeting and connection.dialect.name == "postgresql":
                connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
            yield connection
        self._refuse_moved()

    @contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Connection]:
        with (
            self._turn,
            self._translated(),
            self._reached(engine) as connection,
            connection.begin(),
        ):
            yield connection

    def _reached(self, engine: Engine) -> Connection:
        """A connection; to a server that was there before, waits until it is there again."""
        deadline = time.monotonic() + self._busy_seconds
        told = False
        while True:
            try:
                with self._translated():
                    connection = engine.connect()
                self._met = True
                return connection
            except ServerAway as error:
                if not self._met or time.monotonic() > deadline:
                    raise
                if not told:
                    _log.warning("%s", error)
                told = True
                time.sleep(_RETRY_SECONDS)

    def make_concurrent(self) -> None:
        """Switch a SQLite file to its write-ahead log, where readers and the writer coexist."""
        if self.path is None or self.read_only:
            return
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                self._outside_transactions("PRAGMA journal_mode=WAL")
                break
            except LockedStore:  # SQLite does not wait on its own here
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        self._identity = identity(self.path)

    def compact(self) -> None:
        """Give the room of deleted rows back to the disk; a server does so on its own."""
        if self.path is not None:
            self._outside_transactions("VACUUM")

    def _outside_transactions(self, statement: str) -> None:
        with self._translated():
            connection = self.engine.raw_connection()
            try:
                cursor = connection.cursor()
                cursor.execute(statement)
                cursor.fetchall()
                cursor.close()
            finally:
                connection.close()

    def check(self) -> None:
        """Raise DamagedStore when SQLite finds its own structure broken."""
        if self.engine.dialect.name != "sqlite":
            return
        with self.reading() as connection:
            found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
        if found != "ok":
            raise DamagedStore(damaged_line(self.location, " ".join(str(found).split())))

    def close(self) -> None:
        self.engine.dispose()
        if self._tidies and self.path is not None:
            tidy(self.path)

    def _refuse_moved(self) -> None:
        """What went to a file that has no name any more would be lost without a word."""
        if self.path is not None and self._identity not in (None, identity(self.path)):
            raise MovedStore(
                f"{self.location} was deleted, moved or replaced while it was open: the last "
                "write is lost; put the file back, or start again with a new store"
            )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise explain(error.orig or error, self.location) from error
        except sqlite3.Error as error:
            raise explain(error, self.location) from error


def parse_location(where: str | os.PathLike[str]) -> URL:
    """The database URL that a path or a URL stands for; raises UnusableLocation."""
    text = os.fspath(where)
    if not text or "\0" in text:
        raise UnusableLocation(f"records location {text!r} is no path: give a file or a URL")
    if "://" not in text:
        return URL.create("sqlite", database=text)
    try:
        url = make_url(text)
        backend = url.get_backend_name()
    except (ArgumentError, NoSuchModuleError, ValueError):
        backend = ""
    if backend not in ("sqlite", "postgresql"):
        kind = text.split("://", 1)[0]
        raise UnusableLocation(
            f"records location {kind}://... is not supported: give a file, a sqlite:/// or a "
            "postgresql:// URL"
        )
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def _server_engine(url: URL, location: str, busy_seconds: float, read_only: bool) -> Engine:
    arguments = {}
    if "connect_timeout" not in url.query:
        arguments["connect_timeout"] = max(_LEAST_CONNECT_SECONDS, round(busy_seconds))
    options = {"postgresql_readonly": True} if read_only else {}
    try:
        engine = create_engine(
            url, connect_args=arguments, pool_pre_ping=True, execution_options=options
        )
    except ImportError as error:
        raise StoreUnavailable(
            f"{location} needs a database driver ({error}): pip install 'tilewright[postgres]'"
        ) from None

    def limit_waiting(connection: Any, _: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = {max(1, round(busy_seconds * 1000))}")
        connection.commit()

    event.listen(engine, "connect", limit_waiting)
    return engine
