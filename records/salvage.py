"""Saving what can be read of a damaged SQLite store into a new one. The original is only copied.

SQLite reads a page at a time and stops at the first broken one, so rows are asked for in ranges
that are halved around what cannot be read. What lies behind a broken page is then looked for page
by page. Whatever is found counts only if it matches its hashes.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from records.address import Address
from records.canonical import content_key
from records.errors import DamagedStore, InvalidRecord, StoreUnavailable, UnusableLocation
from records.files import pour
from records.pages import rows_of
from records.record import Job, Record
from records.rows import LATER, plain_job, plain_record
from records.schema import metadata
from records.sqlite_file import refuse_unreadable
from records.store import Store

_RANGE = 256
_MOST_IN_A_PAGE = 20
_MOST = 10_000_000  # rows looked for, if a broken number says that there are more
_HELPERS = ("", "-wal")


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was saved: trials and jobs; and what was not.

    `unreadable` trials are on broken pages (an upper bound, where their number is lost too),
    `altered` ones contradict their hashes. `factless` ones are saved without the facts of their
    hardware, which were lost.
    """

    trials: int
    jobs: int
    unreadable: int
    altered: int
    factless: int


def repair(where: str | os.PathLike[str] | Address, goal: Path) -> Repaired:
    """Save what can be read of the store at `where` into a new file; raises StoreError."""
    address = Address.of(where)
    source = address.path
    if source is None:
        raise UnusableLocation(f"{address} is no file: a server has tools of its own for repairs")
    refuse_unreadable(source)
    if goal.exists():
        raise UnusableLocation(f"{goal} is there already: name a new file for what is saved")
    try:
        with tempfile.TemporaryDirectory(prefix=".repair-", dir=goal.absolute().parent) as folder:
            copy = Path(folder) / "copy.db"
            for ending in _HELPERS:
                with suppress(FileNotFoundError):
                    shutil.copyfile(f"{source}{ending}", f"{copy}{ending}")
            return _save(source, copy, goal)
    except OSError as error:
        raise StoreUnavailable(
            f"cannot write beside {goal} ({error.strerror}): name a file elsewhere, or make room"
        ) from None


def _save(source: Path, copy: Path, goal: Path) -> Repaired:
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA writable_schema = ON")  # else SQLite reads nothing of a cut file
        with suppress(sqlite3.Error):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        reader = _Reader(connection, copy)
        part = copy.with_name("saved.db")
        with Store(part) as store:
            store.keep_texts(reader.texts)
            jobs = pour(store, reader.jobs()).jobs
            trials = pour(store, reader.trials()).added
        if not trials and not jobs:
            raise DamagedStore(f"{source}: nothing in it can be read; restore a copy of it")
        part.rename(goal)
    return Repaired(trials, jobs, reader.unreadable, reader.altered, reader.factless)


class _Reader:
    """Reads rows around what is broken, and counts what it could not use."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self.unreadable = self.altered = self.factless = 0
        self._facts = {
            row["key"]: row["text"] for row in self._all_rows("facts") if _is_its_key(row)
        }

    @property
    def texts(self) -> Iterable[str]:
        """Every sound one, whatever it is that names it."""
        return self._facts.values()

    def highest(self, table: str) -> int:
        """The highest row number, by whichever way still works; else a guess that is too high."""
        for query in (
            f"SELECT max(rowid) FROM {table}",
            f"SELECT min(seq, {_MOST}) FROM sqlite_sequence WHERE name = '{table}'",
            f"SELECT min({_MOST_IN_A_PAGE} * page_count, {_MOST}) FROM pragma_page_count",
        ):
            with suppress(sqlite3.Error):
                row = self._connection.execute(query).fetchone()
                if row is not None:
                    return int(row[0] or 0)
        return 0

    def jobs(self) -> Iterator[Job]:
        seen: set[str] = set()
        for row in self._all_rows("jobs"):
            with suppress(InvalidRecord):
                job = plain_job(row)
                if job.id not in seen:
                    seen.add(job.id)
                    yield job

    def trials(self) -> Iterator[Record]:
        seen: set[str] = set()
        self.unreadable = 0
        for row in self._rows("trials"):
            if record := self._sound(row, seen):
                yield record
            else:
                self.altered += 1
        if seen and not self.unreadable:
            return
        for row in self._scattered("trials"):
            if record := self._sound(row, seen):
                self.unreadable = max(0, self.unreadable - 1)
                yield record

    def _sound(self, row: Mapping[str, Any], seen: set[str]) -> Record | None:
        """The trial of a row, if not seen before and it matches its hashes, but for lost facts."""
        try:
            record = plain_record(row, self._facts.get(row["facts"], "{}"))
        except (InvalidRecord, LookupError, TypeError):
            return None
        lost = row["facts"] not in self._facts and record.candidate == row["candidate"]
        if record.key in seen or not (lost or record.key == row["key"]):
            return None
        seen.add(record.key)
        self.factless += lost
        return record

    def _all_rows(self, table: str) -> Iterator[Mapping[str, Any]]:
        """What SQLite finds, and if it meets something broken or nothing, what else there is."""
        self.unreadable = found = 0
        for row in self._rows(table):
            found += 1
            yield row
        if self.unreadable or not found:
            yield from self._scattered(table)

    def _scattered(self, table: str) -> Iterator[Mapping[str, Any]]:
        """Rows that may be of the table, by their number of columns."""
        names = [column.name for column in metadata.tables[table].columns]
        # Columns that later versions added stand behind those of the first.
        later = ("key",) if table == "jobs" else LATER
        fewest = next((names.index(name) for name in later if name in names), len(names))
        for values in rows_of(self._path):
            if fewest <= len(values) <= len(names):
                yield dict(zip(names, values, strict=False))

    def _rows(self, table: str) -> Iterator[Mapping[str, Any]]:
        end = self.highest(table) + 1
        for start in range(1, end, _RANGE):
            yield from self._range(table, start, min(start + _RANGE, end))

    def _range(self, table: str, start: int, stop: int) -> Iterator[Mapping[str, Any]]:
        query = f"SELECT * FROM {table} WHERE rowid >= ? AND rowid < ? ORDER BY rowid"
        try:
            rows = self._connection.execute(query, (start, stop)).fetchall()
        except (sqlite3.Error, UnicodeError):
            if stop - start == 1:
                self.unreadable += 1
                return
            middle = (start + stop) // 2
            yield from self._range(table, start, middle)
            yield from self._range(table, middle, stop)
        else:
            yield from (dict(row) for row in rows)


def _is_its_key(row: Mapping[str, Any]) -> bool:
    return isinstance(row["text"], str) and content_key(row["text"]) == row["key"]
