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
COPY = "copy"  # the same, in a queue of each thread's own
UNITS = (THREADS, TENSOR, COPY)
IN_ORDER = ("mma.sync",)  # products that end before the next instruction of their threads
_LINE = re.compile(r"([\w.]+): (\w+)\((.*?)\) ->(?: (?!takes )(.*?))?(?: takes (.*))?$")


COPIES, MMA, MAP, REDUCE, CONVERT, STORE = "copy", "mma", "map", "reduce", "convert", "store"
START, CORRECT, FINISH = "start", "correct", "finish"
LEAVE, GET = "leave", "get"
PARTS = {
    COPIES: "bring a tile from memory",
    MMA: "multiply two tiles and add the products to sums",
    MAP: "compute a value point by point",
    REDUCE: "combine a block into a state",
    CONVERT: "lay a value out as an operand, rounded to its type",
    STORE: "write a value to memory",
    START: "what a state is before its loop",
    CORRECT: "scale a state, and add to it, for what moved",
    FINISH: "combine the parts of a state that threads have",
    LEAVE: "leave a value in shared memory for the threads of another role",
    GET: "read what another role has left",
}


@dataclass(frozen=True, slots=True)
class Part:
    """The least that is done: node `node` of the program, `by` an instruction.

    >>> str(Part(MMA, 5, "wgmma"))
    'mma 5 by wgmma'
    """

    kind: str
    node: int
    by: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.node}" + (f" by {self.by}" if self.by else "")

    @staticmethod
    def parse(line: str) -> Part:
        """The part that prints like that; ValueError for a line that is none."""
        match = re.fullmatch(r"(\w+) (-?\d+)(?: by (\S+))?", line)
        if match is None or match[1] not in PARTS:
            raise ValueError(f"kernel: {line!r} is no part of an operation")
        return Part(match[1], int(match[2]), match[3] or "")


@dataclass(frozen=True, slots=True)
class Operation:
    """A group of parts that is scheduled as one.

    `takes`: rings of which it reads a slot until it is done.
    """

    name: str
    unit: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    takes: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()

    @property
    def in_order(self) -> bool:
        """Whether it has ended where its threads go on, whatever its unit."""
        return bool(self.parts) and all(part.by in IN_ORDER for part in self.parts)

    def __str__(self) -> str:
        rings = f" takes {', '.join(self.takes)}" if self.takes else ""
        written = f" {', '.join(self.writes)}" if self.writes else ""
        return f"{self.name}: {self.unit}({', '.join(self.reads)}) ->{written}{rings}"


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
    `places` are values that have several, which iterations take in turn. `shared` values are read
    and written by all threads of a block, whoever made them.

    >>> print(Body.parse("scores: tensor() -> s takes keys\\nweigh: threads(s) -> p"))
    scores: tensor() -> s takes keys
    weigh: threads(s) -> p
    """

    operations: tuple[Operation, ...]
    local: frozenset[str] = frozenset()
    places: tuple[tuple[str, int], ...] = ()
    shared: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        names = [one.name for one in self.operations]
        if len(set(names)) != len(names):
            raise UsageError(f"loop body: operations {', '.join(names)}: a name is there twice")
        for one in self.operations:
            if one.unit not in UNITS:
                raise UsageError(f"loop body: {one.name}: no unit {one.unit!r}")
        for value, _ in self.places:
            first = next((one for one in self.operations if _touches(one, value)), None)
            if first is not None and value in first.reads:
                raise UsageError(f"loop body: {first.name} reads {value}, whose places take turns")

    def __str__(self) -> str:
        lines = [str(one) for one in self.operations]
        lines += [f"local {', '.join(sorted(self.local))}"] * bool(self.local)
        turns = ", ".join(f"{value} {count}" for value, count in self.places)
        lines += [f"places {turns}"] * bool(turns)
        lines += [f"shared {', '.join(sorted(self.shared))}"] * bool(self.shared)
        return "\n".join(lines)

    @staticmethod
    def parse(text: str) -> Body:
        """The body that prints like that; raises UsageError for a line that is none."""
        found: list[Operation] = []
        more: dict[str, tuple[str, ...]] = {}
        for line in text.strip().splitlines():
            word, _, rest = line.strip().partition(" ")
            if word in ("local", "places", "shared"):
                more[word] = _names(rest)
                continue
            found.append(read_operation(line.strip()))
        places = tuple(map(_place, more.get("places", ())))
        local, shared = (frozenset(more.get(word, ())) for word in ("local", "shared"))
        return Body(tuple(found), local, places, shared)

    def place(self, name: str) -> int:
        """The number of an operation."""
        return next(p for p, one in enumerate(self.operations) if one.name == name)

    def in_place(self, value: str, iteration: int) -> str:
        """The place of a value in an iteration."""
        count = self._turns.get(value, 1)
        return value if count == 1 else f"{value}.{iteration % count}"

    @cached_property
    def _turns(self) -> dict[str, int]:
        return dict(self.places)

    @cached_property
    def dependences(self) -> tuple[Dependence, ...]:
        """Of any two operations one of which writes what the other reads or writes."""
        return tuple(self._dependences())

    def _dependences(self) -> Iterator[Dependence]:
        for first, one in enumerate(self.operations):
            for second, other in enumerate(self.operations):
                common = conflicts(one, other)
                if common:
                    apart = min(self._turns.get(value, 1) for value in common)
                    yield Dependence(first, second, apart if second <= first else 0)


def read_operation(line: str, parts: tuple[Part, ...] = ()) -> Operation:
    """The operation that prints like that; raises UsageError for a line that is none."""
    match = _LINE.match(line)
    if match is None:
        raise UsageError(f"loop body: {line!r} is not `name: unit(reads) -> writes`")
    name, unit, *lists = match.groups()
    reads, writes, takes = (_names(part or "") for part in lists)
    return Operation(name, unit, reads, writes, takes, parts)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in re.split(r",\s*", text.strip()) if name)


def _place(text: str) -> tuple[str, int]:
    value, _, count = text.rpartition(" ")
    if not value or not count.isdigit():
        raise UsageError(f"loop body: {text!r} is not `value count`")
    return value, int(count)


def _touches(one: Operation, value: str) -> bool:
    return value in (*one.reads, *one.writes)


def conflicts(one: Operation, other: Operation) -> set[str]:
    """Values that one writes and the other reads or writes."""
    written, touched = {*one.writes}, {*other.reads, *other.writes}
    return written & touched | {*one.reads} & {*other.writes}
