"""A schedule: one point of a space, a frozen value that prints, compares, hashes, round-trips.

It knows names and values only; whether they are legal, and what they mean, is the space's affair.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from ir.errors import UsageError

Value = int | str | bool


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """Values of every decision, held in the order of the space.

    Equality, hash, `key` and JSON do not depend on that order, so a schedule that went through a
    database or an editor is still the same schedule.
    """

    target: str
    values: tuple[tuple[str, Value], ...]
    _key: str = field(default="", init=False, repr=False)  # once it was asked for

    @classmethod
    def of(cls, target: str, values: Mapping[str, Value]) -> Schedule:
        return cls(target, tuple(values.items()))

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """Parse `to_json`'s form; raises UsageError that says what is wrong with the text."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"schedule is not JSON: {error}") from None
        if not isinstance(data, dict) or set(data) != {"target", "values"}:
            raise UsageError('schedule must be {"target": name, "values": {decision: value}}')
        target, values = data["target"], data["values"]
        if not isinstance(target, str) or not isinstance(values, dict):
            raise UsageError("schedule: target must be a string and values an object")
        for name, value in values.items():
            if not isinstance(value, int | str):
                raise UsageError(f"schedule: {name} must be an integer, a string or a boolean")
        return cls.of(target, values)

    def to_json(self) -> str:
        """The canonical text: sorted names, no spaces; equal schedules have equal text."""
        data = {"target": self.target, "values": dict(self.values)}
        return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    @property
    def key(self) -> str:
        """Content hash of the canonical text."""
        if not self._key:
            key = hashlib.sha256(self.to_json().encode()).hexdigest()
            object.__setattr__(self, "_key", key)
        return self._key

    def __getitem__(self, name: str) -> Value:
        for known, value in self.values:
            if known == name:
                return value
        raise KeyError(name)

    def get(self, name: str, default: Value | None = None) -> Value | None:
        return dict(self.values).get(name, default)

    def as_dict(self) -> dict[str, Value]:
        return dict(self.values)

    def __contains__(self, name: object) -> bool:
        return any(known == name for known, _ in self.values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        return self is other or self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return " ".join(f"{name}={_text(value)}" for name, value in self.values)


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
