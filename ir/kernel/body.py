"""The body of a loop as operations on values: what each reads, writes and is computed by.

Values keep their places (registers, slots of rings) from one iteration to the next, so that an
operation may neither read a value before it is there nor overwrite it before it is read. Knows no
target and no text of one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ir.errors import UsageError

THREADS = "threads"  # done when the next operation begins
TENSOR = "tensor"  # runs beside what follows, until somebody waits for it
_LINE = re.compile(r"(\w+): (\w+)\((.*?)\) -> (.*?)(?: takes (.*))?$")


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of an iteration. `takes`: rings of which it reads a slot until it is done."""

    name: str
    unit: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    takes: tuple[str, ...] = ()

    def __str__(self) -> str:
        rings = f" takes {', '.join(self.takes)}" if self.takes else ""
        written = ", ".join(self.writes)
        return f"{self.name}: {self.unit}({', '.join(self.reads)}) -> {written}{rings}"


@dataclass(frozen=True, slots=True)
class Dependence:
    """`after` of an iteration must see `before` of the iteration `distance` earlier done."""

    before: int
    after: int
    distance: int


@dataclass(frozen=True)
class Body:
    """Operations of one iteration in an order that is right.

    `local` values are not kept: what reads them is in the same step of the loop as what writes.

    >>> print(Body.parse("scores: tensor() -> s takes keys\\nweigh: threads(s) -> p"))
    scores: tensor() -> s takes keys
    weigh: threads(s) -> p
    """

    operations: tuple[Operation, ...]
    local: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        names = [one.name for one in self.operations]
        if len(set(names)) != len(names):
            raise UsageError(f"loop body: operations {', '.join(names)}: a name is there twice")
        for one in self.operations:
            if one.unit not in (THREADS, TENSOR):
                raise UsageError(f"loop body: {one.name}: no unit {one.unit!r}")

    def __str__(self) -> str:
        lines = [str(one) for one in self.operations]
        return "\n".join([*lines, *([f"local {', '.join(sorted(self.local))}"] * bool(self.local))])

    @staticmethod
    def parse(text: str) -> Body:
        """The body that prints like that; raises UsageError for a line that is none."""
        found: list[Operation] = []
        local: frozenset[str] = frozenset()
        for line in text.strip().splitlines():
            if line.startswith("local "):
                local = frozenset(_names(line.removeprefix("local ")))
                continue
            match = _LINE.match(line.strip())
            if match is None:
                raise UsageError(f"loop body: {line!r} is not `name: unit(reads) -> writes`")
            name, unit, *lists = match.groups()
            found.append(Operation(name, unit, *(_names(part or "") for part in lists)))
        return Body(tuple(found), local)

    def place(self, name: str) -> int:
        """The number of an operation."""
        return next(p for p, one in enumerate(self.operations) if one.name == name)

    @cached_property
    def dependences(self) -> tuple[Dependence, ...]:
        """Of any two operations one of which writes what the other reads or writes."""
        return tuple(self._dependences())

    def _dependences(self) -> Iterator[Dependence]:
        for first, one in enumerate(self.operations):
            for second, other in enumerate(self.operations):
                if _conflict(one, other):
                    yield Dependence(first, second, int(second <= first))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in re.split(r",\s*", text.strip()) if name)


def _conflict(one: Operation, other: Operation) -> bool:
    written, touched = {*one.writes}, {*other.reads, *other.writes}
    return bool(written & touched or {*one.reads} & {*other.writes})
