"""Compiled code that travels: files of one machine's cache, as another one of its kind takes them.

What a file is for is in its name and its head, which the cache looks at before it runs anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from explorer.farm.bench import Artifact
from explorer.runtime.cache import keep_file

LARGEST = 4_000_000  # bytes of one kernel's code that is still sent


def packed(path: Path) -> tuple[Artifact, ...]:
    """What the cache has of a kernel whose code is at `path`; nothing where that is gone."""
    with suppress(OSError):
        beside = sorted(path.parent.glob(f"{path.stem}.*"))
        found = tuple(Artifact(file.name, file.read_bytes()) for file in beside)
        return found if sum(len(file.content) for file in found) <= LARGEST else ()
    return ()


def unpack(artifacts: Iterable[Artifact], cache_dir: Path) -> None:
    """Keep what others compiled; what is not as the cache writes it is left out."""
    for file in artifacts:
        with suppress(OSError):
            keep_file(cache_dir, file.name, file.content)
