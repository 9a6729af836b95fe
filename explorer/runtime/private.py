"""Folders and files that nobody but a trusted owner could have made or changed.

Every level is opened without following a link and examined by its descriptor, so that what is
examined is what is used. Knows nothing of what is kept.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NotPrivate(OSError):
    """A folder or file that somebody else made or can change; one line."""


def me() -> int:
    return os.geteuid()


def owner(folder: Path) -> int:
    """The owner of a folder."""
    return os.stat(folder, follow_symlinks=False).st_uid


@contextmanager
def folder(
    path: str | Path, owners: frozenset[int], *, inside: int | None = None, make: int | None = None
) -> Iterator[int]:
    """A descriptor of a folder of one of `owners`; raises NotPrivate, OSError.

    `inside` is the descriptor of the folder above. What is not there is made with mode `make`; one
    of our own that others can write is closed to them.
    """
    if make is not None:
        with suppress(FileExistsError):
            os.mkdir(path, make, dir_fd=inside)
    try:
        descriptor = os.open(path, _FOLDER, dir_fd=inside)
    except NotADirectoryError:
        raise NotPrivate(f"{path} is a link or no folder") from None
    try:
        found = os.fstat(descriptor)
        if found.st_uid not in owners:
            raise NotPrivate(f"{path} belongs to user {found.st_uid}")
        if found.st_mode & OTHERS_WRITE:
            if found.st_uid != me():
                raise NotPrivate(f"{path} can be written by others than its owner")
            os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & ~OTHERS_WRITE)
        yield descriptor
    finally:
        os.close(descriptor)


def read_file(name: str, inside: int, owners: frozenset[int]) -> tuple[bytes, os.stat_result]:
    """The content of a file of one of `owners`, and what it is; raises NotPrivate, OSError."""
    descriptor = os.open(name, _FILE, dir_fd=inside)
    with open(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise NotPrivate(f"{name} is no file")
        if found.st_uid not in owners or found.st_mode & OTHERS_WRITE:
            raise NotPrivate(f"{name} belongs to user {found.st_uid}, or others can write it")
        return stream.read(), found


def write_file(name: str, inside: int, data: bytes, mode: int) -> None:
    """A file, whole or not at all."""
    part = f".{secrets.token_hex(8)}.part"
    try:
        with open(os.open(part, _NEW, mode, dir_fd=inside), "wb") as stream:
            stream.write(data)
        os.replace(part, name, src_dir_fd=inside, dst_dir_fd=inside)
    except BaseException:
        with suppress(OSError):
            os.unlink(part, dir_fd=inside)
        raise
