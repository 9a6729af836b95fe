"""The refusals of files that are to be imported, worded alike for every form."""

from __future__ import annotations

from pathlib import Path

from records.errors import DamagedExport, StoreUnavailable


def unreadable(path: Path, error: OSError) -> StoreUnavailable:
    """The refusal of a file that cannot be opened."""
    return StoreUnavailable(f"cannot read {path} ({error.strerror}): name an export")


def damaged(path: Path, place: str, reason: str) -> DamagedExport:
    """The refusal of a file that is not as it was written."""
    return DamagedExport(
        f"{path}, {place}: {reason}; nothing was imported; fetch the file again, or salvage what "
        "is good of it"
    )
