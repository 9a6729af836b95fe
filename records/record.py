"""The values that a store keeps: `Record` (one trial and its outcome) and `Job` (one tuning run).

Both are frozen, validate themselves, compare, hash and round-trip to canonical JSON. They hold
other packages' values as text (schedule, extents, hardware facts), and never look into these.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any, Self

from records.canonical import canonical_json, canonical_object, content_key
from records.errors import InvalidRecord

STATUSES = (
    "ok",
    "illegal",
    "compile_error",
    "wrong_result",
    "timeout",
    "crash",
    "out_of_memory",
    "unstable",
    "below_roofline",
)
"""What may become of a trial."""
MEMORIES = ("huge", "plain")  # the first is what every record was of before there was a choice
"""What operands of a trial may lie in."""
JOB_STATES = ("running", "done", "stopped", "failed")
"""What a job may be."""
DETAIL_LIMIT = 16_000
_REPLACED = "\N{REPLACEMENT CHARACTER}"


def utc_now() -> str:
    """The present moment, in the form that records and jobs are stamped with."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


@lru_cache(maxsize=4096)  # each candidate is named when it is leased, sent, stored and let go
def candidate_key(
    workload: str,
    target: str,
    hardware: str,
    generator: str,
    threads: int,
    schedule_key: str,
    memory: str = MEMORIES[0],
) -> str:
    """Content hash of what is tried and where: what leases and repeated trials go by."""
    tried = {"workload": workload, "target": target, "hardware": hardware}
    tried |= {"generator": generator, "schedule": schedule_key}
    tried |= {} if memory == MEMORIES[0] else {"memory": memory}
    return content_key(canonical_json(tried | {"threads": threads}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One trial: what was tried, where, and what came of it.

    Texts that hold JSON are rewritten canonically, so equal content is an equal record. A failure's
    `detail` is cleaned and shortened rather than refused: a trial is never lost for its message.
    """

    workload: str  # key of the program
    operator: str
    extents: str  # JSON object: axis -> extent, and what else the operator was given
    target: str
    hardware: str  # key of the hardware
    hardware_facts: str = "{}"  # JSON object
    generator: str  # version of the code generator
    threads: int = 1
    schedule: str  # JSON object
    schedule_key: str = ""  # filled in when empty; refused when it is not the schedule's
    kernel_key: str = ""  # empty when nothing was lowered
    status: str
    seconds: float | None = None  # median
    quartiles: tuple[float, float] | None = None  # lower, upper
    repeats: int = 0
    error: float | None = None  # largest deviation from the oracle
    detail: str = ""
    compile_seconds: float | None = None
    clock_ghz: float | None = None
    notes: str = "{}"  # JSON object
    created: str  # ISO 8601 with an offset; kept in UTC
    job: str = ""
    strategy: str = ""
    memory: str = MEMORIES[0]  # what operands lay in: large aligned pages, or as callers have it

    def __post_init__(self) -> None:
        for name in ("workload", "operator", "target", "hardware", "generator"):
            _check_text(name, getattr(self, name), empty=False)
        for name in ("kernel_key", "job", "strategy"):
            _check_text(name, getattr(self, name), empty=True)
        for name in ("extents", "hardware_facts", "schedule", "notes"):
            _set(self, name, canonical_object(name, getattr(self, name)))
        _set(self, "schedule_key", _schedule_key(self.schedule, self.schedule_key))
        _set(self, "detail", _clean(self.detail))
        _set(self, "created", _utc(self.created))
        self._check_numbers()

    def _check_numbers(self) -> None:
        if self.status not in STATUSES:
            raise InvalidRecord(f"status {self.status!r} is none of {', '.join(STATUSES)}")
        if self.memory not in MEMORIES:
            raise InvalidRecord(f"memory {self.memory!r} is none of {', '.join(MEMORIES)}")
        for name in ("threads", "repeats"):
            _set(self, name, _whole(name, getattr(self, name)))
        for name in ("seconds", "error", "compile_seconds", "clock_ghz"):
            _set(self, name, _finite(name, getattr(self, name)))
        _set(self, "quartiles", _quartiles(self.quartiles))
        if self.ok and not (self.seconds is not None and self.seconds > 0):
            raise InvalidRecord(f"an ok record needs seconds above 0, not {self.seconds!r}")

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def key(self) -> str:
        """Content hash of the whole record: storing the same one twice stores it once.

        Fields at their default are left out, so a field that is added later changes no old key.
        """
        return _key(self)

    @property
    def candidate(self) -> str:
        """Content hash of what was tried and where, whatever came of it: repeats share it."""
        return candidate_key(
            self.workload,
            self.target,
            self.hardware,
            self.generator,
            self.threads,
            self.schedule_key,
            self.memory,
        )

    def to_json(self) -> str:
        """The canonical text; equal records have equal text."""
        return canonical_json(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse `to_json`'s form; raises InvalidRecord."""
        return cls.from_dict(_object("record", text))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build a record from field values; raises InvalidRecord for missing or unknown ones."""
        return cls(**_known_fields(cls, values))

    def __str__(self) -> str:
        time = "" if self.seconds is None else f" {self.seconds * 1e6:.1f} us"
        return f"{self.operator} {self.extents} {self.target}: {self.status}{time} {self.schedule}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One tuning run: what was asked for and how far it came. Its trials carry its `id`."""

    id: str
    operator: str
    extents: str  # JSON object
    target: str
    options: str = "{}"  # JSON object
    state: str = "running"
    created: str
    updated: str

    def __post_init__(self) -> None:
        for name in ("id", "operator", "target"):
            _check_text(name, getattr(self, name), empty=False)
        for name in ("extents", "options"):
            _set(self, name, canonical_object(name, getattr(self, name)))
        for name in ("created", "updated"):
            _set(self, name, _utc(getattr(self, name)))
        if self.state not in JOB_STATES:
            raise InvalidRecord(f"job state {self.state!r} is none of {', '.join(JOB_STATES)}")

    @property
    def key(self) -> str:
        """Content hash of the whole job as it is now; as for records, without its defaults."""
        return _key(self)

    def to_json(self) -> str:
        """The canonical text; equal jobs have equal text."""
        return canonical_json(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse `to_json`'s form; raises InvalidRecord."""
        return cls.from_dict(_object("job", text))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build a job from field values; raises InvalidRecord for missing or unknown ones."""
        return cls(**_known_fields(cls, values))


@cache
def _defaults(kind: type[Any]) -> tuple[tuple[str, object], ...]:
    return tuple((field.name, field.default) for field in fields(kind))


def _key(value: Record | Job) -> str:
    """Content hash of what is not at its default."""
    kind: Any = type(value)
    told = {
        name: found
        for name, default in _defaults(kind)
        if (found := getattr(value, name)) != default
    }
    return content_key(canonical_json(told))


def _set(value: object, name: str, content: object) -> None:
    """Store a normalised field while a frozen value is still being made."""
    object.__setattr__(value, name, content)


def _object(kind: str, text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"{kind} is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise InvalidRecord(f"{kind} must be a JSON object, not {type(data).__name__}")
    return data


def _known_fields(cls: type[Record] | type[Job], values: Mapping[str, Any]) -> dict[str, Any]:
    kind = cls.__name__.lower()
    if not isinstance(values, Mapping):
        raise InvalidRecord(f"{kind} must be a JSON object, not {type(values).__name__}")
    known = {field.name for field in fields(cls)}
    needed = {field.name for field in fields(cls) if field.default is MISSING}
    if unknown := sorted(set(values) - known):
        raise InvalidRecord(f"{kind} has unknown fields: {', '.join(unknown)}; upgrade Tilewright")
    if missing := sorted(needed - set(values)):
        raise InvalidRecord(f"{kind} lacks fields: {', '.join(missing)}")
    return dict(values)


def _check_text(name: str, value: object, *, empty: bool) -> None:
    if not isinstance(value, str) or not (value or empty):
        raise InvalidRecord(f"{name} must be a{' ' if empty else ' non-empty '}text, not {value!r}")
    if not value.isprintable():
        raise InvalidRecord(f"{name} holds a character that is not printable: {value!r}")


def _clean(text: str, limit: int = DETAIL_LIMIT) -> str:
    """Storable text: no NUL, no lone surrogate, head and tail of what is too long."""
    if not isinstance(text, str):
        raise InvalidRecord(f"detail must be a text, not {text!r}")
    if len(text) > limit:
        half = (limit - 5) // 2
        text = f"{text[:half]}\n...\n{text[-half:]}"
    if not text.isascii():
        text = "".join(_REPLACED if "\ud800" <= c <= "\udfff" else c for c in text)
    return text.replace("\0", _REPLACED)


def _utc(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError("no offset from UTC")
        return moment.astimezone(UTC).isoformat(timespec="microseconds")
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRecord(f"time {text!r} is not ISO 8601 with an offset: {error}") from None


def _schedule_key(schedule: str, given: str) -> str:
    key = content_key(schedule)
    if given and given != key:
        raise InvalidRecord(f"schedule_key {given!r} is not the key of the schedule, {key!r}")
    return key


def _whole(name: str, value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidRecord(f"{name} must be a whole number, not {value!r}") from None
    if number != value or not 0 <= number < 2**31:
        raise InvalidRecord(f"{name} must be a whole number from 0 to 2^31, not {value!r}")
    return number


def _finite(name: str, value: Any) -> float | None:
    """A float, or None where there is none to speak of: NaN and infinities are no measurement."""
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidRecord(f"{name} must be a number or None, not {value!r}") from None
    return number + 0.0 if math.isfinite(number) else None  # + 0.0: databases drop the sign of -0


def _quartiles(value: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InvalidRecord(f"quartiles must be (lower, upper) or None, not {value!r}")
    lower, upper = (_finite("quartiles", number) for number in value)
    if lower is None or upper is None:
        return None
    if lower > upper:
        raise InvalidRecord(f"quartiles must be (lower, upper), not {value!r}")
    return lower, upper
