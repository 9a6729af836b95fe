"""SQLite files: what may be opened, how, and how a reader leaves one as it was.

Knows nothing of records. It never opens a file itself, only through SQLite: closing one would drop
the locks that other connections of this process hold on it.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.pool import QueuePool, StaticPool

from records.errors import ReadOnlyStore, UnusableLocation
from records.failures import read_only_line

MEMORY = ":memory:"


def path_of(url: URL) -> Path | None:
    """The file behind a URL, None for a database in memory or on a server."""
    if url.get_backend_name() != "sqlite" or url.database in (None, "", MEMORY):
        return None
    return Path(str(url.database)).expanduser().absolute()


def engine_of(path: Path | None, busy_seconds: float) -> Engine:
    """An engine that reads and writes; without a path, one connection to a database in memory."""
    arguments: dict[str, Any] = {"timeout": busy_seconds, "check_same_thread": False}
    url = URL.create("sqlite", database=str(path) if path else MEMORY)
    if path is None:
        engine = create_engine(url, connect_args=arguments, poolclass=StaticPool)
    else:
        engine = create_engine(url, connect_args=arguments)
    return _with_transactions(engine)


def reading_engine(path: Path, busy_seconds: float) -> Engine:
    """An engine that can change nothing of the file."""
    location = f"file:{quote(str(path))}?mode=ro"
    if untouched(path) and not may(path.parent, os.W_OK):
        location += "&immutable=1"  # else SQLite wants to make its helper files there

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(location, uri=True, timeout=busy_seconds, check_same_thread=False)

    return _with_transactions(create_engine("sqlite://", creator=connect, poolclass=QueuePool))


def untouched(path: Path) -> bool:
    """Whether nobody has the database open, nor died with it open: it has no log."""
    return not _log(path).exists()


def tidy(path: Path) -> None:
    """Remove the empty helper files that a reader has left, unless somebody needs them.

    SQLite does so itself when the last connection that may write is closed.
    """
    with suppress(OSError, sqlite3.Error):
        if _log(path).stat().st_size == 0 and may(path.parent, os.W_OK):
            with closing(sqlite3.connect(path, timeout=0)) as connection:
                connection.execute("PRAGMA schema_version").fetchall()


def refuse_unwritable(path: Path) -> None:
    """Make the folder of `path`; raises UnusableLocation or ReadOnlyStore."""
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
    if not may(path.parent, os.W_OK | os.X_OK):
        raise ReadOnlyStore(read_only_line(str(path), "its folder cannot be written"))
    if path.exists() and not may(path, os.R_OK | os.W_OK):
        raise ReadOnlyStore(read_only_line(str(path), "the file cannot be written"))


def refuse_unreadable(path: Path) -> None:
    """Raises UnusableLocation for what is no file that can be read."""
    try:
        there, readable = path.is_file(), may(path, os.R_OK)
    except OSError:
        there = readable = False
    if not there:
        raise UnusableLocation(f"{path} is not a file: name a store that exists")
    if not readable:
        raise UnusableLocation(f"{path} cannot be read: ask its owner for leave to read it")


def identity(path: Path) -> tuple[int, int] | None:
    """Which file stands under the name now, None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _with_transactions(engine: Engine) -> Engine:
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _on_begin)
    return engine


def _on_connect(connection: Any, _: object) -> None:
    connection.isolation_level = None  # transactions are begun by `_on_begin` alone
    # FULL: a commit has reached the disk when it returns, so power may fail right after it.
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _on_begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    if not options.get("writing", False):
        connection.exec_driver_sql("BEGIN")
        return
    # NORMAL: the log is not forced to the disk, so a power cut may take the transaction back.
    level = "NORMAL" if options.get("fleeting", False) else "FULL"
    connection.exec_driver_sql(f"PRAGMA synchronous={level}")
    # A transaction that starts as a reader and then writes can fail at once, whatever the timeout.
    connection.exec_driver_sql("BEGIN IMMEDIATE")
