"""Places that results go to: what cannot be written is told before the work, not after it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ir.errors import UsageError

_ROOM = bytes(1 << 18)  # about what a kernel's files take


def refuse_unwritable_folder(option: str, folder: Path) -> None:
    """Raises UsageError unless files can be made in `folder`, which may itself be made yet.

    Folders above it that are missing are made with it.
    """
    nearest = folder.absolute()
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise UsageError(f"{option} {folder}: a file is in the way; name a folder")
    _refuse_full(f"{option} {folder}", nearest, "name another folder")


def refuse_unwritable_file(option: str, file: Path) -> None:
    """Raises UsageError unless `file` can be made or replaced, in a folder that is there."""
    if not file.name or file.is_dir():
        raise UsageError(f"{option} {file}: a folder is in the way; name a file")
    if file.exists() and not file.is_file():
        raise UsageError(f"{option} {file}: it is a device; name a file")
    if not file.parent.is_dir():
        raise UsageError(f"{option} {file}: there is no folder {file.parent}; make it first")
    _refuse_full(f"{option} {file}", file.parent, "name another place")


def _refuse_full(what: str, folder: Path, remedy: str) -> None:
    """By writing a file without a name there: permissions, quotas and disks have many forms."""
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(_ROOM)
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"{what}: {folder} cannot be written: {why}; {remedy}") from None
