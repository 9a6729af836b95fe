"""Trials in the auto-tuning community's T4 results format (schema 1.0.0), out and in.

A T4 file holds one search space: configurations with their times, validity and measurements. Ours
carry each record beside it, under `tilewright` with its key, so that they come back exactly; files
of other tools become records of a workload named after them. Times are in seconds here; a file
says its unit in `metadata.timeunit`, or beside its measurement called `time`.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from records.canonical import canonical_json, content_key
from records.errors import InvalidRecord, UnusableLocation
from records.files import (
    Imported,
    Outgoing,
    Text,
    checked_text,
    damaged,
    pour,
    replacing,
    unreadable,
)
from records.record import Record
from records.rows import Selection
from records.store import Store

SCHEMA = "1.0.0"
LARGEST = 256 << 20  # bytes of a file, which is held in memory
_OURS = "tilewright"
_INVALIDITY = {
    "ok": "correct",
    "illegal": "constraints",
    "compile_error": "compile",
    "wrong_result": "correctness",
    "timeout": "timeout",
    "crash": "runtime",
    "out_of_memory": "runtime",
    "unstable": "correctness",
    "below_roofline": "correctness",
}
_STATUS = {
    "correct": "ok",
    "constraints": "illegal",
    "compile": "compile_error",
    "correctness": "wrong_result",
    "timeout": "timeout",
    "runtime": "crash",
}
_SECONDS = {
    **dict.fromkeys(("seconds", "s", ""), 1.0),
    **dict.fromkeys(("milliseconds", "miliseconds", "ms"), 1e-3),
    **dict.fromkeys(("microseconds", "us"), 1e-6),
    **dict.fromkeys(("nanoseconds", "ns"), 1e-9),
}
_LONG_AGO = "1970-01-01T00:00:00+00:00"  # for results without a time stamp: the same each time


def write(store: Outgoing, path: Path, selection: Selection) -> int:
    """Write the selected trials, which must be of one space; returns how many."""
    with replacing(path) as part, open(part, "x", encoding="ascii") as stream:
        return _write(stream, store, path, selection)


def read(store: Store, path: Path, *, salvage: bool, operator: str | None) -> Imported:
    """Store what a file holds. All of it is understood before anything is stored."""
    data = _load(path)
    unit = _unit(path, data)
    name = operator or path.name.partition(".")[0]
    bad: list[int] = []
    records: list[Record] = []
    for number, result in enumerate(data["results"], start=1):
        try:
            records.append(_record(result, name, unit, data))
        except InvalidRecord as error:
            if not salvage:
                raise damaged(path, f"result {number}", str(error)) from None
            bad.append(number)
    return replace(pour(store, [*_texts(path, data), *records]), damaged=tuple(bad))


def _write(stream: TextIO, store: Outgoing, path: Path, selection: Selection) -> int:
    metadata = canonical_json({"timeunit": "seconds"})
    stream.write(f'{{"schema_version":"{SCHEMA}","metadata":{metadata},"results":[')
    count = 0
    space: tuple[object, ...] = ()
    for record in store.records(**selection):
        made = (record.generator, record.threads, record.memory)
        here = (record.workload, record.target, record.hardware, *made)
        if count and here != space:
            raise UnusableLocation(
                f"{path}: a T4 file holds one search space, but the trials are of several "
                "workloads, machines, generators or memories: select one workload"
            )
        space = here
        stream.write(("," if count else "") + "\n" + canonical_json(_result(record)))
        count += 1
    text = store.text(str(space[0])) if space else None
    ours = "" if text is None else f',"{_OURS}":{canonical_json({"program": text})}'
    stream.write(f"\n]{ours}}}\n")
    return count


def _result(record: Record) -> dict[str, Any]:
    invalidity = _INVALIDITY[record.status]
    times: dict[str, Any] = {}
    if record.compile_seconds is not None:
        # The schema has the one name, the tools that read T4 the other.
        times |= dict.fromkeys(("compilation_time", "compilation"), record.compile_seconds)
    if record.seconds is not None:
        times["runtimes"] = [record.seconds]
    value = record.seconds if record.ok else invalidity
    return {
        "timestamp": record.created,
        "configuration": _decisions(json.loads(record.schedule)),
        "times": times,
        "invalidity": invalidity,
        "correctness": 1 if record.ok else 0,
        "measurements": [{"name": "time", "value": value, "unit": "seconds"}],
        "objectives": ["time"],
        _OURS: {"key": record.key, "record": asdict(record)},
    }


def _decisions(schedule: dict[str, Any]) -> dict[str, Any]:
    """Flat, as other tools expect a configuration to be."""
    values = schedule.get("values")
    return values if isinstance(values, dict) else schedule


def _load(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as stream:
            content = stream.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise damaged(path, "the whole of it", f"larger than {LARGEST >> 20} MiB")
        data = json.loads(content)
    except OSError as error:
        raise unreadable(path, error) from None
    except (ValueError, RecursionError) as error:
        raise damaged(path, "the whole of it", f"it is not JSON ({error})") from None
    if not isinstance(data, dict) or not isinstance(data.get("results"), list):
        raise damaged(path, "the whole of it", "it is not of the T4 format: it lacks results")
    return data


def _texts(path: Path, data: dict[str, Any]) -> list[Text]:
    """The program of the trials, where the file carries it."""
    ours = data.get(_OURS)
    if not isinstance(ours, dict) or "program" not in ours:
        return []
    try:
        return [Text(checked_text(ours["program"]))]
    except InvalidRecord as error:
        raise damaged(path, "program", str(error)) from None


def _unit(path: Path, data: dict[str, Any]) -> float:
    """Seconds in the file's unit of time."""
    metadata = data.get("metadata")
    named = metadata.get("timeunit") if isinstance(metadata, dict) else None
    if named is None:
        units = (m.get("unit") for r in data["results"] for m in _measurements(r, "time"))
        named = next((unit for unit in units if unit), "seconds")
    if str(named).lower() not in _SECONDS:
        raise damaged(path, "metadata", f"unit of time {named!r} is not known here")
    return _SECONDS[str(named).lower()]


