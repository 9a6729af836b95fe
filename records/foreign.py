"""Results of other tuners as records: which workload they are of, how a trial becomes a record.

The forms (`t4`, `kernel_tuner`, `ktt`) read their documents to `Told`; names, keys and units are
decided here, alike for all. Knows no store.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard

from records.canonical import canonical_json, content_key
from records.documents import ENDINGS
from records.errors import InvalidRecord
from records.record import Record
from records.refused import damaged

FOREIGN = ("t4", "kernel-tuner", "ktt")  # targets of records that no operator of ours is behind
UNKNOWN = "unknown"  # the card, where neither the file nor its name tells one
LONG_AGO = (
    "1970-01-01T00:00:00.000000+00:00"  # for results without a time stamp: the same each time
)
_SECONDS = {
    **dict.fromkeys(("seconds", "second", "sec", "s"), 1.0),
    **dict.fromkeys(("milliseconds", "millisecond", "miliseconds", "msec", "ms"), 1e-3),
    **dict.fromkeys(("microseconds", "microsecond", "usec", "us", "\u00b5s", "\u03bcs"), 1e-6),
    **dict.fromkeys(("nanoseconds", "nanosecond", "nsec", "ns"), 1e-9),
}
_BETWEEN = "-_.@ "  # a kernel's name and a card's in the name of a file
_PARTED = re.compile("[-.@]")  # where a file's name is taken apart: no kernel's name has these

Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Trial:
    """One result in seconds. `word` is the tool's own for a failure; `kernel` tells one that is
    not the file's."""

    configuration: Mapping[str, Any]
    status: str
    seconds: Sequence[float] = ()
    compile_seconds: float | None = None
    created: str = LONG_AGO
    word: str = ""
    kernel: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """What a document tells: of the kernel ("" where it does not), and its results.

    `extents` are facts of the problem, `space` of what was tuned. A file that is `whole` tells
    enough for other files of the same workload to be known by it.
    """

    form: str
    version: str
    results: Sequence[Any]
    read: Callable[[Any], Trial]  # raises InvalidRecord
    kernel: str = ""
    card: str = ""
    extents: tuple[tuple[str, Scalar], ...] = ()
    space: str = ""
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """Names for what a document leaves open: those that a person gave, then those of the file."""

    kernel: str
    card: str

    @classmethod
    def of(cls, path: Path, told: Told, operator: str | None, card: str | None) -> Origin:
        """A file is called after its kernel and its card, `gemm-RTX_3090.json`, or after one; where
        a person names the kernel, what else is in the file's name is taken for the card."""
        stem = stem_of(path)
        kernel = told.kernel or operator or ""
        if kernel and stem.lower().startswith(kernel.lower()):
            rest = stem[len(kernel) :].lstrip(_BETWEEN)
        elif kernel:
            rest = stem
        else:
            kernel, *others = _PARTED.split(stem, 1)
            rest = "".join(others)
        return cls(kernel or stem, told.card or card or rest or UNKNOWN)


def stem_of(path: Path) -> str:
    """The file's name without what says how it is packed and written."""
    name = path.name
    ending = next((end for end in reversed(ENDINGS) if name.lower().endswith(end)), "")
    return name[: len(name) - len(ending)]


def records_of(
    path: Path, told: Told, *, salvage: bool, operator: str | None, card: str | None
) -> tuple[list[Record], tuple[int, ...]]:
    """The records of a document, and the numbers of what was passed over with `salvage`.

    All of it is read before anything is stored. Raises DamagedExport.
    """
    origin = Origin.of(path, told, operator, card)
    content = "" if told.whole else _digest(told.results)
    found: list[Record] = []
    bad: list[int] = []
    for number, result in enumerate(told.results, start=1):
        try:
            found.append(_record(told.read(result), told, origin, content))
        except InvalidRecord as error:
            if not salvage:
                raise damaged(path, f"result {number}", str(error)) from None
            bad.append(number)
    return found, tuple(bad)


def _record(trial: Trial, told: Told, origin: Origin, content: str) -> Record:
    kernel = trial.kernel or origin.kernel
    samples = [float(value) for value in trial.seconds]
    known: dict[str, object] = {"form": told.form, "kernel": kernel, "card": origin.card}
    known |= {"extents": dict(told.extents), "space": told.space, "content": content}
    return Record(
        workload=content_key(canonical_json(known)),
        operator=kernel,
        extents=_text(dict(told.extents)),
        target=told.form,
        hardware=origin.card,
        generator=f"{told.form}-{told.version}",
        schedule=_text({"target": told.form, "values": dict(trial.configuration)}),
        status=trial.status,
        seconds=statistics.median(samples) if samples else None,
        quartiles=_quartiles(samples),
        repeats=len(samples),
        detail=f"recorded as {trial.word}" if trial.word else "",
        compile_seconds=trial.compile_seconds,
        created=moment(trial.created),
        strategy=told.form,
    )


def seconds_in(unit: object) -> float:
    """How long a unit of time is; raises InvalidRecord for one that is not known."""
    found = _SECONDS.get(str(unit).strip().lower())
    if found is None:
        raise InvalidRecord(f"unit of time {unit!r} is not known here")
    return found


def is_unit(unit: object) -> bool:
    return str(unit).strip().lower() in _SECONDS


def numbers(values: object) -> list[float]:
    """Of a list what is a number."""
    return [value for value in values if is_number(value)] if isinstance(values, list) else []


def is_number(value: object) -> TypeGuard[float]:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def named(data: object, *names: str) -> str:
    """The first text that an object has under one of these names, however they are spelt."""
    if not isinstance(data, Mapping):
        return ""
    spelt = {_plain(str(name)): value for name, value in data.items()}
    found = (spelt.get(_plain(name)) for name in names)
    return next((" ".join(text.split()) for text in found if isinstance(text, str) and text), "")


def moment(text: object) -> str:
    """A time stamp with its offset; of what is none, always the same."""
    try:
        found = datetime.fromisoformat(str(text).strip().removesuffix(" UTC"))
    except ValueError:
        return LONG_AGO
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).isoformat()


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _digest(results: Sequence[Any]) -> str:
    """Of what the results say, however the file was written or packed."""
    return content_key(json.dumps(results, sort_keys=True, separators=(",", ":")))


def _text(value: Any) -> str:
    try:
        return canonical_json(value)
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"it cannot be stored: {error}") from None


def _quartiles(samples: list[float]) -> tuple[float, float] | None:
    if len(samples) < 2:
        return None
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, high
