"""The table of a family: the schedules that it kept, where they are best, and their times.

A frozen value that round-trips through JSON. Knows no records and no measuring.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from explorer.shapes.extents import Extents
from explorer.shapes.family import Point, distance
from ir.errors import UsageError
from ir.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Settled:
    """A point, a schedule that was measured there (or is expected of), and the seconds and FLOPs of
    its kernel; of what is expected, by which share that may be off."""

    point: Point
    schedule: Schedule
    seconds: float
    flops: int
    doubt: float = 0.0


@dataclass(frozen=True, slots=True)
class Table:
    """The schedules of a family by measured points, one each in `rows`.

    `others` are times of the same schedules at points that have another one, `expected` what a
    model tells of the best schedules at points between, where nothing was measured.
    """

    varying: tuple[tuple[str, Extents], ...]
    fixed: tuple[tuple[str, Any], ...]
    rows: tuple[Settled, ...]
    others: tuple[Settled, ...] = ()
    expected: tuple[Settled, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of the arguments that vary."""
        return tuple(name for name, _ in self.varying)

    def nearest(self, point: Point) -> Settled:
        return min(self.rows, key=lambda row: distance(row.point, point))

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        return tuple(dict.fromkeys(row.schedule for row in self.rows))

    @property
    def measured(self) -> tuple[Settled, ...]:
        """All times."""
        return (*self.rows, *self.others)

    def told(self, point: Point) -> tuple[Settled, ...]:
        """The same, and what is expected of points that are nearer than any that was measured:
        what was expected alone says nothing of others."""
        nearest = min((distance(one.point, point) for one in self.measured), default=math.inf)
        near = (one for one in self.expected if distance(one.point, point) < nearest)
        return (*self.measured, *near)

    def to_data(self) -> dict[str, object]:
        """As JSON takes it."""
        times = (*self.measured, *self.expected)
        schedules = list(dict.fromkeys(one.schedule for one in times))
        places = {schedule: place for place, schedule in enumerate(schedules)}

        def told(times: tuple[Settled, ...]) -> list[list[object]]:
            return [[list(t.point), places[t.schedule], t.seconds, t.flops, t.doubt] for t in times]

        return {
            "varying": {name: str(extents) for name, extents in self.varying},
            "fixed": dict(self.fixed),
            "schedules": [schedule.to_json() for schedule in schedules],
            "rows": told(self.rows),
            "others": told(self.others),
            "expected": told(self.expected),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Table | None:
        """The inverse of `to_data`; None for what is none."""
        try:
            varying = tuple((n, _extents(n, text)) for n, text in data["varying"].items())
            schedules = [Schedule.from_json(text) for text in data["schedules"]]
            rows, others, expected = (
                tuple(_settled(schedules, *time) for time in times)
                for times in (data["rows"], data.get("others", ()), data.get("expected", ()))
            )
            return (
                cls(varying, tuple(data["fixed"].items()), rows, others, expected) if rows else None
            )
        except (UsageError, ValueError, TypeError, KeyError, IndexError, AttributeError):
            return None


def _settled(
    schedules: Sequence[Schedule], point: Sequence[Any], place: int, *numbers: Any
) -> Settled:
    seconds, flops, *doubt = numbers
    where = tuple(map(int, point))
    return Settled(where, schedules[place], float(seconds), int(flops), *map(float, doubt))


def _extents(name: str, text: str) -> Extents:
    found = Extents.of(name, text if ".." in text or "," in text else [int(text)])
    assert found is not None
    return found
