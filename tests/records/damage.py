"""Damage done to copies of a store, and what is to come of it: told by `check`, no wrong row."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from records import Job, Record, Store, StoreError


@dataclass(frozen=True, slots=True)
class Kept:
    """What a sound store holds."""

    records: frozenset[Record]
    jobs: frozenset[Job]

    @classmethod
    def of(cls, path: Path) -> Kept:
        with Store(path, read_only=True) as store:
            return cls(frozenset(store.records()), frozenset(store.jobs()))


def flips(whole: bytes, count: int, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Copies of a file with one bit changed, anywhere in it, and the place."""
    for _ in range(count):
        place, bit = rng.randrange(len(whole)), rng.randrange(8)
        changed = bytearray(whole)
        changed[place] ^= 1 << bit
        yield f"bit {bit} of byte {place}", bytes(changed)


def cuts(whole: bytes, count: int, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Copies of a file without its end: a few bytes, some of a page, pages, nearly all."""
    for number in range(count):
        limit = (16, 4096, 5 * 4096, len(whole))[number % 4]
        size = rng.randrange(1, min(limit, len(whole)) + 1)
        yield f"cut by {size} bytes", whole[: len(whole) - size]


def refusal(path: Path | str) -> str:
    """What `check` says, "" where it finds nothing."""
    try:
        with Store(path, read_only=True) as store:
            store.check()
    except StoreError as error:
        return str(error)
    return ""


def wrong_rows(path: Path, kept: Kept, *, read_only: bool) -> int:
    """How many trials and jobs are read that were never stored."""
    found: list[Record | Job] = []
    sample = next(iter(kept.records))
    try:
        with Store(path, read_only=read_only) as store:
            found += store.jobs()
            best = store.best(sample.workload, sample.target, sample.hardware)
            found += [best] if best else []
            found += store.records()
    except StoreError:
        pass
    return sum(value not in kept.records and value not in kept.jobs for value in found)


def clear(path: Path) -> None:
    """Remove what stands beside the file of a store."""
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
