"""Trials as a Parquet file, for analysis by other tools, and back. Needs DuckDB.

A row is a trial, with its own key, by which an import verifies it; jobs and a checksum over all
keys are in the file's metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from records.canonical import canonical_json, content_key
from records.errors import InvalidRecord, StoreUnavailable
from records.files import Imported, Outgoing, Text, checked_text, pour, replacing
from records.record import Job, Record
from records.refused import damaged, unreadable
from records.rows import LATER, Selection
from records.store import Store

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

FORMAT = 1
LARGEST = 4 << 30  # bytes of a file's columns, unpacked
LONGEST = 256 << 10  # bytes of one text in it: a few thousand letters are usual
_ROWS = 100  # read at a time
_SETTINGS = (
    "threads = 1", "enable_progress_bar = false", "memory_limit = '1GB'",
    "autoinstall_known_extensions = false",
)  # fmt: skip
_TYPES = {
    **dict.fromkeys(("threads", "repeats"), "INTEGER"),
    **dict.fromkeys(("seconds", "lower_quartile", "upper_quartile"), "DOUBLE"),
    **dict.fromkeys(("error", "compile_seconds", "clock_ghz"), "DOUBLE"),
}
_HEADER, _JOBS, _TEXTS = "tilewright", "tilewright_jobs", "tilewright_texts"  # in the metadata


def write(store: Outgoing, path: Path, selection: Selection) -> int:
    """Write the selected trials and every job; returns how many trials."""
    duckdb = _library()
    with _connect(duckdb) as connection, replacing(path) as part:
        rows = part.with_suffix(".rows")
        try:
            header = _write_rows(store, rows, selection)
            jobs = canonical_json([asdict(job) for job in store.jobs()])
            texts = canonical_json(list(store.texts()))
            header |= {"jobs": content_key(jobs), "texts": content_key(texts)}
            notes = {_HEADER: canonical_json(header), _JOBS: jobs, _TEXTS: texts}
            connection.execute(_copy(rows, part, notes))
        except duckdb.Error as error:
            raise OSError(0, _line(error)) from None
        finally:
            rows.unlink(missing_ok=True)
    return int(header["trials"])


def read(store: Store, path: Path, *, salvage: bool) -> Imported:
    """Store what a file holds. The whole file is verified before anything is stored."""
    duckdb = _library()
    _refuse_unreadable(path)
    with _connect(duckdb) as connection:
        try:
            _refuse_large(connection, path)
            noted, bad = _verify(connection, path, salvage)
            new_jobs = pour(store, noted).jobs
            done = pour(store, (row for _, row in _rows(connection, path) if row is not None))
        except (duckdb.Error, UnicodeError) as error:
            raise damaged(path, "the whole of it", _line(error)) from None
    return replace(done, jobs=new_jobs, damaged=bad)


def _library() -> ModuleType:
    try:
        import duckdb
    except ImportError as error:
        raise StoreUnavailable(
            f"Parquet needs DuckDB ({error}): pip install 'tilewright[parquet]'"
        ) from None
    return duckdb


def _connect(duckdb: ModuleType) -> DuckDBPyConnection:
    connection: DuckDBPyConnection = duckdb.connect()
    for setting in _SETTINGS:
        connection.execute(f"SET {setting}")
    return connection


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _write_rows(store: Outgoing, path: Path, selection: Selection) -> dict[str, Any]:
    """The trials as lines of JSON, which DuckDB reads by itself; gives what the header says."""
    digest, count = sha256(), 0
    with open(path, "x", encoding="ascii") as stream:
        for record in store.records(**selection):
            values = asdict(record)
            low, high = values.pop("quartiles") or (None, None)
            values |= {"lower_quartile": low, "upper_quartile": high}
            values |= {"key": record.key, "candidate": record.candidate}
            stream.write(json.dumps(values) + "\n")
            digest.update(record.key.encode())
            count += 1
    return {"format": FORMAT, "trials": count, "sha256": digest.hexdigest()}


def _columns() -> list[str]:
    names = [field.name for field in fields(Record) if field.name != "quartiles"]
    return ["key", "candidate", *names, "lower_quartile", "upper_quartile"]


def _columns_of(connection: DuckDBPyConnection, path: Path) -> list[str]:
    """Those to be read from a file, which an earlier version may have written."""
    query = "SELECT name FROM parquet_schema(?)"
    there = {row[0] for row in connection.execute(query, [str(path)]).fetchall()}
    return [name for name in _columns() if name in there or name not in LATER]


def _copy(rows: Path, goal: Path, notes: dict[str, str]) -> str:
    types = ", ".join(f"{name}: '{_TYPES.get(name, 'VARCHAR')}'" for name in _columns())
    source = f"read_json({_quote(str(rows))}, format = 'newline_delimited', columns = {{{types}}})"
    told = ", ".join(f"{name}: {_quote(text)}" for name, text in notes.items())
    options = f"FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{told}}}"
    return f"COPY (SELECT * FROM {source}) TO {_quote(str(goal))} ({options})"


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _verify(
    connection: DuckDBPyConnection, path: Path, salvage: bool
) -> tuple[list[Text | Job], tuple[int, ...]]:
    """Texts and jobs, and the numbers of damaged rows; without `salvage`, these raise."""
    header, noted = _notes(connection, path)
    digest, bad, count = sha256(), [], 0
    for number, record in _rows(connection, path):
        count = number
        if record is None:
            bad.append(number)
        else:
            digest.update(record.key.encode())
    if salvage:
        return noted, tuple(bad)
    if bad:
        raise damaged(path, f"row {bad[0]}", "its content does not match its key")
    if (count, digest.hexdigest()) != (header.get("trials"), header.get("sha256")):
        raise damaged(path, f"row {count}", "rows are missing or not in their places")
    return noted, ()


def _refuse_large(connection: DuckDBPyConnection, path: Path) -> None:
    """Raises DamagedExport for what unpacks to more than it may: a dictionary of one long text can
    stand for any number of rows."""
    query = (
        "SELECT sum(total_uncompressed_size), max(total_uncompressed_size) FROM parquet_metadata(?)"
    )
    size, largest = connection.execute(query, [str(path)]).fetchone() or (0, 0)
    if (size or 0) > LARGEST:
        raise damaged(path, "the whole of it", f"its columns hold more than {LARGEST >> 20} MiB")
    if (largest or 0) <= LONGEST:
        return
    texts = [name for name in _columns_of(connection, path) if name not in _TYPES]
    longest = ", ".join(f"max(strlen({name}))" for name in texts)
    row = connection.execute(f"SELECT {longest} FROM read_parquet(?)", [str(path)]).fetchone()
    for name, length in zip(texts, row or (), strict=False):
        if (length or 0) > LONGEST:
            raise damaged(path, name, f"a text of {length:,} bytes")


def _notes(connection: DuckDBPyConnection, path: Path) -> tuple[dict[str, Any], list[Text | Job]]:
    query = "SELECT key, value FROM parquet_kv_metadata(?)"
    notes = dict(connection.execute(query, [str(path)]).fetchall())
    try:
        header = json.loads(notes[_HEADER.encode()])
        text = notes[_JOBS.encode()].decode()
        if header["format"] != FORMAT:
            raise damaged(path, "metadata", f"format {header['format']} is not known here")
        if header["jobs"] != content_key(text):
            raise damaged(path, "metadata", "the checksum of the jobs does not match")
        kept = notes[_TEXTS.encode()].decode() if "texts" in header else "[]"
        if header.get("texts", content_key(kept)) != content_key(kept):
            raise damaged(path, "metadata", "the checksum of the texts does not match")
        texts = [Text(checked_text(content)) for content in json.loads(kept)]
        return header, [*texts, *(Job.from_dict(values) for values in json.loads(text))]
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        reason = f"it is no export of Tilewright ({type(error).__name__})"
        raise damaged(path, "metadata", reason) from None


def _rows(connection: DuckDBPyConnection, path: Path) -> Iterator[tuple[int, Record | None]]:
    """Rows with their numbers from 1 on; None for one that does not match its key."""
    columns = _columns_of(connection, path)
    query = f"SELECT {', '.join(columns)} FROM read_parquet(?)"
    cursor = connection.cursor().execute(query, [str(path)])
    number = 0
    while rows := cursor.fetchmany(_ROWS):
        for row in rows:
            number += 1
            yield number, _record(dict(zip(columns, row, strict=True)))


def _record(values: dict[str, Any]) -> Record | None:
    key = values.pop("key")
    values.pop("candidate")
    low, high = values.pop("lower_quartile"), values.pop("upper_quartile")
    try:
        record = Record(**values, quartiles=None if low is None else (low, high))
    except InvalidRecord:
        return None
    return record if record.key == key else None


def _refuse_unreadable(path: Path) -> None:
    try:
        with open(path, "rb"):
            return
    except OSError as error:
        raise unreadable(path, error) from None
