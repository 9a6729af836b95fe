"""Which decisions are one kernel's, where programs are several: by their names and conditions.

Names of a kernel's decisions end in its number; what they begin with says of which route they are,
which is what has to be chosen for them to be in force. Kernels of two routes whose decisions have
the same names in between, and the same domains, are taken to compute the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from ir.columns import Decision
from ir.schedule import Value
from ir.space import Row, Space

_NUMBER = re.compile(r"\.(\d+)$")

Condition = tuple[tuple[str, Value], ...]
Columns = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Slot:
    """One kernel of one route: where its decisions are, in the order of what they are called, and
    the number of what kernels that compute the same have in common."""

    route: int
    columns: Columns
    kind: int


class Slots:
    """The kernels of every route of a space."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._kinds: dict[object, int] = {}
        groups: dict[Condition, list[int]] = {}
        by_name = {decision.name: decision for decision in space.decisions}
        for place, decision in enumerate(space.decisions):
            groups.setdefault(_condition(decision, by_name), []).append(place)
        self._routes = [
            (self._codes(condition), self._of_route(number, places))
            for number, (condition, places) in enumerate(groups.items())
        ]
        self._routes = [(codes, slots) for codes, slots in self._routes if slots]

    def of(self, row: Row) -> dict[int, Slot]:
        """The kernels that a row chooses, by their numbers."""
        found: dict[int, Slot] = {}
        for codes, slots in self._routes:
            if all(row[place] == code for place, code in codes):
                found |= slots
        return found

    def _codes(self, condition: Condition) -> list[tuple[int, int]]:
        places = ((self._space.place(name), value) for name, value in condition)
        return [(place, self._space.decisions[place].index(value)) for place, value in places]

    def _of_route(self, route: int, places: Sequence[int]) -> dict[int, Slot]:
        decisions = [self._space.decisions[place] for place in places]
        start = _in_common([decision.name for decision in decisions])
        own: dict[int, list[tuple[str, int]]] = {}
        for place, decision in zip(places, decisions, strict=True):
            number = _NUMBER.search(decision.name)
            if number:
                stem = decision.name[start : number.start()]
                own.setdefault(int(number[1]), []).append((stem, place))
        return {number: self._slot(route, sorted(named)) for number, named in own.items()}

    def _slot(self, route: int, named: Sequence[tuple[str, int]]) -> Slot:
        domains = tuple((stem, self._space.decisions[place].domain) for stem, place in named)
        kind = self._kinds.setdefault(domains, len(self._kinds))
        return Slot(route, np.array([place for _, place in named], dtype=np.intp), kind)


def _condition(decision: Decision, by_name: dict[str, Decision]) -> Condition:
    """What has to be chosen for a decision to be in force."""
    found: list[tuple[str, Value]] = []
    when = decision.when
    while when is not None:
        found.append(when)
        when = by_name[when[0]].when
    return tuple(found)


def _in_common(names: Sequence[str]) -> int:
    """Letters of the words with which all names begin."""
    words = [name.split(".")[:-1] for name in names]
    same = takewhile(lambda column: len({*column}) == 1, zip(*words, strict=False))
    return sum(len(column[0]) + 1 for column in same)
