"""Values of an argument that varies: a list, as m=64,128, or a range, as m=1..2048.

Knows no operator.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ir.errors import UsageError

LARGEST = 1 << 31  # programs have no larger extents
_STRAY = 0.125  # how far from equal ratios a value may lie that was chosen for what divides it
_FORMS = "a list of values is written as 64,128,512 and a range as 1..2048"


@dataclass(frozen=True, slots=True)
class Extents:
    """Whole numbers from `low` to `high`, or those `listed` alone, ascending."""

    low: int
    high: int
    listed: tuple[int, ...] = ()

    @classmethod
    def of(cls, name: str, value: Any) -> Extents | None:
        """What stands for several values of the argument `name`, else None; raises UsageError.

        Texts as the command line has them, Python's ranges, and sequences of numbers.
        """
        if isinstance(value, str):
            several = value[:1].isdecimal() and ("," in value or ".." in value)
            return _parsed(name, value) if several else None
        if isinstance(value, range) and value.step == 1:
            return _span(name, value.start, value.stop - 1)
        if isinstance(value, Sequence):  # ranges with other steps, too
            return _list(name, list(value))
        return None

    def __iter__(self) -> Iterator[int]:
        return iter(self.listed or range(self.low, self.high + 1))

    def __len__(self) -> int:
        return len(self.listed) or self.high - self.low + 1

    def __contains__(self, value: object) -> bool:
        if self.listed:
            return value in self.listed
        return isinstance(value, int) and self.low <= value <= self.high

    def __str__(self) -> str:
        if self.listed:
            return ",".join(map(str, self.listed))
        return f"{self.low}..{self.high}"

    def spread(self, count: int) -> tuple[int, ...]:
        """About `count` of the values at equal ratios, both ends among them."""
        if len(self) <= count:
            return tuple(self)
        steps = [i / max(1, count - 1) for i in range(count)]
        if self.listed:
            places = {round(step * (len(self.listed) - 1)) for step in steps}
            return tuple(self.listed[place] for place in sorted(places))
        ratio = math.log(self.high / self.low)
        return tuple(sorted({round(self.low * math.exp(ratio * step)) for step in steps}))

    def varied(self, count: int) -> tuple[int, ...]:
        """As `spread`, with values near those of several kinds in turn: multiples of a large power
        of two, odd multiples of eight, and odd numbers, since tiles and splits suit some of them.
        """
        ends = (self.low, self.high)
        kinds = (_round, _eights, _round, _odd)
        near = {
            value if value in ends or self.listed else kinds[place % len(kinds)](value)
            for place, value in enumerate(self.spread(count))
        }
        return tuple(sorted(value for value in near if value in self))


def _round(value: int) -> int:
    """The multiple of the largest power of two that has one within an eighth of the value."""
    powers = (1 << place for place in reversed(range(value.bit_length())))
    multiples = (max(1, round(value / power)) * power for power in powers)
    return next(one for one in multiples if abs(one - value) <= _STRAY * value)


def _eights(value: int) -> int:
    """The nearest odd multiple of eight; a value that has none near is left."""
    near = 8 * (2 * (value // 16) + 1)
    return near if abs(near - value) <= _STRAY * value else value


def _odd(value: int) -> int:
    return value | 1


def _parsed(name: str, text: str) -> Extents:
    if ".." in text:
        ends = text.split("..")
        if len(ends) != 2 or "," in text:
            raise UsageError(f"{name}={text}: give one range or a list of values; {_FORMS}")
        return _span(name, *(_number(name, text, end) for end in ends))
    return _list(name, [_number(name, text, word) for word in text.split(",")])


def _number(name: str, text: str, word: str) -> int:
    if not (word.isascii() and word.isdecimal() and len(word) <= 10):
        said = f"{word!r} is no whole number" if word else "a number is missing"
        raise UsageError(f"{name}={text}: {said}; {_FORMS}")
    return int(word)


def _span(name: str, low: int, high: int) -> Extents:
    told = f"{name}={low}..{high}"
    if low > high:
        raise UsageError(f"{told}: the range is empty; give the smaller end first")
    _refuse(told, (low, high))
    return Extents(low, high)


def _list(name: str, values: Sequence[Any]) -> Extents:
    told = f"{name}={','.join(map(str, values))}"
    if not values:
        raise UsageError(f"{name}: a list without values; give one at least")
    if any(isinstance(value, bool) or not isinstance(value, int) for value in values):
        raise UsageError(f"{told}: values must be whole numbers; {_FORMS}")
    if len(set(values)) < len(values):
        twice = next(value for value in values if list(values).count(value) > 1)
        raise UsageError(f"{told}: {twice} is there twice; leave one out")
    _refuse(told, values)
    return Extents(min(values), max(values), tuple(sorted(values)))


def _refuse(told: str, values: Sequence[int]) -> None:
    if min(values) < 1 or max(values) >= LARGEST:
        raise UsageError(f"{told}: extents are from 1 to {LARGEST - 1:,}")


def parted(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Extents]]:
    """Arguments with one value, and those with several; raises UsageError."""
    fixed: dict[str, Any] = {}
    varying: dict[str, Extents] = {}
    for name, value in arguments.items():
        found = Extents.of(name, value)
        if found is None:
            fixed[name] = value
        else:
            varying[name] = found
    return fixed, varying
