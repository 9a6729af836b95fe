"""Where files live. The only module that reads the environment."""

from __future__ import annotations

import os
from pathlib import Path

from explorer.runtime.once import default_cache_dir
from records.address import Address

RECORDS = "TILEWRIGHT_RECORDS"
CACHE = "TILEWRIGHT_CACHE"


def records_location() -> Address:
    """The record store: $TILEWRIGHT_RECORDS, else records.db under the user's data folder."""
    given = os.environ.get(RECORDS)
    if given:
        return Address.of(given)
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Address.of(Path(base) / "tilewright" / "records.db")


def cache_dir() -> Path:
    """Machine code by content: $TILEWRIGHT_CACHE, else a folder for temporary files."""
    given = os.environ.get(CACHE)
    return Path(given) if given else default_cache_dir()