def _record(result: Any, operator: str, unit: float, data: dict[str, Any]) -> Record:
    if not isinstance(result, dict):
        raise InvalidRecord("it is not a result")
    ours = result.get(_OURS)
    if ours is None:
        return _foreign(result, operator, unit, data)
    if not isinstance(ours, dict) or not isinstance(ours.get("record"), dict):
        raise InvalidRecord("its record is missing")
    record = Record.from_dict(ours["record"])
    if record.key != ours.get("key"):
        raise InvalidRecord("its content does not match its key")
    if canonical_json(_result(record)) != _text(result):
        raise InvalidRecord("what it tells other tools does not match its record")
    return record


def _foreign(result: dict[str, Any], operator: str, unit: float, data: dict[str, Any]) -> Record:
    """A record of another tool's result; raises InvalidRecord."""
    configuration, times = result.get("configuration"), result.get("times")
    if not isinstance(configuration, dict) or not isinstance(times, dict):
        raise InvalidRecord("it lacks its configuration or its times")
    status = _STATUS.get(str(result.get("invalidity")))
    if status is None:
        raise InvalidRecord(f"invalidity {result.get('invalidity')!r} is not known here")
    samples = [value * unit for value in _runtimes(result, times)] if status == "ok" else []
    if status == "ok" and not samples:
        raise InvalidRecord("it is correct, but no time of it is told")
    compiled: Any = times.get("compilation_time", times.get("compilation"))
    return Record(
        workload=content_key(canonical_json({"t4": operator})),
        operator=operator,
        extents="{}",
        target="t4",
        hardware="unknown",
        generator=f"t4-{data.get('schema_version', SCHEMA)}",
        schedule=_text({"target": "t4", "values": configuration}),
        status=status,
        seconds=statistics.median(samples) if samples else None,
        quartiles=_quartiles(samples),
        repeats=len(samples),
        compile_seconds=compiled * unit if _is_number(compiled) else None,
        created=_moment(result.get("timestamp")),
        strategy="t4",
    )


def _text(value: Any) -> str:
    try:
        return canonical_json(value)
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"it cannot be stored: {error}") from None


def _runtimes(result: dict[str, Any], times: dict[str, Any]) -> list[float]:
    """The samples in the file's unit, or else the one value measured."""
    runtimes = times.get("runtimes")
    samples = runtimes if isinstance(runtimes, list) else []
    good = [value for value in samples if _is_number(value)]
    return good or [m["value"] for m in _measurements(result, "time") if _is_number(m["value"])]


def _measurements(result: Any, name: str) -> Iterator[dict[str, Any]]:
    found = result.get("measurements") if isinstance(result, dict) else None
    for measurement in found if isinstance(found, list) else ():
        if isinstance(measurement, dict) and measurement.get("name") == name:
            yield {"value": None} | measurement


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _quartiles(samples: list[float]) -> tuple[float, float] | None:
    if len(samples) < 2:
        return None
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, high


def _moment(text: Any) -> str:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return _LONG_AGO
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()
