"""Trials in the auto-tuning community's T4 results format (schema 1.0.0), out and in.

A T4 file holds one search space: configurations with their times, validity and measurements. Ours
carry each record beside it, under `tilewright` with its key, so that they come back exactly; of
files of other tools it is said here what their results mean, as `foreign` takes them. A file says
its unit of time in `metadata`, or beside its measurement of the objective; those of Kernel Tuner
that say none are in milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from records.canonical import canonical_json
from records.errors import InvalidRecord, UnusableLocation
from records.files import Outgoing, Text, checked_text, replacing
from records.foreign import Told, Trial, is_number, is_unit, named, numbers, seconds_in
from records.record import Record
from records.refused import damaged
from records.rows import Selection

SCHEMA = "1.0.0"
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
_UNTOLD = "milliseconds"
_OBJECTIVES = ("time", "TotalDuration", "Duration")  # what tools call the time of a kernel


def write(store: Outgoing, path: Path, selection: Selection) -> int:
    """Write the selected trials, which must be of one space; returns how many."""
    with replacing(path) as part, open(part, "x", encoding="ascii") as stream:
        return _write(stream, store, path, selection)


def is_ours(data: Mapping[str, Any]) -> bool:
    """Whether a document is an export of ours, of which every result carries its record."""
    results = data.get("results")
    listed = isinstance(results, list) and any(isinstance(r, dict) and _OURS in r for r in results)
    return _OURS in data or listed


def tell(path: Path, data: dict[str, Any]) -> Told:
    """What another tool's document holds; raises DamagedExport."""
    metadata, results = data.get("metadata"), data["results"]
    if not isinstance(results, list):
        raise damaged(path, "results", "it lacks results: they are no list")
    objectives = _objectives(results)
    try:
        unit = seconds_in(_unit(metadata, results, objectives))
    except InvalidRecord as error:
        raise damaged(path, "metadata", str(error)) from None
    size = named(metadata, "problem_size", "size")
    return Told(
        form="t4",
        version=named(data, "schema_version") or SCHEMA,
        results=results,
        read=lambda result: _foreign(result, unit, objectives),
        kernel=named(data, "kernel_name") or named(metadata, "kernel_name", "kernel"),
        card=named(metadata, "device", "device_name", "gpu", "gpu_name", "hardware"),
        extents=(("size", size),) if size else (),
    )


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


def texts(path: Path, data: dict[str, Any]) -> list[Text]:
    """The program of the trials, where the file carries it."""
    ours = data.get(_OURS)
    if not isinstance(ours, dict) or "program" not in ours:
        return []
    try:
        return [Text(checked_text(ours["program"]))]
    except InvalidRecord as error:
        raise damaged(path, "program", str(error)) from None


def ours(result: Any) -> Record:
    """The record that a result of ours carries; raises InvalidRecord."""
    if not isinstance(result, dict):
        raise InvalidRecord("it is not a result")
    told = result.get(_OURS)
    if not isinstance(told, dict) or not isinstance(told.get("record"), dict):
        raise InvalidRecord("its record is missing")
    record = Record.from_dict(told["record"])
    if record.key != told.get("key"):
        raise InvalidRecord("its content does not match its key")
    if canonical_json(_result(record)) != _text(result):
        raise InvalidRecord("what it tells other tools does not match its record")
    return record


def _objectives(results: list[Any]) -> tuple[str, ...]:
    """The names under which the time of a kernel may stand: what the results are about first."""
    told = (r.get("objectives") for r in results if isinstance(r, dict))
    first = next((names for names in told if isinstance(names, list)), [])
    return tuple(dict.fromkeys([*(n for n in first if n in _OBJECTIVES), *_OBJECTIVES]))


def _unit(metadata: Any, results: list[Any], objectives: tuple[str, ...]) -> str:
    """The unit of the file's times, as it spells it."""
    told = named(metadata, "timeunit", "time_unit")
    if told:
        return told
    for result in results:
        unit = _measured(result, objectives).get("unit")
        if unit:
            return str(unit)
    return _UNTOLD


def _foreign(result: Any, unit: float, objectives: tuple[str, ...]) -> Trial:
    """Another tool's result; raises InvalidRecord."""
    if not isinstance(result, dict):
        raise InvalidRecord("it is not a result")
    configuration, times = result.get("configuration"), result.get("times")
    if not isinstance(configuration, dict) or not isinstance(times, dict):
        raise InvalidRecord("it lacks its configuration or its times")
    word = str(result.get("invalidity"))
    status = _STATUS.get(word)
    if status is None:
        raise InvalidRecord(f"invalidity {result.get('invalidity')!r} is not known here")
    samples = _samples(result, times, unit, objectives) if status == "ok" else []
    if status == "ok" and not samples:
        raise InvalidRecord("it is correct, but no time of it is told")
    compiled: Any = times.get("compilation_time", times.get("compilation"))
    return Trial(
        configuration,
        status,
        samples,
        compiled * unit if is_number(compiled) else None,
        str(result.get("timestamp")),
        "" if status == "ok" else word,
    )


def _samples(
    result: dict[str, Any], times: dict[str, Any], unit: float, objectives: tuple[str, ...]
) -> list[float]:
    """Seconds of each run, which are in the file's unit; else of what was measured, in its own."""
    runs = numbers(times.get("runtimes"))
    if runs:
        return [value * unit for value in runs]
    measured = _measured(result, objectives)
    own = seconds_in(measured["unit"]) if is_unit(measured.get("unit")) else unit
    return [measured["value"] * own] if is_number(measured.get("value")) else []


def _measured(result: Any, objectives: tuple[str, ...]) -> dict[str, Any]:
    """The measurement of a kernel's time, by the first of the names that there is; else {}."""
    found = result.get("measurements") if isinstance(result, dict) else None
    listed = [m for m in found if isinstance(m, dict)] if isinstance(found, list) else []
    by_name = {measurement.get("name"): measurement for measurement in reversed(listed)}
    return next((by_name[name] for name in objectives if name in by_name), {})


def _text(value: Any) -> str:
    try:
        return canonical_json(value)
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"it cannot be stored: {error}") from None
