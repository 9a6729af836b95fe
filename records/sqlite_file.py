"""SQLite files: what may be opened, how, when they are sealed, and how a reader leaves one.

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

from records import seal
from records.address import MEMORY
from records.errors import ReadOnlyStore, UnusableLocation
from records.failures import read_only_line

SEALED_BYTES = 256 << 20  # larger files are not sealed: it takes their size in memory, and time
CHECKED_BYTES = 32 << 20  # files up to this size are checked whole when they are opened


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


def size_fault(connection: Connection, path: Path) -> str:
    """What is wrong with the length of the file, "" for nothing."""
    wanted = _bytes(connection)  # first: from then on nobody changes the file under this reader
    if not _is_whole(path) or path.stat().st_size == wanted:
        return ""
    return f"the file has {path.stat().st_size:,} bytes, and should have {wanted:,}"


def seal_fault(connection: Connection, path: Path | None = None) -> str:
    """How the bytes contradict their seal, "" if they do not or there is none.

    With `path`, what a transaction that is under way may change is compared as well.
    """
    if not vouched_for(connection):
        return ""
    return seal.breach(_image(connection), strict=path is not None and _is_whole(path))


def is_sealed(connection: Connection) -> bool:
    """Whether nobody has written since the file was sealed."""
    return _pragma(connection, "user_version") != seal.OPEN


def vouched_for(connection: Connection) -> bool:
    """Whether there is a seal that can be compared."""
    return is_sealed(connection) and _bytes(connection) <= SEALED_BYTES


def break_seal(connection: Connection) -> None:
    """For a writer, at the start of its transaction.

    A seal that does not fit stays, and tells. That of a large file is not compared: it would take
    long, and a fault in what holds data is told without it.
    """
    if not is_sealed(connection):
        return
    if _bytes(connection) > CHECKED_BYTES or not seal_fault(connection):
        _set_seal(connection, seal.OPEN)


def set_seal(connection: Connection) -> None:
    """In a transaction of its own that writes: vouch for every byte as it is now."""
    if _bytes(connection) <= SEALED_BYTES and not is_sealed(connection):
        library = sqlite3.sqlite_version_info
        number = library[0] * 1_000_000 + library[1] * 1000 + library[2]
        _set_seal(connection, seal.seal_of(_image(connection), number))


def _set_seal(connection: Connection, value: int) -> None:
    signed = value - (1 << 32) if value >> 31 else value
    connection.exec_driver_sql(f"PRAGMA user_version = {signed}")


def _pragma(connection: Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())


def _bytes(connection: Connection) -> int:
    return _pragma(connection, "page_count") * _pragma(connection, "page_size")


def _image(connection: Connection) -> bytes:
    """The database as this transaction sees it, byte for byte."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver.serialize()


def _is_whole(path: Path) -> bool:
    """Whether the file holds everything: no log stands beside it that holds more."""
    try:
        return _log(path).stat().st_size == 0
    except OSError:
        return True


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
    if not options.get("patient", True):
        connection.exec_driver_sql("PRAGMA busy_timeout = 0")
    if not options.get("writing", False):
        connection.exec_driver_sql("BEGIN")
        return
    # NORMAL: the log is not forced to the disk, so a power cut may take the transaction back.
    level = "NORMAL" if options.get("fleeting", False) else "FULL"
    connection.exec_driver_sql(f"PRAGMA synchronous={level}")
    # A transaction that starts as a reader and then writes can fail at once, whatever the timeout.
    connection.exec_driver_sql("BEGIN IMMEDIATE")
