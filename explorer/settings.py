"""Where files live. The only module that reads the environment."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path

from ir.errors import UsageError
from records.address import Address

RECORDS = "TILEWRIGHT_RECORDS"
CACHE = "TILEWRIGHT_CACHE"
SHARED_CACHE = "TILEWRIGHT_SHARED_CACHE"
CACHE_LIMIT = "TILEWRIGHT_CACHE_LIMIT"
_LIMIT = 4_000_000_000
_SIZE = re.compile(r"(\d{1,9})\s*([KMGT]?)B?", re.IGNORECASE)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def records_location() -> Address:
    """The record store: $TILEWRIGHT_RECORDS, else records.db under the user's data folder.

    Raises UsageError where there is no such folder.
    """
    given = os.environ.get(RECORDS)
    if given:
        return Address.of(given)
    base = os.environ.get("XDG_DATA_HOME") or str(_home() / ".local" / "share")
    return Address.of(Path(base) / "tilewright" / "records.db")


def _home() -> Path:
    """The user's own folder; raises UsageError where HOME is unset and the user is not known."""
    try:
        return Path.home()
    except RuntimeError:
        raise UsageError(
            f"there is no home folder to keep records in: name a store with --records or {RECORDS}"
        ) from None


def cache_dir() -> Path:
    """Machine code by content: $TILEWRIGHT_CACHE, else a folder in the user's own cache.

    It is there, is the user's, and nobody else can write it. Where the user has no such place, it
    is a fresh one for as long as this process lives. Raises UsageError for a folder named that is
    somebody else's.
    """
    given = os.environ.get(CACHE)
    if not given:
        return _users_cache()[0]
    path = Path(os.path.realpath(given))
    why = _unfit(path)
    if why:
        raise UsageError(f"{CACHE}={given}: {why}; name a folder of your own")
    return path


def cache_trouble() -> str:
    """Why the cache is a temporary one; "" where it is not."""
    return "" if os.environ.get(CACHE) else _users_cache()[1]


@cache
def _users_cache() -> tuple[Path, str]:
    """The user's cache, or a temporary one and why."""
    from platformdirs import user_cache_path

    try:
        path = user_cache_path("tilewright", appauthor=False)
        why = _unfit(path) if path.is_absolute() else "there is no home folder"
    except (OSError, RuntimeError, KeyError) as error:
        why = f"there is no home folder ({error})"
    if not why:
        return path, ""
    fresh = Path(tempfile.mkdtemp(prefix="tilewright-"))
    atexit.register(_remove, fresh, os.getpid())
    return fresh, why


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _unfit(path: Path) -> str:
    """Why a folder cannot be a private cache; it is made if it is not there."""
    from explorer.runtime.private import folder, me

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with folder(path, frozenset({me()}), make=0o700):
            return "" if os.access(path, os.W_OK | os.X_OK) else f"{path} cannot be written"
    except OSError as error:
        return str(error) if error.errno is None else f"{path}: {error.strerror}"


def shared_cache() -> Path | None:
    """A cache of several users, $TILEWRIGHT_SHARED_CACHE, of whose owner files count as one's own.

    Only its owner writes to it. Raises UsageError where it is no folder.
    """
    given = os.environ.get(SHARED_CACHE)
    if not given:
        return None
    path = Path(os.path.realpath(given))
    if not path.is_dir():
        raise UsageError(f"{SHARED_CACHE}={given}: no such folder; its owner makes it")
    return path


def cache_limit() -> int:
    """Bytes of machine code that are kept: $TILEWRIGHT_CACHE_LIMIT, such as 500MB; else 4 GB."""
    given = os.environ.get(CACHE_LIMIT)
    if not given:
        return _LIMIT
    return size_of(f"{CACHE_LIMIT}=", given)


def size_of(what: str, given: str) -> int:
    """Bytes of a size as people write it; raises UsageError, which calls it `what`."""
    match = _SIZE.fullmatch(given.strip())
    if match is None:
        raise UsageError(f"{what}{given}: not a size; write 500MB or 4GB")
    return int(match[1]) * _UNITS[match[2].upper()]
