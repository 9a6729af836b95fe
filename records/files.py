"""What all forms of export share: they appear whole or not at all, and are stored in pages."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from records.errors import DamagedStore, InvalidRecord, StoreUnavailable, UnusableLocation
from records.record import Job, Record
from records.rows import Selection
from records.store import PAGE, Store
from records.tellings import Damage

LONGEST_TEXT = 1 << 22


@dataclass(frozen=True, slots=True)
class Text:
    """A text that trials and jobs name by its hash, on its way from store to store."""

    content: str


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did: trials read, those new to the store, and what was passed over."""

    read: int
    added: int
    jobs: int
    damaged: tuple[int, ...] = ()  # numbers of lines, results or trials, only with `salvage`


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote, and the damaged trials and jobs that it left out with `salvage`."""

    trials: int
    left_out: tuple[Damage, ...] = ()


def refuse_itself(store: Store, path: Path) -> None:
    """Raises UnusableLocation if `path` is the store's own file."""
    if Path(store.location).absolute() == path.absolute():
        raise UnusableLocation(f"{path} is the store itself: name another file")


class Outgoing:
    """What is carried out of a store: no row that is not as it was stored.

    A damaged one is refused (DamagedStore), or with `salvage` left out and noted in `left_out`.
    """

    def __init__(self, store: Store, *, salvage: bool) -> None:
        self._store = store
        self._salvage = salvage
        self.left_out: list[Damage] = []

    def records(self, **selection: Unpack[Selection]) -> Iterator[Record]:
        """The selected trials, oldest first."""
        return self._store.sound_records(self._note, **selection)

    def jobs(self) -> tuple[Job, ...]:
        """Every job, oldest first."""
        return self._store.sound_jobs(self._note)

    def texts(self) -> Iterator[str]:
        """The texts that trials and jobs name; the store refuses those that were altered."""
        return self._store.texts()

    def text(self, key: str) -> str | None:
        """The text with this hash; None where it is not kept."""
        return self._store.text(key)

    def _note(self, damage: Damage) -> None:
        if not self._salvage:
            raise DamagedStore(
                f"{self._store.location} is damaged ({damage}): nothing was written; `tilewright "
                "db check` says more, and --salvage leaves out what is damaged"
            )
        self.left_out.append(damage)


@contextmanager
def replacing(goal: Path) -> Iterator[Path]:
    """A name to write to; what is there in the end is forced to the disk and becomes `goal`.

    Raises StoreUnavailable, and leaves what was there before, when writing fails; UnusableLocation
    for what is there and no file, such as a device.
    """
    if goal.exists() and not goal.is_file():
        raise UnusableLocation(f"{goal} is a device or a folder: name a file")
    part = goal.with_name(f".{goal.name}.{secrets.token_hex(4)}.part")
    try:
        try:
            yield part
            with open(part, "rb+") as stream:
                os.fsync(stream.fileno())
            os.replace(part, goal)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise StoreUnavailable(
            f"cannot write {goal} ({error.strerror}): name another file, or make room for it"
        ) from None


def checked_text(content: object) -> str:
    """A text as a store can keep it; raises InvalidRecord."""
    if not isinstance(content, str) or not content.isascii() or "\0" in content:
        raise InvalidRecord("it is not a text in ASCII")
    if len(content) > LONGEST_TEXT:
        raise InvalidRecord(f"its text has {len(content):,} letters, {LONGEST_TEXT:,} at most")
    return content


def pour(store: Store, values: Iterable[Record | Job | Text]) -> Imported:
    """Store values page by page; after an interruption, the same again adds the rest."""
    read = added = jobs = 0
    batch: list[Record] = []
    for value in values:
        if isinstance(value, Text):
            store.keep_texts((value.content,))
            continue
        if isinstance(value, Job):
            jobs += store.put_job(value)
            continue
        batch.append(value)
        read += 1
        if len(batch) == PAGE:
            added += store.add_all(batch)
            batch.clear()
    if batch:
        added += store.add_all(batch)
    return Imported(read, added, jobs)
