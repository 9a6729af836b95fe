"""The connection to a database: how it is opened, how it locks, and what its failures mean.

It knows the engines (SQLite, PostgreSQL), and nothing of records. It never opens a SQLite file
itself: closing one would drop the locks that other connections of this process hold on it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import StaticPool

from records.errors import (
    DamagedStore,
    ForeignFile,
    FullStore,
    LockedStore,
    MovedStore,
    ReadOnlyStore,
    StoreError,
    StoreUnavailable,
    UnusableLocation,
)

MEMORY = ":memory:"
BUSY_SECONDS = 30.0


class Database:
    """An open database. `reading()` and `writing()` are its transactions.

    When `writing()` ends without an exception its content is on the disk.
    """

    def __init__(self, where: str | os.PathLike[str], busy_seconds: float = BUSY_SECONDS) -> None:
        url = parse_location(where)
        self.path = _sqlite_path(url)
        self._busy_seconds = busy_seconds
        memory = url.get_backend_name() == "sqlite" and self.path is None
        self.location = MEMORY if memory else str(self.path or url.render_as_string())
        # A database in memory is one connection, so its threads take turns.
        self._turn = threading.RLock() if memory else nullcontext()
        if self.path is not None:
            _check_writable(self.path)
        self.engine = _engine(url, self.location, self.path, busy_seconds)
        self._identity: tuple[int, int] | None = None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database."""
        with self._turn, self._translated(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that holds the write lock from its start, and is durable at its end."""
        engine = self.engine.execution_options(writing=True)
        with self._turn, self._translated(), engine.begin() as connection:
            yield connection
        self._refuse_moved()

    def make_concurrent(self) -> None:
        """Switch a SQLite file to its write-ahead log, where readers and the writer coexist."""
        if self.path is None:
            return
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                with self._translated():
                    self._use_write_ahead_log()
                break
            except LockedStore:  # SQLite does not wait on its own here
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        self._identity = _identity(self.path)

    def _use_write_ahead_log(self) -> None:
        connection = self.engine.raw_connection()
        try:
            cursor = connection.cursor()
            cursor.execute("PRAGMA journal_mode=WAL")
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
            raise DamagedStore(_damaged(self.location, " ".join(str(found).split())))

    def close(self) -> None:
        self.engine.dispose()

    def _refuse_moved(self) -> None:
        """What went to a file that has no name any more would be lost without a word."""
        if self.path is not None and self._identity not in (None, _identity(self.path)):
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


def explain(error: BaseException, location: str) -> StoreError:
    """What a driver's error means for whoever keeps records at `location`."""
    text = " ".join(str(error).split()) or type(error).__name__
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LockedStore(
            f"{location} is locked: another process is holding it; wait for that to end, or stop it"
        )
    if code == sqlite3.SQLITE_FULL or getattr(error, "sqlstate", None) == "53100":
        return FullStore(
            f"{location} is full ({text}): free some space and run again; all that was "
            "acknowledged is kept"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        return ReadOnlyStore(_read_only(location, text))
    if code == sqlite3.SQLITE_CORRUPT:
        return DamagedStore(_damaged(location, text))
    if code == sqlite3.SQLITE_NOTADB:
        return ForeignFile(f"{location} is not a database: name another file for the records")
    return StoreUnavailable(
        f"{location} cannot be used ({text}): check that the disk or the server works, then run "
        "again"
    )


def _sqlite_path(url: URL) -> Path | None:
    """The file behind a URL, None for a database in memory or on a server."""
    if url.get_backend_name() != "sqlite" or url.database in (None, "", MEMORY):
        return None
    return Path(str(url.database)).expanduser().absolute()


def _check_writable(path: Path) -> None:
    try:
        odd = path.exists() and not path.is_file()
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UnusableLocation(
            f"{path.parent} is not a folder: name a file in a folder for the records"
        ) from None
    except OSError as error:
        raise ReadOnlyStore(
            f"{path} cannot be reached or made ({error.strerror}): make its folder writable, or "
            "name another file for the records"
        ) from None
    if odd:
        raise UnusableLocation(f"{path} is not a regular file: name a file for the records")
    if not _may(path.parent, os.W_OK | os.X_OK):
        raise ReadOnlyStore(_read_only(str(path), "its folder cannot be written"))
    if path.exists() and not _may(path, os.R_OK | os.W_OK):
        raise ReadOnlyStore(_read_only(str(path), "the file cannot be written"))


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _engine(url: URL, location: str, path: Path | None, busy_seconds: float) -> Engine:
    if url.get_backend_name() == "sqlite":
        return _sqlite_engine(path, busy_seconds)
    try:
        return create_engine(url, pool_pre_ping=True)
    except ImportError as error:
        raise StoreUnavailable(
            f"{location} needs a database driver ({error}): pip install 'tilewright[postgres]'"
        ) from None


def _sqlite_engine(path: Path | None, busy_seconds: float) -> Engine:
    arguments: dict[str, Any] = {"timeout": busy_seconds, "check_same_thread": False}
    url = URL.create("sqlite", database=str(path) if path else MEMORY)
    if path is None:
        engine = create_engine(url, connect_args=arguments, poolclass=StaticPool)
    else:
        engine = create_engine(url, connect_args=arguments)
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _on_begin)
    return engine


def _on_connect(connection: Any, _: object) -> None:
    connection.isolation_level = None  # transactions are begun by `_on_begin` alone
    # FULL: a commit has reached the disk when it returns, so power may fail right after it.
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _on_begin(connection: Connection) -> None:
    # A transaction that starts as a reader and then writes can fail at once, whatever the timeout.
    writing = connection.get_execution_options().get("writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _damaged(location: str, text: str) -> str:
    return (
        f"{location} is damaged ({text}): restore a copy, or save what can be read with "
        f"`sqlite3 {location} .recover`"
    )


def _read_only(location: str, text: str) -> str:
    return f"{location} is read-only ({text}): make it writable, or name another file"
