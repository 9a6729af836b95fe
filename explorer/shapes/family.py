"""A family of workloads: one operator and target, of whose arguments some have many values.

Knows no records and no searches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from explorer.shapes.extents import Extents, parted
from explorer.workload import Workload
from ir.errors import UsageError
from ir.registry import checked_arguments, kind_of
from ir.sources import OperatorLike, find_source

Point = tuple[int, ...]  # a value for each argument that varies
MOST_POINTS = 256  # that are measured, or exported together


@dataclass(frozen=True, slots=True)
class Family:
    """Workloads that differ in `varying` alone. `fixed` are the other arguments, converted."""

    operator: OperatorLike
    fixed: tuple[tuple[str, Any], ...]
    varying: tuple[tuple[str, Extents], ...]
    target: str = "cpu"
    threads: int | None = None
    memory: str | None = None
    _made: dict[Point, Workload] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(
        cls,
        operator: OperatorLike,
        arguments: Mapping[str, Any],
        target: str = "cpu",
        threads: int | None = None,
        memory: str | None = None,
    ) -> Family:
        """A family whose smallest and largest workloads are built; raises UsageError."""
        fixed, varying = parted(arguments)
        source = find_source(operator)
        given = checked_arguments(source, fixed, partial=True)
        checked_arguments(source, {**fixed, **{name: e.low for name, e in varying.items()}})
        for name, extents in varying.items():
            if kind_of(source.parameters.get(name)) not in (int, None):
                raise UsageError(f"{name}={extents}: {name} is no extent; give one value of it")
        order = {name: place for place, name in enumerate(source.parameters)}
        told = sorted(varying.items(), key=lambda pair: order.get(pair[0], len(order)))
        pairs = tuple(given.items()), tuple(told)
        family = cls(operator, *pairs, target, threads, memory)
        for ends in ([e.low for e in varying.values()], [e.high for e in varying.values()]):
            family.workload(tuple(ends))
        return family

    @property
    def names(self) -> tuple[str, ...]:
        """Of the arguments that vary."""
        return tuple(name for name, _ in self.varying)

    @property
    def count(self) -> int:
        """Of its workloads."""
        return math.prod(len(extents) for _, extents in self.varying)

    @property
    def title(self) -> str:
        """As the command line has it."""
        words = [f"{n}={v}" for n, v in (*self.varying, *self.fixed)]
        return " ".join([self.workload(self.lowest).operator, *words])

    @property
    def lowest(self) -> Point:
        return tuple(extents.low for _, extents in self.varying)

    def workload(self, point: Point) -> Workload:
        """The member with these values; raises UsageError."""
        if point not in self._made:
            arguments = {**dict(self.fixed), **dict(zip(self.names, point, strict=True))}
            where = (self.target, self.threads, self.memory)
            self._made[point] = Workload.of(self.operator, arguments, *where)
        return self._made[point]

    def points(self) -> Iterator[Point]:
        """Of all workloads."""
        return itertools.product(*(extents for _, extents in self.varying))

    def grid(self, count: int) -> tuple[Point, ...]:
        """About `count` points at nearly equal ratios, the ends of every range among them."""
        each = max(2, round(count ** (1 / len(self.varying))))
        return tuple(itertools.product(*(extents.varied(each) for _, extents in self.varying)))

    def words(self, point: Point) -> str:
        """A point for people."""
        return words_of(self.names, point)


def words_of(names: tuple[str, ...], point: Point) -> str:
    """Values by their names."""
    return " ".join(f"{n}={v}" for n, v in zip(names, point, strict=True))


def distance(one: Point, other: Point) -> float:
    """How far two points lie apart, in ratios."""
    return math.dist([math.log(x) for x in one], [math.log(x) for x in other])
