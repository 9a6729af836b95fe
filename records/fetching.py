"""A file from an address: over HTTP by the standard library, and no larger than asked."""

from __future__ import annotations

import urllib.request
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from records.errors import StoreUnavailable

SCHEMES = ("http", "https")
SECONDS = 60.0  # that a server may keep silent
_PIECE = 1 << 20


def is_address(text: str) -> bool:
    """Whether a text names something to be fetched, and not a file."""
    return urlsplit(text).scheme in SCHEMES


def fetch(address: str, goal: Path, most: int) -> None:
    """Write what is at `address` to a file; raises StoreUnavailable, also beyond `most` bytes."""
    left = most
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as source, open(goal, "xb") as file:
            while piece := source.read(_PIECE):
                left -= len(piece)
                if left < 0:
                    raise StoreUnavailable(f"{address} is larger than {most >> 20:,} MiB")
                file.write(piece)
    except (OSError, HTTPException, ValueError) as error:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise StoreUnavailable(f"cannot fetch {address} ({why})") from None
