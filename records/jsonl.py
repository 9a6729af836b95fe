"""Texts, jobs and records as JSON Lines: a header, one line each with its checksum, an end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, TextIO

from records.canonical import canonical_json, content_key
from records.errors import DamagedExport, InvalidRecord
from records.files import Imported, Outgoing, Text, checked_text, pour, replacing
from records.record import Job, Record
from records.refused import damaged, unreadable
from records.rows import Selection
from records.store import Store

FORMAT = 1
LONGEST_LINE = 16 << 20
_KINDS: dict[str, type[Record] | type[Job]] = {"trial": Record, "job": Job}


def write(store: Outgoing, path: Path, selection: Selection) -> int:
    """Write the selected trials, every job and what they name; returns how many trials."""
    with replacing(path) as part, open(part, "x", encoding="ascii", newline="\n") as stream:
        return _write(stream, store, selection)


def read(store: Store, path: Path, *, salvage: bool) -> Imported:
    """Store what a file holds. The whole file is verified before anything is stored."""
    bad = _verify(path, salvage)
    return replace(pour(store, _values(path, bad)), damaged=bad)


def verified(path: Path) -> Iterator[Record | Job | Text]:
    """What a file holds; it is verified whole before the first is given. Raises DamagedExport."""
    _verify(path, False)
    return _values(path, ())


def _write(stream: TextIO, store: Outgoing, selection: Selection) -> int:
    digest = sha256()
    count = 0

    def put(kind: str, content: Any) -> None:
        line = _line(kind, content)
        digest.update(line.encode())
        stream.write(line)

    put("header", {"tilewright": "records", "format": FORMAT})
    for text in store.texts():
        put("text", text)
    for job in store.jobs():
        put("job", asdict(job))
    for record in store.records(**selection):
        put("trial", asdict(record))
        count += 1
    stream.write(_line("end", {"trials": count, "sha256": digest.hexdigest()}))
    return count


def _line(kind: str, content: Any) -> str:
    text = canonical_json(content)
    return f'{{"kind":"{kind}","sha256":"{content_key(kind + text)}","{kind}":{text}}}\n'


def _verify(path: Path, salvage: bool) -> tuple[int, ...]:
    """The numbers of damaged lines: none unless `salvage`, for otherwise they raise."""
    bad = []
    digest = sha256()
    end: Any = None
    last = 0
    for last, text in _lines(path):
        try:
            if end is not None and not salvage:
                raise InvalidRecord("more follows after the closing line")
            kind, content = _parse(last, text)
            _value(kind, content)
        except InvalidRecord as error:
            if not salvage:
                raise _damaged(path, last, str(error)) from None
            bad.append(last)
            continue
        if kind == "end":
            end = content
        else:
            digest.update(text.encode())
    if not salvage and end is None:
        raise _damaged(path, last, "it ends early, without its closing line")
    if not salvage and end["sha256"] != digest.hexdigest():
        raise _damaged(path, last, "lines are missing or not in their places")
    return tuple(bad)


def _values(path: Path, skipped: tuple[int, ...]) -> Iterator[Record | Job | Text]:
    passed = frozenset(skipped)
    for number, text in _lines(path):
        if number not in passed:
            value = _value(*_parse(number, text))
            if value is not None:
                yield value


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with open(path, encoding="ascii", errors="replace", newline="\n") as stream:
            number = 0
            while text := stream.readline(LONGEST_LINE + 1):
                number += 1
                if len(text) > LONGEST_LINE:
                    raise _damaged(path, number, f"longer than {LONGEST_LINE >> 20} MiB")
                yield number, text
    except OSError as error:
        raise unreadable(path, error) from None


def _parse(number: int, text: str) -> tuple[str, Any]:
    """Kind and content of a line; raises InvalidRecord, or DamagedExport for a wrong first one."""
    try:
        line = json.loads(text)
        kind = line["kind"]
        content = line[kind]
        sound = line["sha256"] == content_key(kind + canonical_json(content))
    except (ValueError, LookupError, TypeError, RecursionError):
        raise InvalidRecord("it is not a line of an export") from None
    if not sound:
        raise InvalidRecord("its checksum does not match")
    if (number == 1) != (kind == "header"):
        raise InvalidRecord("the header is not the first line")
    return kind, content


def _value(kind: str, content: Any) -> Record | Job | Text | None:
    """What a line holds, None for the lines around it all; raises InvalidRecord."""
    if kind in _KINDS:
        return _KINDS[kind].from_dict(content)
    if kind == "text":
        return Text(checked_text(content))
    if kind == "header" and content != {"tilewright": "records", "format": FORMAT}:
        raise InvalidRecord(f"format {content} is not known here; upgrade Tilewright")
    if kind == "end" and not (isinstance(content, dict) and set(content) == {"trials", "sha256"}):
        raise InvalidRecord("it is not a closing line")
    return None


def _damaged(path: Path, number: int, reason: str) -> DamagedExport:
    return damaged(path, f"line {number}", reason)
