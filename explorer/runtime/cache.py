"""Compiled code on disk: whole files under content keys, with a checksum against damage."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

_MAGIC = b"tilewright-object-1\n"


def cached_file(cache_dir: Path, key: str, suffix: str, make: Callable[[], bytes]) -> Path:
    """The file of `key`, made unless an intact copy is there."""
    name = hashlib.sha256(key.encode()).hexdigest()
    path = cache_dir / name[:2] / f"{name}{suffix}"
    if not _is_intact(path):
        data = make()
        _write_whole(path, _MAGIC + hashlib.sha256(data).digest() + data)
    return path


def read_cached(path: Path) -> bytes:
    """The content of a cache file; raises OSError when the file is damaged."""
    data = path.read_bytes()
    start = len(_MAGIC) + 32
    content = data[start:]
    if (
        data[: len(_MAGIC)] != _MAGIC
        or hashlib.sha256(content).digest() != data[len(_MAGIC) : start]
    ):
        raise OSError(f"damaged cache file {path}")
    return content


def _is_intact(path: Path) -> bool:
    try:
        return bool(read_cached(path))
    except OSError:
        return False


def _write_whole(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    os.replace(file.name, path)
