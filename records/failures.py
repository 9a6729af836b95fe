"""What the failures of database drivers mean for whoever keeps records: one line each."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from records.errors import (
    DamagedStore,
    ForeignFile,
    FullStore,
    LockedStore,
    ReadOnlyStore,
    ServerAway,
    StoreError,
    StoreUnavailable,
)

_FULL, _LOCK_TIMEOUT, _READ_ONLY = "53100", "55P03", "25006"  # SQLSTATE
_AWAY = ("08", "57P01", "57P02", "57P03")  # their beginnings: connection lost, server going


def explain(error: BaseException, location: str, scrub: Callable[[str], str] = str) -> StoreError:
    """What a driver's error means for whoever keeps records at `location`.

    `scrub` takes out of the driver's words what nobody may see.
    """
    text = scrub(" ".join(str(error).split())) or type(error).__name__
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    state = getattr(error, "sqlstate", "") or ""
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or state == _LOCK_TIMEOUT:
        return LockedStore(
            f"{location} is locked: another process is holding it; wait for that to end, or stop it"
        )
    if code == sqlite3.SQLITE_FULL or state == _FULL:
        return FullStore(
            f"{location} is full ({text}): free some space and run again; all that was "
            "acknowledged is kept"
        )
    read_only = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN)
    if code in read_only or state == _READ_ONLY:
        return ReadOnlyStore(read_only_line(location, text))
    if code == sqlite3.SQLITE_CORRUPT:
        return DamagedStore(damaged_line(location, text))
    if code == sqlite3.SQLITE_NOTADB:
        return ForeignFile(f"{location} is not a database: name another file for the records")
    if _lost(error, state):
        return ServerAway(
            f"{location} does not answer ({text}): start the server, or wait for it; all that was "
            "acknowledged is kept"
        )
    return StoreUnavailable(
        f"{location} cannot be used ({text}): check that the disk or the server works, then run "
        "again"
    )


def damaged_line(location: str, text: str) -> str:
    return (
        f"{location} is damaged ({text}): restore a copy, or save what can be read with "
        f"`tilewright db repair NEW --records {location}`"
    )


def read_only_line(location: str, text: str) -> str:
    return f"{location} is read-only ({text}): make it writable, or name another file"


def _lost(error: BaseException, state: str) -> bool:
    """Whether a server went away or cannot be reached, rather than having refused something."""
    if not hasattr(error, "sqlstate"):
        return False  # SQLite's
    names = {base.__name__ for base in type(error).__mro__}
    return state.startswith(_AWAY) or (not state and "OperationalError" in names)
