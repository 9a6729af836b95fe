"""Compiled code on disk: whole files under content keys, in a folder that only its owner can write.

A file counts if a trusted owner made it and if it is whole and of its key. Code found here is run:
whoever could put a file here could run what they like.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from explorer.runtime.private import folder, me, owner, read_file, write_file
from explorer.settings import cache_limit, shared_cache

FOLDERS = 256  # by the first two digits of a key; each has its share of the limit
FRESH = 600.0  # seconds for which what was used stays, whatever the limit: it may be loaded yet
_NAME = re.compile(r"[0-9a-f]{64}\.[a-z]{1,8}")
_MAGIC = b"tilewright-object-2\n"
_DIGEST = 32
_ROOT = 0
_NOTED = 60.0  # seconds until a use is noted again


def cached_file(cache_dir: Path, key: str, suffix: str, make: Callable[[], bytes]) -> Path:
    """The file of `key`, made unless a sound copy is there.

    Where a shared cache is named, copies in it count too; its owner's new files go there.
    """
    shared = shared_cache()
    paths = _places(cache_dir, key, suffix)
    for path in paths:
        if _is_sound(path):
            return path
    mine = shared is not None and owner(shared) == me()
    _write(paths[-1] if mine else paths[0], make(), public=mine)
    return paths[-1] if mine else paths[0]


def find_cached(cache_dir: Path, key: str, suffix: str) -> bytes | None:
    """The content of the file of `key`, if a sound copy is there."""
    for path in _places(cache_dir, key, suffix):
        with suppress(OSError):
            return read_cached(path)
    return None


def keep_file(cache_dir: Path, name: str, content: bytes) -> None:
    """Keep a whole cache file of a machine of this kind; raises OSError for what is none."""
    start = len(_MAGIC) + _DIGEST
    if not _NAME.fullmatch(name) or content[:start] != _head(name, content[start:]):
        raise OSError(f"{name!r} is no file of a cache")
    path = cache_dir / name[:2] / name
    if not _is_sound(path):
        _write(path, content[start:], public=False)


def _places(cache_dir: Path, key: str, suffix: str) -> list[Path]:
    """Where the file of `key` may be: one's own, then one that is shared."""
    name = f"{hashlib.sha256(key.encode()).hexdigest()}{suffix}"
    return [root / name[:2] / name for root in (cache_dir, shared_cache()) if root is not None]


def read_cached(path: Path) -> bytes:
    """The content of a cache file; raises OSError when it is damaged or not to be trusted."""
    root, owners = path.parent.parent, _owners(path.parent.parent)
    with folder(root, owners) as top, folder(path.parent.name, owners, inside=top) as inside:
        data, found = read_file(path.name, inside, owners)
        if found.st_uid == me() and time.time() - found.st_mtime > _NOTED:
            with suppress(OSError):
                os.utime(path.name, dir_fd=inside, follow_symlinks=False)
    start = len(_MAGIC) + _DIGEST
    if data[:start] != _head(path.name, data[start:]):
        raise OSError(f"damaged cache file {path}")
    return data[start:]


def _owners(root: Path) -> frozenset[int]:
    """Whose files count: our own, the machine's, and in the shared cache its owner's."""
    named = {owner(root)} if root == shared_cache() else set()
    return frozenset({me(), _ROOT} | named)


def _head(name: str, content: bytes) -> bytes:
    """What a file begins with; its name is in it, so that no file can stand for another one."""
    return _MAGIC + hashlib.sha256(name.encode() + b"\n" + content).digest()


def _is_sound(path: Path) -> bool:
    try:
        return bool(read_cached(path))
    except OSError:
        return False


def _write(path: Path, content: bytes, *, public: bool) -> None:
    root, own = path.parent.parent, frozenset({me()})
    if not public:
        root.parent.mkdir(parents=True, exist_ok=True)
    modes = (0o755, 0o644) if public else (0o700, 0o600)
    with (
        folder(root, own, make=modes[0]) as top,
        folder(path.parent.name, own, inside=top, make=modes[0]) as inside,
    ):
        write_file(path.name, inside, _head(path.name, content) + content, modes[1])
        trim(inside, cache_limit() // FOLDERS, time.time() - FRESH)


def trim(inside: int, most: int, before: float) -> None:
    """Let the least recently used files of a folder go until it holds `most` bytes, if they were
    last used before a moment. Others may do the same meanwhile."""
    found = []
    with os.scandir(inside) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                facts = entry.stat(follow_symlinks=False)
                found.append((facts.st_mtime, facts.st_size, entry.name))
    size = sum(bytes_ for _, bytes_, _ in found)
    for used, bytes_, name in sorted(found):
        if size <= most or used >= before:
            return
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=inside)
        size -= bytes_
