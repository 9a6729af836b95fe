"""Where files live. The only module that reads the environment."""

from __future__ import annotations

import os
from pathlib import Path

from explorer.runtime.once import default_cache_dir
from ir.errors import UsageError

RECORDS = "TILEWRIGHT_RECORDS"
CACHE = "TILEWRIGHT_CACHE"


def records_location() -> str:
    """The record store: $TILEWRIGHT_RECORDS, else records.db under the user's data folder.

    Raises UsageError where there is no such folder.
    """
    given = os.environ.get(RECORDS)
    if given:
        return given
    base = os.environ.get("XDG_DATA_HOME") or str(_home() / ".local" / "share")
    return str(Path(base) / "tilewright" / "records.db")


def _home() -> Path:
    """The user's own folder; raises UsageError where HOME is unset and the user is not known."""
    try:
        return Path.home()
    except RuntimeError:
        raise UsageError(
            f"there is no home folder to keep records in: name a store with --records or {RECORDS}"
        ) from None


def cache_dir() -> Path:
    """Machine code by content: $TILEWRIGHT_CACHE, else a folder for temporary files."""
    given = os.environ.get(CACHE)
    return Path(given) if given else default_cache_dir()
