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
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from records.address import MEMORY, Address
from records.errors import (
    DamagedStore,
    LockedStore,
    MovedStore,
    ReadOnlyStore,
    ServerAway,
    StoreError,
    StoreUnavailable,
)
from records.failures import damaged_line, explain, read_only_line
from records.sqlite_file import (
    break_seal,
    engine_of,
    identity,
    reading_engine,
    refuse_unreadable,
    refuse_unwritable,
    seal_fault,
    set_seal,
    size_fault,
    tidy,
    untouched,
    vouched_for,
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
        where: str | os.PathLike[str] | Address,
        busy_seconds: float = BUSY_SECONDS,
        *,
        read_only: bool = False,
    ) -> None:
        self._address = address = Address.of(where)
        self.path = address.path
        self.read_only = read_only
        self._busy_seconds = busy_seconds
        self.location = MEMORY if address.memory else str(self.path or address)
        # A database in memory is one connection, so its threads take turns.
        self._turn = threading.RLock() if address.memory else nullcontext()
        self._tidies = False
        self._wrote = False
        self.engine = self._engine(address)
        self._identity: tuple[int, int] | None = None
        self._met = False

    def _engine(self, address: Address) -> Engine:
        if address.server is not None:
            return _server_engine(address, address.server, self._busy_seconds, self.read_only)
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
            if self.path is not None:
                break_seal(connection)
                self._wrote = True
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
        if self.path is None:
            return
        with self.writing():
            pass  # other bytes will stand in the file, so its seal must not
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

    def check(self, *, quick: bool = False) -> None:
        """Raise DamagedStore when a SQLite file has lost its end, or contradicts itself.

        A seal that fits says that it does not; one that does not fit is told by `check_seal`, and
        by a `quick` check as a warning.
        """
        if self.engine.dialect.name != "sqlite":
            return
        with self.reading() as connection:
            self._refuse(size_fault(connection, self.path) if self.path else "")
            broken = seal_fault(connection, self.path)
            if vouched_for(connection) and not broken:
                return
            connection.exec_driver_sql("PRAGMA cache_size = -65536")  # it reads here and there
            pragma = "quick_check" if quick else "integrity_check"
            found = connection.exec_driver_sql(f"PRAGMA {pragma}(1)").scalar_one()
            self._refuse("" if found == "ok" else " ".join(str(found).split()))
        if quick and broken:
            _log.warning("%s", damaged_line(self.location, broken))

    def _refuse(self, fault: str) -> None:
        if fault:
            raise DamagedStore(damaged_line(self.location, fault))

    def check_seal(self) -> None:
        """Raise DamagedStore when a byte of a sealed file is not as it was written."""
        if self.path is not None:
            with self.reading() as connection:
                self._refuse(seal_fault(connection, self.path))

    @property
    def sealed(self) -> bool:
        """Whether every byte of the file is vouched for; a server's are its own concern."""
        if self.path is None:
            return False
        with self.reading() as connection:
            return vouched_for(connection)

    def close(self) -> None:
        if self._wrote:
            self._seal()
        self.engine.dispose()
        if self._tidies and self.path is not None:
            tidy(self.path)

    def _seal(self) -> None:
        """Unless another is writing: then that one does so, or the next."""
        engine = self.engine.execution_options(writing=True, fleeting=True, patient=False)
        with suppress(StoreError, MemoryError), self._transaction(engine) as connection:
            set_seal(connection)

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
            raise self._explained(error.orig or error) from error
        except sqlite3.Error as error:
            raise self._explained(error) from error
        except UnicodeDecodeError as error:  # even what SQLite says of damage may be damaged
            raise DamagedStore(damaged_line(self.location, str(error))) from None

    def _explained(self, error: BaseException) -> StoreError:
        return explain(error, self.location, self._address.scrub)


def _server_engine(address: Address, url: URL, busy_seconds: float, read_only: bool) -> Engine:
    arguments = address.secrets()  # not in the URL, which the library may show
    if "connect_timeout" not in url.query:
        arguments["connect_timeout"] = max(_LEAST_CONNECT_SECONDS, round(busy_seconds))
    options = {"postgresql_readonly": True} if read_only else {}
    try:
        engine = create_engine(
            url, connect_args=arguments, pool_pre_ping=True, execution_options=options
        )
    except ImportError as error:
        raise StoreUnavailable(
            f"{address} needs a database driver ({error}): pip install 'tilewright[postgres]'"
        ) from None

    def limit_waiting(connection: Any, _: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = {max(1, round(busy_seconds * 1000))}")
        connection.commit()

    event.listen(engine, "connect", limit_waiting)
    return engine
